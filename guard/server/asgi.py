"""The few things an HTTP answer needs of ASGI, and the uvicorn server it runs in.

No framework: a body is read under a limit, a client that goes away cancels the task that works for it, and an answer is
two messages. The server takes no signals and binds its socket when it is made, so that a port in use is an OSError at
startup and port 0 can be asked for its number.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable, Generator, Iterable
from types import TracebackType
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from guard.server.direct import Direct, framed
from guard.server.listener import BACKLOG, listening

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

JSON: Final = b"application/json"
MAX_HEAD_BYTES: Final = 64 * 1024
LAST_WORD_S: Final = 0.3
"""How long a connection that was just made may still ask when the server stops."""
KEEP_ALIVE_S: Final = 75
"""Longer than the idle time of common client pools and balancers, so that it is they who close first."""


class ClientGone(Exception):
    """The client closed its connection before it had sent its body."""


class BodyTooLarge(Exception):
    pass


async def read_body(receive: Receive, declared: bytes | None, limit: int) -> bytes:
    """The whole body, of at most ``limit`` bytes; ``declared`` is the content-length header.

    Raises BodyTooLarge (at once where the header says so) or ClientGone.
    """
    if declared is not None and declared.isdigit() and int(declared) > limit:
        raise BodyTooLarge
    message = await receive()
    pieces: list[bytes] = []
    size = 0
    while message["type"] == "http.request":
        piece = message.get("body", b"")
        size += len(piece)
        if size > limit:
            raise BodyTooLarge
        pieces.append(piece)
        if not message.get("more_body", False):
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)
        message = await receive()
    raise ClientGone


class Exchange:
    """One request's way back: whole with ``respond``, or ``start_stream`` and then ``send_body`` for each piece.

    ``started``: the status line is out, and no other can be given any more.
    """

    __slots__ = ("_cycle", "_send", "direct", "request_id", "started")

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        cycle = getattr(send, "__self__", None)
        self._cycle: Any = cycle if isinstance(cycle, RequestResponseCycle) else None
        self.direct = Direct(self._cycle)
        self.request_id = request_id
        self.started = False

    async def respond(self, status: int, body: bytes, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """The server leaves the body out where the method was HEAD."""
        sent = [*headers, (b"x-request-id", self.request_id.encode())]
        if status != 204:
            sent.append((b"content-length", b"%d" % len(body)))
        self.started = True
        await self._send({"type": "http.response.start", "status": status, "headers": sent})
        await self.send_body(body, more=False)

    async def start_stream(self, trace_id: str, first: bytes = b"") -> None:
        """``first``: its first piece, which leaves with the head, in one write."""
        self.started = True
        headers = [
            *_STREAM_HEADERS,
            (b"x-outguard-trace-id", trace_id.encode()),
            (b"x-request-id", self.request_id.encode()),
        ]
        start = {"type": "http.response.start", "status": 200, "headers": headers}
        cycle = self._cycle
        if not first or cycle is None:
            await self._send(start)
        else:
            transport, cycle.transport = cycle.transport, (aside := _Aside())
            try:
                await self._send(start)
            finally:
                cycle.transport = transport
            head = b"".join(aside.written)
            if head and self.direct.open():
                transport.write(head + framed(first))
                return
            if head:
                transport.write(head)
        if first:
            await self.send_body(first)

    async def send_body(self, data: bytes, *, more: bool = True) -> None:
        """Returns once the socket can take more."""
        if not (more and data and self.direct.write(data)):
            await self._send({"type": "http.response.body", "body": data, "more_body": more})


class _Aside:
    """Takes what is written, to be written with what follows."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)


_STREAM_HEADERS: Final = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)


