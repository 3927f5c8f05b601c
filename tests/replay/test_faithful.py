"""Faithfulness: measures against figures worked out by hand, vendor verifiers' two mistakes not made, thresholds."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay.faithful import Forced, Step, kl_of, long, match, tools
from replay.observation import Cell, Found, Observation
from replay.scorecard import THRESHOLDS, Row, Scorecard, faithfulness, held


def step(token: int, best: int, short: float = 0.0, **more: dict[int, float]) -> Step:
    return Step(token, best, short, 1.0, more.get("golden", {}), more.get("candidate", {}))


def forced(name: str, *steps: Step, prompt: int = 10, same_prompt: bool | None = True) -> Forced:
    return Forced(name, steps, 0.5, prompt, same_prompt)


def test_tokens_near_ties_and_what_no_rounding_explains() -> None:
    answers = [
        forced("a", step(1, 1), step(2, 2), step(3, 9, 0.4), step(4, 4)),
        forced("b", step(1, 1), step(2, 8, 3.0)),
    ]
    found = match(answers)
    assert found is not None
    assert (found.answers, found.tokens, found.matched, found.near_ties, found.beyond) == (2, 6, 4, 1, 1)
    assert found.rate == 4 / 6
    assert (found.worst, found.worst_request) == (0.5, "b")
    assert found.interval[0] <= found.rate <= found.interval[1]
    assert found.kl_mean is None
    assert match([]) is None
    assert match([forced("c")]) is None


def test_one_flip_is_counted_once() -> None:
    """What comes behind a flip is judged by what the golden engine would say behind it."""
    found = match([forced("a", *[step(n, n) for n in range(99)], step(5, 6, 0.1))])
    assert found is not None
    assert found.rate == 0.99


@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(0, 30)), min_size=2, max_size=12),
)
def test_the_interval_holds_the_rate(answers: list[tuple[int, int]]) -> None:
    made = [forced(str(i), *[step(1, 1 if k < good else 2) for k in range(n)]) for i, (n, good) in enumerate(answers)]
    found = match(made)
    assert found is not None
    assert 0 <= found.interval[0] <= found.rate <= found.interval[1] <= 1


def test_kl_by_hand() -> None:
    """Golden 0.5, 0.25 and a rest of 0.25; the candidate 0.25, 0.5 and a rest of 0.25."""
    golden = {1: math.log(0.5), 2: math.log(0.25)}
    candidate = {1: math.log(0.25), 2: math.log(0.5)}
    assert kl_of(step(1, 1, golden=golden, candidate=candidate)) == pytest.approx(0.25 * math.log(2))
    assert kl_of(step(1, 1, golden=golden, candidate=golden)) == pytest.approx(0.0)
    assert kl_of(step(1, 1, golden=golden)) is None
    assert kl_of(step(1, 1, golden=golden, candidate={7: -1.0})) is None  # no token that both give


@given(
    st.lists(st.floats(0.01, 1), min_size=3, max_size=6),
    st.lists(st.floats(0.01, 1), min_size=6, max_size=6),
    st.integers(1, 3),
)
def test_what_few_tokens_show_is_a_lower_bound(golden: list[float], other: list[float], shown: int) -> None:
    p = [one / sum(golden) for one in golden]
    q = [one / sum(other[: len(p)]) for one in other[: len(p)]]
    exact = sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
    some = step(
        0,
        0,
        golden={i: math.log(a) for i, a in enumerate(p)},
        candidate={i: math.log(b) for i, b in enumerate(q[:shown])},
    )
    bound = kl_of(some)
    assert bound is not None
    assert 0 <= bound <= exact + 1e-6


# --- tools -----------------------------------------------------------------------------------------------------------


def answer(finish: str, *, findings: tuple[str, ...] = (), choice: str = "none", error: str = "") -> Observation:
    found = tuple(Found(code) for code in findings)
    cell = Cell(engine="e")
    return Observation(
        request_id="r",
        cell=cell,
        finish_reason=finish,
        findings=found,
        verdict_tool_choice=choice,
        error=error,
        text={"content": "x"},
    )


CALLS, STOPS = answer("tool_calls"), answer("stop")


def test_trigger_f1_and_schema_accuracy() -> None:
    wrong = answer("tool_calls", findings=("tool.unknown",))
    unfit = answer("tool_calls", findings=("schema.required",))
    found = tools([(CALLS, CALLS), (CALLS, wrong), (STOPS, unfit), (CALLS, STOPS), (STOPS, STOPS)])
    assert found is not None
    assert (found.true_positive, found.false_positive, found.false_negative) == (2, 1, 1)
    assert found.f1 == pytest.approx(2 * 2 / (2 * 2 + 1 + 1))
    assert (found.calls_right, found.triggered) == (1, 3)  # an unknown tool is wrong


def test_a_missing_finish_reason_is_no_stop() -> None:
    """A published verifier reads it as "stop": then a vendor that loses its finish reasons looks as if it never called
    a tool where it should not."""
    found = tools([(STOPS, answer("")), (CALLS, answer("")), (CALLS, CALLS)])
    assert found is not None
    assert found.no_finish == 2
    assert (found.true_positive, found.false_negative, found.false_positive) == (1, 0, 0)
    assert found.f1 == 1.0


def test_nothing_to_measure_is_not_measured() -> None:
    assert tools([]) is None
    assert tools([(CALLS, answer("", error="refused"))]) is None
    found = tools([(STOPS, STOPS)])
    assert found is not None
    assert found.f1 is None


def test_tool_choice() -> None:
    found = tools([(CALLS, answer("tool_calls", choice="ok")), (CALLS, answer("stop", choice="failed"))])
    assert found is not None
    assert (found.choice_kept, found.choice_asked) == (1, 2)


# --- the scorecard ---------------------------------------------------------------------------------------------------


def states(card: Scorecard) -> dict[str, str]:
    return {row.name: row.state for row in card.rows}


def test_a_faithful_and_an_unfaithful_one() -> None:
    good = faithfulness("good", [forced("a", *[step(1, 1)] * 100)], None, [], (1, 1))
    assert good.passed
    assert states(good)["token_match"] == states(good)["prompt_equality"] == "pass"
    assert states(good)["kl_mean"] == states(good)["tool_trigger_f1"] == "not measured"
    bad = faithfulness("bad", [forced("a", *[step(1, 2, 9.0)] * 5, same_prompt=False)], None, ["x"], (0, 1))
    assert not bad.passed
    assert states(bad)["token_match"] == states(bad)["beyond_rounding"] == "fail"
    assert states(bad)["prompt_equality"] == states(bad)["sound"] == "fail"


def test_long_prompts_are_a_slice_of_their_own() -> None:
    answers = [forced("short", *[step(1, 1)] * 100), forced("long", *[step(1, 2)] * 5, prompt=5000)]
    assert [one.request_id for one in long(answers)] == ["long"]
    assert states(faithfulness("x", answers, None, [], (2, 2)))["long_token_match"] == "fail"
    assert states(faithfulness("x", answers[:1], None, [], (2, 2)))["long_token_match"] == "not measured"


def test_nothing_measured_does_not_pass() -> None:
    assert not faithfulness("x", [], None, ["no ids"], (0, 0)).passed
    assert not Scorecard("x", ()).passed
    assert not Scorecard("x", (Row("a", "pass", "", ""), Row("b", "fail", "", ""))).passed


@pytest.mark.parametrize(
    ("name", "value", "state"),
    [
        ("token_match", 0.95, "pass"),
        ("token_match", 0.949, "fail"),
        ("kl_mean", 0.05, "pass"),
        ("kl_mean", 0.051, "fail"),
        ("beyond_rounding", 0.0, "pass"),
        ("beyond_rounding", 0.01, "fail"),
        ("token_match", None, "not measured"),
    ],
)
def test_thresholds(name: str, value: float | None, state: str) -> None:
    assert held(name, value, "", "", THRESHOLDS).state == state
