"""An engine that plays a script: the fake that ships beside the real ones, for tests, demos and rehearsals.

A script is a list of plays, one for each request, or a function from the request to its play. A play is a table of
steps: batches of engine events, pauses, or a silence that only ``aclose`` ends; or the error that ``open`` raises. The
engine keeps the requests it got and how each of its streams ended. Like every engine it ends a stream with a Closed or
a Fault (a Closed is added where the script has neither) and raises nothing once it is open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from msgspec import Struct

from guard.engines.contract import Capabilities, EngineError, EngineRequest, Health
from guard.events import CONTENT, Closed, Done, Fault, FinishReason, Opened, StreamEvent, TextDelta, Usage


class Pause(Struct, frozen=True):
    seconds: float


class Silence(Struct, frozen=True):
    """Nothing more comes; the stream stays open."""


Step = list[StreamEvent] | Pause | Silence


class Play(Struct):
    """One answer. ``error`` is raised by ``open``; ``wait`` is how long (seconds) ``open`` takes."""

    steps: Sequence[Step] = ()
    error: EngineError | None = None
    wait: float = 0.0
    unenforced: tuple[str, ...] = ()


Script = Iterable[Play] | Callable[[EngineRequest], Play]

ALL: Final = Capabilities(
    token_ids_in=True,
    token_ids_out=True,
    constraints=frozenset({"json_schema", "json_object", "regex", "choice", "grammar", "structural_tag"}),
    resume="text",
)


class ScriptedStream:
    def __init__(self, play: Play) -> None:
        self.unenforced = play.unenforced
        self.given: list[StreamEvent] = []
        self.finished = False
        self.closed_early = False
        self._steps = iter(play.steps)
        self._closed = asyncio.Event()

    def __aiter__(self) -> ScriptedStream:
        return self

    async def __anext__(self) -> list[StreamEvent]:
        while not (self.finished or self._closed.is_set()):
            step = next(self._steps, None)
            if isinstance(step, Pause):
                await self._for(step.seconds)
            elif isinstance(step, Silence):
                await self._closed.wait()
            else:
                await asyncio.sleep(0)
                batch: list[StreamEvent] = [Closed(clean=True)] if step is None else list(step)
                if batch and not self._closed.is_set():
                    self.finished = isinstance(batch[-1], Closed | Fault)
                    self.given += batch
                    return batch
        raise StopAsyncIteration

    async def aclose(self) -> None:
        self.closed_early = self.closed_early or not self.finished
        self._closed.set()

    async def _for(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._closed.wait()
        except TimeoutError:
            return


class ScriptedEngine:
    """``requests`` and ``streams`` are in the order of the ``open`` calls (a refused one has no stream)."""

    def __init__(
        self,
        name: str,
        script: Script,
        *,
        capabilities: Capabilities = ALL,
        health: Health | None = None,
    ) -> None:
        self.name = name
        self.capabilities = capabilities
        self.requests: list[EngineRequest] = []
        self.streams: list[ScriptedStream] = []
        self.closed = False
        self._health = health or Health(ok=True)
        if callable(script):
            self._next = script
        else:
            plays = iter(script)
            self._next = lambda _: next(plays, Play(error=EngineError("connect", "the script has no further play")))

    async def open(self, request: EngineRequest) -> ScriptedStream:
        self.requests.append(request)
        play = self._next(request)
        await asyncio.sleep(play.wait)
        if self.closed:
            raise EngineError("connect", "the engine is closed on this side")
        if play.error is not None:
            raise play.error
        stream = ScriptedStream(play)
        self.streams.append(stream)
        return stream

    async def health(self) -> Health:
        return Health(ok=False, detail="closed") if self.closed else self._health

    async def aclose(self) -> None:
        self.closed = True
        for stream in self.streams:
            await stream.aclose()


def answer(*pieces: str, reason: str = "stop", pause: float = 0.0, channel: str = CONTENT) -> Play:
    """An ordinary answer: each piece a batch (a token), the finish reason, usage, [DONE]."""
    steps: list[Step] = [[Opened("scripted-1", "scripted")]]
    for piece in pieces:
        if pause:
            steps.append(Pause(pause))
        steps.append([TextDelta(0, channel, piece)])
    steps.append([FinishReason(0, reason)])
    steps.append([Usage(0, len(pieces), len(pieces)), Done(), Closed(clean=True)])
    return Play(steps)


def telling(text: str, size: int = 4, reason: str = "stop") -> Callable[[EngineRequest], Play]:
    """An engine that always gives this text, ``size`` characters a token: from the start, or from where a prefix of it
    ends; cut (``length``) where the request's tokens are used up."""

    def play(request: EngineRequest) -> Play:
        rest = text.removeprefix(request.prefix.content) if request.prefix is not None else text
        pieces = [rest[i : i + size] for i in range(0, len(rest), size)]
        if request.max_tokens is not None and len(pieces) > request.max_tokens:
            return answer(*pieces[: request.max_tokens], reason="length")
        return answer(*pieces, reason=reason)

    return play