class Watch:
    """Cancels the task that answers a request when its client goes away, or when ``timeout`` seconds are over.

    As a context manager around the work: the cancellation that it caused ends there, and ``gone`` says so. Any other
    passes through. After ``release`` nothing is cancelled any more: the last byte is on its way. ``expired``: it was
    the time that ended it.
    """

    __slots__ = ("_receive", "_task", "_timer", "_watcher", "expired", "gone")

    def __init__(self, receive: Receive, timeout: float | None = None) -> None:
        self.gone = False
        self.expired = False
        self._receive = receive
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._watcher: asyncio.Task[None] | None = None
        loop = asyncio.get_running_loop()
        self._timer = None if timeout is None else loop.call_later(max(timeout, 0.0), self._expire)

    async def __aenter__(self) -> Watch:
        self._watcher = asyncio.create_task(self._wait())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self.release()
        if self.gone:
            self._task.uncancel()
            return kind is not None and issubclass(kind, asyncio.CancelledError)
        return False

    def release(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._watcher is not None:
            self._watcher.cancel()
            self._watcher = None

    async def _wait(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._leave()

    def _expire(self) -> None:
        self.expired = self._watcher is not None and not self.gone
        self._leave()

    def _leave(self) -> None:
        if self._watcher is not None and not self.gone:
            self.gone = True
            self._task.cancel()


class BoundedHead(HttpToolsProtocol):
    """uvicorn's end of a connection, with a bound to the head of a request, which its parser has not. Good to within
    one read of the socket."""

    _head = 0
    _in_head = True
    _asked = False
    _leaving = False

    def data_received(self, data: bytes) -> None:
        self._head += len(data)
        super().data_received(data)
        if self._in_head and self._head > MAX_HEAD_BYTES and not self.transport.is_closing():
            self.transport.write(_HEAD_TOO_LARGE)
            self.transport.close()

    def shutdown(self) -> None:
        if not (self._asked or self.transport.is_closing()):
            # a fresh connection on which nothing was asked yet: what is on its way is still answered, and not reset
            self._leaving = True
            self.loop.call_later(LAST_WORD_S, self._leave)
        else:
            super().shutdown()

    def _leave(self) -> None:
        if not self._asked:
            self.transport.close()

    def on_message_begin(self) -> None:
        self._in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._asked = True
        super().on_headers_complete()
        if self._leaving:
            self.cycle.keep_alive = False

    def on_message_complete(self) -> None:
        self._in_head = True  # what comes next, on a connection that is kept, is another head
        self._head = 0
        super().on_message_complete()


_TOO_LARGE: Final = (
    b'{"error":{"message":"the head of the request is over the limit of %d bytes",'
    b'"type":"invalid_request_error","param":null,"code":"request_too_large"}}' % MAX_HEAD_BYTES
)
_HEAD_TOO_LARGE: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%b" % (len(_TOO_LARGE), _TOO_LARGE)
)


class HttpServer(uvicorn.Server):
    """A uvicorn server on a socket of its own, to run beside others in one loop: ``serve`` until ``stop``."""

    def __init__(self, config: uvicorn.Config, listener: socket.socket) -> None:
        super().__init__(config)
        self.listener = listener

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.listener.getsockname()[:2]
        return host, port

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        await super().serve(sockets=[self.listener] if sockets is None else sockets)

    def stop(self) -> None:
        """Take no more connections, let the answers under way end (as long as the grace period lasts), return."""
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield  # signals belong to the process, which runs a gRPC server too


def serve_http(
    app: App, host: str = "127.0.0.1", port: int = 0, *, fd: int | None = None, grace: int = 30
) -> HttpServer:
    """A server for ``app`` on host:port (0: any free one), or on the bound socket ``fd`` that was inherited.

    ``grace``: seconds that answers under way are given at shutdown. Raises OSError when the address cannot be bound.
    """
    if fd is None:
        listener = listening(host, port)
    else:
        listener = socket.socket(fileno=fd)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    logging.getLogger("uvicorn.error").addFilter(_cut_on_purpose)
    config = uvicorn.Config(
        app,
        loop="uvloop",
        http=BoundedHead,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=grace,
    )
    return HttpServer(config, listener)


def _cut_on_purpose(record: logging.LogRecord) -> bool:
    """A failed stream is left without its end so that nobody takes it for a whole one, and what is under way when the
    grace period is over is cancelled; neither is an error of ours."""
    if record.exc_info is not None and isinstance(record.exc_info[1], asyncio.CancelledError):
        return False
    return record.msg != "ASGI callable returned without completing response."
