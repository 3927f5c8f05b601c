"""How many tokens a second the torch form scans, by the CPU time that it takes, whatever else the machine does."""

from __future__ import annotations

import time

import torch

from detectors.tensor import scan


def measure(rows: int = 256, tokens: int = 4_096) -> float:
    """Sequences of honest length; one in sixteen ends in a loop."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, 50_000, (rows, tokens), generator=generator)
    for row in range(0, rows, 16):
        period = 1 + row % 40
        unit = ids[row, :period]
        ids[row, tokens // 2 :] = unit.repeat(tokens)[: tokens - tokens // 2]
    scan(ids[:8])
    best = float("inf")
    for _ in range(3):
        began = time.process_time()
        scan(ids)
        best = min(best, time.process_time() - began)
    return rows * tokens / best * torch.get_num_threads()
