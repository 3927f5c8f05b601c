"""Dependence on load: found where it is, and the level kept where it is not, whatever the answers vary by."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from replay.dependence import Dependence, combined, dependence
from replay.groups import alone, by_request, loaded, same_setup
from replay.observation import Cell, Observation
from replay.statistics import ALPHA
from tests.replay.answers import spoken

ONE, MANY = Cell("a", concurrency=1), Cell("a", concurrency=8, neighbours="others")


def arms(requests: int, repeats: int, text: Callable[[int, Cell], str]) -> Dependence:
    runs: list[Observation] = [
        spoken(text(number, cell), cell, request=f"q{number}", repeat=repeat)
        for number in range(requests)
        for cell in (ONE, MANY)
        for repeat in range(repeats)
    ]
    return dependence(same_setup(by_request(runs)), alone, loaded)


def test_answers_that_turn_as_a_whole_are_found_whichever_way_they_turn() -> None:
    found = arms(6, 4, lambda number, cell: f"way {(number % 2) ^ (cell is MANY)}")
    assert found.p < 1e-4
    assert (found.compared, found.differing, found.unrepeated) == (6, 6, 0)


def test_rare_disturbances_over_many_requests_are_found() -> None:
    rng = random.Random(1)
    found = arms(20, 10, lambda number, cell: f"odd {rng.random()}" if cell is MANY and rng.random() < 0.1 else "even")
    assert found.base.failures == 0
    assert found.p < 1e-4


def test_one_run_an_arm_is_counted_and_not_tested() -> None:
    found = arms(11, 1, lambda number, cell: f"way {cell is MANY}")
    assert (found.p, found.differing, found.unrepeated) == (1.0, 11, 11)
    assert not found.repeated


@pytest.mark.parametrize("spread", [2, 1000])
@pytest.mark.parametrize("repeats", [2, 5])
def test_variation_that_has_nothing_to_do_with_the_load_is_not_blamed_on_it(spread: int, repeats: int) -> None:
    """Eighty matrices at a level of 0.01: one is expected, more than four are not luck (p = 0.001)."""
    rng = random.Random(spread * 10 + repeats)
    claims = sum(arms(4, repeats, lambda number, cell: f"way {rng.randrange(spread)}").p <= ALPHA for _ in range(80))
    assert claims <= 4


def test_fishers_combination() -> None:
    assert combined([]) == 1.0
    assert combined([0.2]) == pytest.approx(0.2)
    assert combined([0.05, 0.05]) == pytest.approx(0.0175, abs=1e-4)
    assert combined([0.0]) < 1e-250
