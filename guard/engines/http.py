"""An HTTP/1.1 client for engines: one keep-alive pool an engine, bodies read as they come.

Rules.
- A pooled connection that turns out to be dead before the first byte of a response is replaced once by a fresh one.
- All that an engine sends is bounded: head, error bodies, whole answers; a stream is bounded by its reader.

What is done for every read of a socket is in http_connection.py and http_exchange.py; here is what waits.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections import deque
from collections.abc import Mapping
from typing import Any, Final, cast
from urllib.parse import urlsplit

from guard.engines.contract import EngineError
from guard.engines.http_connection import Connection
from guard.engines.http_exchange import Exchange, NeverAnswered, TransferError

MAX_ERROR_BYTES: Final = 64 * 1024
MAX_WHOLE_BYTES: Final = 64 * 1024 * 1024
IDLE_SECONDS: Final = 4.0
"""How long a connection waits for its next request: less than the 5 s after which uvicorn and cpp-httplib close it."""
MAX_IDLE: Final = 64

_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_BREAK: Final = re.compile(r"[\r\n\0]")


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
        self._idle: deque[Connection] = deque()
        self._all: set[Connection] = set()
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
                await _head(exchange)
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

    def _take(self, now: float) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.closed or connection.transport is None or connection.transport.is_closing():
                continue
            if now - connection.idle_since > IDLE_SECONDS:
                connection.abandon()
                continue
            return connection
        return None

    async def _connect(self, budget: float) -> Connection:
        if self._closed:
            raise EngineError("connect", "the engine is closed on this side")
        loop = asyncio.get_running_loop()
        new: Any = lambda: Connection(self)  # noqa: E731  it is no asyncio.Protocol by name
        timeout = max(0.001, min(self._connect_timeout, budget))
        try:
            async with asyncio.timeout(timeout):
                _, connection = await loop.create_connection(
                    new,
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
        return cast(Connection, connection)

    def give_back(self, connection: Connection) -> None:
        if self._closed:
            connection.abandon()
            return
        now = asyncio.get_running_loop().time()
        connection.idle_since = now
        self._idle.append(connection)
        while len(self._idle) > MAX_IDLE or now - self._idle[0].idle_since > IDLE_SECONDS:
            self._idle.popleft().abandon()

    def forget(self, connection: Connection) -> None:
        self._all.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)


async def read(exchange: Exchange) -> bytes:
    """What has come of the body since the last call; waits when that is nothing; empty at the end. Raises
    TransferError."""
    while (data := exchange.take()) is None:
        await exchange.more()
    return data


async def whole(exchange: Exchange, limit: int, *, partial: bool = False) -> bytes:
    """The whole body, or its first ``limit`` bytes (the connection is then closed). ``partial``: what came of a body
    that broke off is good enough. Raises TransferError."""
    parts: list[bytes] = []
    size = 0
    try:
        while data := await read(exchange):
            exchange.progress()
            parts.append(data)
            size += len(data)
            if size > limit:
                exchange.close()
                break
    except TransferError:
        if not partial:
            raise
    return b"".join(parts)[:limit]


async def _head(exchange: Exchange) -> None:
    """Wait for status and headers. Raises TransferError or NeverAnswered."""
    while not exchange.has_head():
        await exchange.more()


def _token(name: str) -> str:
    if _NAME.fullmatch(name) is None:
        raise ValueError(f"not a header name: {name!r}")
    return name


def _value(value: str) -> str:
    if _BREAK.search(value) is not None:
        raise ValueError("a header value must be one line")
    return value
