"""White space that goes on for ever where white space is legal: inside JSON, after a document, between two words.

The rules:

- A gap of honest JSON is one new line and its indentation, or a few spaces. Many new lines in one gap, or many spaces
  without one, are a model that may write nothing else: its grammar left it only white space.
- Outside JSON a flood of new lines is a collapse too, and so is a very long gap of any kind. Behind the last word of an
  answer less is enough: nothing will follow that it could set apart.
- Text that is nearly all white space over thousands of characters is waste, however it is cut up. (JSON may be: deep
  documents are indented.)

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
_has_mark = _MARK.search
_gap_of_three: Final = re.compile(r"\s{3}").search
_JSON_NEWLINES: Final = 8
_JSON_INDENT: Final = 256  # a new line and this much indentation is still a format
_LONG: Final = 8  # characters; a shorter gap is a gap between words
_WORDS: Final = 64  # visible characters between two long gaps that end a stretch of waste
_WASTE: Final = 8_192
_HOLD: Final = 0.4  # of what condemns a gap, and it is held


class Whitespace:
    """One channel. ``json``: it is to be a JSON document (a constrained answer, or a tool call's arguments)."""

    __slots__ = (
        "_calm_below",
        "_channel",
        "_depth",
        "_escaped",
        "_few",
        "_gap",
        "_held",
        "_json",
        "_least",
        "_lines",
        "_policy",
        "_quoted",
        "_seen",
        "_state",
        "_waste_blank",
        "_waste_end",
        "_waste_start",
        "condemned",
        "doubt",
        "releases",
    )

    def __init__(self, *, channel: str = "content", json: bool = False, policy: Policy = DEFAULT) -> None:
        self.doubt = 0
        self.condemned = False
        self.releases: list[tuple[int, int]] = []
        self._channel = channel
        self._policy = policy
        self._json = json
        self._state = "before" if json else ""  # before, inside, after the document
        # below these no gap is held, whatever it is made of
        self._least = (
            (_HOLD * policy.patience * policy.json_blank_chars, _HOLD * policy.patience * _JSON_NEWLINES)
            if json
            else (_HOLD * policy.patience * policy.blank_chars, _HOLD * policy.patience * policy.newline_flood)
        )
        self._few = int(self._least[1])
        self._calm_below = min(_LONG, *self._least) - 2  # a gap may lie on either side of a border
        self._quoted = False
        self._escaped = False
        self._depth = 0
        self._gap = 0  # characters of the gap that the text ends in
        self._lines = 0  # new lines in it
        self._held = False
        self._seen = 0
        self._waste_start = 0  # a stretch of text that is all but white space, and how much of it is
        self._waste_end = -_WASTE
        self._waste_blank = 0

    @property
    def calm(self) -> bool:
        return self._gap < self._calm_below and not (self._held or self._escaped or self.condemned)

    def feed(
        self, text: str, token_ids: Sequence[int] | None = None, logprobs: Sequence[float] | None = None
    ) -> Sequence[Finding]:
        if self.condemned or not text:
            return ()
        start = self._seen
        size = len(text)
        self._seen = seen = start + size
        gap = self._gap
        if size < _LONG and not gap and not text[-1].isspace():
            # it neither goes on with a gap nor ends in one, and what lies within is short
            if self._json and (self._escaped or _has_mark(text) is not None):
                self._read(text)
            self.doubt = seen
            return ()
        if not self._held and (
            (size < _LONG > gap and (gap + size <= self._few or "\n" not in text))
            or (gap < self._calm_below and size >= _LONG and _gap_of_three(text) is None)
        ):
            # too short for any gap in it to matter: only what the text now ends in is worth knowing
            words = text.rstrip()
            if words:
                if self._json and (self._escaped or _has_mark(words) is not None):
                    self._read(words)
                self._gap = gap = size - len(words)
                self._lines = text.count("\n", len(words)) if gap else 0
            else:
                self._gap = gap + size
                self._lines += text.count("\n")
            if self._quoted:
                self._escaped = self._escaped and not gap
                self._gap = self._lines = 0
            self.doubt = seen
            return ()
        return self._gaps(text, start)

    def finish(self) -> Sequence[Finding]:
        if self.condemned:
            return ()
        self.doubt = self._seen
        policy = self._policy
        long = self._gap >= policy.trailing_blank_chars * policy.patience
        if (
            self._json
            or self._gap == self._seen
            or not (long or self._lines >= policy.trailing_newlines * policy.patience)
        ):
            return ()
        self.condemned = True
        evidence = {"characters": self._gap, "newlines": self._lines}
        message = "the answer ends in a long stretch of white space"
        onset = self._seen - self._gap
        return (Finding("whitespace.trailing", "error", message, self._channel, onset, self._seen, 0.95, evidence),)

    def _gaps(self, text: str, start: int) -> Sequence[Finding]:
        done = 0
        for match in _GAPS.finditer(text):
            low, high = match.span()
            if low > done and self._words(text[done:low], start + done):
                return self._condemn_waste(start + done)
            done = high
            if self._json and self._quoted:
                self._escaped = False
                continue
            at = self._extend(text[low:high], start + low)
            if at:
                return self._condemn(at)
        if done < len(text) and self._words(text[done:], start + done):
            return self._condemn_waste(start + done)
        if not self._held:
            self.doubt = self._seen
        return ()

    def _words(self, text: str, start: int) -> bool:
        """Text that holds no long gap, from offset ``start`` on. Whether the gap before it makes too much waste."""
        wasted = self._gap >= _LONG and not self._json and self._waste(start)
        self._gap = self._lines = 0
        if self._held:
            self.releases = [*self.releases[-3:], (self.doubt, start + 1)]
            self._held = False
        if self._json:
            self._read(text)
        return wasted

    def _extend(self, blank: str, start: int) -> int:
        """The gap goes on. Returns the offset at which it became too long, or 0."""
        gap = self._gap + len(blank)
        lines = self._lines + blank.count("\n")
        least_gap, least_lines = self._least
        if gap < least_gap and lines < least_lines:
            self._gap = gap
            self._lines = lines
            return 0
        for at, char in enumerate(blank, start + 1):
            self._gap += 1
            self._lines += char == "\n"
            if self._over(1.0):
                return at
            if not self._held and self._over(_HOLD):
                self._held = True
                self.doubt = max(self.doubt, at - 1)
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

    def _waste(self, end: int) -> bool:
        """A long gap has grown to ``end``. Whether the stretch that such gaps fill is nearly all white space."""
        start = end - self._gap
        if start - self._waste_end > _WORDS:
            self._waste_start, self._waste_blank = start, 0
        self._waste_blank += end - max(start, self._waste_end)
        self._waste_end = end
        span = end - self._waste_start
        if self._waste_blank < 0.9 * span:
            self._waste_start, self._waste_blank = start, self._gap
        return span >= _WASTE * self._policy.patience and self._waste_blank >= 0.97 * span

    def _condemn_waste(self, end: int) -> Sequence[Finding]:
        self.condemned = True
        self.doubt = max(self.doubt, end)
        message = "thousands of characters of hardly anything but white space"
        evidence = {"characters": end - self._waste_start, "blank": self._waste_blank}
        return (
            Finding("whitespace.waste", "error", message, self._channel, self._waste_start, end + 1, 0.9, evidence),
        )

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
