"""What lies in a spool, looked at from outside: how much waits for the store, what is damaged, what was set aside.

It takes no lock and changes nothing, so it may run beside workers and a writer; what they do meanwhile is seen or not.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from guard.trace.drain import Drain
from guard.trace.frames import Frame, Tail, scan, seed_of
from guard.trace.packing import Packed, decode
from guard.trace.record import OutcomeRecord, RequestRecord, ScrapeRecord, SketchRecord

ASIDE: Final = "aside"
"""The directory below a spool for rows and records that cannot be stored."""


class Damaged(Struct):
    """A stretch of a segment that is no record. What was in it cannot be read any more."""

    worker: str
    segment: str
    start: int
    end: int
    reason: str


class Inventory(Struct):
    """``records`` and ``bytes`` are not stored yet; ``oldest`` is when the first of them was finished (Unix seconds, 0
    where none waits). ``damaged``: over whole segments, also where they are stored already. ``aside``: names of what
    was set aside."""

    segments: int = 0
    bytes: int = 0
    records: int = 0
    oldest: float = 0.0
    damaged: list[Damaged] = msgspec.field(default_factory=list)
    aside: list[str] = msgspec.field(default_factory=list)


def take(spool: Path) -> Inventory:
    """Reads every segment, checksums included: about a second for a gigabyte. A spool that is not there is empty."""
    found = Inventory()
    drain = Drain(spool)
    for worker in drain.workers():
        for segment in drain.segments(worker):
            try:
                complete = _complete(drain.path(worker, segment))
                data = drain.path(worker, segment).read_bytes()
            except FileNotFoundError:
                continue  # stored meanwhile
            found.segments += 1
            _look(found, data, worker, segment, drain.position(worker, segment), complete)
    with contextlib.suppress(FileNotFoundError):
        found.aside = sorted(path.stem for path in (spool / ASIDE).iterdir() if path.suffix == ".row")
    return found


def _look(found: Inventory, data: bytes, worker: str, segment: str, stored: int, complete: bool) -> None:
    size = len(data)
    found.bytes += max(0, size - stored)
    for item in scan(memoryview(data), seed_of(segment)):
        if isinstance(item, Frame):
            if item.start >= stored:
                found.records += 1
                if found.records == 1 or item.start == stored:
                    made = _finished(item)  # a worker's records are in order, so its first is its oldest
                    found.oldest = min(found.oldest or made, made)
        elif isinstance(item, Tail):
            if complete:
                found.damaged.append(Damaged(worker, segment, item.start, size, "the record is cut short"))
        elif complete or item.end < size:
            found.damaged.append(Damaged(worker, segment, item.start, item.end, item.reason))


def _finished(frame: Frame) -> float:
    """When a record was made; 0 for what is none."""
    try:
        record = decode(frame.kind, frame.payload)
    except msgspec.DecodeError:
        return 0.0
    if isinstance(record, Packed):
        record = record.request
    if isinstance(record, RequestRecord):
        return record.started_at + record.duration_ms / 1e3
    if isinstance(record, OutcomeRecord):
        return record.reported_at
    if isinstance(record, SketchRecord):
        return record.started_at
    return record.at if isinstance(record, ScrapeRecord) else record.last_at


def _complete(path: Path) -> bool:
    """Whether nobody appends to a segment any more. A shared lock, held for a moment: a writer that wants its own just
    then takes the segment for one that is still written, and looks again."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True
