"""Stores without an engine: one that keeps rows in memory, for tests, and one that keeps none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Self

import msgspec

from guard.trace.erase import Erased, Selection, means
from guard.trace.reader import BODIES
from guard.trace.record import AttemptRecord, FindingRecord, OutcomeRecord, RequestRecord
from guard.trace.rows import Row, Values, each, named
from guard.trace.store import (
    ATTEMPT_FILTERS,
    QUERY_ROWS,
    REQUEST_FILTERS,
    AmbiguousTrace,
    QueryError,
    RequestFilter,
    Unavailable,
    as_filter,
)


class NoStore:
    """Takes everything and keeps nothing."""

    def migrate(self) -> list[str]:
        return []

    def insert(self, table: str, rows: Sequence[Row], token: str) -> None:
        pass

    def encode(self, table: str, values: Sequence[Values]) -> None:
        pass

    def insert_blocks(self, table: str, blocks: Sequence[None], token: str) -> None:
        pass

    def present(self, table: str, segment: str, start: int, end: int) -> set[tuple[int, int]]:
        return set()

    def query(
        self, sql: str, params: Mapping[str, Any] | None = None, *, limit: int = QUERY_ROWS
    ) -> list[dict[str, Any]]:
        raise Unavailable("no trace store is configured")

    def erase(self, selection: Selection, *, dry_run: bool = False) -> Erased:
        return Erased({})

    def close(self) -> None:
        pass


class MemoryStore:
    """A store and its reader. It answers every question of a TraceReader but SQL."""

    def __init__(self) -> None:
        self._tokens: set[tuple[str, str]] = set()
        self._rows: dict[str, list[dict[str, Any]]] = {}

    def migrate(self) -> list[str]:
        return []

    def insert(self, table: str, rows: Sequence[Row], token: str) -> None:
        if (table, token) not in self._tokens:
            self._tokens.add((table, token))
            self._rows.setdefault(table, []).extend(named(table, row) for row in rows)

    def encode(self, table: str, values: Sequence[Values]) -> list[Row]:
        return each(values)

    def insert_blocks(self, table: str, blocks: Sequence[list[Row]], token: str) -> None:
        self.insert(table, [row for block in blocks for row in block], token)

    def present(self, table: str, segment: str, start: int, end: int) -> set[tuple[int, int]]:
        return {
            (row["spool_offset"], row["spool_row"])
            for row in self._rows.get(table, ())
            if row["spool_segment"] == segment and start <= row["spool_offset"] < end
        }

    def erase(self, selection: Selection, *, dry_run: bool = False) -> Erased:
        requests = [msgspec.convert(row, RequestRecord) for row in self._rows.get("requests", ())]
        chosen = [request for request in requests if means(selection, request)]
        names = {(request.trace_id, request.request_id) for request in chosen}
        traces = {request.trace_id for request in chosen}
        found = {}
        for table in ("outcomes", "sketches", "findings", "attempts", "requests"):
            rows = self._rows.get(table, [])
            if table == "outcomes":
                kept = [row for row in rows if not means(selection, msgspec.convert(row, OutcomeRecord), traces)]
            else:
                kept = [row for row in rows if (row["trace_id"], row["request_id"]) not in names]
            found[table] = len(rows) - len(kept)
            if not dry_run:
                self._rows[table] = kept
        return Erased(found)

    def query(
        self, sql: str, params: Mapping[str, Any] | None = None, *, limit: int = QUERY_ROWS
    ) -> list[dict[str, Any]]:
        raise QueryError("the store in memory does not speak SQL")

    def list_requests(
        self, limit: int = 50, filters: RequestFilter | Mapping[str, Any] | None = None
    ) -> list[RequestRecord]:
        wanted = as_filter(filters)
        found = [row for row in self._rows.get("requests", ()) if self._matches(row, wanted)]
        found.sort(key=lambda row: (-row["started_at"], row["trace_id"]))
        bare = dict.fromkeys(BODIES, "")
        return [msgspec.convert(row | bare, RequestRecord) for row in found[: max(1, limit)]]

    def get_request(self, trace: str) -> RequestRecord | None:
        rows = self._rows.get("requests", [])
        trace = trace.strip()
        found = [row for row in rows if row["trace_id"] == trace.lower()] if trace else []
        found = found or [row for row in rows if trace and row["request_id"] == trace]
        if not found and trace:
            found = [row for row in rows if row["trace_id"].startswith(trace.lower())]
        ids = sorted({row["trace_id"] for row in found})
        if not ids:
            return None
        if len(ids) > 1:
            raise AmbiguousTrace(trace, ids)
        record = msgspec.convert(max(found, key=lambda row: row["started_at"]), RequestRecord)
        record.attempts = self.attempts(record.trace_id, record.request_id)
        return record

    def get_requests(self, requests: Sequence[RequestRecord]) -> list[RequestRecord]:
        names = [(request.trace_id, request.request_id) for request in requests]
        rows = {(row["trace_id"], row["request_id"]): row for row in self._rows.get("requests", ())}
        found = [msgspec.convert(rows[name], RequestRecord) for name in names if name in rows]
        for record in found:
            record.attempts = self.attempts(record.trace_id, record.request_id)
        return found

    def attempts(self, trace_id: str, request_id: str = "") -> list[AttemptRecord]:
        attempts = [msgspec.convert(row, AttemptRecord) for row in self._of("attempts", trace_id, request_id)]
        findings = self.findings(trace_id, request_id)
        for attempt in attempts:
            attempt.findings = [f for f in findings if (f.choice, f.attempt) == (attempt.choice, attempt.attempt)]
        return attempts

    def findings(self, trace_id: str, request_id: str = "") -> list[FindingRecord]:
        return [msgspec.convert(row, FindingRecord) for row in self._of("findings", trace_id, request_id)]

    def outcomes(self, trace_id: str) -> list[OutcomeRecord]:
        found = [msgspec.convert(row, OutcomeRecord) for row in self._of("outcomes", trace_id)]
        return sorted(found, key=lambda outcome: outcome.reported_at)

    def flush(self, timeout: float = 5.0) -> bool:
        return True

    def close(self) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def _of(self, table: str, trace_id: str, request_id: str = "") -> list[dict[str, Any]]:
        return [
            row
            for row in self._rows.get(table, ())
            if row["trace_id"] == trace_id and (not request_id or row["request_id"] == request_id)
        ]

    def _matches(self, row: dict[str, Any], wanted: RequestFilter) -> bool:
        for name in REQUEST_FILTERS:
            if getattr(wanted, name) and row[name] != getattr(wanted, name):
                return False
        if wanted.since is not None and row["started_at"] < wanted.since:
            return False
        if wanted.until is not None and row["started_at"] >= wanted.until:
            return False
        if wanted.recovered is not None and row["recovered"] != wanted.recovered:
            return False
        places = {name: value for name in ATTEMPT_FILTERS if (value := getattr(wanted, name))}
        if places and not any(
            all(attempt[name] == value for name, value in places.items())
            for attempt in self._of("attempts", row["trace_id"])
        ):
            return False
        return not wanted.finding or any(
            fnmatchcase(finding["code"], wanted.finding) or finding["code"].startswith(wanted.finding + ".")
            for finding in self._of("findings", row["trace_id"])
        )
