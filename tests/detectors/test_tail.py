"""What may leave while a text ends in one character again and again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detectors.tail import MOST, Tail


@pytest.mark.parametrize(
    ("text", "clear"),
    [
        ("", 0),
        ("Hello!", 5),
        ("Hello! I", 8),
        ("Hello!!", 5),
        ("Hello!!!!!!", 5),
        ("Hello!!!?", 9),
        ("so??", 4),
        ("so????", 5),
        ("%", 0),
        ("wait...", 7),
        ("wait....", 7),
        ("wait... I", 9),
        ("    deep", 8),
        ("x" + " " * 12, 13),
        ("end\n\n\n\n", 6),
        ("!", 0),
        ("!!!!", 0),
        ("!!!! what", 9),
        ("{", 1),
        ("###", 3),
        ("I", 1),
        ("000", 3),
        ("0000", 3),
        ("5.0999999999999", 15),
        ("x" + "0" * 20, 17),
        ("=" * MOST, 0),
        ("=" * (MOST + 1), MOST + 1),
        ("日日日", 3),
        ("日日日日", 3),
    ],
)
def test_what_is_clear(text: str, clear: int) -> None:
    tail = Tail()
    assert not tail.feed(text)
    assert tail.doubt == clear
    assert not tail.finish()
    assert tail.doubt == len(text)


@given(text=st.text(alphabet="a! \n=", max_size=60), cuts=st.lists(st.integers(0, 60), max_size=10))
def test_any_split_gives_the_same(text: str, cuts: list[int]) -> None:
    whole, split = Tail(), Tail()
    whole.feed(text)
    places = sorted({min(cut, len(text)) for cut in cuts})
    for low, high in zip([0, *places], [*places, len(text)], strict=True):
        split.feed(text[low:high])
    assert split.doubt == whole.doubt


@given(st.text(alphabet="ab!= ", max_size=60))
def test_what_was_cleared_stays_clear(text: str) -> None:
    tail = Tail()
    cleared = 0
    for char in text:
        tail.feed(char)
        assert tail.doubt >= cleared
        cleared = tail.doubt
