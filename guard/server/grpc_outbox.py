"""The way of one call's messages into gRPC, which takes one at a time.

- What comes while a message is being written waits, and goes out joined, in as few messages as it makes: the cost a
  token falls as load grows, and a lone token is never delayed.
- ``take`` and ``push`` are the short way (guard/relay.py): the task that answers the call is not woken. ``write`` is
  the long way. Both keep the order in which things came.
- A caller that does not read fills it, and then the short way is closed: the engine waits for the caller.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from guard.events import GuardEvent

MOST_WAITING: Final = 64
"""Events that may wait beside the message that is being written: with delta after delta of one channel, one message."""


class Outbox:
    """``encode`` makes the messages of a batch, ``send`` returns once gRPC can take the next."""

    def __init__(
        self, encode: Callable[[Sequence[GuardEvent]], list[Any]], send: Callable[[Any], Awaitable[None]]
    ) -> None:
        self._encode = encode
        self._send = send
        self._waiting: list[GuardEvent] = []
        self._writer: asyncio.Task[None] | None = None
        self._wake: asyncio.Future[None] | None = None  # the writer has nothing to do
        self._idle: asyncio.Future[None] | None = None  # somebody waits for that
        self._loop = asyncio.get_running_loop()

    def take(self, batch: list[GuardEvent]) -> bool:
        """Take a batch on its way. False: it cannot, and has not."""
        if len(self._waiting) >= MOST_WAITING:
            return False
        if self._writer is None:
            self._writer = self._loop.create_task(self._run())
        elif self._writer.done():
            return False  # ``write`` says why
        self._waiting += batch
        return True

    def push(self) -> None:
        if self._wake is not None and self._waiting:
            self._wake.set_result(None)
            self._wake = None

    async def write(self, batch: Sequence[GuardEvent]) -> None:
        """Write a batch behind what was delivered. Raises what writing raised."""
        await self._drained()
        for message in self._encode(batch):
            await self._send(message)

    def close(self) -> None:
        """Nothing more is written."""
        writer = self._writer
        if writer is None:
            return
        if not writer.done():
            writer.cancel()
        elif not writer.cancelled():
            writer.exception()  # whoever closes knows that the call is over

    async def _drained(self) -> None:
        writer = self._writer
        if writer is None:
            return
        if not writer.done() and (self._waiting or self._wake is None):
            self._idle = self._loop.create_future()
            await asyncio.wait((writer, self._idle), return_when=asyncio.FIRST_COMPLETED)
        if writer.done():
            writer.result()

    async def _run(self) -> None:
        while True:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                for message in self._encode(batch):
                    await self._send(message)
            if self._idle is not None:
                if not self._idle.done():
                    self._idle.set_result(None)
                self._idle = None
            self._wake = wake = self._loop.create_future()
            await wake
