"""Requests as they are stored, each once.

Rows are followed by their place in the spool, not by their time: a request of half an hour appears when it ends, and so
does what was spooled while the store was away. Each segment's rows are stored in order, so the last offset that was
seen of each is all that has to be remembered. A batch's requests are stored a moment before its attempts and findings,
so a row is shown one look after it was first there: by then its filters have something to look at.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from guard.trace.overview import Overview, of
from guard.trace.reader import BODIES, conditions, select, to_record
from guard.trace.record import RequestRecord
from guard.trace.store import RequestFilter, TraceReader, as_filter

WINDOW_SECONDS: Final = 7_200.0
"""Only requests that began within this time are looked at: an answer of half an hour, and as long an outage thrice."""

MOST: Final = 500
"""Requests of one look; the rest come with the next."""


class Tail:
    """``now`` in Unix seconds is given in. Raises StoreError."""

    def __init__(self, reader: TraceReader, filters: RequestFilter | Mapping[str, Any] | None, now: float) -> None:
        self._reader = reader
        self._where, self._params = conditions(as_filter(filters))
        self._shown = self._ends(now)
        self._horizon = dict(self._shown)

    def poll(self, now: float) -> list[Overview]:
        """What has come since the last look that met the filter, in the order in which each sidecar spooled it."""
        rows = self._between(self._shown, self._horizon, now) if self._horizon != self._shown else []
        if len(rows) < MOST:
            self._shown = self._horizon
        else:
            self._shown = self._shown | {row["spool_segment"]: int(row["spool_offset"]) for row in rows}
        self._horizon = self._ends(now)
        for row in rows:
            del row["spool_segment"], row["spool_offset"]
        return of(self._reader, [to_record(row, RequestRecord) for row in rows])

    def _ends(self, now: float) -> dict[str, int]:
        """The last offset of each segment."""
        rows = self._reader.query(
            "SELECT spool_segment, max(spool_offset) AS last FROM requests "
            "WHERE started_at >= fromUnixTimestamp64Micro({from:Int64}, 'UTC') GROUP BY spool_segment",
            {"from": round((now - WINDOW_SECONDS) * 1e6)},
        )
        return {row["spool_segment"]: int(row["last"]) for row in rows}

    def _between(self, shown: Mapping[str, int], horizon: Mapping[str, int], now: float) -> list[dict[str, Any]]:
        moved = {segment: last for segment, last in horizon.items() if last > shown.get(segment, -1)}
        return self._reader.query(
            f"SELECT {select(RequestRecord, BODIES)}, spool_segment, spool_offset FROM requests "
            "WHERE started_at >= fromUnixTimestamp64Micro({from:Int64}, 'UTC') "
            "AND toInt64(spool_offset) > transform(spool_segment, {segments:Array(String)}, {after:Array(Int64)}, "
            "9223372036854775807) "
            "AND toInt64(spool_offset) <= transform(spool_segment, {segments:Array(String)}, {up_to:Array(Int64)}, -1) "
            f"AND {self._where} ORDER BY spool_segment, spool_offset LIMIT {MOST}",
            {
                "from": round((now - WINDOW_SECONDS) * 1e6),
                "segments": list(moved) or [""],
                "after": [shown.get(segment, -1) for segment in moved] or [-1],
                "up_to": list(moved.values()) or [-1],
                **self._params,
            },
        )
