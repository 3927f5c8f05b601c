"""Socket to socket through the whole sidecar: the short way gives what the long way gives, and leaves it in time."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import pytest
from replay_server import ReplayServer, Reply, chunk, sse

from guard.build import build_engine
from guard.config import parse_config
from guard.constraint.cache import ConstraintCache
from guard.engines.openai_http import HttpStream
from guard.pipeline import Pipeline
from guard.relay import Relay
from guard.server.asgi import serve_http
from guard.server.openai import OpenAIApp
from guard.stream import StreamGuard
from guard.trace.record import RequestRecord
from guard.trace.retention import RetentionRules
from guard.trace.tracing import Tracing

STORY = (
    "The lighthouse keeper climbed the narrow stairs each evening to light the lamp. One night he saw a bottle among "
    "the rocks below, and in it a letter, written in a hand that he knew: “keep the light, brother”."
)
CONFIG = """\
engines:
  - {{name: a, url: "{a}", dialect: llamacpp}}
  - {{name: b, url: "{b}", dialect: llamacpp}}
routes: [{{model: m, engines: [a, b]}}]
policies: {{default: {{backoff_initial: 0.001, backoff_max: 0.002}}}}
"""


class Kept(Tracing):
    def __init__(self) -> None:
        super().__init__(retention=RetentionRules(default="full"))
        self.records: list[RequestRecord] = []

    def write(self, record: RequestRecord) -> None:
        self.records.append(record)


class Path:
    """A sidecar over two engines that play these replies."""

    def __init__(self, a: Reply, b: Reply | None = None) -> None:
        self.a = ReplayServer(a)
        self.b = ReplayServer(b or Reply(b"", 500))
        self.tracing = Kept()

    async def __aenter__(self) -> Path:
        self._stack = stack = contextlib.AsyncExitStack()
        await stack.enter_async_context(self.a)
        await stack.enter_async_context(self.b)
        config = parse_config(CONFIG.format(a=self.a.url, b=self.b.url))
        engines = {engine.name: build_engine(engine) for engine in config.engines}
        for engine in engines.values():
            stack.push_async_callback(engine.aclose)
        server = serve_http(OpenAIApp(Pipeline(config, engines, ConstraintCache(), self.tracing)), grace=1)
        serving = asyncio.ensure_future(server.serve())

        async def stop() -> None:
            server.stop()
            await serving

        stack.push_async_callback(stop)
        self.address = server.address
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def ask(self, stream: bool = True) -> bytes:
        """The whole response, as it came."""
        async with self.asked(stream) as (reader, _):
            response: bytes = await asyncio.wait_for(reader.read(), 20)
            return response

    @contextlib.asynccontextmanager
    async def asked(self, stream: bool = True) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "A story."}], "stream": stream})
        reader, writer = await asyncio.open_connection(*self.address)
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body.encode())
        try:
            yield reader, writer
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


def told(text: str, size: int = 5, finish: str = "stop") -> bytes:
    pieces = (text[i : i + size] for i in range(0, len(text), size))
    return sse(chunk(role="assistant", content=""), *map(chunk, pieces), chunk(finish=finish))


def events(response: bytes) -> list[Any]:
    """The data of the events, [DONE] as None."""
    body, rest = b"", response.partition(b"\r\n\r\n")[2]
    while rest and not rest.startswith(b"0\r\n"):
        size, _, rest = rest.partition(b"\r\n")
        body, rest = body + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    data = [line[6:] for line in body.decode().split("\n") if line.startswith("data: ")]
    return [None if line == "[DONE]" else json.loads(line) for line in data]


def said(data: list[Any]) -> str:
    return "".join(choice["delta"].get("content", "") for event in data if event for choice in event.get("choices", ()))


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many batches went the short way."""
    taken = [0]
    hand_on = Relay.hand_on

    def counted(self: Relay) -> bool:
        done = hand_on(self)
        taken[0] += done
        return done

    monkeypatch.setattr(Relay, "hand_on", counted)
    return taken


