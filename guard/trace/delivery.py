"""One batch into the store, exactly once, whatever happened before.

- A fresh batch is sent under its token. Of a batch that may have been sent before (``again``) only the rows that are
  missing are sent, and they are looked for afterwards: the store writes a token down a moment before the rows, so a
  kill between the two leaves a token without rows, which only looking finds.
- Rows that the store refuses are halved until the bad ones stand alone; those are set aside as files, the others are
  stored. The halves have tokens of their own, derived from the rows' places, so that this can be repeated too.
- Damage in the spool is set aside with its place.

``send`` raises Unavailable when the store is away; the batch is then sent again as a whole.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from guard.trace.drain import Batch
from guard.trace.frames import ERASED, Frame
from guard.trace.rows import TABLES, Record, Row, decode, named, rows
from guard.trace.store import Refused, Store, Unavailable

log: Final = logging.getLogger(__name__)

ASIDE_FILES: Final = 1_000
"""More refused rows than this are counted, and no longer kept: a store whose tables do not fit refuses every row."""


class Prepared(NamedTuple):
    """``records`` could be read and ``unreadable`` ones could not; ``rows`` by table."""

    batch: Batch
    records: int
    unreadable: int
    rows: dict[str, list[Row]]


class Stored(NamedTuple):
    """How many rows of each table are in the store now, and how many rows and records were set aside."""

    rows: dict[str, int]
    refused: int


class Delivery:
    """``aside`` is the directory for what cannot be stored."""

    def __init__(self, store: Store, aside: Path) -> None:
        self._store = store
        self._aside = aside
        self.delivered = 0
        self.refused = 0
        self.damaged = 0

    def prepare(self, batch: Batch) -> Prepared:
        """All that needs no store; may run on another thread while a batch is sent."""
        for damage in batch.damage:
            self.damaged += 1
            log.error("damage in the spool: %s at bytes %d-%d of %s", damage.reason, *damage[:2], batch.segment)
        unreadable: list[Frame] = []
        found = rows(self._records(batch, unreadable), batch.segment)
        records = sum(frame.kind != ERASED for frame in batch.frames) - len(unreadable)
        return Prepared(batch, records, len(unreadable), found)

    def _records(self, batch: Batch, unreadable: list[Frame]) -> Iterator[tuple[int, Record]]:
        """One after the other: a record becomes rows while it is still in the processor's cache."""
        for frame in batch.frames:
            if frame.kind == ERASED:
                continue
            try:
                yield frame.start, decode(frame.kind, frame.payload)
            except msgspec.DecodeError as error:
                unreadable.append(frame)
                self._set_aside(batch.segment, frame.start, "record", f"{error}", bytes(frame.payload))

    def send(self, prepared: Prepared, *, again: bool = False) -> Stored:
        """``again``: an earlier try failed, and nobody knows how far it came."""
        batch, records, unreadable, found = prepared
        stored = {}
        aside = unreadable
        for table in TABLES:
            if found[table]:
                if batch.again or again:
                    refused = self._complete(table, found[table], batch)
                else:
                    refused = self._send(table, found[table], batch.segment, batch.token)
                stored[table] = len(found[table]) - len(refused)
                aside += len(refused)
        self.delivered += records
        return Stored(stored, aside)

    def _complete(self, table: str, wanted: Sequence[Row], batch: Batch) -> set[tuple[int, int]]:
        """Send until every row is found, or known to be refused. Returns the places of those."""
        token = batch.token
        hopeless: set[tuple[int, int]] = set()
        for turn in range(4):
            if turn > 1:
                time.sleep(0.5)  # a server may be about to show what an earlier try sent
            have = self._store.present(table, batch.segment, batch.start, batch.end) | hopeless
            missing = [row for row in wanted if (row.offset, row.number) not in have]
            if not missing:
                return hopeless
            if turn or len(missing) < len(wanted):
                token = f"{batch.token}+{turn}:{len(missing)}"
            hopeless |= self._send(table, missing, batch.segment, token)
        raise Unavailable(f"rows of {table} were accepted by the store and are not there")

    def _send(self, table: str, wanted: Sequence[Row], segment: str, token: str) -> set[tuple[int, int]]:
        """Returns the places of the rows that were refused."""
        try:
            self._store.insert(table, wanted, token)
        except Refused as error:
            if len(wanted) == 1:
                row = wanted[0]
                kept = msgspec.json.encode(named(table, row))
                self._set_aside(segment, row.offset, f"{table}-{row.number}", str(error.__cause__ or error), kept)
                return {(row.offset, row.number)}
            half = len(wanted) // 2
            return self._send(table, wanted[:half], segment, f"{token}/0") | self._send(
                table, wanted[half:], segment, f"{token}/1"
            )
        return set()

    def _set_aside(self, segment: str, offset: int, what: str, reason: str, data: bytes) -> None:
        self.refused += 1
        name = f"{segment}-{offset}-{what}"
        if self.refused <= ASIDE_FILES:
            log.error("a row was set aside as %s: the store does not take it", name)
        try:
            self._aside.mkdir(parents=True, exist_ok=True, mode=0o700)
            if self.refused <= ASIDE_FILES:
                (self._aside / f"{name}.row").write_bytes(data)
                (self._aside / f"{name}.why").write_text(reason[:2_000], encoding="utf-8", errors="replace")
        except OSError as error:
            log.error("%s could not be kept: %s", name, error.strerror)
