"""What escapes say, held against the standard library, and halves of surrogate pairs in every order."""

from __future__ import annotations

import json
from itertools import product

import pytest

from guard.constraint.json_string import (
    ESCAPE,
    FOLLOWS,
    LETTERS,
    NO_CHARACTER,
    is_half,
    is_high,
    is_pair,
    joined,
    judgeable,
    pair,
)

HIGH, LOW = "\\ud83d", "\\uDE00"
ALPHABET = [chr(code) for code in range(0x20, 0x7F)] + ["é", "\n", "\x00", "😀", "١"]


def is_escape(text: str) -> bool:
    try:
        return len(json.loads(f'"{text}"')) == 1 and text[0] == "\\"
    except ValueError:
        return False


def spelled(text: str) -> bool:
    """Whether the text is one escape, read a character at a time."""
    had = ""
    for c in text:
        if is_whole(had) or c not in FOLLOWS[len(had)]:
            return False
        had += c
    return is_whole(had)


def is_whole(escape: str) -> bool:
    return len(escape) == (6 if escape[1:2] == "u" else 2)


def test_a_character_at_a_time_and_at_once_are_the_same_escapes() -> None:
    texts = ["\\" + "".join(rest) for rest in product(ALPHABET, repeat=1)]
    texts += ["\\u" + "0" * at + c + "a" * (3 - at) for at in range(4) for c in ALPHABET]
    texts += ["\\u", "\\u0", "\\u00", "\\u000", "\\u00000", "\\\\n", "\\nn", "n", ""]
    escapes = 0
    for text in texts:
        whole = ESCAPE(text)
        one = whole is not None and whole.end() == len(text)
        assert spelled(text) == one == (bool(text) and is_escape(text)), text
        if whole is not None and one:
            said = LETTERS[whole[1]] if whole[1] else chr(int(whole[2], 16))
            assert said == json.loads(f'"{text}"')
            escapes += 1
    assert escapes == 8 + 4 * 22


def test_halves() -> None:
    for code in (0, 0x22, 0xD7FF, 0xD800, 0xDBFF, 0xDC00, 0xDFFF, 0xE000, 0xFFFF, 0x1F600):
        c = chr(code)
        assert is_half(c) == (0xD800 <= code < 0xE000)
        assert is_high(c) == (0xD800 <= code < 0xDC00)
        assert [is_pair(c, chr(low)) for low in (0xDBFF, 0xDC00, 0xDFFF, 0xE000)] == [False, *[is_high(c)] * 2, False]


def test_two_halves_are_the_character_of_both() -> None:
    for code in (0x10000, 0x1F600, 0x10FFFF):
        high, low = json.loads(json.dumps(chr(code))[:7] + '"'), json.loads('"' + json.dumps(chr(code))[7:])
        assert is_pair(high, low)
        assert pair(high, low) == chr(code)


@pytest.mark.parametrize("parts", list(product((HIGH, LOW, "x", "\\n"), repeat=4)))
def test_a_whole_string_has_no_half_left_and_is_as_long(parts: tuple[str, ...]) -> None:
    halves = "".join(json.loads(f'"{part}"') for part in parts)
    together: str = json.loads('"' + "".join(parts) + '"')
    lone = sum(map(is_half, together))
    assert joined(halves) == ("".join(NO_CHARACTER if is_half(c) else c for c in together), lone)
    assert judgeable(halves) == joined(halves)[0]
    assert len(judgeable(halves)) == len(together)
