"""A small HTTP server that plays replies at an engine's client: recorded ones, broken ones, slow ones.

    from replay_server import Reply, ReplayServer

    async with ReplayServer(Reply.recorded(folder / "chat_stream")) as server:
        engine = OpenAIHttpEngine("a", server.url, "vllm")

Each request gets the next reply of the list; when they are used up, the last one again. ``server.requests`` holds what
was asked (method, path, headers, body, ``json``, number of the connection it came on) and
``await server.client_gone()`` waits until the client has closed the connection of the latest request.

A Reply is a status, headers and a body, and how they are sent:
- ``every`` or ``cuts``: the body goes out in pieces of so many bytes, or cut at these offsets (``inside_characters``
  gives the offsets within every character of several bytes); each piece is a write and, where chunked, a chunk;
- ``head_delay``, ``delay``: seconds before the head, and before each piece but the first;
- ``framing``: chunked, length, close (the body ends with the connection), or none (no body, no word about it);
- ``stop_after``: so many bytes of the body go out, and then comes the ``end``;
- ``end``: clean; close (the connection ends: FIN); reset (SO_LINGER 0: RST); hang (nothing more, connection open);
- ``raw``: these bytes instead of head and body (garbage, huge heads, early hints); ``end`` and pieces apply to them.
  ``keep_alive`` False closes after a clean end. A server with ``tls`` (an SSL context) speaks https.
``sse(*payloads)`` frames payloads as server-sent events; ``broken_streams()`` are replies that no engine should give.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

EVENT_STREAM = {"content-type": "text/event-stream; charset=utf-8"}


def sse(*payloads: object, done: bool = True) -> bytes:
    """Events with these data: bytes and str as they are, anything else as JSON; [DONE] behind them."""
    frames = []
    for payload in [*payloads, *(["[DONE]"] if done else [])]:
        data = (
            payload
            if isinstance(payload, bytes)
            else (payload.encode() if isinstance(payload, str) else json.dumps(payload, ensure_ascii=False).encode())
        )
        frames.append(b"data: " + data + b"\n\n")
    return b"".join(frames)


def chunk(content: str | None = None, finish: str | None = None, **delta: Any) -> dict[str, Any]:
    """One chat chunk."""
    if content is not None:
        delta["content"] = content
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "model": "m",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }


def inside_characters(body: bytes) -> list[int]:
    """The offsets that lie within a UTF-8 character."""
    return [i for i, byte in enumerate(body) if byte & 0xC0 == 0x80]


@dataclass(frozen=True)
class Reply:
    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: dict(EVENT_STREAM))
    every: int = 0
    cuts: Sequence[int] = ()
    head_delay: float = 0.0
    delay: float = 0.0
    framing: str = "chunked"
    stop_after: int | None = None
    end: str = "clean"
    keep_alive: bool = True
    raw: bytes | None = None

    @classmethod
    def recorded(cls, stem: Path, **how: Any) -> Reply:
        """A recorded response: ``stem`` is the path without ``.response``. A stream that was cut is cut again."""
        head, _, body = stem.with_name(stem.name + ".response").read_bytes().partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        framing = "chunked" if "chunked" in headers.pop("transfer-encoding", "") else "length"
        headers.pop("content-length", None)
        headers.pop("connection", None)
        timing = stem.with_name(stem.name + ".timing.json")
        clean = not timing.exists() or json.loads(timing.read_text())["clean_end"]
        made = cls(body, int(lines[0].split()[1]), headers, framing=framing, end="clean" if clean else "close")
        return replace(made, **how)

    def pieces(self) -> list[bytes]:
        body = self.raw if self.raw is not None else self.body
        body = body[: self.stop_after]
        cuts = sorted({c for c in self.cuts if 0 < c < len(body)})
        if self.every:
            cuts = list(range(self.every, len(body), self.every))
        return [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True)]

    def head(self) -> bytes:
        lines = [f"HTTP/1.1 {self.status} X", *(f"{name}: {value}" for name, value in self.headers.items())]
        if self.framing == "chunked":
            lines.append("transfer-encoding: chunked")
        elif self.framing == "length":
            lines.append(f"content-length: {len(self.body)}")
        if not self.keep_alive or self.framing == "close":
            lines.append("connection: close")
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


@dataclass
class Received:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    connection: int
    gone: asyncio.Event

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class ReplayServer:
    def __init__(self, *replies: Reply, tls: ssl.SSLContext | None = None) -> None:
        self.replies = list(replies)
        self.tls = tls
        self.requests: list[Received] = []
        self.connections = 0
        self.url = ""
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> ReplayServer:
        self._server = await asyncio.start_server(self._connection, "127.0.0.1", 0, ssl=self.tls)
        self.url = f"http{'s' if self.tls else ''}://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def client_gone(self, index: int = -1, timeout: float = 2.0) -> None:
        async with asyncio.timeout(timeout):
            await self.requests[index].gone.wait()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.connections += 1
        number = self.connections
        gone = asyncio.Event()
        try:
            while (request := await self._request(reader, number, gone)) is not None:
                reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
                self.requests.append(request)
                if not await self._reply(reply, reader, writer, gone):
                    return
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            return
        finally:
            gone.set()
            with contextlib.suppress(Exception):
                writer.close()

    async def _request(self, reader: asyncio.StreamReader, number: int, gone: asyncio.Event) -> Received | None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return None
        lines = head.decode("latin-1").rstrip().split("\r\n")
        method, path, _ = lines[0].split(" ", 2)
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        return Received(method, path, headers, body, number, gone)

    async def _reply(
        self, reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gone: asyncio.Event
    ) -> bool:
        """Returns whether the connection can take another request."""
        raw = writer.transport.get_extra_info("socket")
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        watcher = asyncio.ensure_future(self._watch(reader, writer, gone))
        try:
            await asyncio.sleep(reply.head_delay)
            chunked = reply.framing == "chunked" and reply.raw is None
            if reply.raw is None:
                writer.write(reply.head())
            for i, piece in enumerate(reply.pieces()):
                if i:
                    await asyncio.sleep(reply.delay)
                if gone.is_set():
                    return False
                if piece:
                    writer.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
                    await writer.drain()
            if reply.end == "hang":
                await gone.wait()
                return False
            if reply.end == "reset":
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
                return False
            if reply.end == "close" or reply.framing == "close":
                return False
            if chunked:
                writer.write(b"0\r\n\r\n")
            await writer.drain()
            return reply.keep_alive and reply.raw is None
        finally:
            watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watcher

    async def _watch(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gone: asyncio.Event) -> None:
        """Notices that the client went away while it is being answered (it asks nothing meanwhile)."""
        while not (reader.at_eof() or reader.exception() or writer.transport.is_closing()):  # noqa: ASYNC110  no event tells
            await asyncio.sleep(0.002)
        gone.set()


def broken_streams() -> dict[str, Reply]:
    """Answers with status 200 that are no good stream, by name."""
    good = sse(chunk(""), chunk("Hel"), done=False)
    html = b"<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"
    return {
        "html body as a stream": Reply(html),
        "html page": Reply(html, headers={"content-type": "text/html"}, framing="length"),
        "html in mid-stream": Reply(good + html + b"\n\n"),
        "json line in mid-stream": Reply(good + b'{"error": {"message": "CUDA error"}}\n\n'),
        "no json": Reply(good + b"data: {oops}\n\n"),
        "half json": Reply(good + b'data: {"choices": [{"index": 0, "delta"\n\n'),
        "json list": Reply(good + b"data: [1, 2]\n\n"),
        "binary": Reply(good + bytes(range(128, 256)) * 4 + b"\n\n"),
        "cut by close": Reply(good + sse(chunk("lo"), done=False), stop_after=len(good) + 20, end="close"),
        "cut by reset": Reply(good, end="reset", every=64, delay=0.001),
        "gzip": Reply(b"\x1f\x8b\x08\x00", headers={**EVENT_STREAM, "content-encoding": "gzip"}),
        "bad chunk size": Reply(
            raw=b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
            end="hang",
        ),
        "no http": Reply(raw=b"SSH-2.0-OpenSSH_9.6\r\n", end="hang"),
        "endless head": Reply(raw=b"HTTP/1.1 200 OK\r\n" + b"x-filler: yes\r\n" * 10_000, end="hang"),
    }
