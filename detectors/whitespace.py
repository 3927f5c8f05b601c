"""White space that goes on for ever where white space is legal: inside JSON, after a document, between two words.

The rules:

- A gap of honest JSON is one new line and its indentation, or a few spaces. Many new lines in one gap, or many spaces
  without one, are a model that may write nothing else: its grammar left it only white space.
- Outside JSON a flood of new lines is a collapse too, and so is a very long gap of any kind.
- An answer that is nearly all white space over thousands of characters is waste, however it is cut up.

White space inside a JSON string is text, and not looked at here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from detectors.finding import Finding
from detectors.policy import DEFAULT, Policy

_GAPS: Final = re.compile(r"\A\s+|\s{8,}|\s+\Z")
_MARK: Final = re.compile(r'["\\{}\[\]]')
_JSON_NEWLINES: Final = 8
_JSON_INDENT: Final = 256  # a new line and this much indentation is still a format
_WASTE_STEP: Final = 1_024


class Whitespace:
    """One channel. ``json``: it is to be a JSON document (a constrained answer, or a tool call's arguments)."""

    __slots__ = (
        "_channel",
        "_depth",
        "_escaped",
        "_gap",
        "_held",
        "_json",
        "_lines",
        "_parts",
        "_policy",
        "_quoted",
        "_seen",
        "_size",
        "_state",
        "_wasted",
        "condemned",
        "doubt",
    )

    def __init__(self, *, channel: str = "content", json: bool = False, policy: Policy = DEFAULT) -> None:
        self.doubt = 0
        self.condemned = False
        self._channel = channel
        self._policy = policy
        self._json = json
        self._state = "before" if json else ""  # before, inside, after the document
        self._quoted = False
        self._escaped = False
        self._depth = 0
        self._gap = 0  # characters of the gap that the text ends in
        self._lines = 0  # new lines in it
        self._held = False
        self._seen = 0
        self._parts: list[str] = []
        self._size = 0
        self._wasted = 0

    def feed(
        self, text: str, token_ids: Sequence[int] | None = None, logprobs: Sequence[float] | None = None
    ) -> Sequence[Finding]:
        if self.condemned or not text:
            return ()
        start = self._seen
        self._seen = seen = start + len(text)
        self._size += len(text)
        self._parts.append(text)
        if self._size >= _WASTE_STEP:
            found = self._waste()
            if found:
                return found
        if not self._json and len(text) < 8 and (not self._gap or not text.isspace()):
            # short, and not white space alone: whatever gap it ends in is short too
            if self._gap:
                lead = len(text) - len(text.lstrip())
                if lead and self._extend(text[:lead], start):
                    return self._condemn(start + lead)
            tail = text[len(text.rstrip()) :]
            self._gap = len(tail)
            self._lines = tail.count("\n") if tail else 0
            self._held = False
            self.doubt = seen
            return ()
        return self._gaps(text, start)

    def finish(self) -> Sequence[Finding]:
        if not self.condemned:
            self.doubt = self._seen
        return ()

    def _gaps(self, text: str, start: int) -> Sequence[Finding]:
        done = 0
        size = len(text)
        for match in _GAPS.finditer(text):
            low, high = match.span()
            if low or not self._gap:
                self._close()
                if self._json:
                    self._read(text[done:low])
                if self._json and self._quoted:
                    continue
            done = high
            at = self._extend(text[low:high], start + low)
            if at:
                return self._condemn(at)
            if high < size:
                self._close()
        if done < size:
            self._close()
            if self._json:
                self._read(text[done:])
        if not self._held:
            self.doubt = self._seen
        return ()

    def _close(self) -> None:
        self._gap = self._lines = 0
        self._held = False

    def _extend(self, blank: str, start: int) -> int:
        """The gap goes on. Returns the offset at which it became too long, or 0."""
        if self._gap + len(blank) < 8:
            self._gap += len(blank)
            self._lines += blank.count("\n")
            return 0
        for at, char in enumerate(blank, start + 1):
            self._gap += 1
            self._lines += char == "\n"
            if self._over(1.0):
                return at
            if not self._held and self._over(0.4):
                self._held = True
                self.doubt = at - 1
        return 0

    def _over(self, share: float) -> bool:
        policy = self._policy
        patience = share * policy.patience
        if self._json:
            if self._lines >= _JSON_NEWLINES * patience * (2 if self._state == "before" else 1):
                return True
            return self._gap >= (_JSON_INDENT if self._lines else policy.json_blank_chars) * patience
        return self._lines >= policy.newline_flood * patience or self._gap >= policy.blank_chars * patience

    def _read(self, text: str) -> None:
        """Follow strings and depth, no more of JSON than that."""
        if self._escaped and text:
            self._escaped = False
            text = text[1:]
        skip = -1
        for match in _MARK.finditer(text):
            at = match.start()
            if at == skip:
                continue
            mark = text[at]
            if self._quoted:
                if mark == '"':
                    self._quoted = False
                elif mark == "\\":
                    skip = at + 1
                    self._escaped = skip == len(text)
            elif mark == '"':
                self._quoted = True
            elif mark in "{[":
                self._depth += 1
                self._state = "inside"
            elif mark in "}]":
                self._depth -= 1
                if self._depth <= 0:
                    self._state = "after"

    def _waste(self) -> Sequence[Finding]:
        """Looked at in pieces of about a thousand characters, cut where the text was, so that the cut is no chunk's."""
        text = "".join(self._parts)
        at = 0
        while at + _WASTE_STEP <= len(text):
            piece = text[at : at + _WASTE_STEP]
            at += _WASTE_STEP
            words = len("".join(piece.split()))
            self._wasted = self._wasted + 1 if words < _WASTE_STEP // 40 else 0
            if self._wasted >= 4 * self._policy.patience:
                self.condemned = True
                end = self._seen - len(text) + at
                onset = end - self._wasted * _WASTE_STEP
                message = "thousands of characters of hardly anything but white space"
                evidence = {"characters": end - onset, "visible_share": round(words / _WASTE_STEP, 3)}
                if not self._held:
                    self.doubt = max(self.doubt, end - 1)
                return (Finding("whitespace.waste", "error", message, self._channel, onset, end, 0.9, evidence),)
        rest = text[at:]
        self._parts = [rest] if rest else []
        self._size = len(rest)
        return ()

    def _condemn(self, at: int) -> Sequence[Finding]:
        self.condemned = True
        onset = at - self._gap
        evidence = {"characters": self._gap, "newlines": self._lines}
        if self._json:
            kind = {"before": "before_document", "inside": "inside_json", "after": "after_document"}[self._state]
            place = {"before": "before the document", "inside": "inside the JSON", "after": "after the document"}
            message = f"white space without end {place[self._state]}"
        elif self._lines >= self._policy.newline_flood:
            kind, message = "newlines", "a flood of new lines"
        else:
            kind, message = "run", "white space without end"
        return (Finding(f"whitespace.{kind}", "error", message, self._channel, onset, at, 0.99, evidence),)
