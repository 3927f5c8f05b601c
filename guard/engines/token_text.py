"""From the bytes of tokens to text. Pure.

A token may hold a part of a character, or of a stop string. Neither leaves: text comes out when it is whole characters
and can no longer become a stop string. A token comes out with the last character that it has a part in.
"""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class TokenText(Generic[T]):
    """``stops`` end the text before them. ``matched`` is the one that did, after which nothing comes out."""

    def __init__(self, stops: Sequence[str] = ()) -> None:
        self.matched: str | None = None
        self._stops = tuple(stop for stop in stops if stop)
        self._longest = max(map(len, self._stops), default=0)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self._out = 0
        self._waiting: deque[tuple[int, T]] = deque()  # the offset at which each token is out, and what comes with it

    def feed(self, data: bytes, item: T) -> tuple[str, list[T]]:
        """One token: its bytes, and whatever is to come out with it."""
        if self.matched is not None:
            return "", []
        self._held += self._decoder.decode(data)
        begun = bool(self._decoder.getstate()[0])
        self._waiting.append((self._out + len(self._held) + begun, item))
        return self._take(self._clear())

    def finish(self) -> tuple[str, list[T]]:
        """What was held. A character that never became whole is dropped; its tokens are not."""
        text, self._held = self._held, ""
        items = [item for _, item in self._waiting]
        self._waiting.clear()
        return text, items

    def _take(self, length: int) -> tuple[str, list[T]]:
        text, self._held = self._held[:length], self._held[length:]
        self._out += length
        if self.matched is not None:
            self._held = ""
            return text, self.finish()[1]
        items: list[T] = []
        while self._waiting and self._waiting[0][0] <= self._out:
            items.append(self._waiting.popleft()[1])
        return text, items

    def _clear(self) -> int:
        """How much of what is held may leave: up to the stop string that is whole first, or to what may become one."""
        held = self._held
        found = [(at + len(stop), at, stop) for stop in self._stops if (at := held.find(stop)) >= 0]
        if found:
            _, at, self.matched = min(found)
            return at
        for length in range(min(self._longest - 1, len(held)), 0, -1):
            if any(stop.startswith(held[-length:]) for stop in self._stops):
                return len(held) - length
        return len(held)
