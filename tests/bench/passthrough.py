"""A proxy that only passes bytes on, on the very libraries that the sidecar stands on: uvicorn, uvloop, httptools.

It is the yardstick of the bench: measured in the same rounds it says what the machine makes of the same sockets and the
same loop without any guard, and so what is ours of a number and what is the machine's.

    python -m tests.bench.passthrough URL      prints "http HOST:PORT", serves until SIGTERM
"""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from typing import Any, cast
from urllib.parse import urlsplit

import httptools
import uvicorn
import uvloop


class Upstream(asyncio.Protocol):
    """One kept-alive connection to the engine; one request at a time."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self._pieces: list[bytes] = []
        self._waiter: asyncio.Future[None] | None = None
        self._ended = False
        self.headers: list[tuple[bytes, bytes]] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        raw = transport.get_extra_info("socket")
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def request(self, body: bytes) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._ended = False
        self.headers = []
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: engine\r\ncontent-type: application/json\r\n"
        assert self.transport is not None
        self.transport.write(head + b"content-length: %d\r\n\r\n" % len(body) + body)

    async def read(self) -> bytes:
        """What has come; empty at the end."""
        while not self._pieces and not self._ended:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        data = b"".join(self._pieces)
        self._pieces.clear()
        return data

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)
        if (waiter := self._waiter) is not None:
            self._waiter = None
            if not waiter.done():
                waiter.set_result(None)

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() in (b"content-type", b"content-length"):
            self.headers.append((name.lower(), value))

    def on_body(self, body: bytes) -> None:
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        self._ended = True


class Proxy:
    def __init__(self, host: str, port: int) -> None:
        self._address = host, port
        self._idle: list[Upstream] = []

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        body = b""
        more = True
        while more:
            message = await receive()
            body += message["body"]
            more = message["more_body"]
        if self._idle:
            upstream = self._idle.pop()
        else:
            _, upstream = await asyncio.get_running_loop().create_connection(Upstream, *self._address)
        upstream.request(body)
        data = await upstream.read()
        await send({"type": "http.response.start", "status": 200, "headers": upstream.headers})
        while data:
            await send({"type": "http.response.body", "body": data, "more_body": True})
            data = await upstream.read()
        self._idle.append(upstream)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def serve(url: str) -> None:
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
    config = uvicorn.Config(
        Proxy(parts.hostname, parts.port),
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
    )
    server = uvicorn.Server(config)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, setattr, server, "should_exit", True)
    print("http {}:{}".format(*listener.getsockname()), flush=True)
    await server.serve(sockets=[listener])


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1]))
