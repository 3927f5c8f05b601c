"""Many streams, slow readers, callers that leave: what one does costs nobody else, and nothing is left behind."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from replay_server import Reply, chunk, sse
from sidecar_process import ASK, Played, Sidecar, played, until

from guard.events import Release
from guard.v1 import guard_pb2 as pb
from guard.v1 import guard_pb2_grpc

WORDS = [f"{a}{b} " for a in ("lamp", "sea", "storm", "night", "boat") for b in "abcdefghijklmnop"]
STREAM = Reply(sse(*map(chunk, WORDS), chunk(finish="stop")), every=2000, delay=0.01)
"""80 pieces over about 70 milliseconds."""
TEXT = "".join(WORDS)


@pytest.fixture(scope="module")
def engine_played() -> Iterator[Played]:
    with played(STREAM) as engine:
        yield engine


@pytest.fixture(scope="module")
def busy(engine_played: Played, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    """A sidecar of its own, so that what it holds is what these tests have left."""
    with Sidecar(
        tmp_path_factory.mktemp("busy"), {"a": engine_played.url}, limits={"max_requests": 100}, dialect="plain"
    ) as running:
        yield running
        assert running.stop() == 0
    assert not running.faults


def _many(count: int, at_once: int, work: Callable[[int], Any]) -> list[Any]:
    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(work, range(count)))


def _connect(sidecar: Sidecar, body: dict[str, Any], *, receive: int | None = None) -> socket.socket:
    host, _, port = sidecar.http.removeprefix("http://").partition(":")
    connection = socket.socket()
    if receive is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
    connection.settimeout(20)
    connection.connect((host, int(port)))
    data = json.dumps({"model": "m", "messages": ASK, **body}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(data)}\r\n\r\n"
    connection.sendall(head.encode() + data)
    return connection


def test_many_streams_and_nothing_left(busy: Sidecar, engine_played: Played) -> None:
    """Two hundred requests of every kind: whole, streamed, of two choices, over gRPC, left in the middle, wrong."""
    engine_played.play(STREAM)
    client = busy.client()

    def one(number: int) -> str:
        kind = number % 6
        if kind == 0:
            return busy.post({"stream": True}).content
        if kind == 1:
            return busy.post().content
        if kind == 2:
            return busy.post({"n": 2, "stream": True}).content
        if kind == 3:
            return client.generate("m", ASK, timeout=30).text()
        if kind == 4:
            if number % 4:
                with _connect(busy, {"stream": True}) as connection:
                    connection.recv(200)
            else:
                generation = client.generate("m", ASK, timeout=30)
                next(iter(generation))
                generation.cancel()
            return TEXT
        answer = busy.post({"model": "nope"} if number % 4 else {"messages": []})
        assert answer.status in (400, 404)
        return TEXT

    def quiet() -> bool:
        return busy.metric("outguard_requests_in_flight") == 0

    with _connect(busy, {"stream": True}) as connection:
        connection.recv(200)
        assert busy.metric("outguard_requests_in_flight") == 1
    _many(12, 4, one)  # pools are filled, modules loaded
    assert until(quiet)
    files, memory = len(busy.open_files()), busy.resident_mb()
    assert set(_many(120, 10, one)) == {TEXT}
    assert until(quiet)
    client.close()
    # idle connections to the engine close after a few seconds; the callers' own are closed
    assert until(lambda: len(busy.open_files()) <= files + 10, 8), busy.open_files()
    assert busy.resident_mb() < memory + 40
    assert busy.metric("outguard_requests_in_flight") == 0
    assert busy.metric("outguard_trace_writer_up") == 1
    assert not busy.faults


def test_a_slow_reader_holds_up_nobody_else(busy: Sidecar, engine_played: Played) -> None:
    """It reads a kilobyte a second of an answer of two megabytes; the others are as quick as without it, and what it
    has not taken waits at the engine, not in our memory."""
    long = Reply(sse(*(chunk(f"{word}{number} ") for number in range(300) for word in WORDS), chunk(finish="stop")))
    engine_played.play(long, long, STREAM)
    memory = busy.resident_mb()
    over_http = _connect(busy, {"stream": True}, receive=4096)
    with grpc.insecure_channel(busy.grpc, [("grpc.http2.lookahead_bytes", 4096)]) as channel:
        call = guard_pb2_grpc.GuardStub(channel).Generate(pb.GenerateRequest(model="m", text="x"), timeout=60)
        next(call)
        assert until(lambda: len(engine_played.asked) == 2)
        stop = threading.Event()

        def dawdle() -> None:
            while not stop.wait(0.25):
                over_http.recv(256)

        reader = threading.Thread(target=dawdle)
        reader.start()
        try:
            began = time.monotonic()
            for _ in range(10):
                assert busy.post({"stream": True}).content == TEXT
            assert time.monotonic() - began < 5
            assert busy.resident_mb() < memory + 40
        finally:
            stop.set()
            reader.join()
            over_http.close()
            call.cancel()
    assert until(lambda: busy.metric("outguard_requests_in_flight") == 0)


def test_above_the_limit(busy: Sidecar, engine_played: Played, tmp_path: Path) -> None:
    engine_played.play(Reply(STREAM.body, every=1000, delay=0.05))
    with Sidecar(tmp_path, {"a": engine_played.url}, limits={"max_requests": 2}) as sidecar:
        answers = _many(6, 6, lambda number: sidecar.post({"stream": bool(number % 2)}))
        assert sorted({answer.status for answer in answers}) == [200, 429]
        for answer in answers:
            if answer.status == 429:
                assert answer.error["code"] == "overloaded"
                assert int(answer.headers["retry-after"]) >= 1
            else:
                assert answer.content == TEXT
        assert until(lambda: sidecar.get("/readyz").status == 200)
        assert sidecar.post().status == 200


def test_a_caller_that_never_sends_its_body(busy: Sidecar) -> None:
    host, _, port = busy.http.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
        assert busy.post().status == 200
    assert busy.get("/healthz").status == 200


def test_a_caller_of_many_choices_leaves(busy: Sidecar, engine_played: Played) -> None:
    """Sixteen requests to engines are its, and all of them end with it."""
    engine_played.play(Reply(STREAM.body, stop_after=STREAM.body.index(b"lampc"), end="hang"))
    connection = _connect(busy, {"stream": True, "n": 16})
    assert until(lambda: len(engine_played.asked) == 16)
    connection.recv(200)
    connection.close()
    left = time.monotonic()
    assert until(lambda: all(request.gone.is_set() for request in engine_played.server.requests))
    assert time.monotonic() - left < 1
    assert until(lambda: busy.metric("outguard_requests_in_flight") == 0)


def test_a_caller_that_leaves_while_its_constraint_is_compiled(busy: Sidecar, engine_played: Played) -> None:
    # large enough to be compiled by a process of its own first
    schema = {"type": "object", "properties": {f"property_{i}": {"type": "string"} for i in range(3000)}}
    format_ = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    engine_played.play(STREAM)
    with busy.client() as client:
        client.generate("m", ASK, timeout=20).read()  # gRPC is awake while the process is made
    engine_played.play(STREAM)
    before = busy.metric("outguard_requests_total")
    connection = _connect(busy, {"response_format": format_})
    time.sleep(0.05)
    connection.close()
    assert until(lambda: busy.metric("outguard_requests_total") == before + 1)
    assert not engine_played.asked
    assert not busy.faults


def test_two_protocols_at_once_do_not_mix(busy: Sidecar, engine_played: Played) -> None:
    engine_played.play(STREAM)

    def over_grpc(_: int) -> str:
        with busy.client() as client:
            return "".join(e.text for e in client.generate("m", ASK, timeout=30) if isinstance(e, Release))

    def over_http(_: int) -> str:
        return busy.post({"stream": True}).content

    assert set(_many(16, 8, lambda number: (over_grpc, over_http)[number % 2](number))) == {TEXT}
