"""A finished record as log records: what went wrong, one line each, beside the spans and with their ids. Pure.

A request that ended well and without findings says nothing: its span says it all. No text of a prompt, an answer, an
error or a finding is ever in a log record, whatever the retention: log records leave the machine.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from guard.trace.context import attempt_span_id
from guard.trace.record import AttemptRecord, FindingRecord, LossRecord, OutcomeRecord, RequestRecord
from guard.trace.spans import is_id, served_model

DEBUG: Final = "DEBUG"
INFO: Final = "INFO"
WARN: Final = "WARN"
ERROR: Final = "ERROR"

_SEVERITY: Final = {"error": ERROR, "warn": WARN, "info": INFO}


class Event(Struct):
    """``at_ns`` in Unix nanoseconds; the ids in hex, empty where there is no trace; ``severity`` as OpenTelemetry names
    it."""

    name: str
    at_ns: int
    severity: str
    body: str
    attributes: dict[str, Any]
    trace_id: str = ""
    span_id: str = ""


def events(record: RequestRecord | OutcomeRecord | LossRecord) -> list[Event]:
    if isinstance(record, RequestRecord):
        return _request(record)
    if isinstance(record, OutcomeRecord):
        return [] if record.ok else [_execution(record)]
    body = f"{record.count} trace records of worker {record.worker} were lost: {record.reason}"
    told = {"outguard.worker": record.worker, "outguard.reason": record.reason, "outguard.count": record.count}
    return [Event("outguard.records.lost", _ns(record.last_at), ERROR, body, told)]


def _request(record: RequestRecord) -> list[Event]:
    found = []
    for attempt in record.attempts:
        found += [_finding(record, attempt, finding) for finding in attempt.findings]
        if attempt.contradictions:
            found.append(_contradiction(record, attempt))
        if attempt.outcome not in ("ok", "cancelled"):
            found.append(_attempt(record, attempt))
    end = _ns(record.started_at + record.duration_ms / 1e3)
    about = {"gen_ai.request.model": served_model(record), "outguard.outcome": record.outcome}
    if record.recovered:
        body = f"the answer was completed after {record.attempts_made} attempts"
        found.append(_of(record, "outguard.request.recovered", end, INFO, body, about))
    if record.outcome in ("failed", "invalid"):
        kind = record.error_code or record.outcome
        severity = ERROR if record.outcome == "failed" else INFO
        body = f"the request ended in an error: {kind}"
        found.append(_of(record, "outguard.request.failed", end, severity, body, {**about, "error.type": kind}))
    return found


def _finding(record: RequestRecord, attempt: AttemptRecord, finding: FindingRecord) -> Event:
    return _of(
        record,
        "outguard.finding",
        _end(record, attempt),
        _SEVERITY.get(finding.severity, WARN),
        f"{finding.code} in {finding.channel} at {finding.onset}, seen at {finding.detected_at}, from {attempt.engine}",
        {
            **_place(attempt),
            "outguard.finding.code": finding.code,
            "outguard.finding.severity": finding.severity,
            "outguard.finding.channel": finding.channel,
            "outguard.finding.onset": finding.onset,
            "outguard.finding.detected_at": finding.detected_at,
        },
        attempt,
    )


def _contradiction(record: RequestRecord, attempt: AttemptRecord) -> Event:
    return _of(
        record,
        "outguard.contradiction",
        _end(record, attempt),
        ERROR,
        f"{attempt.engine} accepted a constraint and broke it: {', '.join(attempt.contradictions)}",
        {**_place(attempt), "outguard.contradictions": list(attempt.contradictions)},
        attempt,
    )


def _attempt(record: RequestRecord, attempt: AttemptRecord) -> Event:
    kind = attempt.error_kind or attempt.outcome
    return _of(
        record,
        "outguard.attempt.failed",
        _end(record, attempt),
        WARN,
        f"attempt {attempt.attempt} on {attempt.engine} was {attempt.outcome} ({kind}); then: {attempt.action}",
        {**_place(attempt), "error.type": kind, "outguard.outcome": attempt.outcome, "outguard.action": attempt.action},
        attempt,
    )


def _execution(record: OutcomeRecord) -> Event:
    body = "a tool call failed when it was executed"
    trace_id = record.trace_id if is_id(record.trace_id, 32) else ""
    return Event("outguard.execution.failed", _ns(record.reported_at), WARN, body, {}, trace_id)


def _of(
    record: RequestRecord,
    name: str,
    at_ns: int,
    severity: str,
    body: str,
    attributes: dict[str, Any],
    attempt: AttemptRecord | None = None,
) -> Event:
    if not is_id(record.trace_id, 32) or not is_id(record.span_id, 16):
        return Event(name, at_ns, severity, body, attributes)
    span_id = record.span_id
    if attempt is not None:
        span_id = attempt_span_id(span_id, attempt.choice, attempt.attempt)
    return Event(name, at_ns, severity, body, attributes, record.trace_id, span_id)


def _place(attempt: AttemptRecord) -> dict[str, Any]:
    named = {
        "outguard.engine": attempt.engine,
        "outguard.engine.image": attempt.image,
        "outguard.engine.cluster": attempt.cluster,
        "outguard.engine.precision": attempt.precision,
    }
    return {name: value for name, value in named.items() if value}


def _end(record: RequestRecord, attempt: AttemptRecord) -> int:
    return _ns((attempt.started_at or record.started_at) + attempt.duration_ms / 1e3)


def _ns(seconds: float) -> int:
    return max(0, round(seconds * 1e6)) * 1_000
