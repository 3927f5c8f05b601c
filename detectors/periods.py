"""Which period the end of a growing text has, found at a fixed price a step.

The text is taken in steps of a fixed size, so that what is found depends on the text alone and never on how it came.
A seeker looks for the last few characters in the stretch before them; where they are found, the distance may be a
period. It becomes a run once two whole copies stand next to each other, and lives as long as the text goes on to repeat
itself at that distance. Only the window is kept: a little more than two copies of the longest period.
"""

from __future__ import annotations

from typing import Final

LONGEST: Final = 2_000  # characters; the longest period that is looked for
KEPT: Final = 2 * LONGEST + 128
_SLACK: Final = 1_024  # the window is trimmed when it is this much too long, so that trimming costs nothing a step


class Window:
    """The last ``kept`` characters of a text; ``end`` counts all that ever came, ``base`` those that are gone."""

    __slots__ = ("_kept", "base", "end", "text")

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self.text = ""
        self.base = 0
        self.end = 0

    def push(self, block: str) -> None:
        text = self.text + block
        self.end += len(block)
        kept = self._kept
        if len(text) > kept + _SLACK:
            self.base += len(text) - kept
            text = text[-kept:]
        self.text = text

    def slice(self, start: int, end: int) -> str:
        """Characters ``start`` to ``end`` of the stream, as far as they are still here."""
        base = self.base
        return self.text[max(start - base, 0) : max(end - base, 0)]


class Run:
    """Text from ``start`` to ``end`` has ``period``. ``bar`` and ``hold`` are its judge's: the end at which it is
    condemned, and the end from which its repeats are held; zero until it was judged."""

    __slots__ = ("bar", "end", "hold", "kind", "period", "start", "why")

    def __init__(self, period: int, start: int, end: int) -> None:
        self.period = period
        self.start = start
        self.end = end
        self.bar = 0
        self.hold = 0
        self.kind = ""
        self.why = ""

    @property
    def copies(self) -> float:
        return (self.end - self.start) / self.period


class Seeker:
    """Looks for periods from ``low`` to ``high`` characters by the last ``tail`` characters, every ``every`` characters
    of text. ``run`` is what it follows; ``broken`` is the last run that ended, until somebody took it away."""

    __slots__ = ("_every", "_high", "_least", "_low", "_tail", "_tries", "broken", "due", "run")

    def __init__(self, tail: int, low: int, high: int, every: int, *, tries: int = 1, least: int = 64) -> None:
        """``tries``: places that are looked at; ``least``: characters that must agree for a longer period."""
        self._tail = tail
        self._low = low
        self._high = high
        self._every = every
        self.due = 0
        self._tries = tries
        self._least = least
        self.run: Run | None = None
        self.broken: Run | None = None

    def step(self, window: Window, size: int) -> Run | None:
        """``size`` characters were pushed since the last step. Needs not be called while there is no run and ``due``
        characters have not come."""
        run = self.run
        if run is not None:
            text = window.text
            n = len(text)
            period = run.period
            if text[n - size :] == text[n - size - period : n - period]:
                run.end += size
                if run.bar or window.end < self.due:
                    return run
            else:
                run.end += agree(text, n - size, n - size - period, size)
                self.broken = run
                self.run = run = None
                self.due = window.end
        if window.end < self.due:
            return None
        self.due = window.end + self._every
        return self._seek(window, run)

    def _seek(self, window: Window, run: Run | None) -> Run | None:
        """The nearest place where the tail came before may lie within the unit; so a few are tried, and the one that
        reaches back furthest is taken."""
        text = window.text
        n = len(text)
        tail = text[-self._tail :]
        size = len(tail)
        high = n - self._low
        low = n - size - self._high
        if high < size or size < self._tail:
            return run
        longest = 0 if run is None else run.end - run.start - run.period
        for _ in range(self._tries):
            at = text.rfind(tail, low if low > 0 else 0, high)
            if at < 0:
                break
            high = at + size - 1
            period = n - size - at
            # two copies at least, or for long periods as much as makes it worth following
            need = period if period < self._least else self._least
            if n < period + need or text[n - need :] != text[n - need - period : n - period]:
                continue
            matched = reach(text, n, period)
            if matched > longest:
                longest = matched
                self.run = run = Run(period, window.end - matched - period, window.end)
        return run


def agree(text: str, one: int, other: int, most: int) -> int:
    """How many characters from ``one`` on are equal to those from ``other`` on; at most ``most``."""
    count = 0
    while count < most and text[one + count] == text[other + count]:
        count += 1
    return count


def reach(text: str, n: int, period: int) -> int:
    """How many characters at the end of ``text[:n]`` equal those one ``period`` before them."""
    most = n - period
    count = 0
    stride = 64
    while count < most:
        stride = min(stride, most - count)
        high = n - count
        if text[high - stride : high] == text[high - stride - period : high - period]:
            count += stride
            stride *= 2
        elif stride == 1:
            break
        else:
            stride //= 4 if stride >= 4 else 2
    return count


def primitive(unit: str) -> int:
    """The shortest period of ``unit`` that divides it."""
    return (unit + unit).find(unit, 1)
