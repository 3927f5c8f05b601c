"""A run on disk: killed anywhere, it goes on where it was, and says the same as one that was never killed."""

from __future__ import annotations

import asyncio
import json
import stat
from pathlib import Path

import pytest
import replayed
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from replayed import DELIVERED, sources

from guard.engines.contract import EngineError
from guard.engines.scripted import Play, ScriptedEngine, answer, telling
from replay import journal as journals
from replay.campaign import Campaign, conduct
from replay.journal import Journal, read
from replay.lanes import Outcome, Progress
from replay.matrix import Matrix
from replay.select import Selection
from replay.source import ReplayError

MATRIX = Matrix(concurrency=("alone", "copies:2"), repeats=2)
CONFIG = replayed.configured("a", "b")


def engines() -> dict[str, ScriptedEngine]:
    return {"a": ScriptedEngine("a", telling(DELIVERED)), "b": ScriptedEngine("b", telling("The end."))}


async def resumed(path: Path) -> tuple[Outcome, dict[str, ScriptedEngine]]:
    made = engines()
    with Journal.resume(path) as journal:
        return await conduct(CONFIG, journal, lambda _: None, engines=dict(made)), made


def shape(outcome: Outcome) -> list[object]:
    return [(one.request_id, one.cell, one.repeat, one.text, one.in_flight) for one in outcome.observations]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, list[object]]:
    """The bytes of a run that was never killed, and what it saw."""
    outcome, journal = asyncio.run(
        replayed.run(tmp_path_factory.mktemp("run"), MATRIX, dict(engines()), sources(3), config=CONFIG)
    )
    return journal.path.read_bytes(), shape(outcome)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(where=st.floats(0, 1))
def test_killed_anywhere_it_goes_on_where_it_was(
    tmp_path: Path, finished: tuple[bytes, list[object]], where: float
) -> None:
    data, expected = finished
    head = data.index(b"\n") + 1
    cut = head + round((len(data) - head) * where)
    path = tmp_path / "x.run.jsonl"
    path.write_bytes(data[:cut])
    outcome, made = asyncio.run(resumed(path))
    assert shape(outcome) == expected
    assert outcome.left == 0
    whole = data[:cut].rfind(b"\n") + 1
    was_there = sum(len(json.loads(line)["observations"]) for line in data[head:whole].splitlines())
    assert sum(len(engine.requests) for engine in made.values()) == len(expected) - was_there  # nothing is asked twice
    again, made = asyncio.run(resumed(path))
    assert shape(again) == expected
    assert not made["a"].requests


async def test_an_engine_that_was_down_is_asked_again(tmp_path: Path) -> None:
    down = {name: ScriptedEngine(name, lambda _: Play(error=EngineError("connect", "refused"))) for name in "ab"}
    outcome, journal = await replayed.run(tmp_path, MATRIX, dict(down), sources(3), config=CONFIG)
    assert set(outcome.given_up) == {cell.lane for cell in journal.head.cells}
    again, _ = await resumed(journal.path)
    assert again.left == 0
    assert all(one.answered for one in again.observations)
    assert len(again.observations) == 2 * 2 * 3 * (1 + 2)
    refuses = {
        name: ScriptedEngine(name, lambda _: Play(error=EngineError("status", "no", status=400))) for name in "ab"
    }
    outcome, journal = await replayed.run(tmp_path / "b", Matrix(), dict(refuses), sources(3), config=CONFIG)
    _, made = await resumed(journal.path)
    assert not made["a"].requests  # it was refused for good


async def test_told_to_end_it_leaves_what_it_has(tmp_path: Path) -> None:
    slow = {"a": ScriptedEngine("a", lambda _: answer("a", "b", pause=0.02))}
    config = replayed.configured("a")
    campaign = Campaign(config, Matrix(), Selection(sources(20), 20, {}))
    stop = asyncio.Event()
    seen = 0

    def told(_: Progress) -> None:
        nonlocal seen
        seen += 1
        if seen == 3:
            stop.set()

    with Journal.create(tmp_path, campaign.head(1.0, "")) as journal:
        outcome = await conduct(config, journal, told, engines=dict(slow), stop=stop)
    assert outcome.stopped
    assert len(outcome.observations) == 3
    assert outcome.left == 17
    assert slow["a"].streams[-1].closed_early or slow["a"].streams[-1].finished
    assert len(read(journal.path)[1]) == 3


def test_a_run_is_its_owner_s_and_one_process_s(tmp_path: Path) -> None:
    campaign = Campaign(CONFIG, MATRIX, Selection(sources(1), 1, {}))
    with Journal.create(tmp_path / "runs", campaign.head(1.0, "")) as journal:
        assert stat.S_IMODE(journal.path.stat().st_mode) == 0o600
        with pytest.raises(ReplayError, match="another process is running it"):
            Journal.resume(journal.path)
        assert journals.find(tmp_path / "runs", journal.head.id[:10]) == journal.path
    with Journal.resume(journal.path):
        pass


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "does not begin like a run"),
        (b"hello\n", "does not begin like a run"),
        (b'{"format": 1}\n', "does not begin like a run"),
        (None, "cannot be opened"),
    ],
)
def test_what_is_no_run(tmp_path: Path, data: bytes | None, says: str) -> None:
    path = tmp_path / "x.run.jsonl"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(ReplayError, match=says):
        Journal.resume(path)


def test_a_line_that_is_no_volley_is_named(tmp_path: Path, finished: tuple[bytes, list[object]]) -> None:
    path = tmp_path / "x.run.jsonl"
    path.write_bytes(finished[0] + b'{"volley": 3}\n')
    with pytest.raises(ReplayError, match=r"x\.run\.jsonl:\d+: is no volley"):
        read(path)


def test_finding_a_run(tmp_path: Path) -> None:
    for name in ("20260101-aa", "20260102-bb"):
        (tmp_path / f"{name}.run.jsonl").touch()
    assert journals.find(tmp_path, "20260102").name == "20260102-bb.run.jsonl"
    with pytest.raises(ReplayError, match="several runs"):
        journals.find(tmp_path, "2026")
    with pytest.raises(ReplayError, match="no run that begins"):
        journals.find(tmp_path, "1999")
    assert [path.name[:11] for path in journals.stored(tmp_path)] == ["20260102-bb", "20260101-aa"]
