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
    """``stops`` end the text before them. ``matched`` is the one that did, after which nothing comes out. ``before``:
    the end of a text that came earlier, in which a stop string may have begun. ``whole``: text comes out in whole
    tokens alone, though a part of one could come sooner."""

    def __init__(self, stops: Sequence[str] = (), before: str = "", *, whole: bool = False) -> None:
        self.matched: str | None = None
        self._stops = tuple(stop for stop in stops if stop)
        self._longest = max(map(len, self._stops), default=0)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._before = before[-self._longest + 1 :] if self._longest > 1 else ""
        self._whole = whole
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

    @property
    def idle(self) -> bool:
        """Whether nothing is held."""
        return not (self._held or self._waiting)

    def finish(self) -> tuple[str, list[T]]:
        """What was held. A character that never became whole is dropped; its tokens are not."""
        text, self._held = self._held, ""
        items = [item for _, item in self._waiting]
        self._waiting.clear()
        return text, items

    def _take(self, length: int) -> tuple[str, list[T]]:
        if self._whole and self.matched is None and length:
            last = max((at for at, _ in self._waiting if at <= self._out + length), default=self._out)
            length = last - self._out
        if self._before and length:
            self._before = (self._before + self._held[:length])[-self._longest + 1 :]
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
        early = len(self._before)
        text = self._before + self._held
        found = [
            (at + len(stop), at, stop)
            for stop in self._stops
            if (at := text.find(stop, max(0, early - len(stop) + 1))) >= 0
        ]
        if found:
            _, at, self.matched = min(found)
            return max(0, at - early)
        for length in range(min(self._longest - 1, len(text)), 0, -1):
            if any(stop.startswith(text[-length:]) for stop in self._stops):
                return max(0, len(text) - length - early)
        return len(self._held)
