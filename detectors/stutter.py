"""Every token twice: "The The cat cat", "HelloHello,, worldworld". A mistake of a client or a proxy, not of the model.

Stuttered text is a row of pairs of equal pieces, and honest text never is for long. A sample of the text is tried now
and then, often at the beginning, where such a mistake shows at once; where it is such a row, what follows is tried too.
"""

from __future__ import annotations

import re
from typing import Final

from detectors.periods import Window

SAMPLE: Final = 64
_SELDOM: Final = 1_024  # characters between two samples once the beginning was sound
_LONGEST: Final = 24  # characters of one piece
_COVERED: Final = 44  # of a sample's characters
_PAIRS: Final = re.compile(rf"(?=.{{{_COVERED}}})(?:(.{{1,{_LONGEST}}}?)\1){{4,}}", re.DOTALL)
_LETTERS: Final = 6  # different ones; fewer are a rule, a number, a pattern


class Stutter:
    """``step`` says how many samples in a row were such pairs, 0 when the text is sound; it need not be called before
    ``due`` characters have come."""

    __slots__ = ("due", "hits", "onset")

    def __init__(self) -> None:
        self.due = SAMPLE
        self.hits = 0
        self.onset = 0

    def step(self, window: Window) -> int:
        end = window.end
        sample = window.text[-SAMPLE:]
        match = _PAIRS.search(sample) if len(set(sample)) >= _LETTERS else None
        if match is None or not _is_stutter(match.group()) or match.end() - match.start() < _COVERED:
            self.hits = 0
            self.due = end + (SAMPLE if end < 4 * SAMPLE else _SELDOM)
            return 0
        if not self.hits:
            self.onset = _beginning(window, end - len(sample) + match.start())
        self.hits += 1
        self.due = end + SAMPLE
        return self.hits


def _is_stutter(text: str) -> bool:
    letters = {char for char in text if char.isalpha()}
    return len(letters) >= _LETTERS and sum(map(str.isalpha, text)) * 2 > len(text)


def _beginning(window: Window, start: int) -> int:
    """Go back from ``start`` over the pairs before it."""
    text = window.text
    at = start - window.base
    while at > 0:
        for size in range(1, _LONGEST + 1):
            if at >= 2 * size and text[at - size : at] == text[at - 2 * size : at - size]:
                at -= 2 * size
                break
        else:
            break
    return window.base + at
