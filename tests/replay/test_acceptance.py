"""Suites: the shipped ones, their mistakes, what each check measures; a faulty deployment does not pass."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import replayed

from guard.checked_yaml import ConfigError
from guard.engines.contract import EngineError, EngineRequest
from guard.engines.scripted import Play, ScriptedEngine, answer, telling
from replay.acceptance import Accepted, accept
from replay.checks import MEASURES, rows
from replay.observation import Cell, Observation
from replay.scorecard import THRESHOLDS
from replay.source import ReplayError
from replay.suite import SHIPPED, Check, Suite, load_suite

Script = Callable[[EngineRequest], Play]


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_suite_can_be_asked(name: str) -> None:
    suite = load_suite(name)
    for check in suite.checks:
        assert check.needs, check.name
        assert set(check.needs) <= (set(THRESHOLDS) if check.faithful else set(MEASURES))
        sources = check.sources("m")
        assert sources, check.name
        for source in sources:
            source.request()
        check.matrix(["a"])
    ids = [source.id for check in suite.checks for source in check.sources("m")]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("title: x\nchecks: []", "s.yaml:2: checks: "),
        ("title: x\nchecks:\n  - {name: A, about: x}", "s.yaml:3: checks[0].name"),
        ("title: x\nchecks:\n  - {name: a, about: x, needs: {nice: 1}}", "nice is no measure (there are: "),
        ("title: x\nchecks:\n  - {name: a, about: x, concurrency: [crowd]}", "'crowd' is no load"),
    ],
)
def test_mistakes_of_a_suite(tmp_path: Path, text: str, problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_suite("s.yaml")
    assert problem in str(caught.value)
    with pytest.raises(ReplayError, match="no suite called 'other'"):
        load_suite("other")


# --- measures --------------------------------------------------------------------------------------------------------


def seen(text: str = "Yes.", request: str = "r", engine: str = "e", at_once: int = 1, **more: Any) -> Observation:
    cell = Cell(engine=engine, concurrency=at_once, neighbours="none" if at_once == 1 else "others")
    return Observation(request_id=request, cell=cell, text={"content": text} if text else {}, **more)


@pytest.mark.parametrize(
    ("measure", "observations", "expected"),
    [
        ("answered", [seen(), seen(error="refused")], (1, 2)),
        ("sound", [seen(), seen(error="refused"), seen(condemned="repetition.token")], (1, 3)),
        ("finished", [seen(finish_reason="stop"), seen()], (1, 2)),
        ("known_answer", [seen("a", expected="a"), seen("b", expected="a"), seen()], (1, 2)),
        ("format", [seen(verdict_format="ok"), seen(verdict_format="failed"), seen()], (1, 3)),
        ("refused", [seen(error="HTTP 400: too long"), seen(error="HTTP 500: oops"), seen(error="cut")], (1, 3)),
        ("deterministic", [seen("a"), seen("a"), seen("b", "s"), seen("c", "s"), seen("lone", "t")], (1, 2)),
        ("same_under_load", [seen("a"), seen("a", at_once=4), seen("b", "s"), seen("c", "s", at_once=4)], (1, 2)),
        ("same_under_load", [seen("a"), seen("b")], (0, 0)),
        ("same_across", [seen("a"), seen("a", engine="f"), seen("b", "s"), seen("c", "s", engine="f")], (1, 2)),
        ("even", [seen("a")], (0, 0)),
        ("no_corruption", [seen(error="x")], (0, 0)),
    ],
)
def test_measures(measure: str, observations: list[Observation], expected: tuple[int, int]) -> None:
    found = MEASURES[measure](observations)
    assert (found.good, found.of) == expected


def test_one_bad_engine_in_many_is_uneven() -> None:
    good = [seen("a", str(n), engine=e) for n in range(6) for e in ("e", "f") for _ in range(3)]
    bad = [seen("x", str(n), engine="g", condemned="repetition.token") for n in range(6) for _ in range(3)]
    assert MEASURES["even"](good).share == 1.0
    found = MEASURES["even"](good + bad)
    assert found.share == 0.0
    assert "engine g" in found.example


def test_the_worst_engine_counts() -> None:
    (row,) = rows("c", {"sound": 1.0}, [seen(), seen(engine="f", condemned="x"), seen(engine="f")])
    assert (row.state, row.measured) == ("fail", "f: 1 of 2")
    assert "r: x" in row.detail
    (row,) = rows("c", {"even": 1.0}, [seen()])
    assert (row.state, row.measured) == ("not measured", "there is only one cell")
    (row,) = rows("c", {"sound": 1.0}, [], "given up")
    assert (row.state, row.measured) == ("not measured", "given up")


# --- a whole suite ---------------------------------------------------------------------------------------------------

ASKED = {"messages": [{"role": "user", "content": "Hi"}]}
SUITE = Suite(
    title="small",
    checks=(
        Check(
            name="answers",
            about="",
            requests=(ASKED,),
            needs={"sound": 1.0},
        ),
        Check(name="copying", about="", echo=3, repeats=2, needs={"known_answer": 1.0}),
        Check(name="overlong", about="", overlong=5000, needs={"refused": 1.0}),
        Check(name="faithful", about="", echo=1, faithful=True, needs={"token_match": 0.9}),
    ),
)


def honest(request: EngineRequest) -> Play:
    """Copies what it is to copy, refuses what is too long."""
    said = str(request.request.messages[-1]["content"])
    if len(said) > 10_000:
        return Play(error=EngineError("status", "the prompt is too long", status=400))
    return telling(said.rpartition("\n")[2].strip() or "Hello.")(request)


async def accepted(tmp_path: Path, script: Script, monkeypatch: pytest.MonkeyPatch, base: str = "b") -> Accepted:
    built = {"a": ScriptedEngine("a", script)}
    monkeypatch.setattr("replay.campaign.build_engine", lambda config: built[config.name])
    built["a"].aclose = _stay  # type: ignore[method-assign]
    config = replayed.configured("a")
    return await accept(config, SUITE, ["a"], "m", tmp_path, base, 1.0, lambda *_: lambda _: None)


async def _stay() -> None:
    """An engine of a test outlives one check."""


async def test_an_honest_deployment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = await accepted(tmp_path, honest, monkeypatch)
    states = {row.name: row.state for row in found.card.rows}
    assert states == {
        "answers: sound": "pass",
        "copying: known_answer": "pass",
        "overlong: refused": "pass",
        "faithful: token_match": "not measured",
    }
    assert found.card.passed
    assert len(found.observations) == 1 + 6 + 1


async def test_a_faulty_deployment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It loses a character, and takes everything."""
    found = await accepted(tmp_path, lambda request: answer("c_"), monkeypatch)
    states = {row.name: row.state for row in found.card.rows}
    assert states["copying: known_answer"] == states["overlong: refused"] == "fail"
    assert not found.card.passed


async def test_a_suite_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0

    def counting(request: EngineRequest) -> Play:
        nonlocal asked
        asked += 1
        return honest(request)

    first = await accepted(tmp_path, counting, monkeypatch)
    before = asked
    again = await accepted(tmp_path, counting, monkeypatch)
    assert asked == before
    assert again.card == first.card
