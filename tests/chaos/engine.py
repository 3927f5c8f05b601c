"""An engine that tells one story and breaks in every way that engines break, by a seeded die.

It speaks the OpenAI HTTP API as vLLM does: streamed, and it goes on from the assistant's last words where the
conversation ends with some. Each request draws one of ``FAULTS`` or none; after ``die`` it refuses connections, and
while it is ``frozen`` it takes them and stays silent, as a killed and as a stopped process do.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
from random import Random
from typing import Any, Final

STORY: Final = (
    "Der Leuchtturmwärter stieg jeden Abend die engen Stufen hinauf, um die Lampe zu entzünden. Eines Nachts sah er "
    "eine Flasche zwischen den Felsen, und darin einen Brief in einer Schrift, die er kannte: «Lass das Licht brennen, "
    "Bruder, bis im Frühling ein Schiff mit weißen Segeln am Kap vorbeizieht.» Also blieb er, Jahr um Jahr, 灯台の光 "
    "in jeder Nacht, und als das Schiff schließlich kam, war es kleiner, als er gedacht hatte — aber es war da. 🚢"
)
PIECE: Final = 7

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
    "loop",
    "error event",
    "no http",
    "empty",
)


def _event(value: Any) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"


def _piece(text: str | None = None, finish: str | None = None) -> bytes:
    delta = {"role": "assistant"} if text is None and finish is None else {"content": text} if text else {}
    return _event({"id": "c", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


class ChaosEngine:
    """``rate``: the share of requests that meet a fault. ``met`` counts them."""

    def __init__(self, seed: int, rate: float) -> None:
        self._dice = Random(seed)
        self._rate = rate
        self._server: asyncio.Server | None = None
        self._port = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self.frozen = False
        self.requests = 0
        self.met: dict[str, int] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def connections(self) -> int:
        return len(self._tasks)

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def die(self) -> None:
        """At once, with everything that it was saying."""
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while await self._exchange(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            with contextlib.suppress(Exception):
                writer.transport.abort()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        length = int(head.partition("content-length:")[2].partition("\r\n")[0] or 0)
        body = json.loads(await reader.readexactly(length) or b"{}")
        while self.frozen:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        self.requests += 1
        fault = self._dice.choice(FAULTS) if self._dice.random() < self._rate else ""
        if fault:
            self.met[fault] = self.met.get(fault, 0) + 1
        last = body.get("messages", [{}])[-1]
        told = last.get("content", "") if last.get("role") == "assistant" else ""
        rest = STORY.removeprefix(told)
        pieces = [rest[i : i + PIECE] for i in range(0, len(rest), PIECE)]
        return await self._answer(writer, fault, pieces)

    async def _answer(self, writer: asyncio.StreamWriter, fault: str, pieces: list[str]) -> bool:
        """Whether the connection can be used again."""
        if fault in ("500", "429", "503"):
            said = b'{"error": {"message": "not now"}}'
            retry = b"retry-after: 0\r\n" if fault != "500" else b""
            writer.write(b"HTTP/1.1 %s X\r\n%scontent-length: %d\r\n\r\n" % (fault.encode(), retry, len(said)) + said)
            await writer.drain()
            return True
        if fault == "no http":
            writer.write(b"SSH-2.0-OpenSSH_9.6\r\n")
            await writer.drain()
            return False
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        stop = self._dice.randrange(len(pieces) + 1) if fault else len(pieces)
        spoken = [_piece(), *map(_piece, pieces[:stop])] if fault != "empty" else []
        for one in spoken:
            self._chunk(writer, one)
            await writer.drain()
            await asyncio.sleep(0)
        match fault:
            case "cut" | "reset":
                torn = _piece(pieces[stop] if stop < len(pieces) else "x")
                writer.write(b"%x\r\n" % len(torn) + torn[: self._dice.randrange(len(torn))])
                await writer.drain()
                if fault == "reset":
                    raw = writer.get_extra_info("socket")
                    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return False
            case "stall":
                await asyncio.sleep(30)
                return False
            case "garbage":
                self._chunk(writer, b"data: {oops\n\n")
            case "html":
                self._chunk(writer, b"<html><body>502 Bad Gateway</body></html>\n\n")
            case "huge line":
                self._chunk(writer, b"data: " + b"x" * 9_000_000)
            case "half a code point":
                self._chunk(writer, _piece("Ä")[:-40].partition("Ä".encode())[0] + "Ä".encode()[:1] + b'"}}]}\n\n')
            case "loop":
                for _ in range(300):
                    self._chunk(writer, _piece("!!!!"))
                self._chunk(writer, _piece(finish="length") + b"data: [DONE]\n\n")
            case "error event":
                self._chunk(writer, _event({"error": {"message": "CUDA error", "code": 500}}))
            case "done without finish":
                self._chunk(writer, b"data: [DONE]\n\n")
            case "":
                self._chunk(writer, _piece(finish="stop") + b"data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    def _chunk(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        writer.write(b"%x\r\n" % len(data) + data + b"\r\n")
