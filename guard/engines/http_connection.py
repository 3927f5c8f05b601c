"""One connection to an engine: a socket, the parser of the response on it, the exchange under way.

Rules.
- A response's body is whatever has arrived since it was last asked for: one wake of the reader a socket read.
- The socket of an unfinished response is closed as soon as nobody wants it: that is how an engine learns of it.
- A connection goes back to its pool only when its response was complete and both sides keep it alive.

It is what an asyncio.Protocol is without inheriting from it, and holds no coroutine, so that it can be compiled: a read
of the socket comes through here.
"""

from __future__ import annotations

import socket
from typing import Any, Final, Protocol

import httptools

from guard.engines.http_exchange import Exchange, NeverAnswered, TransferError

MAX_HEAD_BYTES: Final = 64 * 1024


class Owner(Protocol):
    """Whoever made the connection."""

    def give_back(self, connection: Connection) -> None:
        """It is free for another exchange."""
        ...

    def forget(self, connection: Connection) -> None:
        """It is closed."""
        ...


class Connection:
    """One socket and the response parser on it."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self.transport: Any = None
        self.exchange: Exchange | None = None
        self.idle_since = 0.0
        self.closed = False
        self._paused = False
        self._fresh()

    def _fresh(self) -> None:
        self._parser: Any = None
        self._answered = False  # a byte of this response has come
        self._head_done = False
        self._head_bytes = 0
        self._headers: dict[str, str] = {}
        self._finished = False
        self._keep_alive = False

    def send(self, exchange: Exchange, data: bytes) -> None:
        self._fresh()
        self._parser = httptools.HttpResponseParser(self)
        self.exchange = exchange
        exchange.begin(self)
        self.transport.write(data)

    def pause(self) -> None:
        if not self._paused and self.transport is not None:
            self._paused = True
            self.transport.pause_reading()

    def resume(self) -> None:
        if self._paused and self.transport is not None:
            self._paused = False
            self.transport.resume_reading()

    def abandon(self) -> None:
        """Close the socket now; whoever waits for this exchange has been told."""
        self.exchange = None
        self.closed = True
        if self.transport is not None:
            self.transport.abort()

    # --- what an asyncio.Protocol is asked ---------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        raw = transport.get_extra_info("socket")
        if raw is not None and raw.family in (socket.AF_INET, socket.AF_INET6):
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        if self.exchange is None:
            self.abandon()  # an idle connection has nothing to say
            return
        self._answered = True
        if not self._head_done:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail("the engine wants to switch protocols")
        except httptools.HttpParserError as error:
            if self._finished:
                self.closed = True  # bytes after a complete response: it stands, the connection does not
            else:
                self._fail(f"the engine's answer is no HTTP: {error}")
        self._after_read()

    def eof_received(self) -> bool:
        self._ended(None)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended(exc)
        self.closed = True
        self._owner.forget(self)

    def pause_writing(self) -> None:
        """A request is written whole, however long it takes."""

    def resume_writing(self) -> None:
        pass

    # --- inside ------------------------------------------------------------------------------------------------------

    def _after_read(self) -> None:
        if not self._head_done and self.exchange is not None and self._head_bytes > MAX_HEAD_BYTES:
            self._fail(f"the engine's response head is longer than {MAX_HEAD_BYTES} bytes")
        exchange = self.exchange
        if exchange is not None:
            exchange.on_read()
        if self._finished:
            self._release()

    def _ended(self, exc: Exception | None) -> None:
        self.closed = True
        exchange = self.exchange
        self.exchange = None
        if exchange is None:
            return
        if not self._answered:
            exchange.on_error(NeverAnswered(str(exc) if exc else "closed without an answer"))
        elif not self._head_done:
            exchange.on_error(TransferError("protocol", "the connection ended within the response head"))
        elif exc is None and not ("content-length" in self._headers or "transfer-encoding" in self._headers):
            exchange.on_complete()  # a body that is framed by the end of the connection
        else:
            why = f": {exc.__class__.__name__}" if exc else ""
            exchange.on_error(TransferError("cut", f"the connection ended in the middle of the answer{why}"))

    def _fail(self, message: str) -> None:
        exchange = self.exchange
        self.abandon()
        if exchange is not None:
            exchange.on_error(TransferError("protocol", message))

    def _release(self) -> None:
        """The response is complete: the connection is free, or it closes."""
        exchange = self.exchange
        self.exchange = None
        self._finished = False
        if exchange is not None:
            exchange.on_complete()
        transport = self.transport
        if transport is None or self.closed:
            self.abandon()
        elif self._keep_alive and not transport.is_closing() and not transport.get_write_buffer_size():
            self.resume()
            self._owner.give_back(self)
        else:
            self.closed = True
            transport.close()

    # --- what the parser says ----------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._finished:
            self.closed = True  # an answer to no question

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._finished:
            return
        key = name.decode("latin-1").lower()
        text = value.decode("latin-1")
        self._headers[key] = f"{self._headers[key]}, {text}" if key in self._headers else text

    def on_headers_complete(self) -> None:
        if self._finished:
            return
        status: int = self._parser.get_status_code()
        if 100 <= status < 200:
            self._headers = {}
            return
        self._head_done = True
        if self.exchange is not None:
            self.exchange.on_head(status, self._headers)

    def on_body(self, body: bytes) -> None:
        if self.exchange is not None and not self._finished:
            self.exchange.on_body(body)

    def on_message_complete(self) -> None:
        if self._head_done:
            self._finished = True
            self._keep_alive = self._parser.should_keep_alive()  # the parser knows only now
