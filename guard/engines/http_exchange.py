"""One HTTP exchange as whoever reads it sees it: head, body as it comes, the time limits, the end.

The connection that carries it calls the ``on_...`` methods; the reader takes what has come, and awaits ``more``.
Neither waits for the other. Rules.

- Reading pauses while more than an eighth of a megabyte waits for the reader; the engine is not blamed for that time.
- One timer an exchange. It is not re-armed with every read: when it fires it compares the time last seen and sleeps on.
- Closing an unfinished body closes the socket at once: that is how an engine learns that its work is not wanted.
- A reader that is in no hurry may let the connection ``rest``, so that more comes with one read.
- A reader that waits may leave a ``relay`` to be called after each read of the socket instead of being woken; it takes
  what has come, and wakes the reader itself if anything is left for it to do.

No coroutine is here, so that it can be compiled; what waits on it is in http.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Literal, Protocol

PAUSE_BYTES: Final = 128 * 1024
"""Unread bytes above which the socket is not read any more, until its reader has taken them."""

TransferKind = Literal["cut", "stall", "first_token_timeout", "total_timeout", "protocol"]


class TransferError(Exception):
    """A body that cannot be read on. ``kind`` is the kind of the Fault that it becomes."""

    def __init__(self, kind: TransferKind, message: str) -> None:
        super().__init__(message)
        self.kind: TransferKind = kind
        self.message = message


class NeverAnswered(Exception):
    """The connection ended before one byte of a response."""


class Carrier(Protocol):
    """What an exchange may ask of the connection that carries it."""

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def abandon(self) -> None: ...


class Exchange:
    """One request and its response. ``status`` and ``headers`` (lower-case names) are there with ``has_head``."""

    def __init__(self, loop: asyncio.AbstractEventLoop, first: float, between: float, total: float) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.loop = loop
        self._first, self._between = first, between
        self._connection: Carrier | None = None
        self._chunks: list[bytes] = []
        self._unread = 0
        self._paused = False
        self._rest: asyncio.TimerHandle | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._head_seen = False
        self._complete = False
        self._error: Exception | None = None
        self._started = False
        self._limit = first
        self._last = loop.time()
        self._total_at = self._last + total
        self._total = total
        self._timer: asyncio.TimerHandle | None = None
        self.relay: Callable[[], None] | None = None

    # --- for whoever reads ---------------------------------------------------------------------------------------

    def has_head(self) -> bool:
        """Whether status and headers are there. Raises TransferError or NeverAnswered when they will not come."""
        if not self._head_seen and self._error is not None:
            raise self._error
        return self._head_seen

    def take(self, most: int | None = None) -> bytes | None:
        """What has come of the body since the last call: None when that is nothing, empty at the end. ``most``: no
        further piece is taken once there are so many bytes. Raises TransferError."""
        chunks = self._chunks
        if not chunks:
            if self._complete:
                return b""
            if self._error is not None:
                raise self._error
            return None
        if most is not None and self._unread > most:
            taken = count = 0
            while taken < most:
                taken += len(chunks[count])
                count += 1
            data = b"".join(chunks[:count])
            del chunks[:count]
        else:
            data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
            chunks.clear()
        self._unread -= len(data)
        if self._paused and self._unread <= PAUSE_BYTES and self._connection is not None:
            self._paused = False
            if self._rest is None:
                self._connection.resume()
        return data

    def more(self) -> asyncio.Future[None]:
        """Done when there is something to take, or the end; one at a time."""
        self._waiter = waiter = self.loop.create_future()
        return waiter

    def progress(self) -> float:
        """The reader got something out of what it read: the wait for the next piece begins now. Returns how long it has
        waited for this one."""
        now: float = self.loop.time()
        waited = now - self._last
        self._last = now
        if not self._started:
            self._started = True
            self._limit = self._between
            self._arm()
        return waited

    def rest(self, seconds: float) -> None:
        """Let come what comes in this time, and read it at once then."""
        if self._connection is not None and self._rest is None:
            self._connection.pause()
            self._rest = self.loop.call_later(seconds, self._rested)

    def linger(self, seconds: float) -> None:
        """The answer is complete: wait only this long for the body's own end."""
        self._limit = min(self._limit, seconds)
        self._arm()

    @property
    def complete(self) -> bool:
        """The response has arrived whole (though it may not be read yet)."""
        return self._complete

    def close(self) -> None:
        """The rest is not wanted. Closes the socket at once unless the response is complete."""
        self._stop()
        self._chunks.clear()
        if self._connection is not None:
            self._connection.abandon()
        if not self._complete and self._error is None:
            self._error = TransferError("cut", "the exchange was closed on this side")
        self.wake()

    # --- for the connection --------------------------------------------------------------------------------------

    def begin(self, connection: Carrier) -> None:
        self._connection = connection
        self._last = self.loop.time()
        self._arm()

    def on_head(self, status: int, headers: dict[str, str]) -> None:
        self.status, self.headers = status, headers
        self._head_seen = True
        self.wake()

    def on_body(self, data: bytes) -> None:
        self._chunks.append(data)
        self._unread += len(data)
        if self._unread > PAUSE_BYTES and self._connection is not None:
            self._paused = True
            self._connection.pause()
        if self.relay is None:
            self.wake()

    def on_read(self) -> None:
        """One read of the socket is over."""
        if self.relay is not None and self._chunks:
            self.relay()

    def on_complete(self) -> None:
        self._complete = True
        self._connection = None
        self._stop()
        self.wake()

    def on_error(self, error: Exception) -> None:
        if self._complete or self._error is not None:
            return
        self._error = error
        self._connection = None
        self._stop()
        self.wake()

    # --- waiting and time ----------------------------------------------------------------------------------------

    def wake(self) -> None:
        waiter = self._waiter
        if waiter is not None:
            self._waiter = None
            if not waiter.done():
                waiter.set_result(None)

    def _arm(self) -> None:
        self._stop_timer()
        if not self._complete and self._error is None:
            self._timer = self.loop.call_at(min(self._last + self._limit, self._total_at), self._tick)

    def _rested(self) -> None:
        self._rest = None
        if self._connection is not None and not self._paused:
            self._connection.resume()

    def _stop(self) -> None:
        """The response is over: nothing is timed any more."""
        self._stop_timer()
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        self._timer = None
        now = self.loop.time()
        if now >= self._total_at:
            self._expire("total_timeout", f"the answer was not complete within {self._total:g} s")
            return
        if self._chunks:
            self._last = now  # its reader is slow, not the engine
        if now >= self._last + self._limit - 0.001:
            if self._started:
                self._expire("stall", f"nothing came for {self._limit:g} s")
            else:
                self._expire("first_token_timeout", f"the first token did not come within {self._limit:g} s")
            return
        self._arm()

    def _expire(self, kind: TransferKind, message: str) -> None:
        connection = self._connection
        self.on_error(TransferError(kind, message))
        if connection is not None:
            connection.abandon()
