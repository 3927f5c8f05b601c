"""Another caller's prompt in this caller's answer: the alarm for a mix-up of caches between requests.

The rules:

- Off unless it is asked for. Only keyed hashes of prompts are kept, only while their requests run, and no more of them
  than a bound allows: prompts that come above it are not watched for.
- A row of eight words speaks for one other request when no other running request has it, this one's own prompt
  included; so what a system prompt or a template says to everybody speaks for nobody.
- Rows begin at every other word or so, told by the word itself, so that prompt and answer choose the same ones at half
  the price; an onset may therefore be a few words late.
- One row may be chance or a quotation. Three different ones, from one and the same other request, are an alarm.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from array import array
from collections.abc import Sequence
from typing import Final

from detectors.finding import Finding, Severity

ROW: Final = 8  # words
MOST_ROWS: Final = 400_000  # of all running prompts together: about 60 MB
_ALARM: Final = 3  # rows of one other prompt
_MOST_WORDS: Final = 20_000  # of one prompt, its last ones
_LETTERS: Final = 24  # a row of fewer letters says too little
_WORDS: Final = re.compile(r"[\u2e80-\ua4cf\uac00-\ud7af]|[^\W_\u2e80-\ua4cf\uac00-\ud7af]+")
_OPEN: Final = re.compile(r"[^\W_\u2e80-\ua4cf\uac00-\ud7af]+\Z")
_LONGEST_WORD: Final = 64
_TOGETHER: Final = 64  # characters that are looked at together
_SEVERAL: Final = -1


class Prompts:
    """The running requests' prompts, as keyed hashes. One for all requests of a process; not for several threads.

    ``rows`` counts what is kept; ``unwatched`` how many prompts were turned away because of ``most_rows``.
    """

    __slots__ = ("_ids", "_key", "_most", "_names", "_next", "_owners", "_rows", "rows", "unwatched")

    def __init__(self, key: bytes, *, most_rows: int = MOST_ROWS) -> None:
        """``key``: up to 64 secret bytes; raises ValueError when there are none."""
        if not key:
            raise ValueError("a key is needed: hashes without one can be guessed from likely prompts")
        self.rows = 0
        self.unwatched = 0
        self._key = key[:64]
        self._most = most_rows
        self._next = 0
        self._ids: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._rows: dict[int, array[int]] = {}
        self._owners: dict[int, int] = {}  # of a row: its one request, or minus how many have it

    def add(self, request_id: str, prompt_text: str) -> bool:
        """The request begins. A second prompt of the same request replaces its first. False: there was no room."""
        self.remove(request_id)
        words = [match.group().lower() for match in _WORDS.finditer(prompt_text)][-_MOST_WORDS:]
        found = {
            self.hash(words[i : i + ROW]) for i in range(len(words) - ROW + 1) if begins_row(words[i])
        }  # of rows that say too little there is one: None
        found.discard(None)
        if self.rows + len(found) > self._most:
            self.unwatched += 1
            return False
        number = self._next
        self._next += 1
        self._ids[request_id] = number
        self._names[number] = request_id
        rows = self._rows[number] = array("Q", (row for row in found if row is not None))
        self.rows += len(rows)
        owners = self._owners
        for row in rows:
            before = owners.get(row)
            owners[row] = number if before is None else _SEVERAL - 1 if before >= 0 else before - 1
        return True

    def remove(self, request_id: str) -> None:
        """The request has ended. One that was never added is no mistake."""
        number = self._ids.pop(request_id, None)
        if number is None:
            return
        del self._names[number]
        rows = self._rows.pop(number)
        self.rows -= len(rows)
        for row in rows:
            before = self._owners[row]
            if before >= 0 or before == _SEVERAL:
                del self._owners[row]
            else:  # whose it is now is not known, and asking for it again would cost more than it is worth
                self._owners[row] = before + 1

    def hash(self, words: Sequence[str]) -> int | None:
        """Of one row, 64 bits; None for a row that says too little."""
        letters = 0
        for word in words:
            letters += 3 * len(word) if word > "\u2e80" else len(word) if not word.isdigit() else 0
        if letters < _LETTERS:
            return None
        text = " ".join(words).encode("utf-8", "replace")
        return int.from_bytes(hashlib.blake2b(text, digest_size=8, key=self._key).digest(), "little")

    def owner(self, row: int, asking: str) -> str | None:
        """The one other request whose prompt has this row; None when it is also this one's, or several have it."""
        number = self._owners.get(row, _SEVERAL)
        if number < 0 or number == self._ids.get(asking):
            return None
        return self._names[number]


