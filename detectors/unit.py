"""What repeats, seen on its own: how many tokens it is, estimated without a tokenizer, and where its cycle begins."""

from __future__ import annotations

import re
from typing import Final

_PIECE: Final = re.compile(r"[^\W\d_]+|\d{1,3}|[^\w\s]+|_|\s+")
_ANY: Final = 1 << 20
_GLUED: Final = re.compile(r" ?[^\W\d_]+|\d{1,3}|[^\w\s]+|_|\s+")


def tokens(text: str) -> int:
    """About how many tokens a text is, estimated low: a word is one, a run of punctuation is one."""
    count = 0
    for piece in _PIECE.finditer(text):
        word = piece.group()
        if word.isspace():
            count += word != " "
        elif word[0].isalpha() and not word.isascii():
            count += max(1, len(word) // 3 if word[0] < "\u2e80" else len(word))
        else:
            count += 1
    return max(count, 1)


def weight(text: str) -> int:
    """About four for every token: letters of other scripts take more tokens each."""
    return sum(1 if char < "\x80" else 2 if char < "\u2e80" else 4 for char in text)


def copies_in_time(unit: str) -> int:
    """How many copies are 24 tokens, counted high: enough of what nothing explains, but six copies at least. Lists and
    formulas repeat short words of ASCII that often, so no bound is set for those."""
    if unit.isascii():
        return _ANY
    count = 0
    for piece in _GLUED.findall(unit):
        if piece.isascii():
            count += 1 + len(piece) // 8
        else:
            count += 1 + len(piece) // 4 if piece.isalpha() else len(piece)
    return max(6, 24 // count)


def turned(unit: str) -> str:
    """The same cycle, begun where a word begins, so that no word is cut by where the run happened to start."""
    previous = unit[-1]
    best = -1
    for i, char in enumerate(unit):
        if not char.isspace() and previous.isspace():
            return unit[i:] + unit[:i]
        if best < 0 and (char.isalnum() or char in "<[") and not previous.isalnum():
            best = i
        previous = char
    return unit[best:] + unit[:best] if best > 0 else unit
