"""What the in-engine forms share: which tokens end an answer, which requests want it, and how a row is ended.

A collapsed sequence is ended by leaving it no token but the end of sequence. The engine then reports "stop"; the
sidecar in front of it sees the loop in the text all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch

OPTION: Final = "outguard_end_loops"
"""A request may say false to this among its extra arguments."""


def end_ids(config: Any) -> list[int]:
    """The end-of-sequence ids in an engine's configuration; with none of them nothing is ever ended."""
    found: Any = getattr(getattr(config.model_config, "hf_config", None), "eos_token_id", None)
    if found is None:
        return []
    return [int(found)] if isinstance(found, int) else [int(token) for token in found]


def check(params: Any) -> None:
    """Raises ValueError for an option that is no boolean."""
    value = (getattr(params, "extra_args", None) or {}).get(OPTION, True)
    if not isinstance(value, bool):
        raise ValueError(f"{OPTION} must be true or false, and is {value!r}")


def wanted(params: Any) -> bool:
    """Not for a request that asked to go on past the end, nor for one that said no."""
    if getattr(params, "ignore_eos", False):
        return False
    return bool((getattr(params, "extra_args", None) or {}).get(OPTION, True))


def end_rows(logits: torch.Tensor, rows: Sequence[int], ends: Sequence[int]) -> None:
    """Leave the given rows nothing but the end, in place."""
    index = torch.tensor(rows, device=logits.device)
    logits[index] = float("-inf")
    logits[index.unsqueeze(1), torch.tensor(ends, device=logits.device).unsqueeze(0)] = 0.0
