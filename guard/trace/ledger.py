"""What the writer has stored, segment by segment: the sums that ``outguard store verify`` counts against.

A line of JSON for every segment that was stored to its end, in the directory of its worker, beside the position of the
one that is under way. A segment may be listed twice (the writer was killed before it could delete it); the sums are
then the same. The file is bounded: of the oldest segments nothing is known any more, and nothing is claimed.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

log: Final = logging.getLogger(__name__)

NAME: Final = "ledger.jsonl"
MAX_BYTES: Final = 4 * 1024 * 1024
"""About 15,000 segments, which held about 200 GB."""


class Entry(Struct):
    """``rows``: how many were stored of each table, without those that were refused and set aside. ``at``: Unix seconds
    when the last of them was stored. ``length``: the segment's bytes up to where this holds."""

    segment: str
    length: int
    rows: dict[str, int]
    refused: int = 0
    damaged: int = 0
    at: float = 0.0


def append(directory: Path, entry: Entry) -> None:
    """Never in the way of storing: on a full disk the segment is not listed, and said so in the log."""
    path = directory / NAME
    line = msgspec.json.encode(entry) + b"\n"
    try:
        size = path.stat().st_size if path.exists() else 0
        if size > MAX_BYTES:
            _halve(path)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(fd).st_size
            if size and os.pread(fd, 1, size - 1) != b"\n":
                line = b"\n" + line  # after one that was cut short
            os.write(fd, line)
        finally:
            os.close(fd)
    except OSError as error:
        log.warning("the sums of segment %s could not be written down: %s", entry.segment, error.strerror)


def entries(directory: Path) -> list[Entry]:
    """One for each segment, in the order in which they were finished. Lines that are none are passed over."""
    found: dict[str, Entry] = {}
    try:
        lines = (directory / NAME).read_bytes().splitlines()
    except FileNotFoundError:
        return []
    for line in lines:
        try:
            entry = msgspec.json.decode(line, type=Entry)
        except msgspec.DecodeError:
            continue
        found[entry.segment] = entry
    return list(found.values())


def _halve(path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    fresh = path.with_suffix(".new")
    fresh.write_bytes(b"".join(lines[len(lines) // 2 :]))
    fresh.chmod(0o600)
    fresh.replace(path)
