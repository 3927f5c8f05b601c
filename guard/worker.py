"""One of several workers, seen from inside: what its supervisor (guard/supervisor.py) tells it, and what it answers for
all of them.

Its standard input stays open as long as the supervisor lives; at its end the worker ends, too, in order. An operator
who drains an engine, or wants the metrics, reaches one worker and means them all: the others are told, or asked.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from typing import Final

import msgspec

from guard.events import GuardEvent
from guard.request import GenerationRequest
from guard.service import CheckSession, Deliver, EngineStatus, ModelInfo, Outcome, Service
from guard.trace.metrics_page import merged
from guard.worker_messages import MAX_LINE, Assignment, Draining, Message, Page, PageWanted, Ready, Turn, decode, encode

log: Final = logging.getLogger(__name__)

PAGE_SECONDS: Final = 1.0
"""How long the others' metrics are waited for; who does not answer is left out, and is being replaced."""


def receive_assignment() -> Assignment:
    """From standard input. Raises EOFError where the supervisor has gone."""
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(0, 1 << 16)
        if not piece:
            raise EOFError("the supervisor has gone")
        line += piece
    return msgspec.json.decode(line, type=Assignment)


class OneOfSeveral:
    """The service of the worker ``slot`` of ``count``: that of this process, but for what concerns them all.
    ``on_turn``: a place has come free elsewhere that is for who waits here."""

    def __init__(self, own: Service, slot: int, count: int, on_turn: Callable[[], None]) -> None:
        self._own = own
        self._on_turn = on_turn
        self._slot = slot
        self._count = count
        self._numbers = itertools.count()
        self._wanted: dict[int, _Wanted] = {}
        self._out: asyncio.WriteTransport | None = None
        self._listening: asyncio.Task[None] | None = None

    # --- the supervisor ----------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Hear the supervisor, and say that requests are taken."""
        loop = asyncio.get_running_loop()
        heard = asyncio.StreamReader(limit=MAX_LINE)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(heard), sys.stdin)
        self._out, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, sys.stdout)
        self._listening = asyncio.create_task(self._listen(heard), name="supervisor")
        self._say(Ready())

    async def aclose(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)

    async def _listen(self, heard: asyncio.StreamReader) -> None:
        while line := await heard.readline():
            await self._hear(decode(line))
        log.warning("the supervisor has gone, so this worker ends")
        os.kill(os.getpid(), signal.SIGTERM)

    async def _hear(self, message: Message) -> None:
        match message:
            case Draining(engine, draining):
                self._own.drain(engine, draining)
            case Turn():
                self._on_turn()
            case PageWanted(by, number):
                _, page = await self._own.metrics()
                self._say(Page(by, number, self._slot, page.decode()))
            case Page(_, number, slot, text) if number in self._wanted:
                self._wanted[number].add(str(slot), text.encode())
            case _:
                pass  # a page that came too late

    def _say(self, message: Message) -> None:
        if self._out is not None and not self._out.is_closing():
            self._out.write(encode(message))

    def turn(self, seat: int) -> None:
        """It is the turn of who waits in the worker that sits there."""
        self._say(Turn(seat))

    # --- the service -------------------------------------------------------------------------------------------------

    def drain(self, engine: str, draining: bool) -> bool:
        known = self._own.drain(engine, draining)
        if known:
            self._say(Draining(engine, draining))
        return known

    async def metrics(self) -> tuple[str, bytes]:
        number = next(self._numbers)
        kind, page = await self._own.metrics()
        wanted = self._wanted[number] = _Wanted(self._count)
        wanted.add(str(self._slot), page)
        self._say(PageWanted(self._slot, number))
        try:
            await asyncio.wait_for(wanted.complete.wait(), PAGE_SECONDS)
        except TimeoutError:
            log.warning("%d of %d workers did not tell their metrics", self._count - len(wanted.pages), self._count)
        finally:
            del self._wanted[number]
        return kind, merged(dict(sorted(wanted.pages.items())))

    def generate(self, request: GenerationRequest, deliver: Deliver | None = None) -> AsyncIterator[list[GuardEvent]]:
        return self._own.generate(request, deliver)

    async def check(self, request: GenerationRequest) -> CheckSession:
        return await self._own.check(request)

    def report_outcome(self, outcome: Outcome) -> None:
        self._own.report_outcome(outcome)

    def models(self) -> list[ModelInfo]:
        return self._own.models()

    async def engines(self) -> list[EngineStatus]:
        return await self._own.engines()

    def ready(self) -> tuple[bool, str]:
        return self._own.ready()


class _Wanted:
    """The pages that have come of those of ``count`` workers."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.pages: dict[str, bytes] = {}
        self.complete = asyncio.Event()

    def add(self, worker: str, page: bytes) -> None:
        self.pages[worker] = page
        if len(self.pages) == self._count:
            self.complete.set()
