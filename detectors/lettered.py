"""Lines whose copies differ only in a counter that is no number: "a) wait", "b) wait"; "Step II:"; "Try three failed".

The rules:

- A counter is a letter or a Roman numeral with a full stop, a bracket or a colon behind it, a capital letter behind a
  word, or a number in English or Chinese words, at the beginning of a line or behind a label of at most four words.
- Lines are equal when they are with their counters set aside; empty lines between them do not count. The counter has to
  change from each to the next: lines that are all equal are judged elsewhere.
"""

from __future__ import annotations

import re
from typing import Final

from detectors.periods import Window
from detectors.policy import Policy

_ONES: Final = "one|two|three|four|five|six|seven|eight|nine"
_NTHS: Final = "first|second|third|fourth|fifth|sixth|seventh|eighth|ninth"
_WORDS: Final = (
    rf"(?:twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety)(?:[ -](?:{_ONES}|{_NTHS}))?|(?:{_NTHS})(?:ly)?|{_ONES}"
    r"|(?:ten|eleven|twelve|thir|four|fif|six|seven|eigh|nine)(?:teen)?(?:th)?|twelfth|(?:twent|thirt|fort|fift)ieth"
)
_CHINESE: Final = "[一二三四五六七八九十百]{1,5}(?=[\\W步次个個章节節条條点點轮輪回])"
_COUNTER: Final = re.compile(
    rf"\W{{0,8}}(?:[^\W\d_]{{2,12}} ){{0,4}}?"
    rf"第?((?:{_WORDS})(?![^\W_]|-)|{_CHINESE}|(?<=\w )(?-i:[A-Z])(?= )"
    r"|(?:[ivxlcdm]{1,8}|[a-z])(?=[.):]{1,2}\**\s))",
    re.IGNORECASE,
)
_COUNTED_DOWN: Final = ("ten", "nine", "eight", "seven", "six", "five", "four", "three", "two", "one")
_LINE_NUMBER: Final = re.compile(rf"^\W*({'|'.join(_COUNTED_DOWN)}|[0-9]{{1,3}})\b", re.IGNORECASE | re.MULTILINE)
_LONGEST: Final = 400  # characters of a line
_LETTERS: Final = 4  # that it must hold besides its counter
_CODE: Final = frozenset("_={}<>;")
_LEAST: Final = 76  # characters of all copies


class Lettered:
    """``step`` says whether the lines have come too often; ``onset`` is where the first of them begins."""

    __slots__ = ("_counter", "_line", "_policy", "_rest", "copies", "held", "onset")

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._line = 0  # where the current line begins
        self._rest = ""
        self._counter = ""
        self.copies = 0
        self.onset = 0
        self.held = False

    def step(self, window: Window, size: int) -> bool:
        """``size`` characters were pushed, and there is a new line among them."""
        text = window.text
        at = len(text) - size
        while True:
            end = text.find("\n", at)
            if end < 0:
                break
            start = self._line - window.base
            at = end + 1
            if self._read(text[start:end] if 0 <= end - start <= _LONGEST and start >= 0 else "-", self._line):
                return True
            self._line = window.base + at
        return False

    def _read(self, line: str, start: int) -> bool:
        if not line.strip():
            return False
        match = _COUNTER.match(line + "\n")
        if match is None:
            self._rest = ""
            self.held = False
            self.copies = 0
            return False
        counter = match.group(1)
        rest = line[: match.start(1)] + "0" + line[match.end(1) :].rstrip()
        if rest != self._rest or counter == self._counter:
            prose = sum(map(str.isalpha, rest)) >= _LETTERS and _CODE.isdisjoint(rest)
            self._rest = rest if prose else ""
            self.copies = 1
            self.onset = start
            self.held = False
        else:
            self.copies += 1
            self.held = self.copies >= (2 if len(rest) > 64 else 3)
        self._counter = counter
        policy = self._policy
        rich = len(rest) >= 60
        bar = (policy.rich_near_copies if rich else policy.near_copies) * policy.patience
        return bool(self._rest) and self.copies >= bar and self.copies * len(rest) >= _LEAST * policy.patience


def counts_down(text: str) -> bool:
    """Whether lines of the text begin with numbers that go down by one: three at least, and no others."""
    values = [_value(match.group(1)) for match in _LINE_NUMBER.finditer(text)]
    numbers = [value for at, value in enumerate(values) if not at or value != values[at - 1]]
    return len(numbers) >= 3 and numbers == list(range(numbers[0], numbers[0] - len(numbers), -1))


def _value(number: str) -> int:
    return int(number) if number.isdecimal() else len(_COUNTED_DOWN) - _COUNTED_DOWN.index(number.lower())
