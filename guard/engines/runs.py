"""Runs of ordinary chunks, taken by their bytes. Pure.

Of the chunks of one answer nearly all have the same bytes before their text and the same behind it. Once one of them
was read in the ordinary way (``learn``), those that follow it in the same piece of the stream are found by searching
for what stands between two texts, and their texts are all that is decoded: some tens of nanoseconds a chunk. One that
comes alone is taken in the same way (``one``).

It gives what the ordinary way gives, joined. That one text may stand where another stood is not assumed but tried, with
a text that cannot be anything else. A quotation mark or a control character where a text should be says that it is no
text, and ends the run; so does what is no UTF-8, or half a surrogate pair.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import msgspec

from guard.events import StreamEvent, TextDelta

_LINE: Final = b"data: "
_END: Final = b"\n\n"
_BETWEEN: Final = _END + _LINE
_MARK: Final = "outguard"
_NOT_PLAIN: Final = re.compile(rb'[\x00-\x1f"\\]')
_NO_TEXT: Final = re.compile(rb'[\x00-\x1f"]')
_string: Final = msgspec.json.Decoder(str).decode

LESSONS: Final = 4
"""How often a run is learnt from chunks that come alone; a run of ``GOOD`` gives one of them back. In a stream whose
chunks are all different it is learnt in vain."""

GOOD: Final = 16

Parse = Callable[[bytes, list[StreamEvent]], Any]
"""One chunk the ordinary way: its events appended; anything but None is its end."""


class Runs:
    """Of one answer."""

    __slots__ = ("_after", "_before", "_channel", "_choice", "_close", "_lessons", "_line", "_taken")

    def __init__(self) -> None:
        self._before = b""  # what stands before the text, in the data of an event
        self._after = b""
        self._line = b""  # the same, of a whole event
        self._close = b""
        self._choice = 0
        self._channel = ""
        self._lessons = LESSONS
        self._taken = 0

    def one(self, data: bytes, out: list[StreamEvent]) -> bool:
        """Take a piece of the stream that is one chunk of the run and nothing else, and begins an event."""
        line, close = self._line, self._close
        if not line or not data.startswith(line) or not data.endswith(close):
            return False
        raw = data[len(line) : -len(close)]
        if not raw:
            return False
        if raw.isascii() and _NOT_PLAIN.search(raw) is None:
            text = raw.decode()
        else:
            texts = [] if b'"' in raw else _texts([raw], _NO_TEXT.search(raw) is None)
            if not texts:
                return False
            text = texts[0]
        self._taken += 1
        out.append(TextDelta(self._choice, self._channel, text))
        return True

    def wonder(self, chunk: bytes, said: list[StreamEvent], parse: Parse) -> None:
        """Learn from a chunk that came alone and was not of the run, if that may be worth it. ``said``: its events."""
        if self._taken >= GOOD:
            self._lessons = min(LESSONS, self._lessons + self._taken // GOOD)
            self._taken = 0
        if not self._lessons or len(said) != 1 or not isinstance(said[0], TextDelta) or said[0].logprobs:
            return
        if not self._before or not (chunk.startswith(self._before) and chunk.endswith(self._after)):
            self._lessons -= 1
            self.learn(chunk, parse)

    def learn(self, chunk: bytes, parse: Parse) -> None:
        """From a chunk that was read before; ``parse`` reads it again, and another."""
        self._before = self._line = b""
        events: list[StreamEvent] = []
        if parse(chunk, events) is not None or len(events) != 1:
            return
        said = events[0]
        if not isinstance(said, TextDelta) or said.token_ids is not None or said.logprobs is not None:
            return
        text = said.text
        if not text or not text.isascii():
            return
        raw = text.encode()
        at = chunk.find(b'"' + raw + b'"') + 1
        if not at or _NOT_PLAIN.search(raw) is not None:
            return
        before, after = chunk[:at], chunk[at + len(raw) :]
        tried: list[StreamEvent] = []
        if parse(before + _MARK.encode() + after, tried) is None and tried == [
            TextDelta(said.choice, said.channel, _MARK)
        ]:
            self._choice, self._channel = said.choice, said.channel
            self._before, self._after = before, after
            self._line, self._close = _LINE + before, after + _END

    def take(self, data: bytes, out: list[StreamEvent]) -> int:
        """Take the run with which ``data`` begins, which is the beginning of an event. Returns its bytes. The last
        event is never of it: it may not be whole."""
        before, after = self._before, self._after
        if not before or not data.startswith(_LINE + before):
            return 0
        head, tail = len(before), len(after)
        events = data[len(_LINE) :].split(_BETWEEN)
        events.pop()
        parts = [event[head : max(head, len(event) - tail)] for event in events]
        if not data.startswith(_LINE + before + (after + _BETWEEN + before).join(parts) + after + _BETWEEN):
            parts = []
            for event in events:
                if len(event) < head + tail or not (event.startswith(before) and event.endswith(after)):
                    break
                parts.append(event[head : len(event) - tail])
        whole = b"".join(parts)
        if whole.isascii() and _NOT_PLAIN.search(whole) is None:
            texts = [whole.decode()]
        else:
            texts = _texts(parts, _NO_TEXT.search(whole) is None)
            del parts[len(texts) :]
        count = len(parts) - parts.count(b"")
        if count:
            out.append(TextDelta(self._choice, self._channel, "".join(texts), None, None, count))
        return len(parts) * (head + tail + len(_BETWEEN)) + sum(map(len, parts))


def _texts(parts: list[bytes], all_text: bool) -> list[str]:
    """What the insides of JSON strings say, up to one that is none. ``all_text``: none of them holds what a string may
    not, so that only what is escaped is to be looked at."""
    texts: list[str] = []
    for part in parts:
        try:
            plain = b"\\" not in part if all_text else _NOT_PLAIN.search(part) is None
            texts.append(part.decode() if plain else _string(b'"' + part + b'"'))
        except (UnicodeDecodeError, msgspec.DecodeError):
            break
    return texts
