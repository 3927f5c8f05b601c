"""Erasing: rows of a ClickHouse store, records that lie in the spool, and what was set aside.

Rows go by mutations that rewrite the parts they are in, and the old parts are waited for until they are deleted: then
no file of the store holds them. Records in segments are overwritten in place, under a header that says so, whether they
are stored already or not: a segment lives until its last record is stored, and a worker may be appending to it.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from guard.trace.drain import Drain
from guard.trace.erase import TABLES, Erased, Selection, condition, means, parameters
from guard.trace.frames import ERASED, HEADER, Frame, scan, seal, seed_of
from guard.trace.packing import Packed, decode
from guard.trace.record import OutcomeRecord, RequestRecord
from guard.trace.store import StoreError, Unavailable

PATIENCE_SECONDS: Final = 1_800.0
"""For the mutations: a part of a busy day takes seconds to rewrite, a store of a hundred of them minutes."""

TIDY_SECONDS: Final = 90.0
"""For the old parts, which are looked for every few seconds."""

Ask = Callable[[str, Mapping[str, Any]], list[tuple[Any, ...]]]


def erase_rows(ask: Ask, selection: Selection, *, suffix: str = "", dry_run: bool = False) -> Erased:
    """Through ``ask(statement, parameters)`` of one server. ``suffix``: of the names of the tables that hold the
    rows, in a cluster. Raises what ``ask`` raises, and Unavailable when a
    mutation fails or takes too long: whoever starts again goes on from there."""
    params = parameters(selection)
    where = {table: condition(table, selection, f"requests{suffix}") for table in TABLES}
    found = {
        table: int(ask(f"SELECT count() FROM {table}{suffix} WHERE {where[table]}", params)[0][0]) for table in TABLES
    }
    if dry_run or not any(found.values()):
        return Erased(found)
    touched = [table for table in TABLES if found[table]]
    tidy = _hurry(ask, [f"{table}{suffix}" for table in touched])
    try:
        for table in touched:
            if table != "otel_traces":
                ask(
                    f"INSERT INTO erasures{suffix} (table_name, spool_segment, spool_offset, spool_row) SELECT "
                    f"'{table}', spool_segment, spool_offset, spool_row FROM {table}{suffix} WHERE {where[table]}",
                    params,
                )
            ask(f"ALTER TABLE {table}{suffix} DELETE WHERE {where[table]} SETTINGS mutations_sync = 0", params)
            _wait_for_mutations(ask, f"{table}{suffix}")
        gone = tidy and _wait_for_old_parts(ask, [f"{table}{suffix}" for table in touched])
    finally:
        if tidy:
            for table in touched:
                ask(f"ALTER TABLE {table}{suffix} RESET SETTING old_parts_lifetime", {})
    return Erased(found, gone=gone)


def _hurry(ask: Ask, tables: list[str]) -> bool:
    """Have old parts deleted at once. False: this user may not; they are then deleted after eight minutes."""
    try:
        for table in tables:
            ask(f"ALTER TABLE {table} MODIFY SETTING old_parts_lifetime = 1", {})
    except StoreError as error:
        if error.code != 497:
            raise
        return False
    return True


def _wait_for_mutations(ask: Ask, table: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        left = ask(
            "SELECT count(), max(latest_fail_reason) FROM system.mutations "
            "WHERE database = currentDatabase() AND table = {table:String} AND NOT is_done",
            {"table": table},
        )[0]
        if not left[0]:
            return
        if left[1]:
            raise Unavailable(f"rows of {table} cannot be erased: the store's mutation fails")
        if time.monotonic() > deadline:
            raise Unavailable(f"rows of {table} are still being erased after {PATIENCE_SECONDS:g} s")
        time.sleep(0.05)


def _wait_for_old_parts(ask: Ask, tables: list[str]) -> bool:
    deadline = time.monotonic() + TIDY_SECONDS
    while ask(
        "SELECT count() FROM system.parts WHERE database = currentDatabase() AND table IN {tables:Array(String)} "
        "AND NOT active",
        {"tables": tables},
    )[0][0]:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


# --- the spool -------------------------------------------------------------------------------------------------------


def erase_spool(
    drain: Drain, selection: Selection, theirs: Callable[[list[str]], set[str]], *, dry_run: bool = False
) -> int:
    """How many records of the segments were overwritten. ``theirs`` says which of some traces have a request that is
    meant and stored already (for verdicts about them). By the process that holds the spool's lock."""
    traces: set[str] = set()
    verdicts: set[str] = set()
    for _, _, _, record in _records(drain):
        if isinstance(record, RequestRecord) and means(selection, record):
            traces.add(record.trace_id)
        elif isinstance(record, OutcomeRecord):
            verdicts.add(record.trace_id)
    traces |= theirs(sorted(verdicts - traces))
    count = 0
    for path, segment, frame, record in _records(drain):
        if means(selection, record, traces):
            count += 1
            if not dry_run:
                _overwrite(path, segment, frame)
    return count


def _records(drain: Drain) -> Iterator[tuple[Path, str, Frame, object]]:
    for worker in drain.workers():
        for segment in drain.segments(worker):
            path = drain.path(worker, segment)
            with contextlib.suppress(FileNotFoundError):
                for item in scan(memoryview(path.read_bytes()), seed_of(segment)):
                    if isinstance(item, Frame) and item.kind != ERASED:
                        with contextlib.suppress(msgspec.DecodeError):
                            record = decode(item.kind, item.payload)
                            yield path, segment, item, record.request if isinstance(record, Packed) else record


def _overwrite(path: Path, segment: str, frame: Frame) -> None:
    """Content first: a kill in between leaves a record whose checksum does not match, and nothing to read in it."""
    length = frame.end - frame.start - HEADER
    buffer = bytearray(HEADER + length)
    seal(buffer, ERASED, length, seed_of(segment))
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.pwrite(fd, buffer[HEADER:], frame.start + HEADER)
        os.pwrite(fd, buffer[:HEADER], frame.start)
        os.fsync(fd)
    finally:
        os.close(fd)


def erase_aside(directory: Path, selection: Selection, *, dry_run: bool = False) -> int:
    """How many rows and records that were set aside are meant. One that cannot be read goes when its bytes hold the
    trace or the tenant, or by the age of its file."""
    count = 0
    for path in sorted(directory.glob("*.row")):
        try:
            data, age = path.read_bytes(), path.stat().st_mtime
        except FileNotFoundError:
            continue
        if not _is_meant(data, age, selection):
            continue
        count += 1
        if not dry_run:
            path.unlink(missing_ok=True)
            path.with_suffix(".why").unlink(missing_ok=True)
    return count


def _is_meant(data: bytes, age: float, selection: Selection) -> bool:
    if selection.trace:
        return selection.trace.encode() in data
    named = selection.tenant is None or _quoted(selection.tenant) in data or selection.tenant.encode() in data
    return named and (not selection.before or age < selection.before)


def _quoted(text: str) -> bytes:
    return msgspec.json.encode(text)[1:-1]
