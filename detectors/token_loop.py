"""Loops in token ids alone: for engines, and for traces that hold no text.

Without its text a loop's context is unknown, so these bars are higher than those of detectors/repetition.py. The rule
is made to be computed over whole batches as well (detectors/tensor.py gives the same result):

- At every token, the nearest earlier place where the last sixteen tokens came before is looked for; how far back it
  lies is the distance. In a loop the distance is its period, token after token.
- A run is as many tokens in a row with one distance, and the sixteen and the distance that came before them. It is
  condemned when it is as long as its period demands.
- Where none of the repeated tokens is a word (rules, zeros, white space), eight times that is allowed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

GRAM: Final = 16  # tokens that must have come before for a distance to count
FARTHEST: Final = 512  # tokens; the longest period
WORDLESS: Final = 8


@dataclass(frozen=True, slots=True)
class TokenBars:
    """How many tokens of a run condemn it: ``single`` of one token, else ``copies`` periods and ``least`` tokens."""

    single: int = 48
    copies: int = 8
    least: int = 96

    def bar(self, period: int) -> int:
        return self.single if period == 1 else max(self.copies * period, self.least)


@dataclass(frozen=True, slots=True)
class TokenRun:
    """Tokens are counted from the beginning: ``onset`` is the loop's first, ``detected_at`` how many had been seen."""

    onset: int
    detected_at: int
    period: int


class TokenLoop:
    """One sequence. ``wordless``: the ids of tokens that hold no letter."""

    __slots__ = ("_bars", "_count", "_distance", "_last", "_run", "_seen", "_tail", "_wordless", "_words", "found")

    def __init__(self, bars: TokenBars | None = None, wordless: Collection[int] = ()) -> None:
        self.found: TokenRun | None = None
        self._bars = bars or TokenBars()
        self._wordless = wordless if isinstance(wordless, (set, frozenset)) else frozenset(wordless)
        self._tail: deque[int] = deque(maxlen=GRAM)
        self._last: dict[tuple[int, ...], int] = {}
        self._seen: deque[tuple[int, ...]] = deque()
        self._count = 0
        self._distance = 0
        self._run = 0  # tokens in a row with this distance
        self._words = -1  # index of the last token that is a word

    def feed(self, ids: Iterable[int]) -> TokenRun | None:
        """Returns the run that condemns the sequence, once; afterwards it is in ``found``."""
        if self.found is not None:
            return None
        for token in ids:
            found = self._take(token)
            if found is not None:
                return found
        return None

    def _take(self, token: int) -> TokenRun | None:
        at = self._count
        self._count = at + 1
        self._tail.append(token)
        if token not in self._wordless:
            self._words = at
        if at + 1 < GRAM:
            return None
        gram = tuple(self._tail)
        distance = at - self._last.get(gram, at)
        if distance > FARTHEST:
            distance = 0
        self._last[gram] = at
        self._seen.append(gram)
        if len(self._seen) > FARTHEST + 1:
            old = self._seen.popleft()
            if self._last[old] == at - FARTHEST - 1:
                del self._last[old]
        self._run = self._run + 1 if distance == self._distance else 1
        self._distance = distance
        if not distance:
            return None
        length = self._run + GRAM - 1 + distance
        bar = self._bars.bar(distance)
        if length < bar or (at - self._words >= distance and length < WORDLESS * bar):
            return None
        self.found = TokenRun(at + 1 - length, at + 1, distance)
        self._last.clear()
        self._seen.clear()
        return self.found
