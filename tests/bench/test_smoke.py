"""The bench itself must not rot: engine and generator, in every mode, in a few hundred milliseconds."""

from __future__ import annotations

import json
import re
import shutil
import socket
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench.http_path import SCENARIOS, Scenario, goals, measure, summary, table
from tests.bench.loopback import BenchError, DummyEngine, Load, Native, compile_native, run_load
from tests.bench.proxies import Proxy, passthrough

pytestmark = pytest.mark.skipif(not (shutil.which("gcc") or shutil.which("cc")), reason="there is no C compiler")


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Native:
    return compile_native(tmp_path_factory.mktemp("native"))


@pytest.fixture
def engine(native: Native) -> Iterator[DummyEngine]:
    with DummyEngine(native) as running:
        yield running


@pytest.mark.parametrize("model", ["p2", "s2", "flat", "s2j", "s2c"])
def test_every_chunk_of_every_stream_arrives(native: Native, engine: DummyEngine, model: str) -> None:
    seen = run_load(native, engine.port, Load(model, streams=8, requests=16, tokens=40))
    assert seen["requests"] == 16
    assert seen["chunks"] == seen["events"] == 640
    assert seen["wall_s"] > 0.12 or model == "flat"


def test_whole_answers(native: Native, engine: DummyEngine) -> None:
    seen = run_load(native, engine.port, Load("flat", streams=4, requests=40, tokens=200, streamed=False))
    assert seen["requests"] == seen["events"] == 40


def test_an_engine_that_refuses_or_is_away_gives_no_number(native: Native, engine: DummyEngine) -> None:
    with pytest.raises(BenchError, match="400"):
        run_load(native, engine.port, Load("a-model-whose-name-is-far-too-long-for-it", 1, 1, 8))
    port = engine.port
    engine.__exit__(None, None, None)
    with pytest.raises(BenchError, match="cannot connect"):
        run_load(native, port, Load("flat", 1, 1, 8))


@pytest.mark.parametrize(
    ("stream", "why"),
    [
        (b'data: {"choices":[{"delta":{"content":"no such text"}}]}\n\n', "the text differs at byte 0"),
        (b"data: [DONE]\n\n", "0 of [0-9]+ bytes of text came"),
        (b'data: {"error":{"message":"broken"}}\n\n', "an error: .*broken"),
        (b"nonsense\n", "not an event: nonsense"),
        (b"", "0 of [0-9]+ bytes of text came"),
    ],
)
def test_a_wrong_answer_is_no_number(native: Native, stream: bytes, why: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                framed = b"%x\r\n%s\r\n" % (len(stream), stream) if stream else b""
                connection.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + framed + b"0\r\n\r\n")
                connection.recv(1)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(BenchError, match=why):
            run_load(native, listener.getsockname()[1], Load("flat", 1, 1, 8))
        thread.join(5)


@pytest.mark.parametrize("tokens", [16, 17, 23, 24, 25, 300])
def test_a_document_is_whole_and_under_the_schema(native: Native, engine: DummyEngine, tokens: int) -> None:
    for seed in range(20):
        body = json.dumps({"model": "flatj", "seed": seed, "max_tokens": tokens}).encode()
        with urllib.request.urlopen(f"{engine.url}/v1/chat/completions", data=body, timeout=5) as reply:
            document = json.loads(json.load(reply)["choices"][0]["message"]["content"])
        assert list(document) == ["rows"]
        assert all(type(row["id"]) is int and type(row["note"]) is str and len(row) == 2 for row in document["rows"])


def test_a_document_needs_room(native: Native, engine: DummyEngine) -> None:
    with pytest.raises(BenchError, match="16 tokens at least"):
        run_load(native, engine.port, Load("flatj", 1, 1, 15))


def test_the_text_is_made_from_the_seed_and_does_not_repeat(engine: DummyEngine) -> None:
    def answer(seed: int) -> bytes:
        body = b'{"model": "flat", "seed": %d, "max_tokens": 300, "messages": []}' % seed
        request = urllib.request.Request(f"{engine.url}/v1/chat/completions", data=body)
        with urllib.request.urlopen(request, timeout=5) as reply:
            return bytes(reply.read()).split(b'"content":"')[1]

    one, again, other = answer(1), answer(1), answer(2)
    assert one == again != other
    assert len(set(one.split())) > 100


def test_the_table_of_a_run(native: Native, engine: DummyEngine) -> None:
    scenario = next(scenario for scenario in SCENARIOS if scenario.name == "whole1")
    direct = measure(native, engine, None, scenario)
    assert direct["load_us"] > 0
    assert direct["engine_us"] > 0
    through = {**direct, "proxy_us": 10.0}
    row = summary(
        scenario,
        {"direct": [direct], "passthrough": [through], "sidecar": [through]},
        dict.fromkeys(("direct", "passthrough", "sidecar"), 0.0),
    )
    assert row["cpu_ratio"] == row["wall_ratio"] == row["to_passthrough"] == 1
    sidecar = {"started_in_s": 1.0, "memory_mb": 50.0, "idle_ms_per_s": 0.0, "writer_idle_ms_per_s": 0.0}
    text = table({"machine": "m", "rounds": 1, "modules": "compiled", **sidecar, "scenarios": {scenario.name: row}})
    assert scenario.what in text
    assert re.search(r"whole1: CPU, us +200 +10\n", text)
    assert "missed" not in text


def test_a_goal_that_is_missed_is_said() -> None:
    row = {"sidecar": {"proxy_us": 21.0}, "to_peers": {"vllm-router": 1.5}}
    text = "\n".join(goals({"memory_mb": 151.0, "scenarios": {"step": row}}))
    assert len(re.findall("missed", text)) == 3


def test_memory_grows_by_the_highest_of_all_rounds_over_the_warm_up(native: Native, engine: DummyEngine) -> None:
    scenario = Scenario("small", "", Load("flat", 4, 8, 32))
    direct = measure(native, engine, None, scenario)
    rounds = [{**direct, "proxy_us": 1.0, "memory_mb": mb} for mb in (52.0, 51.0)]
    runs = {"direct": [direct] * 2, "passthrough": rounds, "sidecar": rounds}
    row = summary(scenario, runs, dict.fromkeys(runs, 50.0))
    assert row["sidecar"]["kb_a_stream"] == 500


def test_a_proxy_is_measured(native: Native, engine: DummyEngine, tmp_path: Path) -> None:
    with passthrough(tmp_path, engine.url) as proxy:
        through = measure(native, engine, proxy, Scenario("small", "", Load("flat", 4, 8, 32)))
        assert through["proxy_us"] > 0
        assert through["events"] == 32
        assert proxy.memory_mb() > 5
        assert proxy.children_cpu() == 0


def test_a_proxy_that_does_not_start_says_why(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit('no such thing')"]
    with pytest.raises(BenchError, match="no such thing"), Proxy(command, tmp_path / "log"):
        pass
