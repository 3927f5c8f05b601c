"""Stop strings at the place where an answer goes on: one may have begun in what the caller already holds.

The engine that goes on knows only what it says itself, so it cannot see such a stop string. Here the first words of its
stream are read together with the last ones that were delivered; then everything passes as it comes. What was delivered
of a stop string stays delivered, and the answer ends there, with the reason that the engine would have given.
"""

from __future__ import annotations

from collections.abc import Sequence

from guard.engines.contract import EngineStream
from guard.engines.token_text import TokenText
from guard.events import CONTENT, Closed, Done, FinishReason, StreamEvent, TextDelta


class Seam:
    """An EngineStream (guard/engines/contract.py): ``rest`` behind ``before``, ended by the first of ``stops``."""

    def __init__(self, rest: EngineStream, stops: Sequence[str], before: str) -> None:
        self.unenforced = rest.unenforced
        self._rest = rest
        self._batches = aiter(rest)
        self._reach = max(map(len, stops), default=1) - 1
        self._text: TokenText[TextDelta] | None = TokenText(stops, before[-self._reach :] if self._reach else "")
        self._ended = False

    def __aiter__(self) -> Seam:
        return self

    async def __anext__(self) -> list[StreamEvent]:
        if self._ended:
            raise StopAsyncIteration
        events = await anext(self._batches)
        return events if self._text is None else self._read(events)

    async def aclose(self) -> None:
        await self._rest.aclose()

    def _read(self, events: list[StreamEvent]) -> list[StreamEvent]:
        out: list[StreamEvent] = []
        for event in events:
            text = self._text
            if text is None:
                out.append(event)
            elif isinstance(event, TextDelta) and event.channel == CONTENT:
                self._say(*text.feed(event.text.encode("utf-8", "surrogatepass"), event), out)
                self._reach -= len(event.text)
                if text.matched is not None:
                    self._ended = True
                    return [*out, FinishReason(event.choice, "stop", text.matched), Done(), Closed(clean=True)]
                if self._reach <= 0 and text.idle:
                    self._text = None
            else:
                if isinstance(event, FinishReason):
                    self._text = None
                    self._say(*text.finish(), out)
                out.append(event)
        return out

    def _say(self, text: str, came: Sequence[TextDelta], out: list[StreamEvent]) -> None:
        ids = [token for delta in came for token in delta.token_ids or ()]
        entries = [entry for delta in came for entry in delta.logprobs or ()]
        if text or ids or entries:
            count = sum(delta.count for delta in came)
            out.append(TextDelta(0, CONTENT, text, tuple(ids) or None, entries or None, count))
