"""The HTTP client and the engine over it, against a server that misbehaves."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from joining import joined
from replay_server import EVENT_STREAM, ReplayServer, Reply, broken_streams, chunk, inside_characters, sse

from guard.engines import http_exchange
from guard.engines.contract import EngineError, EngineRequest
from guard.engines.http import HttpPool, read, whole
from guard.engines.http_exchange import TransferError
from guard.engines.openai_http import OpenAIHttpEngine
from guard.events import Closed, Done, Fault, FinishReason, Opened, StreamEvent, TextDelta
from guard.request import GenerationRequest

GOOD = sse(chunk("Hel"), chunk("lo"), chunk(finish="stop"))
JSON = {"content-type": "application/json"}


def ask(**fields: Any) -> EngineRequest:
    request = GenerationRequest("r", "chat", "m", messages=[{"role": "user", "content": "hi"}])
    for name in ("traceparent", "tracestate"):
        if name in fields:
            setattr(request, name, fields.pop(name))
    return EngineRequest(request, **fields)


@asynccontextmanager
async def playing(*replies: Reply, **options: Any) -> AsyncIterator[tuple[OpenAIHttpEngine, ReplayServer]]:
    async with ReplayServer(*replies) as server:
        engine = OpenAIHttpEngine("e", server.url, options.pop("dialect", "vllm"), **options)
        yield engine, server
        await engine.aclose()


async def events_of(engine: OpenAIHttpEngine, **fields: Any) -> list[StreamEvent]:
    stream = await engine.open(ask(**fields))
    found = [event async for batch in stream for event in batch]
    await stream.aclose()
    return found


def text_of(events: list[StreamEvent]) -> str:
    return "".join(e.text for e in events if isinstance(e, TextDelta))


async def refused(engine: OpenAIHttpEngine, **fields: Any) -> EngineError:
    with pytest.raises(EngineError) as raised:
        await engine.open(ask(**fields))
    return raised.value


# --- recorded bytes over a socket ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["vllm/chat_stream_utf8", "llamacpp/chat_stream_usage", "sglang/tool_required_stream", "transformers/chat_stream"],
)
@pytest.mark.parametrize("how", [{}, {"every": 1000}, {"every": 61}, {"framing": "close"}, {"framing": "length"}])
async def test_recorded_streams(shared: Path, name: str, how: dict[str, Any]) -> None:
    from guard.engines.openai_reader import read_stream

    reply = Reply.recorded(shared / "recordings" / name, **how)
    async with playing(reply) as (engine, _):
        assert joined(await events_of(engine)) == joined(read_stream(reply.body))


async def test_half_characters(shared: Path) -> None:
    reply = Reply.recorded(shared / "recordings" / "vllm" / "chat_stream_utf8")
    whole = text_of_body(reply.body)
    async with playing(Reply(reply.body, cuts=inside_characters(reply.body), delay=0.0005)) as (engine, _):
        assert text_of(await events_of(engine)) == whole
    assert not whole.isascii()


def text_of_body(body: bytes) -> str:
    from guard.engines.openai_reader import read_stream

    return text_of(read_stream(body))


async def test_recorded_death_and_errors(shared: Path) -> None:
    folder = shared / "recordings"
    async with playing(Reply.recorded(folder / "sglang" / "engine_killed_midstream")) as (engine, _):
        last = (await events_of(engine))[-1]
        assert isinstance(last, Fault)
        assert last.kind == "cut"
    async with playing(Reply.recorded(folder / "vllm" / "err_unknown_model")) as (engine, _):
        error = await refused(engine)
        assert (error.status, error.param, error.retryable) == (404, "model", True)
    async with playing(Reply.recorded(folder / "llamacpp" / "err_context_too_long_stream")) as (engine, _):
        error = await refused(engine)
        assert error.message.startswith("request (2531 tokens) exceeds")
        assert not error.retryable


# --- what is no good answer ---------------------------------------------------------------------------------------


REFUSED = {"html page", "gzip", "no http", "endless head"}


@pytest.mark.parametrize("name", broken_streams().keys())
@pytest.mark.parametrize("every", [0, 11])
async def test_broken_streams_end_in_a_fault_or_a_refusal(name: str, every: int) -> None:
    reply = broken_streams()[name]
    if every and len(reply.raw or b"") < 1000:
        reply = replace(reply, every=every)
    alive = "mid-stream" in name or name in ("no json", "half json", "json list", "binary")
    if alive:  # an engine that has not noticed, and must be told
        reply = replace(reply, end="hang")
    async with playing(reply, first_token_timeout=2.0, between_tokens_timeout=2.0) as (engine, server):
        async with asyncio.timeout(1.5):
            if name in REFUSED:
                assert (await refused(engine)).kind == "protocol"
                return
            found = await events_of(engine)
        last = found[-1]
        assert isinstance(last, Fault)
        assert last.kind == ("cut" if name.startswith("cut") else "protocol")
        assert not any(isinstance(e, Closed | FinishReason) for e in found)
        if alive:
            assert text_of(found) == "Hel"
            await server.client_gone()


async def test_a_huge_line_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("guard.engines.openai_http.MAX_EVENT_BYTES", 100_000)
    body = sse(chunk("a"), done=False) + b"data: " + b"x" * 3_000_000
    async with playing(Reply(body, every=50_000)) as (engine, server):
        found = await events_of(engine)
        assert text_of(found) == "a"
        assert found[-1] == Fault("protocol", "the engine's stream holds an event longer than 100000 bytes")
        await server.client_gone()


@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_a_whole_answer_where_a_stream_was_asked_for(framing: str) -> None:
    body = b'{"id":"i","model":"m","choices":[{"message":{"content":"abc d"},"finish_reason":"stop"}]}'
    async with playing(Reply(body, headers=JSON, framing=framing, every=20)) as (engine, _):
        assert await events_of(engine) == [
            Opened("i", "m"),
            TextDelta(0, "content", "abc d"),
            FinishReason(0, "stop"),
            Done(),
            Closed(True),
        ]


async def test_an_error_object_with_status_200() -> None:
    async with playing(Reply(b'{"error":{"message":"no","code":500}}', headers=JSON, framing="length")) as (engine, _):
        assert await events_of(engine) == [Fault("error_event", "no", 500)]


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (Reply(b"", 502, framing="length"), "the engine answered 502"),
        (Reply(b"<html><title>502 Bad Gateway</title>x</html>", 502, {"content-type": "text/html"}), "502 Bad Gateway"),
        (Reply(b"x" * 200_000, 500), "x" * 999 + "…"),
        (Reply(b"{", 500, JSON), "{"),
        (Reply(b"half", 500, end="close"), "half"),
        (Reply(b"", 307, {"location": "http://x/"}, framing="length"), "redirects to 'http://x/'"),
        (Reply(b"", 204, framing="none"), "the engine answered 204"),
        (Reply(b'{"error":"no such key: sk-1"}', 401, JSON), "does not let this sidecar in (status 401)"),
        (Reply(b'{"error":"no such key: sk-1"}', 403, JSON), "does not let this sidecar in (status 403)"),
    ],
)
async def test_statuses(reply: Reply, message: str) -> None:
    async with playing(reply) as (engine, _):
        error = await refused(engine)
        assert message in error.message
        assert "sk-1" not in error.message  # whoever reads it may be any caller
        assert error.status == reply.status


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("3", 3.0),
        ("0.5", 0.5),
        ("soon", None),
        ("-1", None),
        ("", None),
        (format_datetime(datetime.now(UTC) + timedelta(minutes=45), usegmt=True), 2700.0),
        (format_datetime(datetime.now(UTC) - timedelta(hours=1), usegmt=True), 0.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 3600.0),
        ("1000000", 3600.0),
        ("1e30", 3600.0),
        ("nan", None),
    ],
    ids=["seconds", "half", "words", "negative", "none", "date", "past date", "far date", "days", "ages", "no number"],
)
async def test_retry_after(value: str, seconds: float | None) -> None:
    async with playing(Reply(b"", 429, {"retry-after": value}, framing="length")) as (engine, _):
        error = await refused(engine)
        assert error.retry_after == (None if seconds is None else pytest.approx(seconds, abs=900))


# --- connections --------------------------------------------------------------------------------------------------


async def test_a_connection_is_used_again() -> None:
    async with playing(Reply(GOOD)) as (engine, server):
        for _ in range(3):
            assert text_of(await events_of(engine)) == "Hello"
        assert server.connections == 1
        await asyncio.gather(*(events_of(engine) for _ in range(3)))
        assert server.connections == 3


async def test_an_error_leaves_the_connection_usable() -> None:
    async with playing(Reply(b'{"detail": "no"}', 400, JSON, framing="length"), Reply(GOOD)) as (engine, server):
        assert (await refused(engine)).message == "no"
        assert text_of(await events_of(engine)) == "Hello"
        assert server.connections == 1


@pytest.mark.parametrize(
    "reply",
    [
        Reply(GOOD, keep_alive=False),
        Reply(GOOD, framing="close"),
        Reply(GOOD, headers={**EVENT_STREAM, "connection": "close"}),
    ],
)
async def test_a_connection_that_will_close_is_not(reply: Reply) -> None:
    async with playing(reply) as (engine, server):
        assert text_of(await events_of(engine)) == text_of(await events_of(engine)) == "Hello"
        assert server.connections == 2


async def test_an_unfinished_answer_costs_its_connection() -> None:
    async with playing(Reply(GOOD[:60], end="hang"), Reply(GOOD)) as (engine, server):
        stream = await engine.open(ask())
        await stream.aclose()
        await server.client_gone(0)
        assert text_of(await events_of(engine)) == "Hello"
        assert server.connections == 2


async def test_a_stale_connection_is_replaced_once() -> None:
    """The server closed it without a word, which shows only when the next request gets no answer."""
    async with playing(Reply(GOOD), Reply(raw=b"", end="close"), Reply(GOOD)) as (engine, server):
        await events_of(engine)
        assert text_of(await events_of(engine)) == "Hello"
        assert server.connections == 2
        assert len(server.requests) == 3


async def test_a_fresh_connection_without_an_answer_is_an_error() -> None:
    async with playing(Reply(GOOD), Reply(raw=b"", end="close"), Reply(raw=b"", end="reset"), Reply(GOOD)) as (
        engine,
        server,
    ):
        await events_of(engine)
        error = await refused(engine)
        assert error.kind == "connect"
        assert error.retryable
        assert len(server.requests) == 3


async def test_no_second_try_once_something_was_answered() -> None:
    async with playing(Reply(GOOD), Reply(raw=b"HTTP/1.1 200 OK\r\nconte", end="close"), Reply(GOOD)) as (
        engine,
        server,
    ):
        await events_of(engine)
        assert (await refused(engine)).kind == "protocol"
        assert len(server.requests) == 2


async def test_an_answer_to_no_question_is_not_believed() -> None:
    twice = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n%b" % (len(GOOD), GOOD)
    async with playing(Reply(raw=twice * 2, end="hang"), Reply(GOOD)) as (engine, server):
        assert text_of(await events_of(engine)) == "Hello"
        assert text_of(await events_of(engine)) == "Hello"
        assert server.connections == 2


async def test_interim_answers_are_skipped() -> None:
    head = b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\ncontent-type: text/html\r\n\r\n"
    body = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n%b" % (len(GOOD), GOOD)
    for every in (0, 7):
        async with playing(Reply(raw=head + body, every=every, end="hang")) as (engine, _):
            assert text_of(await events_of(engine)) == "Hello"


async def test_idle_connections_grow_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("guard.engines.http.IDLE_SECONDS", 0.01)
    async with playing(Reply(GOOD)) as (engine, server):
        await events_of(engine)
        await asyncio.sleep(0.03)
        await events_of(engine)
        assert server.connections == 2


async def test_nobody_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        engine = OpenAIHttpEngine("e", f"http://127.0.0.1:{taken.getsockname()[1]}", "vllm")
        error = await refused(engine)
        assert error.kind == "connect"
        assert error.retryable
        health = await engine.health()
        assert not health.ok
        assert "no connection" in health.detail


async def test_a_name_that_does_not_resolve() -> None:
    error = await refused(OpenAIHttpEngine("e", "http://nowhere.invalid:1", "vllm"))
    assert error.kind in ("connect", "connect_timeout")


async def test_connect_timeout() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        fillers = [socket.socket() for _ in range(3)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        try:
            engine = OpenAIHttpEngine("e", f"http://127.0.0.1:{full.getsockname()[1]}", "vllm", connect_timeout=0.1)
            assert (await refused(engine)).kind == "connect_timeout"
        finally:
            for filler in fillers:
                filler.close()


# --- time ---------------------------------------------------------------------------------------------------------


async def test_first_token_timeout_before_the_head() -> None:
    async with playing(Reply(GOOD, head_delay=5), first_token_timeout=0.1) as (engine, server):
        begun = time.monotonic()
        assert (await refused(engine)).kind == "first_token_timeout"
        assert time.monotonic() - begun < 1
        await server.client_gone()


async def test_first_token_timeout_after_the_head_and_pings_are_no_tokens() -> None:
    pings = b": ping\n\n" * 100
    async with playing(Reply(pings, every=8, delay=0.02), first_token_timeout=0.15) as (engine, server):
        found = await events_of(engine)
        assert found == [Fault("first_token_timeout", "the first token did not come within 0.15 s")]
        await server.client_gone()


async def test_stall_between_tokens() -> None:
    body = sse(chunk("a"), done=False)
    async with playing(Reply(body, end="hang"), between_tokens_timeout=0.1) as (engine, server):
        begun = time.monotonic()
        found = await events_of(engine)
        assert 0.09 < time.monotonic() - begun < 1
        assert text_of(found) == "a"
        assert found[-1] == Fault("stall", "nothing came for 0.1 s")
        await server.client_gone()


async def test_a_slow_stream_is_no_stall() -> None:
    body = sse(*[chunk("a")] * 12)
    cuts = [i for i in range(len(body)) if body.startswith(b"data", i)]
    async with playing(Reply(body, cuts=cuts, delay=0.04), between_tokens_timeout=0.3) as (engine, _):
        assert text_of(await events_of(engine)) == "a" * 12


async def test_total_timeout_and_deadline() -> None:
    slow = Reply(sse(*[chunk("a")] * 500), every=100, delay=0.01)
    async with playing(slow, total_timeout=0.2) as (engine, server):
        found = await events_of(engine)
        assert isinstance(found[-1], Fault)
        assert found[-1].kind == "total_timeout"
        await server.client_gone()
        found = await events_of(engine, deadline=asyncio.get_running_loop().time() + 0.1)
        assert isinstance(found[-1], Fault)
        assert found[-1].kind == "total_timeout"
        assert (await refused(engine, deadline=asyncio.get_running_loop().time() - 1)).kind == "total_timeout"


async def test_a_body_that_does_not_end_after_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("guard.engines.intake.LINGER_SECONDS", 0.1)
    async with playing(Reply(GOOD, end="hang"), between_tokens_timeout=30) as (engine, server):
        async with asyncio.timeout(2):
            found = await events_of(engine)
        assert found[-2:] == [Done(), Closed(False)]
        await server.client_gone()


async def test_the_reader_is_not_the_engine() -> None:
    """A consumer that takes its time does not make a stall of what has long arrived."""
    body = sse(*[chunk("a")] * 3)
    cuts = [len(sse(chunk("a"), done=False))]
    async with playing(Reply(body, cuts=cuts, delay=0.005), between_tokens_timeout=0.3) as (engine, _):
        stream = await engine.open(ask())
        found: list[StreamEvent] = []
        async for batch in stream:
            found += batch
            await asyncio.sleep(0.4)
        assert text_of(found) == "aaa"
        assert found[-1] == Closed(True)


async def test_cancelling_open_leaves_nothing_behind() -> None:
    async with playing(Reply(GOOD, head_delay=5), Reply(GOOD)) as (engine, server):
        opening = asyncio.create_task(engine.open(ask()))
        await asyncio.sleep(0.1)
        assert server.requests
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        await server.client_gone(0)
        assert text_of(await events_of(engine)) == "Hello"


# --- backpressure -------------------------------------------------------------------------------------------------


async def test_reading_pauses_while_nobody_takes() -> None:
    size = 12_000_000 + 12 * http_exchange.PAUSE_BYTES
    events = sse(*[chunk("x" * 10_000)] * (size // 10_000), done=False)
    sent = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n" % len(events))
        for i in range(0, len(events), 65536):
            writer.write(events[i : i + 65536])
            await writer.drain()
            sent = i
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        engine = OpenAIHttpEngine("e", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", "vllm")
        stream = await engine.open(ask())
        for _ in range(40):
            await asyncio.sleep(0.005)
        held = sent
        assert held < len(events) - http_exchange.PAUSE_BYTES  # the kernel's buffers hold some megabytes too
        taken = len(text_of([event async for batch in stream for event in batch]))
        assert taken == (size // 10_000) * 10_000
        await engine.aclose()


# --- what is sent -------------------------------------------------------------------------------------------------


async def test_the_request_on_the_wire() -> None:
    options = {"api_key": "k", "headers": {"X-Team": "a"}, "model": "served"}
    async with playing(Reply(GOOD), **options) as (engine, server):
        await events_of(engine, traceparent="00-1-2-01", tracestate="a=b", max_tokens=5)
        (got,) = server.requests
        assert (got.method, got.path) == ("POST", "/v1/chat/completions")
        assert got.headers["host"] == server.url.removeprefix("http://")
        assert got.headers["authorization"] == "Bearer k"
        assert got.headers["x-team"] == "a"
        assert got.headers["traceparent"] == "00-1-2-01"
        assert got.headers["tracestate"] == "a=b"
        assert got.headers["content-type"] == "application/json"
        assert got.json["model"] == "served"
        assert got.json["max_tokens"] == 5
        assert got.json["stream"] is True


@pytest.mark.parametrize(
    ("path", "expected"), [("", "/v1"), ("/", "/v1"), ("/v1", "/v1"), ("/a/b", "/a/b/v1"), ("/a/v1/", "/a/v1")]
)
async def test_the_base_path(path: str, expected: str) -> None:
    async with ReplayServer(Reply(GOOD)) as server:
        engine = OpenAIHttpEngine("e", server.url + path, "vllm")
        await events_of(engine)
        assert server.requests[0].path == f"{expected}/chat/completions"
        await engine.aclose()


@pytest.mark.parametrize(("name", "value"), [("x y", "a"), ("x:", "a"), ("", "a"), ("x", "a\r\nb: c"), ("x\n", "a")])
def test_headers_cannot_be_smuggled(name: str, value: str) -> None:
    with pytest.raises(ValueError, match="header"):
        HttpPool("http://127.0.0.1:1", headers={name: value})


@pytest.mark.parametrize("url", ["ftp://x", "x", "http://", "//x"])
def test_addresses(url: str) -> None:
    with pytest.raises(ValueError, match="address"):
        HttpPool(url)


# --- health -------------------------------------------------------------------------------------------------------

MODELS = Reply(b'{"object":"list","data":[{"id":"m"},{"id":"n"}]}', headers=JSON, framing="length")
OK = Reply(b"", headers={}, framing="length")


async def test_health_of_a_good_engine() -> None:
    version = Reply(b'{"version":"0.32.0"}', headers=JSON, framing="length")
    async with playing(OK, MODELS, version) as (engine, server):
        health = await engine.health()
        assert (health.ok, health.models, health.version) == (True, ("m", "n"), "0.32.0")
        assert [r.path for r in server.requests] == ["/health", "/v1/models", "/version"]


async def test_health_of_a_dead_vllm(shared: Path) -> None:
    """Its list of models stays up when the engine core is dead."""
    folder = shared / "recordings" / "vllm"
    dead = Reply.recorded(folder / "after_engine_killed_health")
    async with playing(dead, Reply.recorded(folder / "after_engine_killed_v1_models")) as (engine, _):
        health = await engine.health()
        assert not health.ok
        assert health.detail == "/health answers 503"


async def test_health_without_a_health_page() -> None:
    missing = Reply(b'{"detail":"Not Found"}', 404, JSON, framing="length")
    async with playing(missing, MODELS, dialect="plain") as (engine, _):
        assert (await engine.health()).models == ("m", "n")
    async with playing(missing, Reply(b'{"error":"no key"}', 401, JSON), dialect="plain") as (engine, _):
        health = await engine.health()
        assert (health.ok, health.detail) == (False, "/v1/models answers 401: no key")


@pytest.mark.parametrize("body", [b"", b"[]", b'{"data":{}}', b'{"data":[1,{"id":2}]}', b"<html>"])
async def test_health_with_a_strange_list(body: bytes) -> None:
    async with playing(OK, Reply(body, headers=JSON, framing="length"), dialect="sglang") as (engine, _):
        assert (await engine.health()).models == ()


# --- other loops, TLS ---------------------------------------------------------------------------------------------


def test_on_uvloop() -> None:
    import uvloop

    async def main() -> None:
        async with playing(Reply(GOOD, every=20), Reply(GOOD[:60], end="hang")) as (engine, server):
            assert text_of(await events_of(engine)) == "Hello"
            stream = await engine.open(ask())
            await stream.aclose()
            await server.client_gone()
            assert server.connections == 1

    uvloop.run(main())


def a_certificate(folder: Path) -> tuple[Path, Path]:
    if shutil.which("openssl") is None:
        pytest.skip("openssl, which makes the certificate, is not installed")
    key, certificate = folder / "key.pem", folder / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    return certificate, key


async def test_tls(tmp_path: Path) -> None:
    certificate, key = await asyncio.to_thread(a_certificate, tmp_path)
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    serving.load_cert_chain(certificate, key)
    async with ReplayServer(Reply(GOOD, every=30), tls=serving) as server:
        url = server.url.replace("127.0.0.1", "localhost")
        engine = OpenAIHttpEngine("e", url, "vllm", ssl_context=ssl.create_default_context(cafile=str(certificate)))
        assert text_of(await events_of(engine)) == "Hello"
        await engine.aclose()
        error = await refused(OpenAIHttpEngine("e", url, "vllm"))
        assert error.kind == "connect"
        assert "CERTIFICATE_VERIFY_FAILED" in error.message


# --- the client by itself -----------------------------------------------------------------------------------------


async def test_a_whole_body_is_bounded() -> None:
    async with ReplayServer(Reply(b"x" * 100_000, every=10_000)) as server:
        pool = HttpPool(server.url)
        exchange = await pool.send("GET", "/")
        assert await whole(exchange, 25_000) == b"x" * 25_000
        await server.client_gone()
        await pool.aclose()


async def test_reading_a_closed_exchange_is_an_error() -> None:
    async with ReplayServer(Reply(b"x", end="hang")) as server:
        pool = HttpPool(server.url)
        exchange = await pool.send("GET", "/")
        exchange.close()
        with pytest.raises(TransferError, match="closed on this side"):
            await read(exchange)
        await pool.aclose()
