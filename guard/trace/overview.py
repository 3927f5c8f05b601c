"""What a list of traces shows: the newest requests, each with the engines it was tried on and the findings it has."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from guard.trace.reader import WITHIN, within
from guard.trace.record import RequestRecord
from guard.trace.store import TraceReader

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


TOGETHER: Final = 1_000
"""How many requests' ids go into one query."""


class Overview(Struct):
    """``engines`` in the order of the attempts; ``findings`` are distinct codes."""

    request: RequestRecord
    engines: list[str]
    findings: list[str]


def overview(reader: TraceReader, limit: int, filters: Mapping[str, Any]) -> list[Overview]:
    """Raises StoreError."""
    return of(reader, reader.list_requests(limit, filters))


def of(reader: TraceReader, requests: Sequence[RequestRecord]) -> list[Overview]:
    """The same of requests that are known already."""
    found: list[Overview] = []
    for first in range(0, len(requests), TOGETHER):
        found += _some(reader, requests[first : first + TOGETHER])
    return found


def _some(reader: TraceReader, requests: Sequence[RequestRecord]) -> list[Overview]:
    params = {
        "traces": [request.trace_id for request in requests],
        "requests": [request.request_id for request in requests],
        **within(requests),
    }
    engines = _grouped(reader, _ENGINES, params)
    findings = _grouped(reader, _FINDINGS, params)
    names = [(request.trace_id, request.request_id) for request in requests]
    return [
        Overview(request, engines.get(name, []), sorted(findings.get(name, [])))
        for request, name in zip(requests, names, strict=True)
    ]


_WHERE = f"trace_id IN {{traces:Array(String)}} AND request_id IN {{requests:Array(String)}} AND {WITHIN}"
_ENGINES = (
    "SELECT trace_id, request_id, groupArray(engine) AS found FROM (SELECT trace_id, request_id, engine FROM attempts "
    f"WHERE {_WHERE} ORDER BY choice, attempt) GROUP BY trace_id, request_id"
)
_FINDINGS = (
    "SELECT trace_id, request_id, groupUniqArray(code) AS found FROM findings "
    f"WHERE {_WHERE} GROUP BY trace_id, request_id"
)


def age_seconds(text: str) -> float:
    """90s, 15m, 24h or 7d in seconds. Raises ValueError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no age: a number and s, m, h or d, such as 24h")
    return float(match[1]) * _UNITS[match[2]]


def _grouped(reader: TraceReader, sql: str, params: Mapping[str, Any]) -> dict[tuple[str, str], list[str]]:
    return {(row["trace_id"], row["request_id"]): list(row["found"]) for row in reader.query(sql, params)}
