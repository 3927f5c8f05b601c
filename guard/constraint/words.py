"""Words that a text is read against as it arrives."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable


class Words:
    """A set of words that a string is read against as it arrives."""

    __slots__ = ("_sorted", "words")

    def __init__(self, words: Iterable[str]) -> None:
        self.words = frozenset(words)
        self._sorted = sorted(self.words)

    def has_prefix(self, prefix: str) -> bool:
        at = bisect_left(self._sorted, prefix)
        return at < len(self._sorted) and self._sorted[at].startswith(prefix)

    def has_other(self, prefix: str, used: Collection[str]) -> bool:
        """Whether a word that is not among ``used`` begins with ``prefix``."""
        words = self._sorted
        at = bisect_left(words, prefix)
        while at < len(words) and words[at].startswith(prefix):
            if words[at] not in used:
                return True
            at += 1
        return False

    def longer(self, prefix: str) -> bool:
        """Whether a word goes on after ``prefix``."""
        at = bisect_left(self._sorted, prefix)
        at += at < len(self._sorted) and self._sorted[at] == prefix
        return at < len(self._sorted) and self._sorted[at].startswith(prefix)

    def rest(self, prefix: str) -> str:
        """What every word that begins with ``prefix`` has next."""
        at = bisect_left(self._sorted, prefix)
        low = high = self._sorted[at] if at < len(self._sorted) else ""
        while at < len(self._sorted) and self._sorted[at].startswith(prefix):
            high = self._sorted[at]
            at += 1
        length = min(len(prefix), len(low))
        while length < len(low) and length < len(high) and low[length] == high[length]:
            length += 1
        return low[len(prefix) : length]

    def common(self, seen: str, piece: str) -> int:
        """How many characters of ``piece`` can still follow ``seen``."""
        low, high = 0, len(piece)
        while low < high:
            middle = (low + high + 1) // 2
            if self.has_prefix(seen + piece[:middle]):
                low = middle
            else:
                high = middle - 1
        return low
