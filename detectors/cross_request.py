"""Another caller's prompt in this caller's answer: the alarm for a mix-up of caches between requests.

The rules:

- Off unless it is asked for. Only keyed hashes of prompts are kept, and only while their requests run.
- A row of eight words speaks for one other request when no other running request has it, this one's own prompt
  included; so what a system prompt or a template says to everybody speaks for nobody.
- One row may be chance or a quotation. Three different ones, from one and the same other request, are an alarm.
"""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import Sequence
from typing import Final

from detectors.finding import Finding

ROW: Final = 8  # words
_ALARM: Final = 3  # rows of one other prompt
_MOST_ROWS: Final = 20_000  # of one prompt, its last ones
_LETTERS: Final = 24  # a row of fewer letters says too little
_WORDS: Final = re.compile(r"[\u2e80-\ua4cf\uac00-\ud7af]|[^\W_\u2e80-\ua4cf\uac00-\ud7af]+")
_OPEN: Final = re.compile(r"[^\W_\u2e80-\ua4cf\uac00-\ud7af]+\Z")
_LONGEST_WORD: Final = 64


class Prompts:
    """The running requests' prompts, as keyed hashes. One for all requests of a process; not for several threads."""

    def __init__(self, key: bytes) -> None:
        """``key``: up to 64 secret bytes; raises ValueError when there are none."""
        if not key:
            raise ValueError("a key is needed: hashes without one can be guessed from likely prompts")
        self._key = key[:64]
        self._owners: dict[bytes, set[str]] = {}
        self._rows: dict[str, frozenset[bytes]] = {}

    def add(self, request_id: str, prompt_text: str) -> None:
        """The request begins. A second prompt of the same request replaces its first."""
        self.remove(request_id)
        words = [match.group().lower() for match in _WORDS.finditer(prompt_text)][-_MOST_ROWS:]
        found = (self.hash(words[i : i + ROW]) for i in range(len(words) - ROW + 1))
        rows = frozenset(row for row in found if row is not None)
        self._rows[request_id] = rows
        for row in rows:
            self._owners.setdefault(row, set()).add(request_id)

    def remove(self, request_id: str) -> None:
        """The request has ended. One that was never added is no mistake."""
        for row in self._rows.pop(request_id, ()):
            owners = self._owners[row]
            owners.discard(request_id)
            if not owners:
                del self._owners[row]

    def hash(self, words: Sequence[str]) -> bytes | None:
        text = " ".join(words)
        if sum(map(str.isalpha, text)) < (_LETTERS if text.isascii() else ROW):
            return None
        return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=10, key=self._key).digest()

    def owner(self, row: bytes, asking: str) -> str | None:
        """The one other request whose prompt has this row; None when it is also this one's, or several have it."""
        owners = self._owners.get(row)
        if owners is None or len(owners) != 1 or asking in owners:
            return None
        return next(iter(owners))


class CrossRequest:
    """One channel of the answer to ``request_id``. Holds nothing back: what it looks for is rare."""

    __slots__ = ("_channel", "_hits", "_part", "_prompts", "_request", "_seen", "_words", "condemned", "doubt")

    def __init__(self, prompts: Prompts, request_id: str, *, channel: str = "content") -> None:
        self.doubt = 0
        self.condemned = False
        self._prompts = prompts
        self._request = request_id
        self._channel = channel
        self._seen = 0
        self._part = ""  # a word that may go on
        self._words: deque[tuple[str, int]] = deque(maxlen=ROW)
        self._hits: dict[str, dict[bytes, int]] = {}

    def feed(
        self, text: str, token_ids: Sequence[int] | None = None, logprobs: Sequence[float] | None = None
    ) -> Sequence[Finding]:
        if self.condemned:
            return ()
        start = self._seen - len(self._part)
        self._seen += len(text)
        text = self._part + text
        end = _OPEN.search(text[-_LONGEST_WORD:])
        self._part = end.group() if end is not None and len(end.group()) < _LONGEST_WORD else ""
        whole = text[: len(text) - len(self._part)] if self._part else text
        for match in _WORDS.finditer(whole):
            found = self._take(match.group().lower(), start + match.start(), start + match.end() + 1)
            if found:
                self.doubt = max(self.doubt, found[0].detected_at - 1)
                return found
        self.doubt = self._seen
        return ()

    def finish(self) -> Sequence[Finding]:
        if self.condemned:
            return ()
        found: Sequence[Finding] = ()
        if self._part:
            found = self._take(self._part.lower(), self._seen - len(self._part), self._seen)
        if not found:
            self.doubt = self._seen
        return found

    def _take(self, word: str, start: int, end: int) -> Sequence[Finding]:
        words = self._words
        words.append((word, start))
        if len(words) < ROW:
            return ()
        row = self._prompts.hash([word for word, _ in words])
        other = self._prompts.owner(row, self._request) if row is not None else None
        if row is None or other is None:
            return ()
        hits = self._hits.setdefault(other, {})
        hits.setdefault(row, words[0][1])
        if len(hits) < _ALARM:
            return ()
        self.condemned = True
        onset = min(hits.values())
        message = "the answer holds text that only another running request's prompt holds"
        evidence = {"rows": len(hits), "other_request": other}
        return (Finding("privacy.other_prompt", "error", message, self._channel, onset, end, 0.95, evidence),)
