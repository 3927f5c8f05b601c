"""The contract of a checker: one constraint held against one channel of one answer, as it streams.

Like a detector, a checker gives the same result for every split. ``safe`` is the offset up to which the constraint
lets text leave; ``good`` the longest prefix that can still become a valid answer (text before it may be resumed from).
``drops`` are character ranges that a repair takes out (a markdown fence around the whole answer): they never leave.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from detectors.finding import Finding


class Checker(Protocol):
    safe: int
    good: int
    drops: list[tuple[int, int]]

    @property
    def complete(self) -> bool:
        """Whether the text up to ``good`` is a whole answer."""
        ...

    def feed(self, text: str) -> Sequence[Finding]:
        """The next piece. Findings of severity error mean that no continuation can satisfy the constraint."""
        ...

    def finish(self, truncated: bool) -> Sequence[Finding]:
        """The text has ended; ``truncated``: by its token limit. Findings say why it is not a whole valid answer."""
        ...

    def forced(self) -> str:
        """The text that any valid answer has next, after ``good``; empty where there is a choice."""
        ...
