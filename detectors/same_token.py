"""One token again and again, seen by its id: a special token that has no text, and a mark that text alone would allow
longer, because people shout. A row of marks that somebody meant is written in tokens of several marks each.
"""

from __future__ import annotations

from collections.abc import Sequence

from detectors.finding import Finding
from detectors.policy import Policy
from detectors.verdict import MESSAGES


class SameToken:
    __slots__ = ("_channel", "_count", "_id", "_marks", "_onset", "_policy")

    def __init__(self, channel: str, policy: Policy) -> None:
        self._channel = channel
        self._policy = policy
        self._id = -1
        self._count = 0
        self._onset = 0
        self._marks = 0  # how many of the row were one mark each, in a row

    def feed(self, text: str, ids: Sequence[int], seen: int) -> Sequence[Finding]:
        """``seen`` counts all characters up to the end of ``text``."""
        start = seen - len(text)
        single = len(ids) == len(text)
        for at, token in enumerate(ids):
            if token == self._id:
                self._count += 1
            else:
                self._id = token
                self._count = 1
                self._marks = 0
                self._onset = start + (at if single else 0)
            self._marks = self._marks + 1 if single and text[at] in "!?" else 0
            if self._marks >= self._policy.token_copies * self._policy.patience:
                return self._condemn("and its mark is a token of its own", start + at + 1)
        if self._count >= 2 * self._policy.token_copies and seen == self._onset:
            return self._condemn("and it has no text", seen)
        return ()

    def _condemn(self, how: str, end: int) -> Sequence[Finding]:
        kind = "single_token_from_start" if not self._onset else "single_token"
        evidence = {"token_id": self._id, "copies": self._count}
        message = f"{MESSAGES[kind]}, {how}"
        return (Finding(f"repetition.{kind}", "error", message, self._channel, self._onset, end, 0.99, evidence),)
