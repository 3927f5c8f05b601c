"""Bytes of tokens become text: whole characters, and nothing of a stop string."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.engines.token_text import TokenText


def said(pieces: Sequence[bytes], stops: Sequence[str] = ()) -> tuple[list[str], list[int], str | None]:
    text: TokenText[int] = TokenText(stops)
    out: list[str] = []
    items: list[int] = []
    for number, piece in enumerate(pieces):
        part, came = text.feed(piece, number)
        out.append(part)
        items += came
        if text.matched is not None:
            break
    part, came = text.finish()
    return [*out, part], items + came, text.matched


@pytest.mark.parametrize(
    ("pieces", "stops", "out"),
    [
        ([b"Hel", b"lo"], (), ["Hel", "lo", ""]),
        (["é".encode()[:1], "é".encode()[1:]], (), ["", "é", ""]),
        (["a😀".encode()[:3], "a😀".encode()[3:]], (), ["a", "😀", ""]),
        ([b"ab", b"cd"], ("bc",), ["a", "", ""]),
        ([b"ab", b"xd"], ("bc",), ["a", "bxd", ""]),
        ([b"abc"], ("bc", "b"), ["a", ""]),
        ([b"abc"], ("abc", "b"), ["a", ""]),
        ([b"xab"], ("ab", "b"), ["x", ""]),
        ([b"aab", b"ab"], ("abab",), ["a", "", ""]),
        ([b"a\xff", b"b"], (), ["a�", "b", ""]),
        ([b"a\xe2\x82"], (), ["a", ""]),
        ([b"one\n"], ("\n\n",), ["one", "\n"]),
    ],
)
def test_what_comes_out_when(pieces: list[bytes], stops: tuple[str, ...], out: list[str]) -> None:
    assert said(pieces, stops)[0] == out


def test_a_token_comes_with_its_last_character() -> None:
    text: TokenText[str] = TokenText()
    euro = "€".encode()
    assert text.feed(b"x" + euro[:1], "first") == ("x", [])
    assert text.feed(euro[1:2], "second") == ("", [])
    assert text.feed(euro[2:] + b"y", "third") == ("€y", ["first", "second", "third"])


def test_after_a_stop_string_nothing_comes() -> None:
    text: TokenText[int] = TokenText(["END"])
    assert text.feed(b"so END and more", 0) == ("so ", [0])
    assert text.matched == "END"
    assert text.feed(b"more", 1) == ("", [])
    assert text.finish() == ("", [])


@given(
    st.text(alphabet="abc\né€😀", max_size=30),
    st.lists(st.integers(1, 6), min_size=1, max_size=30),
    st.lists(st.text(alphabet="abc\n€", min_size=1, max_size=3), max_size=2),
)
def test_any_cut_gives_the_same_text(text: str, sizes: list[int], stops: list[str]) -> None:
    data = text.encode()
    pieces: list[bytes] = []
    while data:
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(data[:size])
        data = data[size:]
    out, items, matched = said(pieces, stops)
    whole, _, same = said([text.encode()], stops)
    assert "".join(out) == "".join(whole) == (text if matched is None else text[: text.find(matched)])
    assert matched == same
    assert items == list(range(len(items)))
    assert matched is not None or len(items) == len(pieces)
