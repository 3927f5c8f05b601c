"""The gRPC generator gives a number only for answers that are whole and the engine's own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from guard.v1 import guard_pb2 as pb
from tests.bench.grpc_load import Call, WrongAnswer, asked_directly, request, text_of
from tests.bench.grpc_path import SCENARIOS, medians, run_grpc_load, table
from tests.bench.loopback import BenchError, DummyEngine, Load, compile_native
from tests.bench.proxies import free_ports

STARTED = pb.GenerateResponse(started=pb.Started(request_id="r"))
PIECES = [pb.GenerateResponse(delta=pb.Delta(content=text)) for text in ("All", " is", " well.")]
FINISHED = pb.GenerateResponse(finished=pb.Finished())
FAILED = pb.GenerateResponse(failed=pb.Failed())


def call(*messages: pb.GenerateResponse) -> Call:
    return Call(7, [message.SerializeToString() for message in messages])


def test_a_whole_answer() -> None:
    assert text_of(call(STARTED, *PIECES, FINISHED)) == "All is well."


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ((), "0 ends after 0 deltas"),
        ((STARTED, *PIECES), "0 ends after 3 deltas"),
        ((STARTED, *PIECES, FINISHED, FINISHED), "2 ends"),
        ((STARTED, PIECES[0], FAILED), "holds a failed"),
    ],
)
def test_any_other_is_none(messages: tuple[pb.GenerateResponse, ...], why: str) -> None:
    with pytest.raises(WrongAnswer, match=why):
        text_of(call(*messages))


def test_the_request_asks_for_the_seed() -> None:
    asked = pb.GenerateRequest.FromString(request("s10", 42, 256))
    assert (asked.model, asked.sampling.seed, asked.sampling.max_tokens) == ("s10", 42, 256)


@pytest.mark.skipif(not (shutil.which("gcc") or shutil.which("cc")), reason="there is no C compiler")
def test_the_engine_says_the_same_to_the_same_seed(tmp_path: Path) -> None:
    with DummyEngine(compile_native(tmp_path)) as engine:
        one, again, other = (asked_directly(engine.port, "flat", seed, 64) for seed in (1, 1, 2))
    assert one == again != other


def test_a_port_where_nobody_listens_gives_no_number() -> None:
    (port,) = free_ports(1)
    with pytest.raises(BenchError, match="had not ended after 2 s"):
        run_grpc_load(port, port, Load("flat", 1, 1, 8, seconds=2))


def test_the_table_says_what_missed_its_goal() -> None:
    keys = ("grpc_us", "http_us", "to_http", "load_us", "messages", "first_us", "wall_s")
    rows = {scenario.name: medians([dict.fromkeys(keys, 30.0)]) for scenario in SCENARIOS}
    text = table({"machine": "m", "rounds": 1, "modules": "compiled", "memory_mb": 1.0, "scenarios": rows})
    assert [line.split()[0] for line in text.splitlines() if line.endswith("missed")] == ["flat"]
