"""Choosing what is run again: traces of the store by id or by a condition, or the lines of an exported file.

A trace whose content was not kept is counted with its reason and left out; so is one whose request cannot be read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from guard.trace.reader import select as columns
from guard.trace.reader import to_record
from guard.trace.record import AttemptRecord, FindingRecord, RequestRecord
from guard.trace.store import TraceReader
from replay.source import ReplayError, Source, source_of
from replay.where import Condition

MOST: Final = 10_000
"""The most requests of one run."""

_BATCH: Final = 500


class Selection(Struct):
    """``matched``: how many traces met the condition. ``skipped``: how many of those that were looked at cannot be run
    again, by reason. ``beside``: requests to run beside them, by id."""

    sources: list[Source]
    matched: int
    skipped: dict[str, int]
    beside: dict[str, Source] = msgspec.field(default_factory=dict)


def by_id(reader: TraceReader, trace_ids: Sequence[str]) -> Selection:
    """Raises ReplayError naming the trace that is not there, or that cannot be run again when it is the only one."""
    records = []
    for trace_id in trace_ids:
        record = reader.get_request(trace_id)
        if record is None:
            raise ReplayError(f"there is no trace that begins with {trace_id}")
        records.append(record)
    if len(records) == 1:
        return Selection([source_of(records[0])], 1, {})
    return _selection(records, len(records), Counter())


def by_condition(
    reader: TraceReader,
    condition: Condition | None,
    *,
    since: float | None = None,
    sample: int = 0,
    seed: int = 0,
) -> Selection:
    """``since``: Unix seconds. ``sample``: so many of them, drawn by ``seed``; 0: all, the newest first. Raises
    ReplayError when nothing is found that can be run again."""
    where, params = ["1"], dict(condition.params) if condition else {}
    if condition is not None:
        where.append(condition.sql)
    recent = "1"
    if since is not None:
        recent = "started_at >= fromUnixTimestamp64Micro({since:Int64}, 'UTC')"
        params["since"] = round(since * 1e6)
    order = "cityHash64(concat(trace_id, {seed:String}))" if sample else "at DESC"
    rows = reader.query(
        "SELECT r.trace_id AS trace_id, max(r.started_at) AS at, any(r.retention) AS retention,"
        " max(r.retention = 'full' AND r.request_body != '') AS kept"
        f" FROM (SELECT * FROM requests WHERE {recent}) AS r"
        f" LEFT JOIN (SELECT * FROM attempts WHERE {recent}) AS a ON a.trace_id = r.trace_id"
        " LEFT JOIN (SELECT trace_id, choice, attempt, groupUniqArray(toString(code)) AS codes,"
        f" groupUniqArray(toString(severity)) AS severities FROM findings WHERE {recent}"
        " GROUP BY trace_id, choice, attempt) AS f"
        " ON f.trace_id = a.trace_id AND f.choice = a.choice AND f.attempt = a.attempt"
        f" WHERE {' AND '.join(where)} GROUP BY trace_id ORDER BY {order}, trace_id",
        {**params, "seed": str(seed)},
        limit=10_000_000,
    )
    if not rows:
        raise ReplayError("no trace meets that condition")
    skipped = Counter(_not_kept(row["retention"]) for row in rows if not row["kept"])
    ids = [row["trace_id"] for row in rows if row["kept"]][: sample or MOST]
    return _selection(_records(reader, ids), len(rows), skipped)


def from_file(path: Path, *, sample: int = 0) -> Selection:
    """The lines of an export (``outguard traces export``): a record each. Raises ReplayError with file and line."""
    records: list[RequestRecord] = []
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    records.append(_record(line, f"{path}:{number}"))
    except OSError as error:
        raise ReplayError(f"{path}: cannot be read: {error.strerror}") from error
    if not records:
        raise ReplayError(f"{path}: holds no trace")
    return _selection(records[: sample or MOST], len(records), Counter())


def add_neighbours(reader: TraceReader, selection: Selection, at_once: int) -> None:
    """For each source the requests that ran on its engine while it did, the earliest first."""
    for source in selection.sources:
        attempt = source.attempts[0] if source.attempts else None
        if attempt is None:
            continue
        start = round(attempt.timing.started_at * 1e6)
        rows = reader.query(
            "SELECT trace_id FROM attempts WHERE engine = {engine:String} AND trace_id != {trace:String}"
            " AND started_at < fromUnixTimestamp64Micro({end:Int64}, 'UTC')"
            " AND addMicroseconds(started_at, toInt64(duration_ms * 1000)) >"
            " fromUnixTimestamp64Micro({start:Int64}, 'UTC')"
            " GROUP BY trace_id ORDER BY min(started_at), trace_id LIMIT {most:UInt32}",
            {
                "engine": attempt.cell.engine,
                "trace": source.id,
                "start": start,
                "end": start + max(1, round(attempt.timing.duration_ms * 1e3)),
                "most": at_once - 1,
            },
        )
        unknown = [row["trace_id"] for row in rows if row["trace_id"] not in selection.beside]
        found = _selection(_records(reader, unknown), len(unknown), Counter()) if unknown else None
        if found is not None:
            selection.beside |= {one.id: one for one in found.sources}
        source.beside = tuple(row["trace_id"] for row in rows if row["trace_id"] in selection.beside)


def _selection(records: Sequence[RequestRecord], matched: int, skipped: Counter[str]) -> Selection:
    sources = []
    for record in records:
        try:
            sources.append(source_of(record))
        except ReplayError:
            kept = record.request_body and record.retention == "full"
            skipped["the stored request cannot be read" if kept else _not_kept(record.retention)] += 1
    if not sources:
        reasons = ", ".join(f"{count}: {reason}" for reason, count in skipped.items())
        raise ReplayError(f"of {matched} traces none can be run again ({reasons})")
    return Selection(sources, matched, dict(skipped))


def _not_kept(retention: str) -> str:
    return f"the content was not kept (retention {retention})"


def _records(reader: TraceReader, trace_ids: Sequence[str]) -> list[RequestRecord]:
    """In the order of the ids, with attempts and findings; three questions for each so many of them."""
    found: dict[str, RequestRecord] = {}
    for at in range(0, len(trace_ids), _BATCH):
        ids = {"ids": list(trace_ids[at : at + _BATCH])}
        some: dict[str, RequestRecord] = {}
        for row in _rows(reader, "requests", RequestRecord, ids):
            some[row["trace_id"]] = to_record(row, RequestRecord)
        findings: dict[tuple[str, int, int], list[FindingRecord]] = {}
        for row in _rows(reader, "findings", FindingRecord, ids, "trace_id"):
            trace_id = row.pop("trace_id")
            finding = to_record(row, FindingRecord)
            findings.setdefault((trace_id, finding.choice, finding.attempt), []).append(finding)
        for row in _rows(reader, "attempts", AttemptRecord, ids, "trace_id"):
            trace_id = row.pop("trace_id")
            attempt = to_record(row, AttemptRecord)
            attempt.findings = findings.get((trace_id, attempt.choice, attempt.attempt), [])
            some[trace_id].attempts.append(attempt)
        found |= some
    return [found[trace_id] for trace_id in trace_ids if trace_id in found]


def _rows(reader: TraceReader, table: str, record: type[Any], ids: dict[str, Any], *more: str) -> list[dict[str, Any]]:
    wanted = ", ".join((*more, columns(record)))
    order = " ORDER BY choice, attempt" if table == "attempts" else ""
    return reader.query(
        f"SELECT {wanted} FROM {table} WHERE trace_id IN {{ids:Array(String)}}{order}", ids, limit=1_000_000
    )


def _record(line: bytes, place: str) -> RequestRecord:
    try:
        return msgspec.json.decode(line, type=RequestRecord)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ReplayError(f"{place}: is no exported trace: {error}") from error
