"""An engine that stands out from the others, and chance, which must not look like one."""

from __future__ import annotations

from random import Random

import pytest

from guard.health.breaker import Rate
from guard.health.outlier import most_ejected, stands_out


def rate(asked: float, failed: float) -> Rate:
    made = Rate(60.0)
    made.add(asked, failed, 0.0)
    return made


@pytest.mark.parametrize(
    ("own", "others", "out"),
    [
        ((50, 20), [(50, 1), (50, 0)], True),
        ((50, 20), [(50, 20), (50, 19)], False),  # the load or the model, not the engine
        ((50, 4), [(500, 1)], False),  # certain, and too little to matter
        ((9, 9), [(50, 0)], False),  # too few to say
        ((50, 25), [(5, 0)], False),  # nothing to compare with
        ((50, 25), [], False),
        ((20, 20), [(20, 0)], True),
        ((50, 0), [(50, 25)], False),
        ((50, 0), [(50, 0)], False),
        ((50, 50), [(50, 50)], False),
    ],
)
def test_who_stands_out(own: tuple[int, int], others: list[tuple[int, int]], out: bool) -> None:
    assert stands_out(rate(*own), [rate(*one) for one in others]) is out


def test_chance_hardly_ever_looks_like_a_sick_engine() -> None:
    dice = Random(3)

    def fails(asked: int) -> int:
        return sum(dice.random() < 0.2 for _ in range(asked))

    assert sum(stands_out(rate(40, fails(40)), [rate(80, fails(80))]) for _ in range(3000)) <= 1


@pytest.mark.parametrize(("engines", "most"), [(1, 0), (2, 1), (3, 1), (4, 2), (5, 2)])
def test_never_more_than_half(engines: int, most: int) -> None:
    assert most_ejected(engines) == most
