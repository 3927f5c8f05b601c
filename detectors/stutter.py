"""Every token twice or more often: "The The cat cat", "HelloHello,, worldworld". A mistake of a client or a proxy, and
not of the model.

Stuttered text is a row of pieces of which each comes twice, and honest text never is for long. A sample of the text is
tried now and then, often at the beginning, where such a mistake shows at once; where it is such a row, what follows is
tried too. Where each piece comes three times or more it takes a larger sample to see a few of them. A short answer
that has ended is tried whole.
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
_THREES: Final = 56  # of a sample's 62 threes
_LARGER: Final = 4 * SAMPLE
_MOST_COVERED: Final = 208  # of a larger sample's characters
_MORE: Final = re.compile(rf"(?=.{{{_MOST_COVERED}}})(?:(.{{1,{_LONGEST}}}?)\1{{2,}}){{4,}}", re.DOTALL)
_PIECE: Final = re.compile(rf"(.{{1,{_LONGEST}}}?)\1{{2,}}", re.DOTALL)
_FEW_THREES: Final = 0.45  # of a larger sample's
SHORT: Final = 512  # characters of an answer that is looked at whole when it has ended
_SHORTEST: Final = 32
_PAIRED: Final = 7  # different pieces; songs and sounds of animals have fewer
_LETTERS: Final = 6  # different ones; fewer are a rule, a number, a pattern


class Stutter:
    """``step`` says how many more samples were such pairs than were not, 0 when the text is sound. It needs not be
    called before ``due`` characters have come."""

    __slots__ = ("_missed", "due", "hits", "onset")

    def __init__(self) -> None:
        self.due = SAMPLE
        self.hits = 0
        self.onset = 0
        self._missed = False

    @property
    def held(self) -> bool:
        """Two samples in a row were such pairs."""
        return self.hits > 1 and not self._missed

    def step(self, window: Window) -> int:
        end = window.end
        sample = window.text[-SAMPLE:]
        match = _PAIRS.search(sample) if _may_be_pairs(sample) else None
        if match is None or not _is_stutter(match.group()) or match.end() - match.start() < _COVERED:
            sample = window.text[-_LARGER:]
            match = _MORE.search(sample) if _may_be_more(sample) else None
            if match is not None and len({piece.group(1) for piece in _PIECE.finditer(match.group())}) < 4:
                match = None  # a refrain of a few syllables
        if match is None or not _is_stutter(match.group()):
            # a long word or an unlucky cut may spoil one sample of many, so it is cut elsewhere once more
            if self.hits and not self._missed:
                self._missed = True
                self.due = end + SAMPLE // 3
                return self.hits
            self._missed = False
            self.hits = max(self.hits - 1, 0)
            self.due = end + (SAMPLE if self.hits or end < 4 * SAMPLE else _SELDOM)
            return self.hits
        if not self.hits:
            self.onset = _beginning(window, end - len(sample) + match.start())
        self.hits += 1
        self._missed = False
        self.due = end + SAMPLE
        return self.hits

    def all_pairs(self, window: Window) -> bool:
        """Whether all of a short text is a row of pairs, but for white space at its end."""
        text = window.text.rstrip()
        size = len(text)
        if size < _SHORTEST or not _is_stutter(text):
            return False
        text += " "  # what was between two words stands behind the last as well
        # ends[i]: the pieces of a row of pairs that is text[:i]
        ends: dict[int, tuple[int, frozenset[str]]] = {0: (0, frozenset())}
        for start in range(size):
            if start not in ends:
                continue
            count, pieces = ends[start]
            for length in range(1, _LONGEST + 1):
                end = start + 2 * length
                piece = text[start : start + length]
                if end > size + 1 or text[start + length : end] != piece:
                    continue
                if end not in ends or ends[end][0] < count + 1:
                    ends[end] = (count + 1, pieces | {piece})
        found = ends.get(size) or ends.get(size + 1)
        # letters that are doubled one by one are a pattern, or Chinese
        if found is None or len(found[1]) < _PAIRED or size < 3 * found[0]:
            return False
        self.onset = 0
        self.hits = max(self.hits, 1)
        return True


def _may_be_pairs(sample: str) -> bool:
    """In a row of pairs most threes of characters come twice; and it has letters enough."""
    threes = {sample[i : i + 3] for i in range(len(sample) - 2)}
    return len(threes) < _THREES and len(set(sample)) >= _LETTERS


def _may_be_more(sample: str) -> bool:
    if len(sample) < _LARGER:
        return False
    threes = {sample[i : i + 3] for i in range(len(sample) - 2)}
    return len(threes) < _FEW_THREES * len(sample) and len(set(sample)) >= _LETTERS


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
                piece = text[at - size : at]
                at -= 2 * size
                while text[max(at - size, 0) : at] == piece:
                    at -= size
                break
        else:
            break
    return window.base + at
