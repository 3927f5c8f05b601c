"""The bit-parallel distance against the table of the textbook."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay.edit import edit_distance

SEQUENCES = st.lists(st.integers(0, 3), max_size=40)


def textbook(left: list[int], right: list[int]) -> int:
    row = list(range(len(right) + 1))
    for i, one in enumerate(left, 1):
        above, row[0] = row[0], i
        for j, other in enumerate(right, 1):
            above, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, above + (one != other))
    return row[-1]


@given(SEQUENCES, SEQUENCES)
def test_it_is_levenshtein(left: list[int], right: list[int]) -> None:
    assert edit_distance(left, right) == textbook(left, right)


@given(st.text(max_size=30), st.text(max_size=30), st.text(max_size=30))
def test_it_is_a_metric(a: str, b: str, c: str) -> None:
    assert edit_distance(a, b) == edit_distance(b, a)
    assert (edit_distance(a, b) == 0) == (a == b)
    assert edit_distance(a, c) <= edit_distance(a, b) + edit_distance(b, c)


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [("", "", 0), ("", "abc", 3), ("kitten", "sitting", 3), ("flaw", "lawn", 2), ("a" * 5000, "a" * 4999 + "b", 1)],
)
def test_known_distances(left: str, right: str, expected: int) -> None:
    assert edit_distance(left, right) == expected


def test_it_works_beyond_a_machine_word() -> None:
    left = list(range(500))
    assert edit_distance(left, left[::-1]) == textbook(left, left[::-1])
