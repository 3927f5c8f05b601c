"""What an operator may set of the thresholds, and that live guarding goes by it."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from detectors.policy import DEFAULT
from guard.config import Policy
from guard.plan import plan_for
from guard.request import GenerationRequest
from guard.thresholds import Thresholds

LOOP = "So it goes, as they say here. " * 8 + "And then it ended well, with a short walk by the sea."


def test_the_defaults_are_the_detectors_own() -> None:
    assert Thresholds().bars == DEFAULT


@pytest.mark.parametrize(
    ("changed", "name", "value"),
    [
        ({"phrase_copies": 10}, "phrase_copies", 10),
        ({"phrase_copies": 10}, "word_copies", 14),
        ({"token_copies": 32}, "special_copies", 16),
        ({"code_copies": 24}, "rich_code_copies", 20),
        ({"newlines": 96}, "newline_flood", 96),
        ({"near_copies": 5}, "rich_near_copies", 3),
        ({"trailing_blank_chars": 64}, "trailing_blank_chars", 64),
    ],
)
def test_what_hangs_together_moves_together(changed: dict[str, int], name: str, value: int) -> None:
    assert getattr(Thresholds(**changed).bars, name) == value  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong",
    [
        {"patience": 0},
        {"phrase_copies": 2},
        {"trailing_blank_chars": 2_000},
        {"row_copies": 8},
        {"newlines": 1},
        {"mojibake_points": 0},
        {"circles": 3},
    ],
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        Thresholds(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("thresholds", "found"),
    [({}, True), ({"phrase_copies": 12}, False), ({"patience": 4}, False), ({"phrase_copies": 3}, True)],
)
def test_a_live_answer_is_held_against_its_policys(thresholds: dict[str, int], found: bool) -> None:
    request = GenerationRequest(id="r", kind="chat", model="m", messages=[{"role": "user", "content": "Tell me."}])
    plan = plan_for(request, Policy(thresholds=Thresholds(**thresholds)), None)  # type: ignore[arg-type]
    panel = plan.new_panel("content")
    assert bool([*panel.feed(LOOP), *panel.finish()]) is found
