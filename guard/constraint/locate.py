"""Where a value stands in its text, and where a text stops being JSON. Read anew, once something is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from guard.constraint.json_sink import ARRAY, OBJECT, Sink
from guard.constraint.json_syntax import JsonError, JsonReader


def locate(text: str, base: int, path: Sequence[str | int]) -> tuple[int, int]:
    """The offsets of the first and the last character of the value that ``path`` leads to, in the document that begins
    at offset ``base`` of ``text``; of the document where there is no such value. Of a key that stands twice, the last
    value is meant."""
    finder = _Finder(tuple(path))
    reader = JsonReader(finder, base)
    try:
        reader.feed(text[base:])
        reader.finish()
    except JsonError:
        pass
    return finder.found


def syntax_error(text: str, base: int) -> tuple[int, str] | None:
    """Where the text from ``base`` on is no JSON, and why; None where it is, or breaks off in the middle."""
    reader = JsonReader(_Finder(()), base)
    try:
        used = reader.feed(text[base:])
    except JsonError as error:
        return error.at, error.message
    rest = text[base + used :]
    if rest.strip(" \t\r\n"):
        return base + used, "text follows the JSON value"
    return None


class _Finder(Sink):
    """A sink that knows where it is."""

    def __init__(self, path: tuple[str | int, ...]) -> None:
        self._path = path
        self._at: list[str | int] = []
        self._kinds: list[int] = []
        self._starts: list[int] = []
        self.found = (0, 0)

    def start(self, kind: int, at: int) -> None:
        if self._kinds and self._kinds[-1] == ARRAY:
            self._at[-1] = int(self._at[-1]) + 1
        self._starts.append(at)
        if kind in (OBJECT, ARRAY):
            self._kinds.append(kind)
            self._at.append("" if kind == OBJECT else -1)

    def text(self, piece: str, at: int) -> None:
        raise NotImplementedError("nothing is watched")

    def key_start(self, at: int) -> None:
        pass

    def key(self, key: str, at: int, end: int) -> None:
        self._at[-1] = key

    def scalar(self, kind: int, value: Any, at: int, end: int) -> None:
        self._ended(end - 1)

    def comma(self, at: int) -> None:
        pass

    def end(self, kind: int, at: int) -> None:
        self._kinds.pop()
        self._at.pop()
        self._ended(at)

    def _ended(self, last: int) -> None:
        start = self._starts.pop()
        if not self._starts and not self.found[1]:
            self.found = (start, last)
        if len(self._at) == len(self._path) and tuple(self._at) == self._path:
            self.found = (start, last)
