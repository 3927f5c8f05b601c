"""Bytes on a socket: bodies that are none, limits, methods, clients that leave, that stall, that read slowly."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from guard.events import GuardEvent
from guard.request import GenerationRequest
from guard.server.asgi import serve_http
from guard.server.openai import OpenAIApp
from tests.server.openai_scripted import OpenAIScript, ask, chat, failed, finished, serving, started, text

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@contextlib.asynccontextmanager
async def connected(service: OpenAIScript, **options: Any) -> AsyncIterator[Streams]:
    async with serving(service, **options) as address:
        reader, writer = await asyncio.open_connection(*address)
        try:
            yield reader, writer
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


def post(body: bytes, path: str = "/v1/chat/completions", headers: str = "") -> bytes:
    return f"POST {path} HTTP/1.1\r\nhost: x\r\n{headers}content-length: {len(body)}\r\n\r\n".encode() + body


async def head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    lines = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)).decode().splitlines()
    headers = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
    return int(lines[0].split()[1]), headers


async def whole(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    status, headers = await head(reader)
    body = await asyncio.wait_for(reader.readexactly(int(headers.get("content-length", 0))), 5)
    return status, headers, body


def body(**more: Any) -> bytes:
    return json.dumps(chat(**more)).encode()


BAD_BODIES = [
    (b"", "empty"),
    (b" \n ", "empty"),
    (b"{", "line 1, column 2"),
    (b'{"model": "m",\n "messages": [}', "line 2, column 15"),
    (b'{"model": "m"} x', "line 1, column 16"),
    (b'{"model": "m", "messages": [{"role": "user", "content": "a\\ud83d"}]}', "half of a surrogate pair"),
    (b'{"model": "m", "user": "\\ude00 \\ud83d\\ude00"}', "line 1, column 25"),
    (b'{"model": "m", "user": "\\ud83d\\n"}', "half of a surrogate pair"),
    ('{"é": "é", é}'.encode(), "line 1, column 12"),
    (b'{"model": "\xff"}', "not UTF-8 text: line 1, column 12"),
    (b'{"model": "\\ud83d"}', "line 1, column 12"),
    (b'{"model": NaN}', "line 1, column 11"),
    (b'{"temperature": 1e999}', "out of range"),
    ('{"model": "m"}'.encode("utf-16"), "not UTF-8"),
    (b"[]", "an array"),
    (b'"m"', "a string"),
    (b"1", "a number"),
    (b"null", "null"),
    (b"[" * 100_000 + b"]" * 100_000, "nested"),
    (b'{"a":' * 300 + b"1" + b"}" * 300, "nested"),
    (b"model=m&messages=hi", "line 1, column 1"),
]


@pytest.mark.parametrize(("raw", "says"), BAD_BODIES)
async def test_a_body_that_cannot_be_read(raw: bytes, says: str) -> None:
    service = OpenAIScript()
    reply = await ask(service, raw)
    assert reply.status == 400
    assert reply.error["code"] == "invalid_json"
    assert reply.error["type"] == "invalid_request_error"
    assert says in reply.error["message"]
    assert len(reply.body) < 400
    assert service.requests == []


async def test_a_body_in_a_content_encoding_is_refused_by_name() -> None:
    reply = await ask(OpenAIScript(), b"\x1f\x8b", headers={"content-encoding": "gzip"})
    assert reply.status == 400
    assert "gzip" in reply.error["message"]


@pytest.mark.parametrize(
    "kind", ["", "text/plain", "application/x-www-form-urlencoded", "application/json; charset=utf-8"]
)
async def test_the_content_type_does_not_matter_where_the_body_is_json(kind: str) -> None:
    service = OpenAIScript()
    reply = await ask(service, b"\xef\xbb\xbf" + body(), headers={"content-type": kind} if kind else {})
    assert reply.status == 200


async def test_of_a_key_given_twice_the_last_one_counts_everywhere() -> None:
    service = OpenAIScript()
    raw = b'{"model": "x", "messages": [{"role": "user", "content": "hi"}], "top_k": 1, "model": "m", "top_k": 2}'
    assert (await ask(service, raw)).status == 200
    assert service.request.model == "m"
    assert service.request.extra == {"top_k": 2}


async def test_bodies_over_the_limit() -> None:
    service = OpenAIScript()
    big = body(user="u" * 5000)
    async with connected(service, max_body_bytes=2000) as (reader, writer):
        writer.write(post(big))
        status, _, answer = await whole(reader)
        assert status == 413
        assert json.loads(answer)["error"]["code"] == "request_too_large"
        # the connection is still good, and takes a body in chunks no better
        chunk = b"%x\r\n%s\r\n" % (1000, big[:1000])
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n" + chunk * 4)
        status, _, answer = await whole(reader)
        assert status == 413
        assert json.loads(answer)["error"]["code"] == "request_too_large"
    async with connected(service, max_body_bytes=2000) as (reader, writer):
        writer.write(post(body()))
        assert (await whole(reader))[0] == 200
    assert len(service.requests) == 1


async def test_a_declared_length_is_believed_before_the_body_is_read() -> None:
    async with connected(OpenAIScript(), max_body_bytes=2000) as (reader, writer):
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 999999999999\r\n\r\n{")
        assert (await whole(reader))[0] == 413


async def test_a_body_that_ends_in_the_middle_starts_nothing() -> None:
    service = OpenAIScript()
    async with connected(service) as (reader, writer):
        writer.write(post(body())[:-5])
        await writer.drain()
        writer.write_eof()
        assert await asyncio.wait_for(reader.read(), 5) == b""
    assert service.requests == []


async def test_bytes_that_are_no_http() -> None:
    async with connected(OpenAIScript()) as (reader, writer):
        writer.write(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 hello\r\n\r\n")
        assert (await head(reader))[0] == 400


@pytest.mark.parametrize(
    ("method", "path", "status", "allow"),
    [
        ("GET", "/nowhere", 404, ""),
        ("POST", "/", 404, ""),
        ("POST", "/v1/responses", 404, ""),
        ("GET", "/v1/chat/completions", 405, "POST, OPTIONS"),
        ("DELETE", "/v1/completions", 405, "POST, OPTIONS"),
        ("POST", "/v1/models", 405, "GET, HEAD, OPTIONS"),
        ("DELETE", "/v1/models/m", 405, "GET, HEAD, OPTIONS"),
        ("POST", "/metrics", 405, "GET, HEAD, OPTIONS"),
        ("OPTIONS", "/v1/chat/completions", 204, "POST, OPTIONS"),
        ("OPTIONS", "/healthz", 204, "GET, HEAD, OPTIONS"),
        ("GET", "/healthz", 200, ""),
        ("GET", "/healthz/", 200, ""),
        ("GET", "/readyz", 200, ""),
        ("GET", "/v1/models/org/big", 200, ""),
        ("GET", "/v1/models/none", 404, ""),
    ],
)
async def test_paths_and_methods(method: str, path: str, status: int, allow: str) -> None:
    reply = await ask(OpenAIScript(), b"", method=method, path=path)
    assert reply.status == status
    assert reply.headers.get(b"allow", b"").decode() == allow
    assert reply.ended
    if status >= 400:
        assert set(reply.error) == {"message", "type", "param", "code"}


async def test_head_answers_with_headers_alone() -> None:
    async with connected(OpenAIScript()) as (reader, writer):
        for path in ("/healthz", "/v1/models", "/metrics"):
            writer.write(f"HEAD {path} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
            status, headers = await head(reader)
            assert status == 200
            assert int(headers["content-length"]) > 0
        writer.write(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        _, headers, page = await whole(reader)
        assert page == b"outguard_requests_total 1\n"
        assert headers["content-type"].startswith("text/plain")
        assert await reader.read() == b""


async def test_readiness_is_the_services() -> None:
    service = OpenAIScript()
    service.is_ready = False
    reply = await ask(service, b"", method="GET", path="/readyz")
    assert reply.status == 503
    assert reply.headers[b"retry-after"] == b"1"
    assert "no engine is up" in reply.error["message"]
    assert (await ask(service, b"", method="GET", path="/healthz")).status == 200


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ("", 401),
        ("Bearer", 401),
        ("Bearer wrong", 401),
        ("Basic right", 401),
        ("Bearer right", 200),
        ("bearer  right", 200),
        ("Bearer rïght", 401),
        ("Bearer other", 200),
    ],
)
async def test_api_keys(given: str, status: int) -> None:
    service = OpenAIScript()
    headers = {"authorization": given} if given else {}
    reply = await ask(service, chat(), headers=headers, api_keys=("right", "other"))
    assert reply.status == status
    if status == 401:
        assert reply.error["type"] == "authentication_error"
        assert reply.headers[b"www-authenticate"] == b"Bearer"
        assert service.requests == []
    open_path = await ask(service, b"", method="GET", path="/healthz", api_keys=("right",))
    assert open_path.status == 200


async def test_request_ids() -> None:
    service = OpenAIScript()
    reply = await ask(service, chat(), headers={"x-request-id": "abc-1"})
    assert reply.headers[b"x-request-id"] == b"abc-1"
    assert service.request.id == "abc-1"
    for odd in ("", "a b", "x" * 200, "caf\xe9"):
        reply = await ask(service, chat(stream=True), headers={"x-request-id": odd})
        assert reply.headers[b"x-request-id"].startswith(b"req-")
        assert service.request.id == reply.headers[b"x-request-id"].decode()


async def test_callers_headers_reach_the_request() -> None:
    service = OpenAIScript()
    before = time.monotonic()
    await ask(
        service,
        chat(outguard={"retention": "hash", "policy": "loose", "timeout": 900}),
        headers={
            "x-outguard-policy": "tight",
            "x-outguard-retention": "full",
            "x-outguard-engines": "a, b,",
            "x-outguard-tenant": "t1",
            "x-outguard-timeout": "2.5",
            "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "tracestate": "x=1",
        },
        request_timeout=60,
    )
    request = service.request
    assert request.policy == "tight"
    assert request.retention == "hash"  # the stricter of the two
    assert request.engines == ("a", "b")
    assert request.tenant == "t1"
    assert request.traceparent.startswith("00-4bf9")
    assert request.tracestate == "x=1"
    assert request.deadline is not None
    assert 2.4 < request.deadline - before < 3.5


@pytest.mark.parametrize(
    ("name", "value"), [("x-outguard-timeout", "soon"), ("x-outguard-timeout", "-1"), ("x-outguard-retention", "some")]
)
async def test_headers_that_are_wrong_are_named(name: str, value: str) -> None:
    reply = await ask(OpenAIScript(), chat(), headers={name: value})
    assert reply.status == 400
    assert reply.error["param"] == name


async def test_the_limit_of_time_holds_for_callers_that_set_none() -> None:
    service = OpenAIScript()
    before = time.monotonic()
    await ask(service, chat(), request_timeout=60)
    assert service.request.deadline is not None
    assert 59 < service.request.deadline - before < 61


# --- streams on a socket ---------------------------------------------------------------------------------------------


async def test_the_status_waits_for_the_first_text() -> None:
    service = OpenAIScript(lambda request: [started(request), 0.2, [text("a")], [finished()]])
    async with connected(service) as (reader, writer):
        writer.write(post(body(stream=True)))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.1)
        status, headers = await head(reader)
    assert status == 200
    assert headers["content-type"] == "text/event-stream; charset=utf-8"
    assert headers["cache-control"] == "no-cache"


async def test_a_failed_stream_is_cut_short_of_its_end() -> None:
    service = OpenAIScript(lambda request: [started(request), [text("a")], [failed("stream_cut")]])
    async with connected(service) as (reader, writer):
        writer.write(post(body(stream=True)))
        await head(reader)
        rest = await asyncio.wait_for(reader.read(), 5)  # the server closes
    assert b'"error"' in rest
    assert b"[DONE]" not in rest
    assert b'"finish_reason":"' not in rest
    assert not rest.endswith(b"0\r\n\r\n")


async def test_text_and_failure_in_one_batch_are_both_told() -> None:
    service = OpenAIScript(lambda request: [started(request), [text("a"), failed("collapsed")]])
    reply = await ask(service, chat(stream=True))
    assert reply.status == 200
    assert not reply.ended
    assert reply.events[1]["choices"][0]["delta"] == {"content": "a"}
    assert reply.events[-1]["error"]["code"] == "collapsed"
    service = OpenAIScript(lambda request: [started(request), [failed("collapsed")]])
    reply = await ask(service, chat(stream=True))
    assert reply.status == 502
    assert reply.headers[b"x-should-retry"] == b"false"


async def until(condition: Callable[[], Any], seconds: float) -> float:
    """How long it took until the condition held."""
    start = time.monotonic()
    while not condition():
        if time.monotonic() - start > seconds:
            raise AssertionError(f"not within {seconds} s")
        await asyncio.sleep(0.005)
    return time.monotonic() - start


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("started_talking", [False, True])
async def test_a_client_that_leaves_cancels_its_work_at_once(stream: bool, started_talking: bool) -> None:
    talk: list[Any] = [[text("a")]] if started_talking else []
    service = OpenAIScript(lambda request: [started(request), *talk, 60.0, [finished()]])
    async with connected(service) as (reader, writer):
        writer.write(post(body(stream=stream)))
        if stream and started_talking:
            await head(reader)
        else:
            await until(lambda: service.requests, 2)
            await asyncio.sleep(0.05)
        assert not service.closed_at
        writer.transport.abort()
        left = time.monotonic()
        await until(lambda: service.closed_at, 1)
        assert service.closed_at[0] - left < 0.2


async def test_a_slow_reader_slows_its_own_stream_only() -> None:
    piece = "x" * 10_000
    steps: list[list[GuardEvent]] = [[text(piece)] for _ in range(2000)]  # 20 MB

    def play(request: GenerationRequest) -> list[Any]:
        many = steps if request.extra.get("many") else [[text("a")]]
        return [started(request), *many, [finished()]]

    service = OpenAIScript(play)
    async with serving(service) as address:
        _, writer = await asyncio.open_connection(*address, limit=1024)
        writer.write(post(body(stream=True, many=True)))
        await until(lambda: service.pulled > 5, 5)
        taken = -1
        while taken != service.pulled:  # until the kernel's buffers are full
            taken = service.pulled
            await asyncio.sleep(0.15)
        assert taken < 1500
        quick, other = await asyncio.open_connection(*address)
        other.write(post(body()))
        assert (await whole(quick))[0] == 200
        other.close()
        writer.transport.abort()
        left = time.monotonic()
        await until(lambda: len(service.closed_at) == 2, 1)
        assert service.closed_at[-1] - left < 0.2


async def test_a_reader_that_never_reads_is_left_after_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("guard.server.openai.DEADLINE_GRACE_S", 0.1)
    steps: list[Any] = [[text("x" * 10_000)] for _ in range(2000)]
    service = OpenAIScript(lambda request: [started(request), *steps, [finished()]])
    async with connected(service) as (_, writer):
        writer.write(post(body(stream=True), headers="x-outguard-timeout: 0.3\r\n"))
        await until(lambda: service.closed_at, 2)


async def test_a_guard_that_overruns_its_deadline_is_answered_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("guard.server.openai.DEADLINE_GRACE_S", 0.05)
    service = OpenAIScript(lambda request: [started(request), 60.0])
    reply = await ask(service, chat(), headers={"x-outguard-timeout": "0.1"})
    assert reply.status == 504
    assert reply.error["code"] == "deadline_exceeded"
    assert service.closed_at


async def test_connections_are_kept_and_requests_can_be_sent_ahead() -> None:
    async with connected(OpenAIScript()) as (reader, writer):
        writer.write(post(body()) + post(body()) + post(b"{"))
        statuses = [(await whole(reader))[0] for _ in range(3)]
    assert statuses == [200, 200, 400]


async def test_expect_continue() -> None:
    raw = body()
    async with connected(OpenAIScript()) as (reader, writer):
        writer.write(post(raw, headers="expect: 100-continue\r\n")[: -len(raw)])
        assert await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5) == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(raw)
        assert (await whole(reader))[0] == 200


async def test_the_server_lets_answers_end_when_it_stops() -> None:
    service = OpenAIScript(lambda request: [started(request), [text("a")], 0.3, [text("b")], [finished()]])
    server = serve_http(OpenAIApp(service), grace=5)
    task = asyncio.create_task(server.serve())
    address = server.address
    reader, writer = await asyncio.open_connection(*address)
    writer.write(post(body(stream=True)))
    await head(reader)
    server.stop()
    rest = await asyncio.wait_for(reader.read(), 5)
    assert rest.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
    await task
    writer.close()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(*address)


async def test_an_address_in_use_is_an_os_error() -> None:
    server = serve_http(OpenAIApp(OpenAIScript()))
    with pytest.raises(OSError, match="in use"):
        serve_http(OpenAIApp(OpenAIScript()), *server.address)
    server.listener.close()


async def test_a_callers_own_words_come_back_shortened() -> None:
    reply = await ask(OpenAIScript(), chat(outguard={"x" * 5000: 1}))
    assert reply.status == 400
    assert len(reply.body) < 2000
    reply = await ask(OpenAIScript(), b"", method="GET", path="/" + "x" * 5000)
    assert reply.status == 404
    assert len(reply.body) < 500


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /healthz HTTP/1.1\r\nhost: x\r\n" + b"x-more: " + b"a" * 70_000,
        b"GET /healthz HTTP/1.1\r\n" + b"".join(b"x-%d: a\r\n" % n for n in range(9_000)),
        b"GET /" + b"a" * 70_000,
    ],
    ids=["value", "many", "path"],
)
@pytest.mark.parametrize("first", [True, False])
async def test_the_head_of_a_request_is_bounded(sent: bytes, first: bool) -> None:
    async with connected(OpenAIScript([])) as (reader, writer):
        if not first:
            writer.write(post(b"{}"))
            assert (await whole(reader))[0] == 400
        writer.write(sent)
        status, headers, told = await whole(reader)
        assert (status, headers["connection"]) == (431, "close")
        assert json.loads(told)["error"]["code"] == "request_too_large"
        assert await asyncio.wait_for(reader.read(), 5) == b""


async def test_a_long_body_is_no_long_head() -> None:
    async with connected(OpenAIScript([])) as (reader, writer):
        for _ in range(2):
            writer.write(post(b'{"x": "' + b"a" * 200_000 + b'"}'))
            assert (await whole(reader))[0] == 400


async def test_a_connection_that_was_just_made_may_still_ask_when_the_server_stops() -> None:
    server = serve_http(OpenAIApp(OpenAIScript([])), grace=5)
    task = asyncio.create_task(server.serve())
    asks, stays_silent = [await asyncio.open_connection(*server.address) for _ in range(2)]
    await asyncio.sleep(0.2)
    server.stop()
    await asyncio.sleep(0.2)  # the server looks at it every tenth of a second
    asks[1].write(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
    assert (await whole(asks[0]))[0] == 200
    for reader, _ in (asks, stays_silent):
        assert await asyncio.wait_for(reader.read(), 5) == b""
    await asyncio.wait_for(task, 5)
