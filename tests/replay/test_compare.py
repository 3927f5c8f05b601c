"""Where two answers part ways."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay.compare import Difference, agreement, common_prefix, first_difference


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ("same", "same", None),
        ("", "", None),
        ("abc", "abd", Difference(2, -1, "c", "d")),
        ("abc", "ab", Difference(2, -1, "c", "")),
        ("", "x", Difference(0, -1, "", "x")),
    ],
)
def test_first_difference(left: str, right: str, expected: Difference | None) -> None:
    assert first_difference(left, right) == expected


def test_tokens_are_compared_where_both_are_known() -> None:
    assert first_difference("ab", "ac", [1, 2], [1, 3]) == Difference(1, 1, "b", "c")
    assert first_difference("ab", "ac", [1, 2], []) == Difference(1, -1, "b", "c")


@given(st.text(alphabet="ab", max_size=50), st.text(alphabet="ab", max_size=50))
def test_common_prefix_is_what_a_loop_would_count(left: str, right: str) -> None:
    expected = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        expected += 1
    assert common_prefix(left, right) == expected


@pytest.mark.parametrize(("texts", "expected"), [([], (0, 0.0)), (["a"], (1, 1.0)), (["a", "a", "b", "c"], (3, 0.5))])
def test_agreement(texts: list[str], expected: tuple[int, float]) -> None:
    assert agreement(texts) == expected
