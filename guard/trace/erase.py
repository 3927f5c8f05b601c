"""What is to be erased, said once for rows of the store (as SQL) and for records of the spool. Pure.

A selection names a trace, or a tenant, an age, or both of those. It means requests, and with each of them its attempts,
findings, sketches, execution verdicts and spans. What holds no content is left: losses, the engines' metrics, counts by
the minute (their rows name no trace and no tenant).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from msgspec import Struct

from guard.trace.record import OutcomeRecord, RequestRecord, SketchRecord

TABLES: Final = ("otel_traces", "outcomes", "sketches", "findings", "attempts", "requests")
"""In the order in which they are erased: requests last, since the others are found by them. Who was cut off starts
again."""


class Selection(Struct, frozen=True):
    """``before`` is Unix seconds, 0: of any age. Raises ValueError when it would mean everything."""

    trace: str = ""
    tenant: str | None = None
    before: float = 0.0

    def __post_init__(self) -> None:
        if not self.trace and self.tenant is None and not self.before:
            raise ValueError("nothing is chosen: a trace, a tenant or an age is needed")
        if self.trace and (self.tenant is not None or self.before):
            raise ValueError("a trace is erased whole, whatever its tenant and its age")


class Erased(Struct):
    """``rows`` by table; ``spooled`` records that lay in segments, ``aside`` files of what had been set aside.
    ``gone``: no file of the store holds the rows any more, not even until it is next tidied."""

    rows: dict[str, int]
    spooled: int = 0
    aside: int = 0
    gone: bool = True


def condition(table: str, selection: Selection, requests: str = "requests") -> str:
    """A table's rows that are meant, as SQL with the parameters of ``parameters``. ``requests``: that table's name."""
    own = " AND ".join(_own(selection, "started_at"))
    match table:
        case "requests":
            return own
        case "attempts" | "findings" | "sketches":
            # by their own columns too: a request's row may have been refused where these were taken
            return f"({own}) OR (trace_id, request_id) IN (SELECT trace_id, request_id FROM {requests} WHERE {own})"
        case "outcomes":
            direct = _by_trace_or_age(selection, "trace_id", "reported_at")
            return f"{direct}trace_id IN (SELECT trace_id FROM {requests} WHERE {own})"
        case "otel_traces":
            direct = _by_trace_or_age(selection, "TraceId", "Timestamp")
            return f"{direct}TraceId IN (SELECT trace_id FROM {requests} WHERE {own})"
        case _:
            raise ValueError(f"nothing is erased from {table}")


def _own(selection: Selection, time: str) -> list[str]:
    found = []
    if selection.trace:
        found.append("trace_id = {trace:String}")
    if selection.tenant is not None:
        found.append("tenant = {tenant:String}")
    if selection.before:
        found.append(f"{time} < fromUnixTimestamp64Micro({{before:Int64}}, 'UTC')")
    return found


def _by_trace_or_age(selection: Selection, trace: str, time: str) -> str:
    """For tables that know no tenant: what can be said without one."""
    if selection.trace:
        return f"{trace} = {{trace:String}} OR "
    if selection.tenant is None:
        return f"{time} < fromUnixTimestamp64Micro({{before:Int64}}, 'UTC') OR "
    return ""


def parameters(selection: Selection) -> dict[str, Any]:
    return {
        "trace": selection.trace,
        "tenant": selection.tenant or "",
        "before": round(selection.before * 1e6),
    }


def means(selection: Selection, record: object, traces: Collection[str] = ()) -> bool:
    """Whether a record of the spool is meant. ``traces``: those of the requests that are, for verdicts about them."""
    if isinstance(record, RequestRecord | SketchRecord):
        return (
            (not selection.trace or record.trace_id == selection.trace)
            and (selection.tenant is None or record.tenant == selection.tenant)
            and (not selection.before or record.started_at < selection.before)
        )
    if isinstance(record, OutcomeRecord):
        if selection.trace:
            return record.trace_id == selection.trace
        aged = selection.tenant is None and record.reported_at < selection.before
        return aged or record.trace_id in traces
    return False