@pytest.mark.parametrize("stream", [True, False])
async def test_both_ways_give_the_same(monkeypatch: pytest.MonkeyPatch, short: list[int], stream: bool) -> None:
    reply = Reply(told(STORY), every=70, delay=0.001)
    async with Path(reply) as path:
        one = await path.ask(stream)
        assert short[0] > 20
        monkeypatch.setattr(HttpStream, "relay", None)
        before = short[0]
        other = await path.ask(stream)
        assert short[0] == before
        first, second = path.tracing.records
    if stream:
        assert said(events(one)) == said(events(other)) == STORY
        assert len(events(one)) == len(events(other))
        assert events(one)[-1] is None
    else:
        texts = [json.loads(r.partition(b"\r\n\r\n")[2])["choices"][0]["message"]["content"] for r in (one, other)]
        assert texts == [STORY, STORY]
    for record in (first, second):
        assert (record.outcome, record.output_text, record.finish_reason) == ("ok", STORY, "stop")
        assert record.first_token_ms > 0
        assert record.attempts[0].chunks > 20
        assert record.attempts[0].released_chars == len(STORY)
    assert first.completion_tokens == second.completion_tokens


async def test_a_collapse_on_the_short_way_is_gone_on_from(short: list[int]) -> None:
    collapsing = Reply(told(STORY + "!" * 200, finish="length"), every=150, delay=0.001)
    async with Path(collapsing, Reply(told(" And so he did."), every=150, delay=0.001)) as path:
        data = events(await path.ask())
        assert path.b.requests
    assert short[0] > 10
    assert said(data) == STORY + " And so he did."
    assert data[-1] is None
    attempts = path.tracing.records[0].attempts
    assert [(a.engine, a.outcome, a.resumed_at) for a in attempts] == [("a", "condemned", -1), ("b", "ok", len(STORY))]


async def test_an_engine_that_dies_on_the_short_way(short: list[int]) -> None:
    body = told(STORY)
    cut = Reply(body, every=100, delay=0.001, stop_after=len(body) // 2, end="reset")
    async with Path(cut, Reply(told(" And so on."), every=150, delay=0.001)) as path:
        data = events(await path.ask())
    assert short[0] > 5
    before, after = said(data).split(" And so on.")
    assert STORY.startswith(before)
    assert len(before) > 50
    assert after == ""
    assert [a.error_kind for a in path.tracing.records[0].attempts] == ["stream.cut", ""]


async def test_a_caller_that_reads_slowly_gets_everything_in_order(short: list[int]) -> None:
    words = Random(7)
    text = " ".join("".join(words.choices("abcdefghijklmnopqrstuvwxyz", k=6)) for _ in range(60_000))
    async with Path(Reply(told(text, size=40), every=16_384)) as path, path.asked() as (reader, _):
        await asyncio.sleep(0.5)
        response = await asyncio.wait_for(reader.read(), 30)
    assert short[0] > 0
    assert said(events(response)) == text


async def test_a_caller_that_leaves_on_the_short_way(short: list[int]) -> None:
    async with Path(Reply(told(STORY), every=100, delay=0.05)) as path:
        async with path.asked() as (reader, writer):
            await reader.readuntil(b"assistant")
            writer.transport.abort()
        await path.a.client_gone(timeout=1.0)
        async with asyncio.timeout(1):
            while not path.tracing.records:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    assert path.tracing.records[0].outcome == "cancelled"
    assert short[0] > 0


async def test_a_guard_that_fails_on_the_short_way_is_an_error(
    monkeypatch: pytest.MonkeyPatch, short: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    feed = StreamGuard.feed

    def broken(self: StreamGuard, batch: Any) -> Any:
        if self.tokens > 20:
            raise ZeroDivisionError("a mistake of ours")
        return feed(self, batch)

    monkeypatch.setattr(StreamGuard, "feed", broken)
    async with Path(Reply(told(STORY), every=100, delay=0.002)) as path:
        data = events(await path.ask())
    assert short[0] > 5
    assert data[-1]["error"]["code"] == "internal"
    assert "ZeroDivisionError" in caplog.text
    assert path.tracing.records[0].outcome == "failed"


async def test_the_head_leaves_with_the_first_piece() -> None:
    """One segment more would be one wake more for whoever waits for the first token."""
    async with Path(Reply(told(STORY), every=150, delay=0.02)) as path, path.asked() as (reader, _):
        first = await asyncio.wait_for(reader.read(65536), 5)
        head, _, rest = first.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        assert b"data: " in rest
        whole = first + await asyncio.wait_for(reader.read(), 20)
    assert said(events(whole)) == STORY
