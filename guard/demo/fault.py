"""A fault in front of a real engine: ``python -m guard.demo.fault PORT ENGINE_PORT AFTER``.

Everything passes unchanged, until AFTER pieces of content of one streamed answer have gone by; from there on every
piece is the same token, as a replica with a numeric fault sends it. The engine goes on generating behind it, so the
pace is real.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator

TOKEN = "!"


class CollapsingStream:
    """Rewrites the lines of one event stream. Pure."""

    def __init__(self, after: int) -> None:
        self._left = after

    def line(self, line: bytes) -> bytes:
        if not line.startswith(b"data: {"):
            return line
        chunk = json.loads(line[6:])
        for choice in chunk.get("choices", ()):
            delta = choice.get("delta", {})
            if delta.get("content"):
                self._left -= 1
                if self._left < 0:
                    delta["content"] = TOKEN
        if self._left >= 0:
            return line
        return b"data: " + json.dumps(chunk).encode() + b"\n"


async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, engine_port: int, after: int) -> None:
    """One connection, one exchange: requests are sent on with ``connection: close``, so that its end is the answer's
    end."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        fields = [line for line in head.split(b"\r\n") if line and not line.lower().startswith(b"connection:")]
        length = next((int(f.partition(b":")[2]) for f in fields if f.lower().startswith(b"content-length:")), 0)
        body = await reader.readexactly(length)
        engine_reader, engine_writer = await asyncio.open_connection("127.0.0.1", engine_port)
        try:
            engine_writer.write(b"\r\n".join([*fields, b"connection: close", b"", b""]) + body)
            # a caller that leaves ends the engine's work as well
            gone = asyncio.ensure_future(reader.read())
            answer = asyncio.ensure_future(_answer(engine_reader, writer, after))
            await asyncio.wait({gone, answer}, return_when=asyncio.FIRST_COMPLETED)
            gone.cancel()
            answer.cancel()
            await asyncio.gather(gone, answer, return_exceptions=True)
        finally:
            engine_writer.close()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass  # either side left: nothing to say to anybody
    finally:
        writer.close()


async def _answer(engine: asyncio.StreamReader, caller: asyncio.StreamWriter, after: int) -> None:
    head = await engine.readuntil(b"\r\n\r\n")
    caller.write(head)
    if b"text/event-stream" not in head.lower():
        while data := await engine.read(65536):
            caller.write(data)
        await caller.drain()
        return
    stream = CollapsingStream(after)
    rest = b""
    async for data in _unchunked(engine):
        *lines, rest = (rest + data).split(b"\n")
        out = b"".join(stream.line(line + b"\n") for line in lines)
        if out:
            caller.write(b"%x\r\n%b\r\n" % (len(out), out))
            await caller.drain()
    caller.write(b"0\r\n\r\n")
    await caller.drain()


async def _unchunked(engine: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while size := int(await engine.readuntil(b"\r\n"), 16):
        data = await engine.readexactly(size + 2)
        yield data[:-2]


async def main(port: int, engine_port: int, after: int) -> None:
    server = await asyncio.start_server(lambda r, w: relay(r, w, engine_port, after), "127.0.0.1", port)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.buffer.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(main(*(int(argument) for argument in sys.argv[1:4])))
