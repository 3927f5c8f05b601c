"""A text that drifts in circles: the same few phrases over and over, in an order that no period describes.

The rules:

- Prose says something new all the time: of the rows of four words in a thousand characters nearly all are different.
  In a text that circles, most have been said within those thousand characters.
- Only prose is judged so. Code, data and tables say the same words in every line and are right.
- A verse whose lines count down ("ten green bottles") ends by itself.
- It is a look now and then, and zlib decides first whether it is worth one.
"""

from __future__ import annotations

import re
import zlib
from typing import Final

from detectors.lettered import counts_down
from detectors.periods import Window

LOOKED_AT: Final = 1_024  # characters
EVERY: Final = 512
_SQUEEZED: Final = 3.2  # times smaller by zlib; prose is 1.6 times, a loop of sentences 5 and more
_NEW: Final = 0.38  # of the rows of words; the least seen in the tuning half was 0.55
_WORDS: Final = re.compile(r"[^\W\d_]+")
_PLAIN: Final = 0.86  # of the characters are letters and blanks
_CODE: Final = frozenset('{}[]()<>=|\\;$#@_`"/%&+~^*')
_SYMBOLS: Final = 0.01
_ENOUGH: Final = 100  # words


class Novelty:
    """``step`` says whether the text circles; it needs not be called before ``due`` characters have come."""

    __slots__ = ("due", "onset", "share")

    def __init__(self) -> None:
        self.due = LOOKED_AT
        self.onset = 0
        self.share = 1.0

    def step(self, window: Window) -> bool:
        self.due = window.end + EVERY
        text = window.text[-LOOKED_AT:]
        data = text.encode("utf-8", "replace")
        if len(data) < _SQUEEZED * len(zlib.compress(data, 1)):
            return False
        plain = " ".join(text.split())
        if sum(char.isalpha() or char == " " for char in plain) < _PLAIN * len(plain):
            return False
        if sum(char in _CODE for char in plain) > _SYMBOLS * len(plain):
            return False
        words = _WORDS.findall(text.lower())
        if len(words) < _ENOUGH:
            return False
        rows = list(zip(words, words[1:], words[2:], words[3:], strict=False))
        self.share = len(set(rows)) / len(rows)
        if self.share > _NEW or counts_down(text):
            return False
        self.onset = window.base + _beginning(window.text)
        return True


def _beginning(text: str) -> int:
    """The first word from which on the text says hardly anything new."""
    places = [match.start() for match in _WORDS.finditer(text)]
    words = [match.group() for match in _WORDS.finditer(text.lower())][: len(places)]
    seen: set[tuple[str, ...]] = set()
    fresh: list[bool] = []
    for i in range(len(words) - 3):
        row = tuple(words[i : i + 4])
        fresh.append(row not in seen)
        seen.add(row)
    # where what follows has most more old rows than new ones
    best = gain = most = 0
    for i in range(len(fresh) - 1, -1, -1):
        gain += -1 if fresh[i] else 1
        if gain >= most:
            best, most = i, gain
    return places[best] if places else 0
