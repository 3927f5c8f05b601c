"""The raw answer so far: what the model said, delta by delta, with all its markup. Pure.

It is what an answer goes on from in token mode: its ids follow those of the prompt, and reading its deltas again brings
every reader to where it was. Eight bytes a token and the text; an answer may have a hundred thousand.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

from guard.events import CONTENT, TextDelta

_JOIN = 1024


class Spoken:
    """``vocabulary``: whose ids these are. A delta without ids is text that the guard itself put there."""

    __slots__ = ("_counts", "_ids", "_lengths", "_parts", "vocabulary")

    def __init__(self, vocabulary: str = "") -> None:
        self.vocabulary = vocabulary
        self._ids = array("I")
        self._counts = array("H")
        self._lengths = array("I")
        self._parts: list[str] = []

    def add(self, text: str, ids: Sequence[int] | None) -> None:
        self._ids.extend(ids or ())
        self._counts.append(len(ids or ()))
        self._lengths.append(len(text))
        if text:
            self._parts.append(text)
            if len(self._parts) > _JOIN:
                self._parts[:] = ["".join(self._parts)]

    def ids(self, start: int = 0) -> list[int]:
        """From the one with this number on."""
        return self._ids[start:].tolist()

    @property
    def named(self) -> int:
        """How many of its tokens have ids."""
        return len(self._ids)

    def __bool__(self) -> bool:
        return bool(self._lengths)

    @property
    def tokens(self) -> int:
        """Text of the guard's own counts as one token a delta."""
        return len(self._ids) + self._counts.count(0)

    @property
    def text(self) -> str:
        self._parts[:] = ["".join(self._parts)]
        return self._parts[0]

    def deltas(self) -> Iterator[TextDelta]:
        text, at, token = self.text, 0, 0
        for count, length in zip(self._counts, self._lengths, strict=True):
            ids = tuple(self._ids[token : token + count]) if count else None
            yield TextDelta(0, CONTENT, text[at : at + length], ids)
            at, token = at + length, token + count

    def parts(self) -> tuple[Sequence[int] | str, ...]:
        """Runs of ids, and of text that has none, in order. A run of text is always the same, however much follows it,
        so that it is cut into the same tokens each time."""
        out: list[Sequence[int] | str] = []
        text, at, token = self.text, 0, 0
        begun = 0
        for count, length in zip(self._counts, self._lengths, strict=True):
            if not count:
                if begun < token:
                    out.append(self._ids[begun:token])
                own = text[at : at + length]
                if begun == token and out and isinstance(out[-1], str):
                    out[-1] += own
                else:
                    out.append(own)
                begun = token
            at, token = at + length, token + count
        if begun < token:
            out.append(self._ids[begun:token])
        return tuple(out)

    def first(self, chars: int) -> Spoken:
        """Its first ``chars`` characters. Of a token that they cut, the text remains."""
        out = Spoken(self.vocabulary)
        for delta in self.deltas():
            length = len(delta.text)
            if length > chars:
                if chars:
                    out.add(delta.text[:chars], None)
                break
            chars -= length
            out.add(delta.text, delta.token_ids)
        return out
