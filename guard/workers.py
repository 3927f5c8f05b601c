"""The worker processes of one reading of the configuration: started, replaced when they end unasked, and ended.

The first shows whether the configuration can be served, and the others start when it can. A worker that ends unasked is
replaced after a pause, which doubles while that goes on; the others never notice.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import Coroutine, Sequence
from typing import Any, Final

import msgspec

from guard.addresses import Addresses
from guard.config import Config
from guard.shared import Table
from guard.worker_messages import MAX_LINE, Assignment, Draining, Message, Page, Ready, Turn, decode, encode

log: Final = logging.getLogger(__name__)

RESTART_SECONDS: Final = (0.2, 10.0)
"""The first and the longest pause before a worker that ended is replaced."""

STEADY_SECONDS: Final = 30.0
"""A worker that lived so long ended for another reason than the one before it."""

START_SECONDS: Final = 300.0
"""One that takes no requests by then never will; a model in the worker's own process takes minutes to load."""

STOP_SECONDS: Final = 45.0
"""A worker that was told to end has its drain and its trace writer's end; then it is killed."""


class StartFailed(Exception):
    """A worker ended before it took requests; it has said why on standard error."""

    def __init__(self, code: int) -> None:
        super().__init__(f"a worker {_ended_with(code)} before it took requests")
        self.code = code


class Workers:
    """``text``: the configuration as it was read; ``command`` starts a worker. ``draining``: what an operator has said
    of engines, of one set and the next. ``table``: what the workers of all sets share."""

    def __init__(
        self,
        config: Config,
        text: str,
        addresses: Addresses,
        command: Sequence[str],
        draining: dict[str, bool],
        table: Table,
    ) -> None:
        self._table = table
        self._places = table.places(config)
        self._seats: dict[int, int] = {}
        self._count = config.workers
        self._text = text
        self._addresses = addresses
        self._command = command
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._channels: dict[int, asyncio.StreamWriter] = {}
        self._draining = draining
        self._hearing: set[asyncio.Task[None]] = set()
        self._keepers: list[asyncio.Task[None]] = []
        self._ending = False

    async def start(self) -> None:
        """Until all take requests. Raises StartFailed or OSError, and none is left then."""
        try:
            await self._start(0)
            rest = (self._start(slot) for slot in range(1, self._count))
            for failed in await asyncio.gather(*rest, return_exceptions=True):
                if failed is not None:
                    raise failed
        except BaseException:
            await self.end()
            raise
        self._keepers = [asyncio.create_task(self._keep(slot)) for slot in range(self._count)]

    def tell(self) -> None:
        """That they are to end, each when its answers have."""
        if not self._ending:
            self._ending = True
            self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._ending = True
        self._signal(signal.SIGKILL)

    async def end(self) -> None:
        """Tell them, and wait until they have."""
        self.tell()
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        await asyncio.gather(*(_ended(process) for process in self._processes.values()))

    def _signal(self, number: int) -> None:
        for process in self._processes.values():
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)

    async def _start(self, slot: int) -> None:
        http = self._addresses.http(slot)
        seat = self._table.seat()
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=MAX_LINE,
                pass_fds=(self._table.fd, *(() if http is None else (http,))),
                start_new_session=True,  # a Ctrl-C is for the supervisor, which then ends its workers in order
            )
        except BaseException:
            self._table.clear(seat)
            raise
        self._seats[slot] = seat
        self._background(self._rise(seat, process))
        self._processes[slot] = process
        if self._ending:  # since a moment ago
            process.terminate()
        assert process.stdin is not None
        assignment = Assignment(self._text, slot, http, self._addresses.grpc, self._table.fd, seat, *self._places)
        process.stdin.write(encode(assignment))
        try:
            async with asyncio.timeout(START_SECONDS):
                if await self._next(process) != Ready():
                    raise StartFailed(await process.wait())
        except TimeoutError:
            process.kill()
            raise StartFailed(await process.wait()) from None
        log.info("worker %d (process %d) takes requests", slot, process.pid)
        self._channels[slot] = process.stdin
        for engine, draining in self._draining.items():
            process.stdin.write(encode(Draining(engine, draining)))
        self._background(self._hear(slot, process))

    def _background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._hearing.add(task)
        task.add_done_callback(self._hearing.discard)

    async def _rise(self, seat: int, process: asyncio.subprocess.Process) -> None:
        """When it has ended, however that was, what it had under way is not."""
        await process.wait()
        self._table.clear(seat)

    async def _next(self, process: asyncio.subprocess.Process) -> Message | None:
        """What it says next; None at its end."""
        assert process.stdout is not None
        while line := await process.stdout.readline():
            try:
                return decode(line)
            except msgspec.DecodeError:
                log.warning("process %d says what is no message", process.pid)
        return None

    async def _hear(self, slot: int, process: asyncio.subprocess.Process) -> None:
        """Pass on what it says to those that it is for."""
        while (message := await self._next(process)) is not None:
            if isinstance(message, Draining):
                self._draining[message.engine] = message.draining
            for other, channel in self._channels.items():
                if other != slot and self._concerns(message, other):
                    channel.write(encode(message))
        if self._processes[slot] is process:
            del self._channels[slot]

    def _concerns(self, message: Message, slot: int) -> bool:
        if isinstance(message, Page):
            return slot == message.to
        return not isinstance(message, Turn) or self._seats[slot] == message.seat

    async def _keep(self, slot: int) -> None:
        pause, longest = RESTART_SECONDS
        began = time.monotonic()
        while True:
            process = self._processes[slot]
            code = await process.wait()
            if self._ending:
                return
            self._addresses.give_up(slot)
            log.error("worker %d (process %d) %s and is replaced", slot, process.pid, _ended_with(code))
            if time.monotonic() - began > STEADY_SECONDS:
                pause = RESTART_SECONDS[0]
            await asyncio.sleep(pause)
            pause = min(pause * 2, longest)
            began = time.monotonic()
            try:
                await self._start(slot)
            except StartFailed:
                pass  # its end is seen above
            except OSError as error:
                log.error("worker %d cannot be started: %s", slot, error)


async def _ended(process: asyncio.subprocess.Process) -> None:
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        log.error("process %d did not end within %g s and is killed", process.pid, STOP_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def _ended_with(code: int) -> str:
    return f"ended with exit code {code}" if code >= 0 else f"was ended by {signal.Signals(-code).name}"
