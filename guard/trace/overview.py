"""What a list of traces shows: the newest requests, each with the engines it was tried on and the findings it has."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from guard.trace.record import RequestRecord
from guard.trace.store import TraceReader

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


class Overview(Struct):
    """``engines`` in the order of the attempts; ``findings`` are distinct codes."""

    request: RequestRecord
    engines: list[str]
    findings: list[str]


def overview(reader: TraceReader, limit: int, filters: Mapping[str, Any]) -> list[Overview]:
    """Raises StoreError."""
    requests = reader.list_requests(limit, filters)
    if not requests:
        return []
    ids = [request.trace_id for request in requests]
    engines = _grouped(
        reader,
        "SELECT trace_id, groupArray(engine) AS found FROM (SELECT trace_id, engine FROM attempts "
        "WHERE trace_id IN {ids:Array(String)} ORDER BY choice, attempt) GROUP BY trace_id",
        ids,
    )
    findings = _grouped(
        reader,
        "SELECT trace_id, groupUniqArray(code) AS found FROM findings "
        "WHERE trace_id IN {ids:Array(String)} GROUP BY trace_id",
        ids,
    )
    return [Overview(r, engines.get(r.trace_id, []), sorted(findings.get(r.trace_id, []))) for r in requests]


def age_seconds(text: str) -> float:
    """90s, 15m, 24h or 7d in seconds. Raises ValueError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no age: a number and s, m, h or d, such as 24h")
    return float(match[1]) * _UNITS[match[2]]


def _grouped(reader: TraceReader, sql: str, ids: list[str]) -> dict[str, list[str]]:
    return {row["trace_id"]: list(row["found"]) for row in reader.query(sql, {"ids": ids}, limit=len(ids))}
