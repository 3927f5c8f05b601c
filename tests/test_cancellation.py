"""Who is no longer wanted hears of it within 200 ms, in both directions; and a caller that does not read costs no more
than a megabyte a stream."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from random import Random
from typing import Any

import grpc.aio
import pytest
from replay_server import ReplayServer, Reply, chunk, sse

from guard.build import build_engine
from guard.config import parse_config
from guard.constraint.cache import ConstraintCache
from guard.delivered import Delivered
from guard.events import Release
from guard.pipeline import Pipeline
from guard.server.asgi import serve_http
from guard.server.grpc import create_server
from guard.server.openai import OpenAIApp
from guard.trace.tracing import Tracing
from guard.v1 import guard_pb2 as pb
from guard.v1 import guard_pb2_grpc

LIMIT = 0.2
WORDS = [f"{a}{b} " for a in ("lamp", "sea", "storm", "night", "boat") for b in "abcdefghijklmnop"]
STREAM = Reply(sse(*map(chunk, WORDS), chunk(finish="stop")), every=100, delay=0.02)
SILENT = Reply(sse(chunk(role="assistant"), done=False), end="hang")
NO_HEAD = Reply(STREAM.body, head_delay=30)
BUSY = Reply(b'{"error": {"message": "busy"}}', 429, {"content-type": "application/json", "retry-after": "20"})
COLLAPSING = Reply(sse(*[chunk("!")] * 2000, chunk(finish="length")), every=2000, delay=0.01)
CONFIG = """\
engines: [{{name: a, url: "{a}", dialect: llamacpp, max_concurrency: {places}}}]
routes: [{{model: m, engines: [a]}}]
policies: {{default: {{max_attempts: {attempts}, backoff_max: 30, detectors: {detectors}}}}}
health: {{mode: observe}}
"""


class Stand:
    """Both servers in this process, over one engine that plays these replies."""

    def __init__(self, *replies: Reply, attempts: int = 1, places: int = 0, detectors: str = "enforce") -> None:
        self.engine = ReplayServer(*replies)
        self._how = {"attempts": attempts, "places": places, "detectors": detectors}

    async def __aenter__(self) -> Stand:
        self._stack = stack = contextlib.AsyncExitStack()
        await stack.enter_async_context(self.engine)
        config = parse_config(CONFIG.format(a=self.engine.url, **self._how))
        engine = build_engine(config.engines[0])
        stack.push_async_callback(engine.aclose)
        self.pipeline = Pipeline(config, {"a": engine}, ConstraintCache(), Tracing())
        server = serve_http(OpenAIApp(self.pipeline), grace=1)
        serving = asyncio.ensure_future(server.serve())

        async def stop() -> None:
            server.stop()
            await serving

        stack.push_async_callback(stop)
        self.http = server.address
        self.listener = server.listener
        grpc_server, port = create_server(self.pipeline, address="127.0.0.1:0")
        await grpc_server.start()
        stack.push_async_callback(grpc_server.stop, 0)
        self.grpc = f"127.0.0.1:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @contextlib.asynccontextmanager
    async def over_http(self, **more: Any) -> AsyncIterator[tuple[asyncio.StreamReader, Callable[[], None]]]:
        """A request under way: what comes of it, and how its caller leaves."""
        body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "A story."}], **more})
        reader, writer = await asyncio.open_connection(*self.http, limit=1 << 16)
        writer.write(
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode()
        )
        try:
            yield reader, writer.transport.abort
        finally:
            writer.transport.abort()

    async def asked(self, times: int = 1) -> None:
        async with asyncio.timeout(5):
            while len(self.engine.requests) < times:  # noqa: ASYNC110
                await asyncio.sleep(0.005)

    async def gone(self, leave: Callable[[], object]) -> float:
        """Seconds from the caller's leaving to the engine's hearing of it."""
        left = time.monotonic()
        leave()
        await self.engine.client_gone(timeout=5)
        return time.monotonic() - left

    def idle(self) -> bool:
        return self.pipeline.traffic.fleet.under_way("a") == 0 and self.pipeline.traffic.entrance.waiting == 0


async def best_of_three(measured: Callable[[], Awaitable[float]]) -> float:
    """A machine that is busy with something else is no failure."""
    best = await measured()
    for _ in range(2):
        if best > LIMIT:
            best = min(best, await measured())
    print(f"{best * 1e3:.0f} ms")
    return best


# --- from the caller to the engine ------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("reply", [STREAM, SILENT, NO_HEAD], ids=["in mid-stream", "before a token", "before the head"])
async def test_a_caller_over_http_that_leaves(reply: Reply, stream: bool) -> None:
    async def measured() -> float:
        async with Stand(reply) as stand, stand.over_http(stream=stream) as (reader, leave):
            await stand.asked()
            if reply is STREAM and stream:
                await reader.readuntil(b"lampb")
            seconds = await stand.gone(leave)
            await asyncio.sleep(0.02)
            assert stand.idle()
        return seconds

    assert await best_of_three(measured) < LIMIT


@pytest.mark.parametrize("reply", [STREAM, SILENT, NO_HEAD], ids=["in mid-stream", "before a token", "before the head"])
async def test_a_caller_over_grpc_that_leaves(reply: Reply) -> None:
    async def measured() -> float:
        async with Stand(reply) as stand, grpc.aio.insecure_channel(stand.grpc) as channel:
            call = guard_pb2_grpc.GuardStub(channel).Generate(pb.GenerateRequest(model="m", text="A story."))
            await stand.asked()
            if reply is STREAM:
                for _ in range(3):
                    await call.read()
            seconds = await stand.gone(call.cancel)
            await asyncio.sleep(0.02)
            assert stand.idle()
        return seconds

    assert await best_of_three(measured) < LIMIT


async def test_a_caller_that_leaves_the_queue_is_out_of_it() -> None:
    async def measured() -> float:
        async with Stand(SILENT, places=1) as stand, stand.over_http(stream=True), stand.over_http() as (_, leave):
            async with asyncio.timeout(5):
                while stand.pipeline.traffic.entrance.waiting != 1:  # noqa: ASYNC110
                    await asyncio.sleep(0.005)
            left = time.monotonic()
            leave()
            async with asyncio.timeout(5):
                while stand.pipeline.traffic.entrance.waiting:  # noqa: ASYNC110
                    await asyncio.sleep(0.002)
            assert len(stand.engine.requests) == 1
            return time.monotonic() - left

    assert await best_of_three(measured) < LIMIT


async def test_a_caller_that_leaves_between_two_attempts_is_not_tried_for_again() -> None:
    async with Stand(BUSY, attempts=3) as stand, stand.over_http() as (_, leave):
        await stand.asked()
        await asyncio.sleep(0.1)
        leave()
        await asyncio.sleep(0.2)
        assert len(stand.engine.requests) == 1
        assert stand.pipeline.ready()[0]
        assert stand.idle()


# --- from the guard to the engine -------------------------------------------------------------------------------------


async def test_an_engine_that_collapses_is_stopped_long_before_its_end() -> None:
    async with Stand(COLLAPSING) as stand, stand.over_http(stream=True) as (reader, _):
        await asyncio.wait_for(reader.readuntil(b'"code":"collapsed"'), 5)
        told = time.monotonic()
        await stand.engine.client_gone(timeout=1)
        assert time.monotonic() - told < LIMIT


async def test_a_deadline_stops_the_engine() -> None:
    async def measured() -> float:
        async with Stand(SILENT) as stand, grpc.aio.insecure_channel(stand.grpc) as channel:
            began = time.monotonic()
            call = guard_pb2_grpc.GuardStub(channel).Generate(pb.GenerateRequest(model="m", text="x"), timeout=0.5)
            await stand.asked()
            await stand.engine.client_gone(timeout=5)
            seconds = time.monotonic() - began - 0.5
            with contextlib.suppress(grpc.aio.AioRpcError):
                await call.read()
        return seconds

    assert await best_of_three(measured) < LIMIT


# --- a caller that does not read --------------------------------------------------------------------------------------


async def test_callers_that_do_not_read_cost_no_more_than_a_megabyte_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that could send each of them four megabytes at once. What has left for the caller is no buffer: it is
    the answer, which is kept to go on from; the kernel's buffers are made small, so that it is little. The detectors,
    whose work is not measured, are off."""
    left = [0]
    add = Delivered.add

    def counted(self: Delivered, release: Release) -> None:
        left[0] += len(release.text)
        add(self, release)

    monkeypatch.setattr(Delivered, "add", counted)
    text = "".join(Random(5).choices("abcdefghijklmnopqrstuvwxyz      ", k=4_000_000))
    pieces = [chunk(text[i : i + 4000]) for i in range(0, len(text), 4000)]
    streams = 8
    async with (
        Stand(Reply(sse(*pieces, chunk(finish="stop")), every=65_536), detectors="off") as stand,
        contextlib.AsyncExitStack() as stack,
    ):
        stand.listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65_536)
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            for _ in range(streams):
                await stack.enter_async_context(stand.over_http(stream=True))
            await stand.asked(streams)
            await asyncio.sleep(1.0)
            held = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
        assert not stand.idle()
        waiting = (held - left[0]) / streams
        print(f"{waiting / 1e6:.2f} MB wait for each caller")
        assert waiting < 1_000_000
