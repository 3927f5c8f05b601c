"""One batch into the store, exactly once, whatever happened before.

- A fresh batch is sent under its token. Of a batch that may have been sent before (``again``) only the rows that are
  missing are sent, and they are looked for afterwards: the store writes a token down a moment before the rows, so a
  kill between the two leaves a token without rows, which only looking finds.
- Rows that the store refuses are halved until the bad ones stand alone; those are set aside as files, the others are
  stored. The halves have tokens of their own, derived from the rows' places, so that this can be repeated too.
- A table that has refused row after row and taken none does not fit: its rows are not at fault, and wait in the spool.
- Damage in the spool is set aside with its place.
- Records become blocks of the store's own form some hundreds at a time, and then go: a batch may be large. Rows one by
  one are made again from the spool's bytes where a batch is in doubt or refused.

``send`` raises Unavailable when the store is away; the batch is then sent again as a whole.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from guard.trace.drain import Batch
from guard.trace.frames import ERASED, Frame
from guard.trace.packing import Record, decode
from guard.trace.rows import TABLES, Row, columns, named, rows
from guard.trace.store import Refused, Store, Unavailable

log: Final = logging.getLogger(__name__)

ASIDE_FILES: Final = 1_000
"""More refused rows than this are counted, and no longer kept."""

IN_VAIN: Final = 64
"""Rows that a table refuses one by one, without taking any, before it is the table that is wrong."""

AT_ONCE: Final = 1_000
"""Records that become blocks together: enough for the work of a block to be shared, and few enough for their memory to
be small."""


class Prepared(NamedTuple):
    """``records`` could be read and ``unreadable`` ones (by their start) could not. By table: how many ``rows`` there
    are, and their ``blocks``, which are missing where the store would not make them."""

    batch: Batch
    records: int
    unreadable: frozenset[int]
    rows: dict[str, int]
    blocks: dict[str, list[Any]]


class Stored(NamedTuple):
    """How many rows of each table are in the store now, and how many rows and records were set aside."""

    rows: dict[str, int]
    refused: int


class Delivery:
    """``aside`` is the directory for what cannot be stored."""

    def __init__(self, store: Store, aside: Path) -> None:
        self._store = store
        self._aside = aside
        self._in_vain: dict[str, int] = {}
        self.delivered = 0
        self.refused = 0
        self.damaged = 0

    def prepare(self, batch: Batch) -> Prepared:
        """All that needs no store; may run on another thread while a batch is sent."""
        for damage in batch.damage:
            self.damaged += 1
            log.error("damage in the spool: %s at bytes %d-%d of %s", damage.reason, *damage[:2], batch.segment)
        frames = [frame for frame in batch.frames if frame.kind != ERASED]
        unreadable: set[int] = set()
        counts: dict[str, int] = {}
        blocks: dict[str, list[Any]] = {}
        declined: set[str] = set()
        for first in range(0, len(frames), AT_ONCE):
            records = self._records(batch.segment, frames[first : first + AT_ONCE], unreadable)
            for table, values in columns(records, batch.segment).items():
                counts[table] = counts.get(table, 0) + len(values[0])
                if table not in declined:
                    try:
                        blocks.setdefault(table, []).append(self._store.encode(table, values))
                    except (Refused, Unavailable):  # which is told, and dealt with, when they are sent
                        declined.add(table)
                        del blocks[table]
        return Prepared(batch, len(frames) - len(unreadable), frozenset(unreadable), counts, blocks)

    def _records(self, segment: str, frames: Sequence[Frame], unreadable: set[int]) -> Iterator[tuple[int, Record]]:
        for frame in frames:
            try:
                yield frame.start, decode(frame.kind, frame.payload)
            except msgspec.DecodeError as error:
                unreadable.add(frame.start)
                self._set_aside(segment, frame.start, "record", f"{error}", bytes(frame.payload))

    def send(self, prepared: Prepared, *, again: bool = False) -> Stored:
        """``again``: an earlier try failed, and nobody knows how far it came."""
        batch = prepared.batch
        stored = {}
        aside = len(prepared.unreadable)
        one_by_one: dict[str, list[Row]] = {}
        for table in TABLES:
            if not prepared.rows.get(table):
                continue
            refused: set[tuple[int, int]] = set()
            if batch.again or again or not self._sent(table, prepared):
                one_by_one = one_by_one or _rows(prepared)
                if batch.again or again:
                    refused = self._complete(table, one_by_one[table], batch)
                else:
                    refused = self._send(table, one_by_one[table], batch.segment, batch.token)
            stored[table] = prepared.rows[table] - len(refused)
            aside += len(refused)
        self.delivered += prepared.records
        return Stored(stored, aside)

    def _sent(self, table: str, prepared: Prepared) -> bool:
        """False: some row is refused."""
        if table not in prepared.blocks:
            return False
        try:
            self._store.insert_blocks(table, prepared.blocks[table], prepared.batch.token)
        except Refused:
            return False
        return True

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
        """Returns the places of the rows that were refused. Raises Unavailable when the table takes no rows at all."""
        pieces = deque([(token, wanted)])
        refused: list[tuple[Row, Refused]] = []
        before, taken, sampled = self._in_vain.get(table, 0), False, False
        while pieces:
            if len(pieces) >= IN_VAIN and not (taken or sampled):
                sampled = True  # some from all over the batch, before all of it is cut into rows
                firsts = [(f"{name}/first", rows[:1]) for name, rows in pieces]
                pieces = deque([*firsts, *((f"{name}/rest", rows[1:]) for name, rows in pieces if rows[1:])])
            name, rows = pieces.popleft()
            try:
                self._store.insert(table, rows, name)
                taken = True
            except Refused as error:
                if len(rows) > 1:
                    half = len(rows) // 2
                    pieces += [(f"{name}/0", rows[:half]), (f"{name}/1", rows[half:])]
                    continue
                refused.append((rows[0], error))
                if not taken and before + len(refused) >= IN_VAIN:
                    raise Unavailable(
                        f"the trace store takes no rows of {table} ({error.message})", error.code
                    ) from error
        self._in_vain[table] = 0 if taken else before + len(refused)
        for row, why in refused:
            kept = msgspec.json.encode(named(table, row))
            self._set_aside(segment, row.offset, f"{table}-{row.number}", str(why.__cause__ or why), kept)
        return {(row.offset, row.number) for row, _ in refused}

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


def _rows(prepared: Prepared) -> dict[str, list[Row]]:
    """What its blocks were made of."""
    batch = prepared.batch
    read = (
        (frame.start, decode(frame.kind, frame.payload))
        for frame in batch.frames
        if frame.kind != ERASED and frame.start not in prepared.unreadable
    )
    return rows(read, batch.segment)
