"""Logprobs that no sound computation gives."""

from __future__ import annotations

import math

import pytest

from detectors import Numeric, Panel


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (math.nan, "numeric.nan"),
        (-math.inf, "numeric.infinite"),
        (math.inf, "numeric.positive"),
        (0.2, "numeric.positive"),
    ],
)
def test_impossible_values_are_errors(value: float, code: str) -> None:
    watch = Numeric()
    assert watch.feed("good", None, [-0.5, -1.0]) == ()
    found = watch.feed(" bad", None, [-0.1, value])
    assert [(f.code, f.severity, f.onset) for f in found] == [(code, "error", 4)]
    assert watch.feed(" more", None, [value]) == ()


@pytest.mark.parametrize("value", [0.0, -1e-7, -9999.0, -20.0, 1e-6])
def test_odd_but_honest_values_pass(value: float) -> None:
    watch = Numeric()
    assert all(watch.feed("x", None, [value]) == () for _ in range(200))
    assert watch.doubt == 200


def test_certainty_without_end_is_recorded_once() -> None:
    watch = Numeric()
    found = [f for _ in range(600) for f in watch.feed("x", None, [0.0])]
    assert [(f.code, f.severity) for f in found] == [("numeric.pinned", "warn")]
    watch = Numeric()
    found = [f for _ in range(600) for f in watch.feed("x", None, [-5e-5])]
    assert [(f.code, f.severity) for f in found] == [("numeric.collapsed_entropy", "warn")]


def test_the_panel_looks_at_them_when_they_come() -> None:
    panel = Panel()
    assert panel.feed("a", None, [-0.1]) == ()
    assert [f.code for f in panel.feed("b", [5], [math.nan])] == ["numeric.nan"]
