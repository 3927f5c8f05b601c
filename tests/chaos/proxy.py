"""A way to a real engine that breaks, by a seeded die, in every way that engines and what lies between break.

Exchanges are passed on as they are, unless they draw a fault: the answer is cut after a random byte, its connection
reset, or after a random number of its events something else comes. While its engine is dead it takes no connections, as
a machine does on which nobody listens.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import AsyncIterator
from random import Random
from typing import Final

from engine_process import LlamaCpp

FAULTS: Final = (
    "cut",
    "reset",
    "stall",
    "no finish",
    "done without finish",
    "500",
    "429",
    "503",
    "garbage",
    "html",
    "huge line",
    "half a code point",
    "error event",
    "no http",
    "empty",
)
MOST_BYTES: Final = 16_000
"""About as long as the answers of the storm are on the wire; a cut behind the end is none."""

MOST_EVENTS: Final = 40


class Proxy:
    """``rate``: the share of exchanges that draw a fault; ``met`` counts those that one came upon."""

    def __init__(self, seed: int, rate: float) -> None:
        self._dice = Random(seed)
        self.rate = rate
        self.engine: LlamaCpp | None = None
        self.asked = 0
        self.met: dict[str, int] = {}
        self._server: asyncio.Server | None = None
        self._port = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def open(self, engine: LlamaCpp) -> None:
        self.engine = engine
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    def shut(self) -> None:
        """Nobody listens any more; what is under way ends as its engine ends it."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def close(self) -> None:
        self.shut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._exchange(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError, ValueError):
            pass  # the engine died, or the caller left: both see it
        finally:
            self._tasks.discard(task)
            with contextlib.suppress(Exception):
                writer.transport.abort()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        fields = [line for line in head.split(b"\r\n") if line and not line.lower().startswith(b"connection:")]
        length = next((int(f.partition(b":")[2]) for f in fields if f.lower().startswith(b"content-length:")), 0)
        body = await reader.readexactly(length)
        fault = ""
        if head.startswith(b"POST"):
            self.asked += 1
            fault = self._dice.choice(FAULTS) if self._dice.random() < self.rate else ""
        if await self._refused(fault, writer):
            return
        assert self.engine is not None
        engine_reader, engine_writer = await asyncio.open_connection("127.0.0.1", self.engine.port)
        try:
            engine_writer.write(b"\r\n".join([*fields, b"connection: close", b"", b""]) + body)
            gone = asyncio.ensure_future(reader.read(1))
            answer = asyncio.ensure_future(self._answer(fault, engine_reader, writer))
            try:
                await asyncio.wait({gone, answer}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                gone.cancel()
                answer.cancel()
                await asyncio.gather(gone, answer, return_exceptions=True)
        finally:
            engine_writer.transport.abort()

    async def _refused(self, fault: str, writer: asyncio.StreamWriter) -> bool:
        """Whether it never reaches the engine."""
        if fault in ("500", "429", "503"):
            said = b'{"error": {"message": "not now"}}'
            retry = b"retry-after: 0\r\n" if fault != "500" else b""
            writer.write(b"HTTP/1.1 %s X\r\n%sconnection: close\r\n" % (fault.encode(), retry))
            writer.write(b"content-length: %d\r\n\r\n" % len(said) + said)
        elif fault == "no http":
            writer.write(b"SSH-2.0-OpenSSH_9.6\r\n")
        else:
            return False
        self._count(fault)
        await writer.drain()
        writer.write_eof()
        return True

    async def _answer(self, fault: str, engine: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if fault in ("", "cut", "reset"):
            left = self._dice.randrange(MOST_BYTES) if fault else -1
            while data := await engine.read(65536):
                if fault and len(data) > left:
                    writer.write(data[:left])
                    await writer.drain()
                    self._count(fault)
                    if fault == "reset":
                        raw = writer.get_extra_info("socket")
                        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    return
                left -= len(data)
                writer.write(data)
                await writer.drain()
            return
        head = await engine.readuntil(b"\r\n\r\n")
        writer.write(head)
        if b"text/event-stream" not in head.lower():
            return  # cut behind its head
        left = self._dice.randrange(MOST_EVENTS) if fault != "empty" else 0
        rest = b""
        async for data in _unchunked(engine):
            *events, rest = (rest + data).split(b"\n\n")
            for event in events:
                if not left:
                    self._count(fault)
                    await self._break(fault, writer)
                    return
                left -= 1
                _chunk(writer, event + b"\n\n")
                await writer.drain()
        _chunk(writer, rest)
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    async def _break(self, fault: str, writer: asyncio.StreamWriter) -> None:
        match fault:
            case "stall":
                await asyncio.sleep(60)
            case "garbage":
                _chunk(writer, b"data: {oops\n\n")
            case "html":
                _chunk(writer, b"<html><body>502 Bad Gateway</body></html>\n\n")
            case "huge line":
                _chunk(writer, b"data: " + b"x" * 9_000_000)
            case "half a code point":
                _chunk(writer, b'data: {"content": "' + "Ä".encode()[:1] + b'"}\n\n')
            case "error event":
                error = {"error": {"message": "CUDA error", "code": 500}}
                _chunk(writer, b"data: " + json.dumps(error).encode() + b"\n\n")
            case "done without finish":
                _chunk(writer, b"data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    def _count(self, fault: str) -> None:
        self.met[fault] = self.met.get(fault, 0) + 1


async def _unchunked(engine: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while size := int(await engine.readuntil(b"\r\n"), 16):
        data = await engine.readexactly(size + 2)
        yield data[:-2]


def _chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    if data:
        writer.write(b"%x\r\n" % len(data) + data + b"\r\n")
