"""What the end of an attempt says about its engine: one table, and every row of it."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest

from guard.health.verdict import EARLY, WEIGHTS, WELL, verdict

SAYS = [
    ("", {}, 0.0),
    ("open.connect", {}, 1.0),
    ("open.connect_timeout", {}, 1.0),
    ("open.first_token_timeout", {}, 1.0),
    ("open.cut", {}, 1.0),
    ("open.protocol", {}, 1.0),
    ("open.status", {"status": 500}, 1.0),
    ("open.busy", {"status": 503}, 1.0),
    ("stream.cut", {}, 1.0),
    ("stream.stall", {}, 1.0),
    ("stream.no_terminal", {}, 1.0),
    ("stream.error_event", {"status": 500}, 1.0),
    ("stream.protocol", {}, 1.0),
    ("numeric.nan", {"onset": 5000}, 1.0),
    ("repetition.single_token_from_start", {}, 1.0),
    ("repetition.period", {"onset": EARLY}, 0.5),
    ("whitespace.waste", {"onset": 0}, 1.0),
    ("empty.nothing", {}, 1.0),
    ("empty.reasoning_only", {}, 0.25),
    ("leak.special_token", {}, 0.5),
    ("leak.tool_markup", {}, 0.25),
    ("encoding.byte_tokens", {"onset": 3 * EARLY}, 0.25),
    ("json.invalid", {"accepted": True}, 0.5),
    ("schema.type", {"accepted": True}, 0.5),
    ("regex.mismatch", {"accepted": True}, 0.5),
    ("grammar.mismatch", {"accepted": True}, 0.5),
    ("constraint.mismatch", {"accepted": True}, 0.5),
    ("leak.cross_request", {}, 1.0),
]
SAYS_NOTHING = [
    ("open.refused", {"status": 400}),
    ("open.busy", {"status": 429}),
    ("open.status", {"status": 404}),
    ("open.status", {"status": 401}),
    ("open.cannot_resume", {}),
    ("stream.error_event", {"status": 400}),
    ("open.total_timeout", {}),
    ("stream.total_timeout", {}),
    ("deadline", {}),
    ("deadline", {"status": 500}),
    ("repetition.period", {"onset": 20 * EARLY}),
    ("json.invalid", {"accepted": False}),
    ("schema.type", {"accepted": False}),
    ("tool.unknown_name", {"accepted": True}),
    ("guard.detector_error", {}),
]


@pytest.mark.parametrize(("cause", "more", "weight"), SAYS)
def test_what_counts_and_how_much(cause: str, more: dict[str, int], weight: float) -> None:
    said = verdict(cause, **more)  # type: ignore[arg-type]
    assert said is not None
    assert said.weight == pytest.approx(weight)


@pytest.mark.parametrize(("cause", "more"), SAYS_NOTHING)
def test_what_says_nothing(cause: str, more: dict[str, int]) -> None:
    assert verdict(cause, **more) is None  # type: ignore[arg-type]


def test_an_answer_that_stands_is_the_engines_credit() -> None:
    assert verdict("") == WELL


def test_only_what_the_prompt_may_have_caused_is_said_to_be() -> None:
    assert verdict("repetition.period").of_prompt  # type: ignore[union-attr]
    assert verdict("json.invalid", accepted=True).of_prompt  # type: ignore[union-attr]
    assert not verdict("stream.cut").of_prompt  # type: ignore[union-attr]


@pytest.mark.parametrize("cause", ["open.status", "open.busy", "stream.error_event"])
def test_no_4xx_ever_counts(cause: str) -> None:
    assert not any(verdict(cause, status=status) for status in range(400, 500))


def test_a_later_collapse_counts_less() -> None:
    weights = [
        said.weight if (said := verdict("repetition.period", onset=onset)) else 0 for onset in range(0, 4000, 50)
    ]
    assert weights == sorted(weights, reverse=True)
    assert weights[0] == 1.0
    assert weights[-1] == 0


def test_no_row_is_dead() -> None:
    causes = [row[0] for row in [*SAYS, *SAYS_NOTHING] if row[0]]
    used = {next(pattern for pattern, _, _ in WEIGHTS if fnmatchcase(cause, pattern)) for cause in causes}
    assert used == {pattern for pattern, _, _ in WEIGHTS}
