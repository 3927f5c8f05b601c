"""A JSON object written as tags: ``<parameter=key>value</parameter>``, in the styles of several families.

A Checker (contract.py), held by the object's schema. The object is rewritten as JSON while it is read, and checked as
all JSON is (json_check.py): keys in any order, each value as soon as it is certain, the whole when it ends. The rules:

- A value whose schema knows only strings is what stands between its tags, to the letter; one whose schema knows none is
  JSON. Of any other, and of one on a line of its own, every reading counts: it is valid if it is in one of them.
- Nothing in the object says where it ends: it does with the first text that is no further tag. That is reported as
  ``json.trailing_data``, and ``ended_at`` is then the offset behind the last tag.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import islice, product
from typing import Final

from detectors.finding import Finding
from guard.constraint.compile import CompiledConstraint
from guard.constraint.formats.values import STRING_ONLY, Types, encode, types_at
from guard.constraint.json_check import JsonChecker
from guard.constraint.json_sink import STRING, Sink
from guard.constraint.json_syntax import DONE, JsonError, JsonReader
from guard.constraint.tag_styles import SAYS_TEXT, STYLES

_SPACE: Final = " \t\r\n"
_ESCAPED: Final = re.compile(r'["\\\x00-\x1f]')
_LONGEST_HEAD: Final = 10_000
_MOST_READINGS: Final = 64
_MOST_WORK: Final = 400_000
"""Characters that are read again for the sake of other readings, in all: some tenths of a second."""

_BETWEEN, _HEAD, _TEXT, _JSON, _HELD, _CLOSING, _OVER = range(7)


class TaggedArguments:
    """``complete``: the object has ended, and is valid."""

    def __init__(self, compiled: CompiledConstraint, style: str) -> None:
        self.safe = 0
        self.good = 0
        self.drops: list[tuple[int, int]] = []
        self.complete = False
        self.ended_at = 0
        self._compiled = compiled
        self._schema = compiled.constraint.value
        self._style = STYLES[style]
        self._checker = self._new_checker()
        self._parts: list[str] = []
        self._open: dict[int, list[str]] = {}  # parts of which there are several readings
        self._json = 0
        self._starts = [
            0
        ]  # segments: where each begins in the JSON, where in the text, and whether it is as long there
        self._places: list[tuple[int, bool]] = [(0, False)]
        self._left = ""
        self._at = 0
        self._tag = 0  # where the last tag begins
        self._stage = _BETWEEN
        self._types: Types | None = None
        self._text_only = False
        self._reader = JsonReader(Sink())
        self._looked = self._read = 0  # how much of what is left was searched, and read as JSON
        self._work = 0
        self._found: list[Finding] = []
        self._write("{", 0)

    # --- feeding -----------------------------------------------------------------------------------------------------

    def feed(self, text: str) -> Sequence[Finding]:
        if self._stage == _OVER:
            return ()
        self._found = []
        self._left += text
        while self._stage != _OVER and self._step():
            pass
        if self._stage != _OVER:
            self.good = self._at + len(self._left)
            self.safe = max(self.safe, self._clear())
        return self._found

    def _clear(self) -> int:
        """What of the text may leave: what closes the last tag may close the object, which is not judged yet."""
        clear = self.ended_at - 1 if self._stage == _BETWEEN else self._tag if self._stage == _HEAD else self._at
        return clear if self._checker.safe >= self._json else min(clear, self._place(self._checker.safe))

    def finish(self, truncated: bool) -> Sequence[Finding]:
        if self._stage == _OVER:
            return ()
        self._found = []
        if self._stage == _BETWEEN:
            self._end(trailing=False)
        else:
            self._fail("json.truncated", self._at + len(self._left), "the text ends within an argument")
        return self._found

    def forced(self) -> str:
        return ""

    def _step(self) -> bool:
        """One thing more of what is left; whether there was one."""
        match self._stage:
            case 0:  # _BETWEEN
                return self._between()
            case 1:  # _HEAD
                return self._head()
            case 2:  # _TEXT
                return self._text()
            case 3:  # _JSON
                return self._value()
            case 4:  # _HELD
                return self._held()
        return self._closing()

    def _take(self, count: int) -> str:
        taken, self._left = self._left[:count], self._left[count:]
        self._at += count
        return taken

    def _spaced(self) -> str:
        """What is left behind white space."""
        self._take(len(self._left) - len(self._left.lstrip(_SPACE)))
        return self._left

    def _between(self) -> bool:
        bare = self._spaced()
        if not bare:
            return False
        opening = self._style.opening
        if bare.startswith(opening):
            self._tag = self._at
            self._take(len(opening))
            self._stage = _HEAD
            return True
        if not opening.startswith(bare):
            self._end(trailing=True)
        return False

    def _head(self) -> bool:
        text = self._left[:_LONGEST_HEAD]
        head = self._style.head.match(text)
        if head is None:
            begun = self._style.begun.match(text)
            good = begun.end() if begun is not None else 0
            if good < len(self._left):
                self._fail("json.invalid", self._at + good, "an argument's tag cannot go on like this")
            return False
        key = head[1]
        plain = key.isprintable() and "\\" not in key
        if not (
            (self._json == 1 or self._write(",", self._tag))
            and self._write('"', self._tag)
            and self._write(json.dumps(key, ensure_ascii=False)[1:-1], self._at, linear=plain)
            and self._write('":', self._at + len(key))
        ):
            return False
        begins = self._at + (head.start(2) if head.re.groups > 1 else head.end())
        self._take(head.end())
        self._types = types_at(self._schema, key)
        kinds = self._checker.kinds()
        self._text_only = kinds <= {STRING}
        said = SAYS_TEXT.get(head[2]) if head.re.groups > 1 else None
        if said:
            self._stage = _TEXT
        elif said is False or STRING not in kinds:
            self._stage = _JSON
            self._reader = JsonReader(Sink(), self._at)
        else:
            self._stage = _HELD
            self._reader = JsonReader(Sink())
            self._looked = self._read = 0
        return self._stage != _TEXT or self._write('"', begins)  # what says that it is text may be wrong already

    def _text(self) -> bool:
        """Text that leaves as it comes, up to what closes it."""
        end = self._left.find(self._style.closing)
        known = end if end >= 0 else len(self._left) - _overlap(self._left, self._style.closing)
        if (known and not self._literal(known)) or end < 0 or not self._write('"', self._at):
            return False
        self._close()
        return True

    def _value(self) -> bool:
        """JSON that is checked as it comes."""
        if not self._left:
            return False
        try:
            used = self._reader.feed(self._left)
        except JsonError as error:
            at = self._at
            if self._write(self._take(error.at - at), at, linear=True):
                self._fail("json.invalid", error.at, error.message)
            return False
        at = self._at
        if not self._write(self._take(used), at, linear=True) or self._reader.mode != DONE:
            return False
        self._stage = _CLOSING
        return True

    def _closing(self) -> bool:
        bare = self._spaced()
        closing = self._style.closing
        if bare.startswith(closing):
            self._close()
            return True
        if not closing.startswith(bare):
            same = next(n for n, char in enumerate(bare) if not closing.startswith(bare[: n + 1]))
            self._fail("json.trailing_data", self._at + same, "text follows the value of an argument")
        return False

    def _held(self) -> bool:
        """A value that can be read in several ways, once it is whole."""
        if self._text_only and self._left and self._left[0] != "\n":
            self._stage = _TEXT
            return self._write('"', self._at)
        closing = self._style.closing
        end = self._left.find(closing, self._looked)
        while end >= 0 and not self._text_only and self._goes_on(end):
            end = self._left.find(closing, end + 1)
        if end < 0:
            self._looked = max(self._looked, len(self._left) - len(closing) + 1)
            return False
        readings = _readings(self._left[:end], STRING_ONLY if self._text_only else self._types)
        before = "".join(self._parts)
        chosen = next(
            (one for one in readings if self._affords(len(before)) and self._stands(before + one)), readings[0]
        )
        self._open[len(self._parts)] = readings
        if not self._write(chosen, self._at):
            return False
        self._take(end)
        self._close()
        return True

    def _goes_on(self, end: int) -> bool:
        """Whether what is left is up to there the beginning of a JSON object or array, and no more."""
        self._looked = end + 1
        if self._read < 0 or self._left.lstrip(_SPACE)[:1] not in ("{", "["):
            return False
        try:
            self._reader.feed(self._left[self._read : end])
        except JsonError:
            self._read = -1
            return False
        self._read = end
        return self._reader.mode != DONE

    def _affords(self, characters: int) -> bool:
        """Whether so much may be read once more to find out which reading is meant."""
        self._work += characters
        return self._work <= _MOST_WORK

    def _close(self) -> None:
        self._take(len(self._style.closing))
        self.ended_at = self._at
        self._stage = _BETWEEN

    def _end(self, *, trailing: bool) -> None:
        """The object is over: the whole of it is judged."""
        whole = "".join(self._parts)
        at = self.ended_at
        if self._open and not self._is_valid(whole + "}"):
            ways = islice(product(*self._open.values()), _MOST_READINGS)
            fitting = (self._read_as(way) for way in ways if self._affords(len(whole)))
            if any(self._is_valid(one + "}") for one in fitting):
                self._over(at, trailing)
                return
        if self._write("}", at):
            self._over(at, trailing)

    def _over(self, at: int, trailing: bool) -> None:
        self._stage = _OVER
        self.complete = True
        self.good = self.safe = at
        if trailing:
            self._found.append(Finding("json.trailing_data", "error", "text follows the arguments", onset=at))

    # --- as JSON -----------------------------------------------------------------------------------------------------

    def _literal(self, count: int) -> bool:
        """Text as what stands in a JSON string; each escape is a segment of its own."""
        at = self._at
        text = self._take(count)
        done = 0
        for special in _ESCAPED.finditer(text):
            if special.start() > done and not self._write(text[done : special.start()], at + done, linear=True):
                return False
            if not self._write(json.dumps(special[0])[1:-1], at + special.start()):
                return False
            done = special.end()
        return done == count or self._write(text[done:], at + done, linear=True)

    def _write(self, piece: str, at: int, *, linear: bool = False) -> bool:
        """More of the JSON, which stands at offset ``at`` of the text. Whether it may be right."""
        right = True
        self._parts.append(piece)
        self._starts.append(self._json)
        self._places.append((at, linear))
        self._json += len(piece)
        for finding in self._checker.feed(piece):
            onset = max(0, self._place(finding.onset))
            if finding.severity == "error":
                self.good = self._place(self._checker.good)
                clear = self._place(self._checker.safe)
                if self._stage == _BETWEEN:
                    clear = min(clear, self.ended_at - 1)
                self.safe = max(self.safe, clear)
                self._stage = _OVER
                right = False
            self._found.append(
                Finding(
                    finding.code,
                    finding.severity,
                    finding.message,
                    onset=onset,
                    detected_at=onset + 1,
                    evidence=finding.evidence,
                )
            )
        return right

    def _place(self, offset: int) -> int:
        """Where an offset of the JSON is in the text."""
        segment = bisect_right(self._starts, offset) - 1
        at, linear = self._places[segment]
        return at + offset - self._starts[segment] if linear else at

    def _fail(self, code: str, at: int, message: str) -> None:
        self.safe = max(self.safe, min(at, self._clear()))
        self._stage = _OVER
        self.good = at
        self._found.append(Finding(code, "error", message, onset=at, detected_at=at + 1))

    def _stands(self, text: str) -> bool:
        checker = self._compiled.checker("streaming", False)
        # a number is over only where something follows it
        return not any(one.severity == "error" for one in checker.feed(text + " "))

    def _new_checker(self) -> JsonChecker:
        checker = self._compiled.checker("streaming", False)
        assert isinstance(checker, JsonChecker)
        return checker

    def _is_valid(self, text: str) -> bool:
        checker = self._compiled.checker("streaming", False)
        return not any(one.severity == "error" for one in (*checker.feed(text), *checker.finish(False)))

    def _read_as(self, way: Sequence[str]) -> str:
        parts = list(self._parts)
        for index, reading in zip(self._open, way, strict=True):
            parts[index] = reading
        return "".join(parts)


def _readings(raw: str, types: Types | None) -> list[str]:
    """What a value can be as JSON, the likeliest first."""
    bare = raw
    if raw.startswith("\n") and raw.endswith("\n") and len(raw) > 1:
        bare = raw[1:-1]
    texts = [json.dumps(bare, ensure_ascii=False), json.dumps(raw, ensure_ascii=False)]
    if types == STRING_ONLY:
        return list(dict.fromkeys(texts))
    out = [encode(bare, types)]
    stripped = raw.strip(_SPACE)
    if _is_json(stripped):
        out.append(stripped)
    return list(dict.fromkeys([*out, *texts]))


def _is_json(text: str) -> bool:
    reader = JsonReader(Sink())
    try:
        return reader.feed(text) == len(text) and reader.finish()
    except JsonError:
        return False


def _overlap(text: str, stop: str) -> int:
    """How much of the text's end may be the beginning of ``stop``."""
    for size in range(min(len(text), len(stop) - 1), 0, -1):
        if stop.startswith(text[-size:]):
            return size
    return 0
