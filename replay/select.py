"""Choosing what is run again: traces of the store by id or by a condition, or the lines of an exported file.

A trace whose content was not kept is counted with its reason and left out; so is one whose request cannot be read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from guard.trace import export
from guard.trace.record import RequestRecord
from guard.trace.store import TraceReader
from replay.source import ReplayError, Source, source_of
from replay.where import Condition

MOST: Final = 10_000
"""The most requests of one run."""


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
    params = dict(condition.params) if condition else {}
    recent = "1"
    if since is not None:
        recent = "started_at >= fromUnixTimestamp64Micro({since:Int64}, 'UTC')"
        params["since"] = round(since * 1e6)
    order = "cityHash64(concat(trace_id, request_id, {seed:String}))" if sample else "at DESC"
    rows = reader.query(
        "SELECT r.trace_id AS trace_id, r.request_id AS request_id, max(r.started_at) AS at,"
        " any(r.retention) AS retention, max(r.retention = 'full' AND r.request_body != '') AS kept"
        f" FROM (SELECT * FROM requests WHERE {recent}) AS r"
        f" LEFT JOIN (SELECT * FROM attempts WHERE {recent}) AS a"
        " ON a.trace_id = r.trace_id AND a.request_id = r.request_id"
        " LEFT JOIN (SELECT trace_id, request_id, choice, attempt, groupUniqArray(toString(code)) AS codes,"
        f" groupUniqArray(toString(severity)) AS severities FROM findings WHERE {recent}"
        " GROUP BY trace_id, request_id, choice, attempt) AS f"
        " ON f.trace_id = a.trace_id AND f.request_id = a.request_id AND f.choice = a.choice AND f.attempt = a.attempt"
        f" WHERE {condition.sql if condition else '1'}"
        f" GROUP BY trace_id, request_id ORDER BY {order}, trace_id, request_id",
        {**params, "seed": str(seed)},
        limit=10_000_000,
    )
    if not rows:
        raise ReplayError("no trace meets that condition")
    skipped = Counter(_not_kept(row["retention"]) for row in rows if not row["kept"])
    kept = [row for row in rows if row["kept"]][: sample or MOST]
    return _selection(_records(reader, kept), len(rows), skipped)


def from_file(path: Path, *, sample: int = 0) -> Selection:
    """The lines of an export (``outguard traces export``): a record each. Raises ReplayError with file and line."""
    try:
        with path.open("rb") as lines:
            records = [exported.record for exported in export.read(lines, str(path))]
    except OSError as error:
        raise ReplayError(f"{path}: cannot be read: {error.strerror}") from error
    except export.ExportError as error:
        raise ReplayError(str(error)) from error
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
            "SELECT trace_id, request_id FROM attempts WHERE engine = {engine:String} AND trace_id != {trace:String}"
            " AND started_at < fromUnixTimestamp64Micro({end:Int64}, 'UTC')"
            " AND addMicroseconds(started_at, toInt64(duration_ms * 1000)) >"
            " fromUnixTimestamp64Micro({start:Int64}, 'UTC')"
            " GROUP BY trace_id, request_id ORDER BY min(started_at), trace_id LIMIT {most:UInt32}",
            {
                "engine": attempt.cell.engine,
                "trace": source.id,
                "start": start,
                "end": start + max(1, round(attempt.timing.duration_ms * 1e3)),
                "most": at_once - 1,
            },
        )
        found = _sources(_records(reader, rows), Counter())
        selection.beside |= {one.id: one for one in found}
        source.beside = tuple(one.id for one in found)


def _selection(records: Sequence[RequestRecord], matched: int, skipped: Counter[str]) -> Selection:
    sources = _sources(records, skipped)
    if not sources:
        reasons = ", ".join(f"{count}: {reason}" for reason, count in skipped.items())
        raise ReplayError(f"of {matched} traces none can be run again ({reasons})")
    return Selection(sources, matched, dict(skipped))


def _sources(records: Sequence[RequestRecord], skipped: Counter[str]) -> list[Source]:
    """Those that can be run again, each with an id of its own: a trace may hold several requests."""
    found: dict[str, Source] = {}
    for record in records:
        try:
            source = source_of(record)
        except ReplayError:
            kept = record.request_body and record.retention == "full"
            skipped["the stored request cannot be read" if kept else _not_kept(record.retention)] += 1
            continue
        if source.id in found:
            source.id = f"{record.trace_id}:{record.request_id}"
        found[source.id] = source
    return list(found.values())


def _not_kept(retention: str) -> str:
    return f"the content was not kept (retention {retention})"


def _records(reader: TraceReader, rows: Sequence[Mapping[str, Any]]) -> list[RequestRecord]:
    """The whole requests of rows that name them."""
    return reader.get_requests([RequestRecord(row["trace_id"], row["request_id"], 0.0) for row in rows])