def begins_row(word: str) -> bool:
    return zlib.crc32(word.encode("utf-8", "replace")) & 1 == 0


class CrossRequest:
    """One channel of the answer to ``request_id``. Holds nothing back: what it looks for is rare; so it looks at some
    text together. ``severity`` is that of its one finding."""

    __slots__ = (
        "_carried", "_channel", "_hits", "_part", "_parts", "_prompts", "_read_to", "_request", "_seen", "_severity",
        "condemned", "doubt",
    )  # fmt: skip

    def __init__(
        self, prompts: Prompts, request_id: str, *, channel: str = "content", severity: Severity = "error"
    ) -> None:
        self.doubt = 0
        self.condemned = False
        self._prompts = prompts
        self._request = request_id
        self._channel = channel
        self._severity: Severity = severity
        self._seen = 0
        self._read_to = 0
        self._parts: list[str] = []  # what was not looked at yet
        self._part = ""  # a word that may go on
        self._carried: list[tuple[str, int, int]] = []  # the last words: text, start, end
        self._hits: dict[str, dict[int, int]] = {}

    def feed(
        self, text: str, token_ids: Sequence[int] | None = None, logprobs: Sequence[float] | None = None
    ) -> Sequence[Finding]:
        self._seen = seen = self._seen + len(text)
        if self.condemned:
            if self._severity != "error":
                self.doubt = seen
            return ()
        self._parts.append(text)
        if seen - self._read_to < _TOGETHER:
            self.doubt = seen
            return ()
        return self._read(final=False)

    def finish(self) -> Sequence[Finding]:
        return () if self.condemned else self._read(final=True)

    def _read(self, final: bool) -> Sequence[Finding]:
        text = "".join((self._part, *self._parts))
        base = self._seen - len(text)
        self._parts.clear()
        self._read_to = self._seen
        end = None if final else _OPEN.search(text, max(0, len(text) - _LONGEST_WORD))
        self._part = end.group() if end is not None and len(end.group()) < _LONGEST_WORD else ""
        whole = len(text) - len(self._part)
        words = self._carried
        words += [
            (match.group().lower(), base + match.start(), base + match.end())
            for match in _WORDS.finditer(text, 0, whole)
        ]
        for i in range(len(words) - ROW + 1):
            if begins_row(words[i][0]) and self._is_alarm(words[i : i + ROW]):
                return self._found(min(words[i + ROW - 1][2] + 1, self._seen))
        self._carried = words[max(0, len(words) - ROW + 1) :]
        self.doubt = self._seen
        return ()

    def _is_alarm(self, words: Sequence[tuple[str, int, int]]) -> bool:
        row = self._prompts.hash([word for word, _, _ in words])
        other = self._prompts.owner(row, self._request) if row is not None else None
        if row is None or other is None:
            return False
        hits = self._hits.setdefault(other, {})
        hits.setdefault(row, words[0][1])
        return len(hits) >= _ALARM

    def _found(self, at: int) -> Sequence[Finding]:
        self.condemned = True
        self.doubt = self._seen if self._severity != "error" else max(self.doubt, at - 1)
        other, hits = next((other, hits) for other, hits in self._hits.items() if len(hits) >= _ALARM)
        message = "the answer holds text that only another running request's prompt holds"
        evidence = {"rows": len(hits), "other_request": other}
        onset = min(hits.values())
        return (Finding("leak.cross_request", self._severity, message, self._channel, onset, at, 0.95, evidence),)
