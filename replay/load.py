"""What a request runs beside, and where. Pure.

A load is what else is on the engine while an answer is observed; a cell is one engine under one load with its cache in
one state.
"""

from __future__ import annotations

import re
from typing import Final, Literal

from msgspec import Struct

from replay.observation import Cell

LOADS: Final = {
    "alone": "nothing else",
    "copies": "copies of the request itself",
    "others": "other requests of the selection",
    "recorded": "the requests that ran beside it when it was recorded",
    "cancelled": "other requests that are cancelled in the middle and sent again",
}
MAX_AT_ONCE: Final = 1024

Cache = Literal["as_is", "cold", "warm"]


class Load(Struct, frozen=True):
    """``at_once``: requests in flight on the engine, the observed one included."""

    kind: str = "alone"
    at_once: int = 1

    @property
    def name(self) -> str:
        return self.kind if self.kind == "alone" else f"{self.kind}:{self.at_once}"


def read_load(text: str) -> Load:
    """``alone`` or ``copies:8``. Raises ValueError."""
    match = re.fullmatch(r"([a-z]+)(?::(\d+))?", text.strip())
    if match is None or match[1] not in LOADS:
        known = ", ".join(name if name == "alone" else f"{name}:K" for name in LOADS)
        raise ValueError(f"{text!r} is no load (known: {known})")
    kind, count = match[1], match[2]
    if kind == "alone":
        if count not in (None, "1"):
            raise ValueError("alone is one request at a time")
        return Load()
    if count is None or not 2 <= int(count) <= MAX_AT_ONCE:
        raise ValueError(f"{kind} needs how many run at once: {kind}:8 (2 to {MAX_AT_ONCE})")
    return Load(kind, int(count))


class MatrixCell(Struct, frozen=True):
    """``cell`` is what observations say of it; ``lane`` names what its requests compete for: the engine's address."""

    cell: Cell
    load: Load
    cache: Cache
    lane: str

    @property
    def engine(self) -> str:
        return self.cell.engine


class Impossible(Struct, frozen=True):
    engine: str
    what: str
    why: str
