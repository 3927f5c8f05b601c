"""The contract of every detector.

A detector watches one channel of one answer (the content, the reasoning, or one tool call's arguments). It is fed what
arrives, in any split, and must report the same findings for every split. After each feed ``doubt`` is the earliest
character offset that it may yet condemn: text before it can be released for all this detector knows. A detector that
doubts nothing has ``doubt`` equal to the number of characters fed so far. A doubt may only move back to an offset that
was not yet clear: once an offset was cleared (``doubt`` was beyond it) it stays cleared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from detectors.finding import Finding


class Detector(Protocol):
    """A detector may also say with ``calm`` that plain words mean nothing to it now: while it does, a piece of fewer
    than eight characters of printable ASCII but ``!<>[]`~``, with no more than one space between them, whose last two
    characters differ, can neither begin a finding nor bring a doubt, so that it may come later, joined
    with what follows.

    A detector that holds text back may also keep ``releases``: its last few (doubt, offset at which it let go). With
    them a panel knows what was held when another detector condemned the text in the middle of a feed."""

    doubt: int

    def feed(
        self, text: str, token_ids: Sequence[int] | None = None, logprobs: Sequence[float] | None = None
    ) -> Sequence[Finding]:
        """Take the next piece. Returns what became certain with it, most often the empty tuple."""
        ...

    def finish(self) -> Sequence[Finding]:
        """The channel has ended. Returns what only the end makes certain; afterwards nothing is in doubt."""
        ...
