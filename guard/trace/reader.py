"""Reading by SQL: the questions of a TraceReader as statements, and rows as records again.

Whatever runs SQL (a server's client, the link to a writer) becomes a reader by giving ``query``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Final, Self, TypeVar

import msgspec

from guard.trace.record import AttemptRecord, FindingRecord, OutcomeRecord, RequestRecord
from guard.trace.store import (
    ATTEMPT_FILTERS,
    QUERY_ROWS,
    REQUEST_FILTERS,
    AmbiguousTrace,
    QueryError,
    RequestFilter,
    as_filter,
)

T = TypeVar("T")

TIMES: Final = frozenset({"started_at", "reported_at", "first_at", "last_at"})
BODIES: Final = frozenset({"request_body", "output_text"})

TOGETHER: Final = 25
"""How many whole requests are asked for at once."""

SLACK_US: Final = 60_000_000
"""A clock may be set while a request is under way."""

TOO_MUCH: Final = 396
"""ClickHouse's number for an answer that passes the limits."""


def columns(record: type[Any], without: frozenset[str] = frozenset()) -> list[str]:
    """The columns of a record's table: its plain fields."""
    nested = {"attempts", "findings"}
    return [name for name in record.__struct_fields__ if name not in nested and name not in without]


def select(record: type[Any], without: frozenset[str] = frozenset()) -> str:
    return ", ".join(
        f"toUnixTimestamp64Micro({name}) AS {name}_us" if name in TIMES else name for name in columns(record, without)
    )


def to_record(row: Mapping[str, Any], record: type[T]) -> T:
    plain = {
        (name[:-3] if name.endswith("_us") else name): (value / 1e6 if name.endswith("_us") else value)
        for name, value in row.items()
    }
    return msgspec.convert(plain, record, strict=False)


def like(pattern: str) -> str:
    """A pattern with ``*`` for LIKE."""
    return pattern.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_").replace("*", "%")


class SqlReader(ABC):
    """Gives everything but ``query``, ``flush`` and ``close``."""

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def flush(self, timeout: float = 5.0) -> bool: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @abstractmethod
    def query(
        self, sql: str, params: Mapping[str, Any] | None = None, *, limit: int = QUERY_ROWS
    ) -> list[dict[str, Any]]: ...

    def list_requests(
        self, limit: int = 50, filters: RequestFilter | Mapping[str, Any] | None = None
    ) -> list[RequestRecord]:
        where, params = conditions(as_filter(filters))
        limit = max(1, min(limit, QUERY_ROWS))
        # where they begin is found by the few columns of the filter: the rest is then read from there on
        begin = (
            f"SELECT min(at) FROM (SELECT started_at AS at FROM requests WHERE {where} "
            f"ORDER BY started_at DESC LIMIT {limit})"
        )
        rows = self.query(
            f"SELECT {select(RequestRecord, BODIES)} FROM requests WHERE started_at >= ({begin}) AND {where} "
            f"ORDER BY started_at DESC, trace_id LIMIT {limit}",
            params,
        )
        return [to_record(row, RequestRecord) for row in rows]

    def get_request(self, trace: str) -> RequestRecord | None:
        trace = trace.strip()
        found = self._find("trace_id = {trace:String}", trace.lower())
        if not found:
            found = self._find("request_id = {trace:String}", trace)
        if not found and len(trace) < 32:
            found = self._find("startsWith(trace_id, {trace:String})", trace.lower())
        if not found:
            return None
        ids = list(dict.fromkeys(row["trace_id"] for row in found))
        if len(ids) > 1:
            raise AmbiguousTrace(trace, ids)
        record = to_record(found[0], RequestRecord)
        record.attempts = self._attempts(record.trace_id, record.request_id, within([record]))
        return record

    def get_requests(self, requests: Sequence[RequestRecord]) -> list[RequestRecord]:
        found: list[RequestRecord] = []
        for start in range(0, len(requests), TOGETHER):
            found += self._whole(requests[start : start + TOGETHER])
        return found

    def _whole(self, requests: Sequence[RequestRecord]) -> list[RequestRecord]:
        params: dict[str, Any] = {
            "traces": [request.trace_id for request in requests],
            "requests": [request.request_id for request in requests],
        }
        where = "trace_id IN {traces:Array(String)} AND request_id IN {requests:Array(String)}"
        order = "ORDER BY spool_segment, spool_offset, spool_row"
        known = min(request.started_at for request in requests) > 0
        if known:
            where, params = f"{where} AND {WITHIN}", params | within(requests)
        try:
            heads = self.query(f"SELECT {select(RequestRecord)} FROM requests WHERE {where}", params)
            rows = self.query(
                f"SELECT {select(AttemptRecord)}, trace_id, request_id FROM attempts WHERE {where} {order}", params
            )
            told = self.query(
                f"SELECT {select(FindingRecord)}, trace_id, request_id FROM findings WHERE {where} {order}", params
            )
        except QueryError as error:
            if error.code != TOO_MUCH or len(requests) == 1:
                raise
            half = len(requests) // 2
            return self._whole(requests[:half]) + self._whole(requests[half:])
        whole = {(row["trace_id"], row["request_id"]): to_record(row, RequestRecord) for row in heads}
        findings: dict[tuple[str, str, int, int], list[FindingRecord]] = {}
        for row in told:
            finding = to_record(row, FindingRecord)
            key = (row["trace_id"], row["request_id"], finding.choice, finding.attempt)
            findings.setdefault(key, []).append(finding)
        for row in rows:
            attempt = to_record(row, AttemptRecord)
            name = (row["trace_id"], row["request_id"])
            attempt.findings = findings.get((*name, attempt.choice, attempt.attempt), [])
            if name in whole:
                whole[name].attempts.append(attempt)
        names = ((request.trace_id, request.request_id) for request in requests)
        return [whole[name] for name in names if name in whole]

    def _find(self, where: str, trace: str) -> list[dict[str, Any]]:
        if not trace:
            return []
        places = f"SELECT started_at FROM requests WHERE {where} ORDER BY started_at DESC LIMIT 5"
        return self.query(
            f"SELECT {select(RequestRecord)} FROM requests WHERE started_at IN ({places}) AND {where} "
            "ORDER BY started_at DESC LIMIT 5",
            {"trace": trace},
        )

    def attempts(self, trace_id: str, request_id: str = "") -> list[AttemptRecord]:
        return self._attempts(trace_id, request_id, {})

    def findings(self, trace_id: str, request_id: str = "") -> list[FindingRecord]:
        return self._of(trace_id, request_id, {}, FindingRecord, "findings")

    def _attempts(self, trace_id: str, request_id: str, within: Mapping[str, int]) -> list[AttemptRecord]:
        found = self._of(trace_id, request_id, within, AttemptRecord, "attempts")
        findings = self._of(trace_id, request_id, within, FindingRecord, "findings")
        for attempt in found:
            attempt.findings = [f for f in findings if (f.choice, f.attempt) == (attempt.choice, attempt.attempt)]
        return found

    def _of(self, trace_id: str, request_id: str, within: Mapping[str, int], record: type[T], table: str) -> list[T]:
        rows = self.query(
            f"SELECT {select(record)} FROM {table} WHERE trace_id = {{trace:String}}"
            f"{' AND request_id = {request:String}' if request_id else ''}{' AND ' + WITHIN if within else ''} "
            "ORDER BY spool_segment, spool_offset, spool_row",
            {"trace": trace_id, "request": request_id, **within},
        )
        return [to_record(row, record) for row in rows]

    def outcomes(self, trace_id: str) -> list[OutcomeRecord]:
        rows = self.query(
            f"SELECT {select(OutcomeRecord)} FROM outcomes WHERE trace_id = {{trace:String}} "
            "ORDER BY reported_at, spool_segment, spool_offset",
            {"trace": trace_id},
        )
        return [to_record(row, OutcomeRecord) for row in rows]


