"""The ids of prompts that were rendered, for another attempt at the same. Pure.

Kept are the last ``MOST`` prompts, as long as they have no more than ``MOST_IDS`` ids together (four bytes each). Of a
request only what was rendered is held, to know it again: not its tools, its schema, or what else its body had.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from typing import Any, Final

from guard.request import GenerationRequest

MOST: Final = 512
MOST_IDS: Final = 500_000


class KeptPrompts:
    """By request, whatever is asked of its answer: an attempt changes neither messages nor prompt."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[Any, Any, array[int]]] = OrderedDict()
        self._ids = 0

    def __len__(self) -> int:
        return len(self._kept)

    def of(self, request: GenerationRequest) -> array[int] | None:
        kept = self._kept.get(request.id)
        if kept is None or kept[0] is not request.messages or kept[1] is not request.prompt:
            return None
        self._kept.move_to_end(request.id)
        return kept[2]

    def keep(self, request: GenerationRequest, ids: array[int]) -> None:
        before = self._kept.pop(request.id, None)
        self._ids += len(ids) - (len(before[2]) if before is not None else 0)
        self._kept[request.id] = (request.messages, request.prompt, ids)
        while self._kept and (self._ids > MOST_IDS or len(self._kept) > MOST):
            self._ids -= len(self._kept.popitem(last=False)[1][2])
