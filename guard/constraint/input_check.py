"""The input of a custom tool's call, written as a tool call is in any model's markup: ``{"input": "the text"}``.

A Checker (contract.py) of that document. Its form is read to the letter, white space aside; what the string says,
unescaped, is held to the tool's regex or grammar, or to nothing. The string may end where the input is whole.

An engine that knows custom tools sends the text itself, one that does not sends the document: InputReader takes both.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from detectors.finding import Finding
from guard.constraint.compile import CompiledConstraint
from guard.constraint.contract import Checker
from guard.constraint.json_sink import OBJECT, STRING, Sink
from guard.constraint.json_string import NO_CHARACTER, is_half, is_high, is_pair, judgeable, pair
from guard.constraint.json_syntax import DONE, JsonError, JsonReader

_KEY: Final = "input"
INPUT_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {_KEY: {"type": "string"}},
    "required": [_KEY],
    "additionalProperties": False,
}
"""Of the function that a custom tool is called as."""
_SPACE: Final = " \t\r\n"
_BEGUN: Final = f'{{"{_KEY}":"'
_LONGEST_LEAD: Final = 64  # characters of the document before its text


def as_input(text: str) -> str:
    """The document whose input is ``text``."""
    return begun_input(text) + '"}'


def begun_input(text: str) -> str:
    """The same, before the text has ended."""
    return f'{{"{_KEY}": "' + _escaped(text)


def _escaped(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


class _Wrong(Exception):
    def __init__(self, code: str, at: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.at = at
        self.message = message


class InputChecker:
    """``compiled`` is None where the tool takes any text. ``said``: the input so far, unescaped, in pieces."""

    def __init__(self, compiled: CompiledConstraint | None) -> None:
        self.safe = 0
        self.good = 0
        self.drops: list[tuple[int, int]] = []
        self.complete = False
        self._heard = _Input(compiled.checker() if compiled is not None else None)
        self._reader = self._heard.reader = JsonReader(self._heard)
        self._fed = 0
        self._failed = False

    @property
    def said(self) -> list[str]:
        return self._heard.said

    def feed(self, text: str) -> Sequence[Finding]:
        at = self._fed
        self._fed += len(text)
        if self._failed or not text:
            return ()
        if self.complete:
            space = len(text) - len(text.lstrip(_SPACE))
            return self._behind(text, at, space)
        try:
            used = self._reader.feed(text)
        except JsonError as error:
            return self._wrong("json.invalid", error.at, error.message)
        except _Wrong as wrong:
            return self._wrong(wrong.code, wrong.at, wrong.message)
        if self._reader.mode == DONE:
            self.complete = True
            return self._behind(text, at, used)
        # of an escape, or of half a pair of surrogates, nothing is known before it is whole
        self.good = self._fed - len(self._reader.escape) - (6 if self._heard.high else 0)
        return ()

    def finish(self, truncated: bool) -> Sequence[Finding]:
        if self._failed or self.complete:
            return ()
        return self._wrong("json.truncated", self._fed, "the input breaks off")

    def forced(self) -> str:
        return self._heard.forced()

    def _behind(self, text: str, at: int, used: int) -> Sequence[Finding]:
        self.good = at + used
        return () if used == len(text) else self._wrong("json.trailing_data", at + used, "text follows the input")

    def _wrong(self, code: str, at: int, message: str) -> Sequence[Finding]:
        self._failed = True
        self.good = at
        return (Finding(code, "error", message, onset=at, detected_at=min(at + 1, self._fed)),)


class _Input(Sink):
    """``high``: half a surrogate pair whose other half has not come. ``checker`` counts in unescaped characters."""

    def __init__(self, checker: Checker | None) -> None:
        self.reader: JsonReader
        self.said: list[str] = []
        self.high = ""
        self._key = ""
        self._checker = checker
        self._kinds: list[int] = []
        self._ended = False

    def start(self, kind: int, at: int) -> None:
        if kind != (STRING if self._kinds else OBJECT):
            wanted = "the input is a string" if self._kinds else "the input stands in an object"
            raise _Wrong("schema.type", at, wanted)
        self._kinds.append(kind)
        if kind == STRING:
            self.reader.budget = -1

    def key_start(self, at: int) -> None:
        if self._ended:
            raise _Wrong("schema.additionalProperties", at, "there is nothing but the input")
        self.reader.budget = -1

    def comma(self, at: int) -> None:
        raise _Wrong("schema.additionalProperties", at, "there is nothing but the input")

    def text(self, piece: str, at: int) -> None:
        if len(self._kinds) < 2:
            self._hear_key(piece, at)
            return
        if self.high:
            high, self.high = self.high, ""
            if is_pair(high, piece):
                self._hear(pair(high, piece), at - 6)
                return
            self._hear(NO_CHARACTER, at - 6)
        if len(piece) == 1 and is_high(piece):
            self.high = piece
        else:
            self._hear(judgeable(piece) if is_half(piece[0]) else piece, at)

    def _hear_key(self, piece: str, at: int) -> None:
        for offset, char in enumerate(piece):
            if not _KEY.startswith(self._key + char):
                raise _Wrong("schema.additionalProperties", at + offset, f"the only key is {_KEY}")
            self._key += char

    def key(self, key: str, at: int, end: int) -> None:
        if self.reader.plain:
            self._hear_key(key, at + 1)
        if key != _KEY:
            raise _Wrong("schema.additionalProperties", end - 1, f"the only key is {_KEY}")

    def scalar(self, kind: int, value: Any, at: int, end: int) -> None:
        if self.high:
            self.high = ""
            self._hear(NO_CHARACTER, end - 7)
        if self.reader.plain and value:
            self._hear(value, at + 1)
        self._ended = True
        if self._checker is not None:
            for finding in self._checker.finish(False):
                if finding.severity == "error":
                    raise _Wrong(finding.code, end - 1, finding.message)

    def end(self, kind: int, at: int) -> None:
        if not self._ended:
            raise _Wrong("schema.required", at, f"the key {_KEY} is missing")

    def _hear(self, piece: str, at: int) -> None:
        """``piece`` begins at offset ``at``; each of its characters is one there, unless it is an escape's only one."""
        if self._checker is not None:
            before = self._checker.good
            for finding in self._checker.feed(piece):
                if finding.severity == "error":
                    good = self._checker.good - before
                    self.said.append(piece[:good])
                    raise _Wrong(finding.code, at + good, finding.message)
        self.said.append(piece)

    def forced(self) -> str:
        """The text that must come next."""
        reader, checker = self.reader, self._checker
        lead = {"value": '{"input":"', "first_key": '"input":"', "colon": ':"', "after": "}"}
        if reader.place == "value" and self._kinds:
            begun = '"'
        elif reader.place == "string":
            if reader.escape or self.high:
                return ""
            begun = _KEY[len(self._key) :] + '":"' if reader.in_key else ""
        elif reader.place in lead:
            begun = lead[reader.place]
        else:
            return ""
        if self._ended or checker is None:
            return begun
        return begun + _escaped(checker.forced())


class InputReader:
    """What a call says to a custom tool, whichever way its engine sent it. Text that begins as the document does is
    held until it is told apart. ``begun``: anything has come."""

    def __init__(self) -> None:
        self.begun = False
        self._lead = ""
        self._is_text = False
        self._form: InputChecker | None = None
        self._taken = 0

    def feed(self, text: str) -> tuple[str, Sequence[Finding]]:
        """What is said, and what is wrong with how."""
        self.begun = self.begun or bool(text)
        if self._is_text:
            return text, ()
        if self._form is None:
            self._lead += text
            lead = "".join(self._lead[:_LONGEST_LEAD].split())
            if not lead.startswith(_BEGUN):
                if len(self._lead) < _LONGEST_LEAD and _BEGUN.startswith(lead):
                    return "", ()
                self._is_text = True
                return self._lead, ()
            self._form = InputChecker(None)
            text = self._lead
        found = self._form.feed(text)
        said = self._form.said
        piece = "".join(said[self._taken :])
        self._taken = len(said)
        return piece, found

    def finish(self, truncated: bool) -> tuple[str, Sequence[Finding]]:
        if self._form is not None:
            return "", self._form.finish(truncated)
        return "" if self._is_text else self._lead, ()
