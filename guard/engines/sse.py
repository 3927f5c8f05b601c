"""Bytes of a server-sent event stream in, (event name, data) pairs out. Pure and incremental.

Rules. Lines end with LF, CRLF or CR; an event ends with an empty line; the data lines of one event are joined with LF.
Any split of the same bytes gives the same events. Nothing is decoded here: a half character is never looked at, the
data of an event is bytes that only its reader decodes, and only whole. Comments, ``id`` and ``retry`` are dropped, as
the standard wants, and so is any unknown field whose name looks like one. A line that is no field at all (HTML, raw
JSON, binary) latches ``broken``: an engine that writes such a line has failed, and what came before it still stands.
``error: {...}`` (older llama.cpp servers) is a field of its own and gives an event named ``error``.
"""

from __future__ import annotations

import re
from typing import Final

MAX_EVENT_BYTES: Final = 16 * 1024 * 1024
"""The most that one event may hold. The largest honest ones are whole answers with prompt token ids: a few MB."""

_BOM: Final = b"\xef\xbb\xbf"
_FIELD_NAME: Final = re.compile(rb"[a-z][a-z0-9_-]{0,31}\Z")
_SHOWN: Final = 200
_LF: Final = 10
_CR: Final = 13

Event = tuple[str, bytes]


class SseReader:
    """``between``: the next byte begins an event. ``broken`` says what is wrong with the stream, ``stray`` the first
    bytes of the line that is to blame."""

    __slots__ = (
        "_at_start",
        "_comment",
        "_cr",
        "_data",
        "_data_size",
        "_limit",
        "_name",
        "_tail",
        "between",
        "broken",
        "stray",
    )

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._limit = max_event_bytes
        self._tail = bytearray()  # an unfinished line
        self._data: list[bytes] = []  # data lines of the unfinished event
        self._data_size = 0
        self._name = ""
        self._comment = b""  # the last one of the unfinished event
        self._cr = False  # the last byte was a CR, already taken as a line end: an LF that follows belongs to it
        self.between = False
        self._at_start = True  # nothing but a part of a byte order mark has come
        self.broken: str | None = None
        self.stray = b""

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that are complete with this piece. After ``broken`` is set nothing more comes."""
        size = len(chunk)
        if (
            self.between
            and 8 <= size <= self._limit
            and chunk[-1] == _LF
            and chunk[-2] == _LF
            and _CR not in chunk
            and chunk.startswith(b"data: ")
        ):  # the ordinary read: whole events of one data line each (bytes are compared as numbers: it is faster)
            if chunk.find(_LF) == size - 2:
                return [("", chunk[6:-2])]
            pieces = chunk[6:-2].split(b"\n\ndata: ")
            if chunk.count(_LF) == 2 * len(pieces):
                return [("", piece) for piece in pieces]
        if self.broken is not None or not chunk:
            return []
        if self._at_start:
            chunk = self._after_bom(chunk)
            if not chunk:
                return []
        events = self._lines(chunk)
        self.between = self._nothing_begun()
        return events

    def _nothing_begun(self) -> bool:
        return self.broken is None and not (self._tail or self._data or self._name or self._comment or self._cr)

    def finish(self) -> list[Event]:
        """The stream has ended: an event that lacks only its empty line counts."""
        if self.broken is not None:
            return []
        if self._at_start and self._tail:
            self._at_start = False
        events = self._lines(b"\n\n") if self._tail or self._data or self._name else []
        self._tail.clear()
        return events

    @property
    def pending(self) -> bool:
        """Whether an event has begun and not ended."""
        return bool(self._tail or self._data)

    def _after_bom(self, chunk: bytes) -> bytes:
        head = bytes(self._tail) + chunk
        if len(head) < len(_BOM) and _BOM.startswith(head):
            self._tail[:] = head
            return b""
        self._at_start = False
        self._tail.clear()
        return head[3:] if head.startswith(_BOM) else head

    def _lines(self, chunk: bytes) -> list[Event]:
        if self._cr or b"\r" in chunk:
            if self._cr and chunk[:1] == b"\n":
                chunk = chunk[1:]
            self._cr = chunk[-1:] == b"\r"
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        events: list[Event] = []
        if b"\n" not in chunk:
            self._tail += chunk
            if len(self._tail) > self._limit:
                self._too_long()
            return events
        lines = chunk.split(b"\n")
        if self._tail:
            lines[0] = bytes(self._tail) + lines[0]
        self._tail[:] = lines.pop()
        for line in lines:
            if not line:
                if self._name == "error" and not self._data:
                    self._data = [self._comment]  # Dynamo says what is wrong in a comment
                if self._data:
                    events.append((self._name, self._data[0] if len(self._data) == 1 else b"\n".join(self._data)))
                    self._data = []
                    self._data_size = 0
                self._name = ""
                self._comment = b""
                continue
            if len(line) + self._data_size > self._limit:
                self._too_long()
                break
            self._field(line)
            if self.broken is not None:
                break
        if len(self._tail) > self._limit and self.broken is None:
            self._too_long()
        return events

    def _field(self, line: bytes) -> None:
        name, colon, value = line.partition(b":")
        if value[:1] == b" ":
            value = value[1:]
        if name == b"data":
            self._data.append(value)
            self._data_size += len(value)
        elif name == b"":
            self._comment = value
        elif name == b"event":
            self._name = value.decode("utf-8", "replace")
        elif name == b"error" and colon:
            self._name = "error"
            self._data.append(value)
            self._data_size += len(value)
        elif not _FIELD_NAME.match(name) or (not colon and name not in (b"id", b"retry")):
            self.stray = line[:_SHOWN]
            self.broken = f"a line that is no server-sent event: {self.stray.decode('utf-8', 'replace')!r}"

    def _too_long(self) -> None:
        self.broken = f"an event longer than {self._limit} bytes"
        self._tail.clear()
        self._data = []
