"""The gate itself: what it lets through, what not, and that its own answers take the ordinary path."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.bench import gate
from tests.bench.gate import GateError, Stream, constraint_of, least, read_baseline, verdict, write_baseline


@pytest.mark.parametrize(
    ("now", "says"),
    [
        ({"text": 2.0, "json": 4.0}, []),
        ({"text": 2.29, "json": 1.0}, []),
        ({"text": 2.4, "json": 4.0}, ["text: 2.40 yardsticks a chunk, +20 % on the baseline's 2.00"]),
        ({"text": 2.0}, ["json is in the baseline and was not measured"]),
        ({"text": 2.0, "json": 4.0, "more": 1.0}, ["more is not in the baseline; add it with --write"]),
    ],
)
def test_the_verdict(now: dict[str, float], says: list[str]) -> None:
    assert verdict({"text": 2.0, "json": 4.0}, now) == says


def test_the_least_of_every_turn_counts() -> None:
    work = gate.TURN * gate.STREAMS
    stick = gate.YARDSTICK_LOOPS * gate.STREAMS
    quiet, busy = (10_000 * work, 5_000 * stick), (90_000 * work, 80_000 * stick)
    assert least([[quiet, busy], [busy, quiet]]) == {"us": 10.0, "yardsticks": 2.0}


@pytest.mark.parametrize("workload", gate.WORKLOADS, ids=lambda workload: workload.name)
def test_the_answers_are_ordinary_ones(workload: gate.Workload) -> None:
    compiled = constraint_of(workload)
    stream = Stream(workload, 7, compiled)
    for chunk in stream.chunks:
        stream.writer.feed(stream.guard.feed(stream.reader.feed(chunk)))
    stream.check()
    assert stream.guard.findings == []
    assert (compiled is not None) == (workload.name == "json")


def test_an_answer_that_does_not_pass_is_no_measurement() -> None:
    stream = Stream(gate.WORKLOADS[0], 7, None)
    stream.guard.feed(stream.reader.feed(b"data: nonsense\n\n"))
    with pytest.raises(GateError, match="did not pass"):
        stream.check()


def test_a_baseline_holds_other_versions_of_python_too(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    path.write_text('{"yardsticks": {"3.0": {"text": 9.0}}}')
    with pytest.raises(GateError, match=r"no baseline for Python .* \(there is for 3\.0\)"):
        read_baseline(path)
    write_baseline(path, {"text": 2.0004})
    assert read_baseline(path) == {"text": 2.0}
    assert json.loads(path.read_text())["yardsticks"]["3.0"] == {"text": 9.0}


def test_a_baseline_that_is_none_is_said(tmp_path: Path) -> None:
    (tmp_path / "broken").write_text("[]")
    for name in ("broken", "absent"):
        with pytest.raises(GateError, match=name):
            read_baseline(tmp_path / name)


@pytest.mark.parametrize(("costs", "code", "measured"), [([2.0], 0, 1), ([2.5, 2.1], 0, 2), ([2.5, 2.4, 2.5], 1, 3)])
def test_a_cost_above_is_measured_again(
    costs: list[float], code: int, measured: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    left = list(costs)
    monkeypatch.setattr(gate, "BASELINE", tmp_path / "baseline.json")
    write_baseline(gate.BASELINE, {"text": 2.0})
    monkeypatch.setattr(gate, "measure", lambda _: {"text": {"us": 1.0, "yardsticks": left.pop(0)}})
    done = CliRunner().invoke(gate.main, [])
    assert done.exit_code == code, done.output
    assert len(costs) - len(left) == measured
