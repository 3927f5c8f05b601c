"""A text whose copies differ only in their numbers and their white space: "Step 14: wait", "Step 15: wait".

The text is normalised (every number becomes one 0, every gap one space) and its periods are sought as those of the text
itself are. It takes more copies to condemn, because honest data looks the same: rows, logs, numbered lines.
"""

from __future__ import annotations

import re
from collections import deque
from typing import Final

from detectors.periods import Run, Seeker, Window

STEP: Final = 28  # characters of the text itself, and twice as many where they hold no digit
_LONGEST: Final = 800  # normalised characters
_BYTES: Final = bytes.maketrans(b"123456789\n\t\r", b"000000000   ")
# Arabic, Persian, Devanagari, Bengali, Thai and full-width digits; numbers in circles
_DIGITS: Final = (
    "123456789"
    + "".join(chr(start + value) for start in (0x660, 0x6F0, 0x966, 0x9E6, 0xE50, 0xFF10) for value in range(10))
    + "".join(map(chr, range(0x2460, 0x2474)))
)
_OTHERS: Final = {ord(digit): "0" for digit in _DIGITS} | {ord(blank): " " for blank in "\n\t\r\u00a0\u3000"}
counts: Final = re.compile("[0-9]").search
"""Whether a text holds a digit: what only differs in white space may be looked at later."""


def normalise(text: str) -> str:
    return _normalised(text)[0]


def _normalised(text: str) -> tuple[str, bool]:
    """And whether the text holds what may differ from copy to copy: a digit, or a gap of several characters."""
    if text.isascii():
        data = text.encode().translate(_BYTES)
        differs = b"  " in data
        while b"  " in data:
            data = data.replace(b"  ", b" ")
        if b"0" in data:
            differs = True
            while b"00" in data:
                data = data.replace(b"00", b"0")
        return data.decode(), differs
    text = text.translate(_OTHERS)
    differs = "0" in text or "  " in text
    while "00" in text:
        text = text.replace("00", "0")
    while "  " in text:
        text = text.replace("  ", " ")
    return text, differs


class Normalised:
    """Follows the normalised text. ``run`` counts normalised characters; ``raw`` turns one of its offsets into one of
    the text itself, exactly where the text is still known and to within a step where it is not."""

    __slots__ = ("_changed", "_differs", "_marks", "_seeker", "seen", "window")

    def __init__(self) -> None:
        self.window = Window(2 * _LONGEST + 128)
        self.seen = 0
        self._seeker = Seeker(20, 3, _LONGEST, STEP, least=40)
        # where a step began, in both texts, and whether it changed anything; a row of steps that did not is one
        self._marks: deque[tuple[int, int, bool]] = deque(maxlen=160)
        self._changed = True
        self._differs = 0  # until there copies may differ from each other; beyond, exact runs say all there is to say

    @property
    def run(self) -> Run | None:
        return self._seeker.run

    def step(self, block: str) -> Run | None:
        window = self.window
        text, differs = _normalised(block)
        changed = text != block
        last = window.text[-1:]
        if text[0] == last and (last == "0" or last == " "):
            text = text[1:]  # the number or the gap began in the step before
            changed = True
        if changed or self._changed:
            self._marks.append((window.end, self.seen, changed))
            self._changed = changed
        self.seen += len(block)
        if not text:
            return self._seeker.run
        window.push(text)
        if differs:
            self._differs = window.end + 2 * _LONGEST
        elif window.end > self._differs:
            self._seeker.run = None
            return None
        return self._seeker.step(window, len(text))

    def raw(self, offset: int, source: Window) -> int:
        """Where the normalised ``offset`` lies in the text that ``source`` still holds the end of."""
        mark = next((mark for mark in reversed(self._marks) if mark[0] <= offset), self._marks[0])
        norm, start, changed = mark
        need = max(offset - norm, 0)
        if not changed:
            return start + need
        block = source.slice(start, start + 3 * STEP) if start >= source.base else ""
        for size in range(1, len(block) + 1):
            if len(normalise(block[:size])) > need:
                return start + size - 1
        return start + min(need, 2 * STEP)
