"""An HTTP/1.1 client for engines: one keep-alive pool an engine, bodies read as they come.

Rules.
- A response's body is whatever has arrived since it was last asked for: one wake of the reader a socket read.
- One timer an exchange. It is not re-armed with every read: when it fires it compares the time last seen and sleeps on.
- Reading pauses while more than an eighth of a megabyte waits for the reader; the engine is not blamed for that time.
- Closing an unfinished body closes the socket at once: that is how an engine learns that its work is not wanted.
- A connection goes back to the pool only when its response was complete and both sides keep it alive. A pooled
  connection that turns out to be dead before the first byte of a response is replaced once by a fresh one.
- All that an engine sends is bounded: head, error bodies, whole answers; a stream is bounded by its reader.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Mapping
from typing import Final, cast
from urllib.parse import urlsplit

import httptools

from guard.engines.contract import EngineError
from guard.engines.http_exchange import Exchange, NeverAnswered, TransferError

MAX_HEAD_BYTES: Final = 64 * 1024
MAX_ERROR_BYTES: Final = 64 * 1024
MAX_WHOLE_BYTES: Final = 64 * 1024 * 1024
IDLE_SECONDS: Final = 4.0
"""How long a connection waits for its next request: less than the 5 s after which uvicorn and cpp-httplib close it."""
MAX_IDLE: Final = 64


class _Connection(asyncio.Protocol):
    """One socket and the response parser on it."""

    def __init__(self, pool: HttpPool) -> None:
        self._pool = pool
        self.transport: asyncio.Transport | None = None
        self.exchange: Exchange | None = None
        self.idle_since = 0.0
        self.closed = False
        self._paused = False
        self._fresh_parser()

    def _fresh_parser(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._answered = False  # a byte of this response has come
        self._head_done = False
        self._head_bytes = 0
        self._status = 0
        self._headers: dict[str, str] = {}
        self._finished = False
        self._keep_alive = False

    def send(self, exchange: Exchange, data: bytes) -> None:
        self._fresh_parser()
        self.exchange = exchange
        exchange.begin(self)
        assert self.transport is not None
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

    # --- asyncio.Protocol ----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
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

    def _after_read(self) -> None:
        if self.exchange is not None and not self._head_done and self._head_bytes > MAX_HEAD_BYTES:
            self._fail(f"the engine's response head is longer than {MAX_HEAD_BYTES} bytes")
        exchange = self.exchange
        if exchange is not None:
            exchange.on_read()
        if self._finished:
            self._release()

    def eof_received(self) -> bool:
        self._ended(None)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended(exc)
        self.closed = True
        self._pool.forget(self)

    def _ended(self, exc: Exception | None) -> None:
        self.closed = True
        exchange, self.exchange = self.exchange, None
        if exchange is None:
            return
        if not self._answered:
            exchange.on_error(NeverAnswered(str(exc) if exc else "closed without an answer"))
        elif not self._head_done:
            exchange.on_error(TransferError("protocol", "the connection ended within the response head"))
        elif exc is None and not ({"content-length", "transfer-encoding"} & self._headers.keys()):
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
        exchange, self.exchange = self.exchange, None
        self._finished = False
        if exchange is not None:
            exchange.on_complete()
        transport = self.transport
        if transport is None or self.closed:
            self.abandon()
        elif self._keep_alive and not transport.is_closing() and not transport.get_write_buffer_size():
            self.resume()
            self._pool.give_back(self)
        else:
            self.closed = True
            transport.close()

    # --- httptools -----------------------------------------------------------------------------------------------

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
        status = self._parser.get_status_code()
        if 100 <= status < 200:
            self._headers = {}
            return
        self._status = status
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


class HttpPool:
    """The connections to one engine. ``url`` is its base; ``headers`` go with every request."""

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        connect_timeout: float = 2.0,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"not an http or https address: {url!r}")
        self._host = parts.hostname
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._base = parts.path.rstrip("/")
        self._tls = (ssl_context or ssl.create_default_context()) if parts.scheme == "https" else None
        host = f"[{self._host}]" if ":" in self._host else self._host
        default = 443 if self._tls else 80
        lines = {"host": host if self._port == default else f"{host}:{self._port}"}
        lines |= {"accept-encoding": "identity", "user-agent": "outguard"}
        lines |= {name.lower(): value for name, value in (headers or {}).items()}
        self._head = "".join(f"{_token(name)}: {_value(value)}\r\n" for name, value in lines.items())
        self._connect_timeout = connect_timeout
        self._idle: deque[_Connection] = deque()
        self._all: set[_Connection] = set()
        self._closed = False

    async def send(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        *,
        first: float = 60.0,
        between: float = 20.0,
        total: float = 1800.0,
    ) -> Exchange:
        """Send a request and wait for the head of its response. The timeouts are seconds: to the first piece of the
        body that its reader calls progress, between two such pieces, over all. Raises EngineError."""
        head = f"{method} {self._base}{path} HTTP/1.1\r\n{self._head}"
        for name, value in (headers or {}).items():
            head += f"{_token(name)}: {_value(value)}\r\n"
        if body or method == "POST":
            head += f"content-length: {len(body)}\r\n"
        data = head.encode("latin-1") + b"\r\n" + body
        loop = asyncio.get_running_loop()
        deadline = loop.time() + total
        fresh = False
        while True:
            connection = None if fresh else self._take(loop.time())
            reused = connection is not None
            if connection is None:
                connection = await self._connect(deadline - loop.time())
            exchange = Exchange(loop, first, between, max(0.001, deadline - loop.time()))
            connection.send(exchange, data)
            try:
                await exchange.head()
            except NeverAnswered as error:
                if reused:
                    fresh = True
                    continue
                raise EngineError("connect", f"the engine closed the connection: {error}") from error
            except TransferError as error:
                raise EngineError(error.kind, error.message) from error
            except BaseException:
                exchange.close()
                raise
            return exchange

    async def aclose(self) -> None:
        """Close every connection, also those at work."""
        self._closed = True
        for connection in list(self._all):
            exchange = connection.exchange
            connection.abandon()
            if exchange is not None:
                exchange.on_error(TransferError("cut", "the engine was closed on this side"))
        self._idle.clear()

    def _take(self, now: float) -> _Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.closed or connection.transport is None or connection.transport.is_closing():
                continue
            if now - connection.idle_since > IDLE_SECONDS:
                connection.abandon()
                continue
            return connection
        return None

    async def _connect(self, budget: float) -> _Connection:
        if self._closed:
            raise EngineError("connect", "the engine is closed on this side")
        loop = asyncio.get_running_loop()
        timeout = max(0.001, min(self._connect_timeout, budget))
        try:
            async with asyncio.timeout(timeout):
                _, connection = await loop.create_connection(
                    lambda: _Connection(self),
                    self._host,
                    self._port,
                    ssl=self._tls,
                    server_hostname=self._host if self._tls else None,
                )
        except TimeoutError as error:
            message = f"no connection to {self._host}:{self._port} within {timeout:g} s"
            raise EngineError("connect_timeout", message) from error
        except (OSError, ssl.SSLError) as error:
            message = f"no connection to {self._host}:{self._port}: {error.strerror or error}"
            raise EngineError("connect", message) from error
        self._all.add(connection)
        return connection

    def give_back(self, connection: _Connection) -> None:
        if self._closed:
            connection.abandon()
            return
        now = asyncio.get_running_loop().time()
        connection.idle_since = now
        self._idle.append(connection)
        while len(self._idle) > MAX_IDLE or now - self._idle[0].idle_since > IDLE_SECONDS:
            self._idle.popleft().abandon()

    def forget(self, connection: _Connection) -> None:
        self._all.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)


def _token(name: str) -> str:
    if not name or not name.isascii() or any(c in ' \t\r\n:"(),/;<=>?@[\\]{}' or ord(c) < 33 for c in name):
        raise ValueError(f"not a header name: {name!r}")
    return name


def _value(value: str) -> str:
    if any(c in "\r\n\0" for c in value):
        raise ValueError("a header value must be one line")
    return value