WITHIN: Final = (
    "started_at BETWEEN fromUnixTimestamp64Micro({first:Int64}, 'UTC') "
    "AND fromUnixTimestamp64Micro({last:Int64}, 'UTC')"
)
"""A partition is a day: what cannot have anything of some requests is not looked at."""


def within(requests: Sequence[RequestRecord]) -> dict[str, int]:
    """The parameters of WITHIN: the attempts of these requests began in it."""
    return {
        "first": round(min(request.started_at for request in requests) * 1e6) - SLACK_US,
        "last": round(max(request.started_at + request.duration_ms / 1e3 for request in requests) * 1e6) + SLACK_US,
    }


def conditions(filters: RequestFilter) -> tuple[str, dict[str, Any]]:
    """What a filter is in SQL over ``requests``, and its parameters."""
    where: list[str] = []
    params: dict[str, Any] = {}
    for name in REQUEST_FILTERS:
        value = getattr(filters, name)
        if value:
            where.append(f"{name} = {{{name}:String}}")
            params[name] = value
    for name, operator in (("since", ">="), ("until", "<")):
        value = getattr(filters, name)
        if value is not None:
            where.append(f"started_at {operator} fromUnixTimestamp64Micro({{{name}:Int64}}, 'UTC')")
            params[name] = round(value * 1e6)
    if filters.recovered is not None:
        where.append(f"recovered = {str(filters.recovered).lower()}")
    recent = ""
    if filters.since is not None:  # an attempt does not begin before its request
        recent = " AND started_at >= fromUnixTimestamp64Micro({since:Int64}, 'UTC') - INTERVAL 1 MINUTE"
    places: Sequence[str] = [name for name in ATTEMPT_FILTERS if getattr(filters, name)]
    if places:
        inner = " AND ".join(f"{name} = {{{name}:String}}" for name in places)
        where.append(f"trace_id IN (SELECT trace_id FROM attempts WHERE {inner}{recent})")
        params |= {name: getattr(filters, name) for name in places}
    if filters.finding:
        where.append(
            "trace_id IN (SELECT trace_id FROM findings "
            f"WHERE (startsWith(code, concat({{finding:String}}, '.')) OR code LIKE {{like:String}}){recent})"
        )
        params |= {"finding": filters.finding, "like": like(filters.finding)}
    return " AND ".join(where) or "1", params
