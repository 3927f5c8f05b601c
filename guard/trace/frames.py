"""The form of a record on disk: a header of 16 bytes, then the payload. Pure.

    magic "oG" | version 1 | kind | payload length u32 | crc32 of the payload u32 | crc32 of the 12 bytes before u32

All little-endian. The header carries its own checksum, so that after damage the next whole record can be found again:
``scan`` steps from header to header while they hold, and otherwise searches for the next one that does. What it
skipped is reported with its place, never silently. The header's checksum starts from a number that is drawn for each
segment (``seed_of`` its name), so that no text in a record can pass for a header.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct as Layout
from typing import Final, NamedTuple
from zlib import crc32

MAGIC: Final = b"oG\x01"
HEADER: Final = 16
MAX_PAYLOAD: Final = 64 * 1024 * 1024
"""A longer record is refused when written, and a header that claims more is damaged."""

REQUEST: Final = 1
OUTCOME: Final = 2
LOSS: Final = 3
PACKED: Final = 4
"""A request whose numbers are packed beside it (guard/trace/packing.py)."""
SCRAPE: Final = 5
SKETCH: Final = 6
ERASED: Final = 7
"""Nothing any more: zeros, where a record was (guard/trace/erasing.py)."""

_LEFT: Final = Layout("<3sBII")
_SUM: Final = Layout("<I")


class Frame(NamedTuple):
    """``start`` and ``end`` are offsets in the segment."""

    kind: int
    start: int
    end: int
    payload: memoryview


class Damage(NamedTuple):
    start: int
    end: int
    reason: str


class Tail(NamedTuple):
    """What follows ``start`` is not a whole record (yet)."""

    start: int


def seed_of(segment: str) -> int:
    """``segment`` is the file's name without its ending; it has random digits."""
    return crc32(segment.encode())


def seal(buffer: bytearray, kind: int, length: int, seed: int) -> None:
    """Fill in the header at the front of a buffer that holds the payload behind it."""
    view = memoryview(buffer)
    _LEFT.pack_into(buffer, 0, MAGIC, kind, length, crc32(view[HEADER : HEADER + length]))
    _SUM.pack_into(buffer, 12, crc32(view[:12], seed))


def scan(data: memoryview, seed: int, base: int = 0) -> Iterator[Frame | Damage | Tail]:
    """Walk over the bytes of a segment from a record's boundary on; ``base`` is the offset of the first byte.

    Ends with a Tail when the last record is not whole. Only the caller knows whether more will be written (then it
    waits) or the segment is closed (then the tail is torn).
    """
    at, size = 0, len(data)
    while at < size:
        length = _length(data, at, seed)
        if length is None:
            found = _next_header(data, at + 1, seed)
            if found is None:
                # a header may be cut off at the very end: what could be the start of one is left for the next read
                yield Tail(base + at)
                return
            yield Damage(base + at, base + found, "no record header")
            at = found
            continue
        end = at + HEADER + length
        if end > size:
            later = _next_header(data, at + HEADER, seed)
            if later is None:
                yield Tail(base + at)
                return
            yield Damage(base + at, base + later, "the record is cut short")
            at = later
            continue
        payload = data[at + HEADER : end]
        if crc32(payload) == _SUM.unpack_from(data, at + 8)[0]:
            yield Frame(data[at + 3], base + at, base + end, payload)
            at = end
            continue
        # a record that was cut short and then followed by others lies about its length: look inside it first
        inside = _next_header(data[:end], at + HEADER, seed)
        stop = end if inside is None else inside
        yield Damage(base + at, base + stop, "the checksum does not match")
        at = stop


def _length(data: memoryview, at: int, seed: int) -> int | None:
    if len(data) - at < HEADER or bytes(data[at : at + 3]) != MAGIC:
        return None
    if crc32(data[at : at + 12], seed) != _SUM.unpack_from(data, at + 12)[0]:
        return None
    length: int = _SUM.unpack_from(data, at + 4)[0]
    return length if length <= MAX_PAYLOAD else None


def _next_header(data: memoryview, start: int, seed: int) -> int | None:
    raw = bytes(data[start:])
    at = raw.find(MAGIC)
    while at >= 0:
        if _length(data, start + at, seed) is not None:
            return start + at
        at = raw.find(MAGIC, at + 1)
    return None
