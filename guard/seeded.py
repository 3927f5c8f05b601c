"""A stream that begins with what the guard itself has to say: what may stand of the attempt before, and what the
constraint forces behind it. Where that makes the answer whole, no engine is asked at all."""

from __future__ import annotations

from guard.engines.contract import EngineStream
from guard.events import Closed, Done, FinishReason, StreamEvent, TextDelta


class Seeded:
    """An EngineStream (guard/engines/contract.py): ``pieces``, then ``rest``; or the end where that is None."""

    def __init__(self, pieces: list[TextDelta], rest: EngineStream | None, choice: int = 0) -> None:
        self.unenforced = () if rest is None else rest.unenforced
        self.raw = getattr(rest, "raw", None)
        self._first: list[StreamEvent] = list(pieces)
        self._rest = rest
        self._batches = None if rest is None else aiter(rest)
        if rest is None:
            self._first += [FinishReason(choice, "stop"), Done(), Closed(clean=True)]

    def __aiter__(self) -> Seeded:
        return self

    async def __anext__(self) -> list[StreamEvent]:
        if self._first:
            first, self._first = self._first, []
            return first
        if self._batches is None:
            raise StopAsyncIteration
        return await anext(self._batches)

    async def aclose(self) -> None:
        if self._rest is not None:
            await self._rest.aclose()
