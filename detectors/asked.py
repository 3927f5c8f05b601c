"""Whether a prompt asked for repetition, and for how much of it.

Read from the prompt's text, once, and only when something repeats. A prompt asks when it says so with a number ("write
OK 500 times", "a hundred times", "an array of 200 zeros"), when it says so without one ("again and again"), or when it
is itself repetitive and is to be continued. A song that was asked for may have a refrain.
"""

from __future__ import annotations

import re
from typing import Final

from detectors.policy import Policy

_READ: Final = 40_000  # characters from the prompt's end
_MOST: Final = 100_000
_COUNTED: Final = re.compile(
    r"(\d[\d,._' ]{0,9})\s*[-x×*]?\s*(?:[^\W\d_]+[ -]){0,4}?"
    r"(?:times?|copies|x\b|zeros?|zeroes|ones\b|lines?|rows?|repetitions?|repeats?|entries|elements?|items|characters?|"
    r"chars|letters?|words?|dashes|stars|spaces|numbers|cells|columns|bytes|fois|lignes|veces|líneas|vezes|linhas|mal\b|"
    r"zeilen|volte|righe|keer|regels|gånger|razy|раза?|строк\w*|kere|kez|lần|次|遍|回|行|個|个|번|줄)",
    re.IGNORECASE,
)
_BY: Final = re.compile(r"(\d{1,5})\s*(?:x|×|by|\*)\s*(\d{1,5})", re.IGNORECASE)
_REPEAT: Final = re.compile(
    r"\b(?:repeat\w*|again and again|over and over|forever|endless\w*|nothing but|identical|the same|all zeros?|"
    r"all ones|fill(?:ed)? with|consisting of|non-?stop|infinit\w*|r[ée]p[èée]t\w*|wiederhol\w*|repit\w*|repet\w*|"
    r"ripet\w*|herhaal\w*|upprepa\w*|powt[óo]rz\w*|повтор\w*|tekrar\w*)|重复|重複|反复|繰り返|반복",
    re.IGNORECASE,
)
_SINGS: Final = re.compile(
    r"\b(?:lyrics?|songs?|sing|chorus|refrain|hymns?|psalms?|litany|rosary|prayers?|chants?|mantras?|lullaby|ballad|"
    r"nursery rhymes?|poems?|verses?|chanson|paroles|canci[óo]n|letra|lied(?:er|text)?|strophe|gedicht|canzone|"
    r"стих\w*|песн\w*)\b|歌词|歌詞|가사|詩|诗",
    re.IGNORECASE,
)
_SPELT: Final = {
    "a": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9,
    "ten": 10, "eleven": 11, "twelve": 12, "fifteen": 15, "sixteen": 16, "twenty": 20, "thirty": 30, "forty": 40,
    "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90, "dozen": 12, "hundred": 100, "thousand": 1_000,
}  # fmt: skip
_SPELLING: Final = re.compile(
    rf"\b(?:(?:({'|'.join(_SPELT)})[ -])?(dozen|hundred|thousand)"
    rf"|({'|'.join(word for word, value in _SPELT.items() if 8 <= value < 100)}))\b",
    re.IGNORECASE,
)
_WORD: Final = re.compile(r"[^\W_]+")


class Asked:
    __slots__ = ("_counts", "_lower", "_prompt", "_read", "_repeat", "_sings")

    def __init__(self, prompt: str | None) -> None:
        self._prompt = prompt
        self._read = False
        self._counts = 0
        self._repeat = False
        self._sings = False
        self._lower = ""

    @property
    def asks(self) -> bool:
        """Whether the prompt asks for repetition of anything at all."""
        if self._prompt is None:
            return False
        if not self._read:
            self._understand(self._prompt[-_READ:])
        return self._repeat or self._counts >= 8

    @property
    def sings(self) -> bool:
        """Whether the prompt asks for something that is sung, or for verse."""
        if self._prompt is None:
            return False
        if not self._read:
            self._understand(self._prompt[-_READ:])
        return self._sings

    def copies(self, unit: str, policy: Policy) -> int:
        """How many copies of ``unit`` the prompt explains; 0 when it does not."""
        if self._prompt is None:
            return 0
        if not self._read:
            self._understand(self._prompt[-_READ:])
        explained = 0
        if self._counts or self._repeat:
            named = all(word in self._lower for word in _WORD.findall(unit.lower()) if not word.isdigit())
            if self._counts >= 8 and (named or self._repeat):
                explained = min(self._counts + self._counts // 4 + 16, _MOST)
            elif self._repeat and named:
                explained = policy.asked_copies
        if len(unit) > 1 or not unit.isspace():
            given = self._run_in_prompt(unit)
            if given >= 4:
                explained = max(explained, 4 * given + 24)
        return explained

    def _understand(self, prompt: str) -> None:
        self._read = True
        self._lower = prompt.lower()
        self._repeat = _REPEAT.search(prompt) is not None
        self._sings = _SINGS.search(prompt) is not None
        counts = [_number(match.group(1)) for match in _COUNTED.finditer(_SPELLING.sub(_in_digits, prompt))]
        counts += [int(match.group(1)) * int(match.group(2)) for match in _BY.finditer(prompt)]
        self._counts = max(counts, default=0)

    def _run_in_prompt(self, unit: str) -> int:
        """The longest row of copies of ``unit`` in the prompt, looked for by doubling."""
        prompt = self._lower
        unit = unit.lower()
        copies = 1
        if unit * 4 not in prompt:
            return 0
        while copies * len(unit) < len(prompt) and unit * (2 * copies) in prompt:
            copies *= 2
        return copies


def _in_digits(match: re.Match[str]) -> str:
    first, unit, alone = match.groups()
    return str(_SPELT[(first or "one").lower()] * _SPELT[(unit or alone).lower()])


def _number(text: str) -> int:
    digits = "".join(char for char in text if char.isdigit())
    return min(int(digits), _MOST) if digits else 0
