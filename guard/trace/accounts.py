"""Whether the store holds what the spool says it took: each row exactly once, by counting.

The sums are the writer's (guard/trace/ledger.py): what it stored of each segment, and of the one under way up to its
position. The store is asked for the rows and the different places of each segment. Rows are not compared by content.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct

from guard.trace.drain import Drain
from guard.trace.ledger import Entry, entries
from guard.trace.rows import TABLES
from guard.trace.store import QUERY_ROWS, TraceReader

KEPT_SECONDS: Final = 80 * 86_400
"""Rows go after 90 days: of segments older than this nothing is claimed."""

CHUNK: Final = 1_000
"""Segments that one query asks for."""


class Difference(Struct):
    """``expected`` rows of a segment in a table; ``rows`` are there, at ``places`` different places."""

    segment: str
    table: str
    expected: int
    rows: int
    places: int

    @property
    def missing(self) -> int:
        return max(0, self.expected - self.places)

    @property
    def doubled(self) -> int:
        return self.rows - self.places


class Accounts(Struct):
    """``requests`` and ``rows`` (of all tables) were expected in ``segments``; ``refused`` and ``damaged`` are what the
    writer could not store of them and has named."""

    segments: int
    requests: int
    rows: int
    refused: int
    damaged: int
    differences: list[Difference]


def verify(reader: TraceReader, spool: Path, now: float | None = None) -> Accounts:
    """Raises StoreError when the store cannot be read."""
    oldest = (time.time() if now is None else now) - KEPT_SECONDS
    wanted = [entry for entry in expected(spool) if not entry.at or entry.at >= oldest]
    differences = []
    for first in range(0, len(wanted), CHUNK):
        chunk = wanted[first : first + CHUNK]
        for table in TABLES:
            have = _count(reader, table, chunk)
            erased = _erased(reader, table, chunk)
            for entry in chunk:
                rows, places = have.get(entry.segment, (0, 0))
                want = entry.rows.get(table, 0) - erased.get(entry.segment, 0)
                if (rows, places) != (want, want):
                    differences.append(Difference(entry.segment, table, want, rows, places))
    return Accounts(
        segments=len(wanted),
        requests=sum(entry.rows.get("requests", 0) for entry in wanted),
        rows=sum(sum(entry.rows.values()) for entry in wanted),
        refused=sum(entry.refused for entry in wanted),
        damaged=sum(entry.damaged for entry in wanted),
        differences=differences,
    )


def expected(spool: Path) -> Iterator[Entry]:
    """Of every worker: the segments that are done, then the one under way as far as it is stored."""
    drain = Drain(spool)
    for worker in drain.workers():
        progress = drain.progress(worker)  # before the ledger: a segment that ends meanwhile is then in one of the two
        listed = entries(spool / worker)
        yield from listed
        if progress.rows and progress.segment not in {entry.segment for entry in listed}:
            yield Entry(progress.segment, progress.offset, progress.rows, progress.refused, progress.damaged)


def _erased(reader: TraceReader, table: str, chunk: list[Entry]) -> dict[str, int]:
    """By segment: how many of its rows were erased."""
    found = reader.query(
        "SELECT spool_segment AS segment, uniqExact(spool_offset, spool_row) AS places FROM erasures "
        "WHERE table_name = {table:String} AND spool_segment IN {segments:Array(String)} GROUP BY spool_segment",
        {"table": table, "segments": [entry.segment for entry in chunk]},
        limit=QUERY_ROWS,
    )
    return {str(row["segment"]): int(row["places"]) for row in found}


def _count(reader: TraceReader, table: str, chunk: list[Entry]) -> dict[str, tuple[int, int]]:
    """By segment: rows, and different places. Rows beyond what an entry speaks of have come meanwhile."""
    found = reader.query(
        f"SELECT spool_segment AS segment, count() AS rows, uniqExact(spool_offset, spool_row) AS places FROM {table} "
        "WHERE spool_offset < transform(spool_segment, {segments:Array(String)}, {lengths:Array(UInt64)}, "
        "toUInt64(0)) AND spool_segment IN {segments:Array(String)} GROUP BY spool_segment",
        {"segments": [entry.segment for entry in chunk], "lengths": [entry.length for entry in chunk]},
        limit=QUERY_ROWS,
    )
    return {str(row["segment"]): (int(row["rows"]), int(row["places"])) for row in found}
