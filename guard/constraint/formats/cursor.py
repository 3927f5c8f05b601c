"""A place in text that is still arriving, for parsers written as generators.

A parser yields when it needs more text and goes on when there is some, so it reads like a parser of a whole string
and cannot tell where the text was cut. The rules:

- Every question ("does it go on with this?") waits until its answer can no longer change, or the text has ended.
- What is behind the position is forgotten, unless a mark is set: then it can be returned to.
- What the parser says goes to ``out``. From the first Call on it is committed: there is no return.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from functools import lru_cache
from typing import Final

from guard.constraint.formats.contract import Args, Call, End, Malformed, Piece, Text

Sink = Callable[[str], None]
Wait = Generator[None, None, None]

SPACE: Final = " \t\r\n"
_NOT_SPACE: Final = re.compile(r"[^ \t\r\n]")
_STRUCTURE: Final = re.compile(r'["{}\[\]]')
_STRING_END: Final = re.compile(r'["\\]')
_SCALAR_END: Final = re.compile(r"[\s,}\]<;]")


class Cursor:
    """``text`` from ``at`` on has not been read; ``ended``: no more will come."""

    __slots__ = ("_before", "_mark", "at", "channel", "committed", "ended", "open", "out", "text")

    def __init__(self) -> None:
        self.text = ""
        self.at = 0
        self.ended = False
        self.out: list[Piece] = []
        self.open = False  # a call has begun and not ended
        self.committed = False
        self.channel = ""
        self._before = 0
        self._mark = -1

    def push(self, text: str) -> None:
        keep = self.at if self._mark < 0 else self._mark
        if keep:
            self.text = self.text[keep:] + text
            self._before += keep
            self.at -= keep
            if self._mark >= 0:
                self._mark = 0
        else:
            self.text += text

    @property
    def offset(self) -> int:
        return self._before + self.at

    @property
    def marked(self) -> bool:
        return self._mark >= 0

    def mark(self) -> None:
        self._mark = self.at
        self.committed = False

    def back(self) -> None:
        """Return to the mark."""
        self.at = self._mark
        self._mark = -1

    def unmark(self) -> None:
        self._mark = -1

    # --- saying ------------------------------------------------------------------------------------------------------

    def say(self, text: str) -> None:
        if text:
            self.out.append(Text(text, self.channel))

    def call(self, name: str, id: str | None = None) -> None:
        self.committed = self.open = True
        self._mark = -1
        self.out.append(Call(name, id))

    def args(self, text: str) -> None:
        if text:
            self.out.append(Args(text))

    def end(self) -> None:
        self.open = False
        self.out.append(End())

    def malformed(self, message: str, *, mended: bool = False, cut: bool = False) -> None:
        self.out.append(Malformed(message, self.offset, mended, cut))

    # --- asking ------------------------------------------------------------------------------------------------------

    def need(self, count: int) -> Wait:
        while len(self.text) - self.at < count and not self.ended:
            yield

    def peek(self) -> Generator[None, None, str]:
        """The next character; empty at the end."""
        yield from self.need(1)
        return self.text[self.at : self.at + 1]

    def space(self) -> Generator[None, None, str]:
        """Skip white space. Returns the character after it; empty at the end."""
        while True:
            found = _NOT_SPACE.search(self.text, self.at)
            if found is not None:
                self.at = found.start()
                return found[0]
            self.at = len(self.text)
            if self.ended:
                return ""
            yield

    def follows(self, *options: str, skip_space: bool = False) -> Generator[None, None, str]:
        """Which option the text goes on with, behind white space if that is skipped; empty if none. Nothing is read."""
        ahead = 0
        longest = max(map(len, options), default=0)
        while True:
            if skip_space:
                found = _NOT_SPACE.search(self.text, self.at + ahead)
                ahead = (found.start() if found else len(self.text)) - self.at
            rest = self.text[self.at + ahead : self.at + ahead + longest]
            undecided = False
            for option in options:
                if rest.startswith(option):
                    return option
                undecided = undecided or option.startswith(rest)
            if not undecided or self.ended:
                return ""
            yield

    def take(self, *options: str, skip_space: bool = False) -> Generator[None, None, str]:
        """Read one of the options, and white space before it if that is skipped. Empty, and nothing read, if none."""
        found = yield from self.follows(*options, skip_space=skip_space)
        if found:
            self.at = self.text.index(found, self.at) + len(found)
        return found

    def until(self, stops: tuple[str, ...], sink: Sink) -> Generator[None, None, str]:
        """Pass text on up to the first of the stops, which is read too. Empty if the text ended before one came."""
        search = _searcher(stops)
        while True:
            found = search(self.text, self.at)
            if found is not None:
                if found.start() > self.at:
                    sink(self.text[self.at : found.start()])
                self.at = found.end()
                return found[0]
            clear = len(self.text) if self.ended else len(self.text) - _tail(self.text, self.at, stops)
            if clear > self.at:
                sink(self.text[self.at : clear])
                self.at = clear
            if self.ended:
                return ""
            yield

    def collect(self, stops: tuple[str, ...], limit: int = 1 << 24) -> Generator[None, None, tuple[str, str]]:
        """The text up to the first stop, which is read too, and the stop. It is empty if the text ended before one
        came, or if none began within ``limit`` characters: then so many are read."""
        parts: list[str] = []
        search = _searcher(stops)
        left = limit
        while True:
            found = search(self.text, self.at)
            if found is not None:
                clear = found.start()
            else:
                clear = len(self.text) if self.ended else len(self.text) - _tail(self.text, self.at, stops)
            beyond = clear - self.at > left
            if beyond:
                clear = self.at + left
            parts.append(self.text[self.at : clear])
            left -= clear - self.at
            self.at = clear
            if beyond or (self.ended and found is None):
                return "".join(parts), ""
            if found is not None:
                self.at = found.end()
                return "".join(parts), found[0]
            yield

    # --- JSON --------------------------------------------------------------------------------------------------------

    def json_value(self, sink: Sink) -> Generator[None, None, bool]:
        """Pass one JSON value on as it is written. False if the text ended within it. Its inside is not judged."""
        first = yield from self.peek()
        if first == '"':
            return (yield from self._json_string(sink))
        if first in ("{", "["):
            return (yield from self._json_container(sink))
        while True:
            found = _SCALAR_END.search(self.text, self.at)
            end = found.start() if found else len(self.text)
            if end > self.at:
                sink(self.text[self.at : end])
                self.at = end
            if found or self.ended:
                return True
            yield

    def json_string(self) -> Generator[None, None, str | None]:
        """A JSON string's text as written, with its quotation marks; None if there is none here or it does not end."""
        first = yield from self.peek()
        if first != '"':
            return None
        parts: list[str] = []
        whole = yield from self._json_string(parts.append)
        return "".join(parts) if whole else None

    def _json_string(self, sink: Sink) -> Generator[None, None, bool]:
        sink('"')
        self.at += 1
        while True:
            found = _STRING_END.search(self.text, self.at)
            if found is None:
                end = len(self.text)
            elif found[0] == '"':
                end = found.end()
            elif found.end() < len(self.text):
                end = found.end() + 1
            else:
                end = found.start()  # what is escaped has not come yet
            if end > self.at:
                sink(self.text[self.at : end])
                self.at = end
            if found is not None and found[0] == '"':
                return True
            if found is None or end == found.start():
                if self.ended:
                    if end < len(self.text):
                        sink(self.text[end:])
                        self.at = len(self.text)
                    return False
                yield

    def _json_container(self, sink: Sink) -> Generator[None, None, bool]:
        depth = 0
        while True:
            found = _STRUCTURE.search(self.text, self.at)
            end = found.start() if found is not None else len(self.text)
            if end > self.at:
                sink(self.text[self.at : end])
                self.at = end
            if found is None:
                if self.ended:
                    return False
                yield
                continue
            char = found[0]
            if char == '"':
                if not (yield from self._json_string(sink)):
                    return False
                continue
            sink(char)
            self.at += 1
            depth += 1 if char in "{[" else -1
            if depth == 0:
                return True


@lru_cache(maxsize=256)
def _searcher(stops: tuple[str, ...]) -> Callable[[str, int], re.Match[str] | None]:
    return re.compile("|".join(re.escape(stop) for stop in stops)).search


@lru_cache(maxsize=256)
def _beginnings(stops: tuple[str, ...]) -> tuple[int, frozenset[str], Callable[[str, int], re.Match[str] | None]]:
    proper = frozenset(stop[:size] for stop in stops for size in range(1, len(stop)))
    first = "".join(sorted({re.escape(stop[0]) for stop in stops}))
    return max(map(len, stops)) - 1, proper, re.compile(f"[{first}]").search


def _tail(text: str, at: int, stops: tuple[str, ...]) -> int:
    """How many characters at the end of ``text`` may be the beginning of a stop."""
    longest, proper, search = _beginnings(stops)
    start = max(at, len(text) - longest)
    while (found := search(text, start)) is not None:
        start = found.start()
        if text[start:] in proper:
            return len(text) - start
        start += 1
    return 0
