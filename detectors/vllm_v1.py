"""Ends a collapsed sequence inside vLLM's batch: the logits processor of the V1 model runner.

    vllm serve MODEL --logits-processors detectors.vllm_v1:EndLoops

Optional, and never needed by the sidecar. Importing this module imports vLLM. For the V2 model runner see
detectors/vllm_v2.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from vllm.v1.sample.logits_processor import LogitsProcessor

from detectors.end_loops import check, end_ids, end_rows, wanted
from detectors.token_loop import TokenLoop


class _Sequence:
    """``output`` is the engine's own list of what was generated; it grows, and may end in places not yet known (-1)."""

    __slots__ = ("_read", "loop", "output")

    def __init__(self, output: Sequence[int]) -> None:
        self.output = output
        self.loop = TokenLoop()
        self._read = 0

    def catch_up(self) -> None:
        output = self.output
        while self._read < len(output) and output[self._read] >= 0:
            self.loop.feed((output[self._read],))
            self._read += 1


class EndLoops(LogitsProcessor):  # type: ignore[misc]
    """Follows every sequence of the batch. Looks at tokens only, so its bars are those of detectors/token_loop.py."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self._ends = end_ids(vllm_config)
        self._rows: dict[int, _Sequence] = {}

    @classmethod
    def validate_params(cls, sampling_params: Any) -> None:
        check(sampling_params)

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: Any) -> None:
        rows = self._rows
        if batch_update is not None:
            for index in batch_update.removed:
                rows.pop(index, None)
            for index, params, _, output in batch_update.added:
                rows.pop(index, None)
                if self._ends and wanted(params):
                    rows[index] = _Sequence(output)
            for one, other, direction in batch_update.moved:
                moved, replaced = rows.pop(one, None), rows.pop(other, None)
                if moved is not None:
                    rows[other] = moved
                if replaced is not None and direction.name == "SWAP":
                    rows[one] = replaced
        for sequence in rows.values():
            sequence.catch_up()

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        ended = [index for index, sequence in self._rows.items() if sequence.loop.found is not None]
        if ended:
            end_rows(logits, ended, self._ends)
        return logits
