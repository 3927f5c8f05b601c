"""The string or key that is being read, held against the words and the length that it may have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from guard.constraint.json_sink import STRING, UNHEARD
from guard.constraint.json_string import NO_CHARACTER, is_half, is_high, is_pair, pair
from guard.constraint.schema_frame import Frame, Violation, about
from guard.constraint.words import Words

if TYPE_CHECKING:
    from guard.constraint.schema_walk import SchemaWalk

Watching = Sequence[tuple[Words | None, int | None]]
"""For each alternative the words that the text may be, and the most characters that it may have."""


class TextWatch:
    """``high``: half a surrogate pair, whose other half decides what it is."""

    __slots__ = ("_counted", "_in_key", "_length", "_seen", "_walk", "_watching", "high")

    def __init__(self, walk: SchemaWalk) -> None:
        self._walk = walk
        self._watching: Watching = ()
        self._seen = ""
        self._length = 0
        self._in_key = False
        self._counted = False
        self.high = ""

    def begin(self, watching: Watching, budget: int, in_key: bool = False) -> None:
        """A string or key begins, of which the first ``budget`` characters need not be heard."""
        self._watching = watching
        self._seen = ""
        self._length = 0
        self.high = ""
        self._in_key = in_key
        self._counted = budget >= 0
        self._walk.reader.budget = budget

    def text(self, piece: str, at: int) -> None:
        if self.high:
            high, self.high = self.high, ""
            if is_pair(high, piece):
                self._hear(pair(high, piece), at - 6)
                return
            reader = self._walk.reader
            reader.budget += len(piece)  # which comes behind it
            self._hear(NO_CHARACTER, at - 6)
            reader.budget -= len(piece)
        if len(piece) == 1 and is_half(piece):
            if is_high(piece):
                self.high = piece
                return
            piece = NO_CHARACTER
        self._hear(piece, at)

    def close(self, end: int) -> None:
        """The string has ended, ``end`` is past its quote, and the half of a pair that waited for the other is none."""
        self.high = ""
        self._hear(NO_CHARACTER, end - 7)

    def _hear_key(self, piece: str, at: int) -> None:
        """A key's next characters. One that begins like a key that stands already may become that one again, but not a
        new one: it is held from where that is certain."""
        frame = self._walk.frames[-1]
        used = frame.value
        seen = self._seen
        self._seen = begun = seen + piece
        if frame.full_at is None:
            if any(words is not None and words.has_other(begun, used) for words, _ in self._watching):
                return
            good = 0
            for words, _ in self._watching:
                while words is not None and good < len(piece) and words.has_other(seen + piece[: good + 1], used):
                    good += 1
            frame.full, frame.full_at = "additionalProperties", at + good
            hold = self._walk.hold
            self._walk.hold = at + good if hold is None else min(hold, at + good)
        if not any(key.startswith(begun) for key in used):
            raise no_room(self._walk, frame)

    def _hear(self, piece: str, at: int) -> None:
        if self._in_key:
            self._hear_key(piece, at)
            return
        if len(self._watching) == 1:
            words, most = self._watching[0]
            if words is None and self._counted:
                # only the length counts, and the budget for it is spent
                best, keyword = len(piece) + self._walk.reader.budget, "maxLength"
            else:
                best, keyword = self._first_wrong(words, most, piece)
                if not keyword:
                    self._seen += piece if words is not None else ""
                    self._length += len(piece)
                    return
        else:
            best, keyword = -1, ""
            left: list[tuple[Words | None, int | None]] = []
            for words, most in self._watching:
                good, why = self._first_wrong(words, most, piece)
                if not why:
                    left.append((words, most))
                elif good > best:
                    best, keyword = good, why
            if left:
                self._watching = left
                self._length += len(piece)
                if any(words is not None for words, _ in left):
                    self._seen += piece
                return
        node = self._walk.node
        if keyword == "enum" and node is not None and not any("enum" in part.plain for part in node.parts):
            keyword = "const"
        raise self._walk.refused(keyword, at + best, about(keyword, STRING))

    def _first_wrong(self, words: Words | None, most: int | None, piece: str) -> tuple[int, str]:
        """How many characters of ``piece`` can still follow, and the keyword that the next one breaks, if there is."""
        good, why = len(piece), ""
        if most is not None and self._length + good > most:
            good, why = most - self._length, "maxLength"
        if words is not None and not words.has_prefix(self._seen + piece):
            fits = words.common(self._seen, piece)
            if fits < good or not why:
                good, why = fits, "enum"
        return good, why

    def replay(self, text: str, at: int) -> None:
        """A string that came whole was not heard. Now that it is at fault, it is: raises the Violation of the character
        that is wrong, as it would have been raised had it come in pieces."""
        reader = self._walk.reader
        if reader.plain and reader.budget != UNHEARD:
            reader.budget -= len(text)
            if reader.budget < 0 and text:
                self._hear(text, at + 1)


def no_room(walk: SchemaWalk, frame: Frame) -> Violation:
    message = "nothing that the object may still have begins like this"
    return walk.refused(frame.full, frame.full_at or 0, message, inside=False)
