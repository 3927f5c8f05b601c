"""A finished record as spans, by the GenAI semantic conventions. Pure.

One span for the request (a server's) and below it one for each attempt (a client's), with their findings as events. No
text of a prompt, an answer, an error or a finding is ever in a span, whatever the retention: spans leave the machine.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct, field

from guard.trace.context import attempt_span_id
from guard.trace.record import AttemptRecord, RequestRecord
from guard.trace.retention import UNKNOWN_MODEL

OPERATIONS: Final = {"chat": "chat", "completion": "text_completion"}


class Event(Struct):
    name: str
    at_ns: int
    attributes: dict[str, Any]


class SpanData(Struct):
    """Ids in hex, times in Unix nanoseconds. ``kind`` server or client; ``error`` is an error.type, or empty."""

    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_span_id: str
    remote_parent: bool
    start_ns: int
    end_ns: int
    attributes: dict[str, Any]
    error: str = ""
    trace_state: str = ""
    events: list[Event] = field(default_factory=list)


def spans(record: RequestRecord) -> list[SpanData]:
    """The request's first. Empty when the caller's trace is not sampled, or the record has no valid ids."""
    if not record.sampled or not is_id(record.trace_id, 32) or not is_id(record.span_id, 16):
        return []
    operation = OPERATIONS.get(record.kind, record.kind)
    start = _ns(record.started_at)
    whole = SpanData(
        name=f"{operation} {served_model(record)}".rstrip(),
        kind="server",
        trace_id=record.trace_id,
        span_id=record.span_id,
        parent_span_id=record.parent_span_id if is_id(record.parent_span_id, 16) else "",
        remote_parent=True,
        start_ns=start,
        end_ns=start + _ms(record.duration_ms),
        attributes=_request(record, operation),
        error=record.error_code or record.outcome if record.outcome in ("failed", "invalid", "cancelled") else "",
        trace_state=record.trace_state,
    )
    return [whole, *(_attempt_span(record, attempt, operation) for attempt in record.attempts)]


def served_model(record: RequestRecord) -> str:
    """Empty where no route serves the model that was asked for: its name is only a caller's text then."""
    return "" if record.error_code == UNKNOWN_MODEL else record.model


def _attempt_span(record: RequestRecord, attempt: AttemptRecord, operation: str) -> SpanData:
    start = _ns(attempt.started_at or record.started_at)
    end = start + _ms(attempt.duration_ms)
    return SpanData(
        name=f"{operation} {attempt.engine_model or record.model}".rstrip(),
        kind="client",
        trace_id=record.trace_id,
        span_id=attempt_span_id(record.span_id, attempt.choice, attempt.attempt),
        parent_span_id=record.span_id,
        remote_parent=False,
        start_ns=start,
        end_ns=end,
        attributes=_attempt(record, attempt, operation),
        error=attempt.error_kind or attempt.outcome if attempt.outcome != "ok" else "",
        events=[
            Event(
                "outguard.finding",
                end,
                {
                    "outguard.finding.code": finding.code,
                    "outguard.finding.severity": finding.severity,
                    "outguard.finding.channel": finding.channel,
                    "outguard.finding.onset": finding.onset,
                    "outguard.finding.detected_at": finding.detected_at,
                },
            )
            for finding in attempt.findings
        ],
    )


def _request(record: RequestRecord, operation: str) -> dict[str, Any]:
    return _set(
        {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": "outguard",
            "gen_ai.request.model": served_model(record),
            "gen_ai.request.temperature": record.temperature,
            "gen_ai.request.top_p": record.top_p,
            "gen_ai.request.seed": _int(record.seed),
            "gen_ai.request.max_tokens": _int(record.max_tokens),
            "gen_ai.request.choice.count": record.choices if record.choices != 1 else None,
            "gen_ai.response.id": record.request_id,
            "gen_ai.response.finish_reasons": [part for part in record.finish_reason.split(",") if part],
            "gen_ai.usage.input_tokens": record.prompt_tokens,
            "gen_ai.usage.output_tokens": record.completion_tokens,
            "gen_ai.response.time_to_first_chunk": record.first_token_ms / 1e3 or None,
            "error.type": record.error_code,
            "outguard.protocol": record.protocol,
            "outguard.tenant": record.tenant,
            "outguard.policy": record.policy,
            "outguard.retention": record.retention,
            "outguard.outcome": record.outcome,
            "outguard.attempts": record.attempts_made or len(record.attempts),
            "outguard.recovered": record.recovered,
            "outguard.wasted_tokens": record.wasted_tokens,
            "outguard.constraint.kind": record.constraint_kind,
            "outguard.constraint.hash": record.constraint_hash,
            "outguard.verdict.format": record.verdict_format,
            "outguard.verdict.tool_choice": record.verdict_tool_choice,
        }
    )


def _attempt(record: RequestRecord, attempt: AttemptRecord, operation: str) -> dict[str, Any]:
    host, port = _host(attempt.endpoint)
    return _set(
        {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": attempt.dialect or "unknown",
            "gen_ai.request.model": record.model,
            "gen_ai.response.model": attempt.engine_model,
            "gen_ai.response.finish_reasons": [attempt.finish_reason] if attempt.finish_reason else [],
            "gen_ai.usage.input_tokens": attempt.prompt_tokens,
            "gen_ai.usage.output_tokens": attempt.completion_tokens,
            "gen_ai.usage.cache_read.input_tokens": attempt.cached_tokens or None,
            "gen_ai.response.time_to_first_chunk": attempt.first_token_ms / 1e3 or None,
            "server.address": host,
            "server.port": port,
            "error.type": attempt.error_kind,
            "http.response.status_code": attempt.error_status or None,
            "outguard.engine": attempt.engine,
            "outguard.engine.version": attempt.engine_version,
            "outguard.engine.image": attempt.image,
            "outguard.engine.cluster": attempt.cluster,
            "outguard.engine.node": attempt.node,
            "outguard.engine.precision": attempt.precision,
            "outguard.choice": attempt.choice,
            "outguard.attempt": attempt.attempt,
            "outguard.outcome": attempt.outcome,
            "outguard.action": attempt.action,
            "outguard.resumed_at": attempt.resumed_at if attempt.resumed_at >= 0 else None,
            "outguard.onset": attempt.onset if attempt.onset >= 0 else None,
            "outguard.released_chars": attempt.released_chars,
            "outguard.held_chars": attempt.held_chars,
            "outguard.concurrency_at_start": attempt.concurrency_at_start,
            "outguard.unenforced": list(attempt.unenforced),
            "outguard.contradictions": list(attempt.contradictions),
        }
    )


def _set(attributes: dict[str, Any]) -> dict[str, Any]:
    """Without what is empty: an attribute that says nothing is not sent."""
    return {name: value for name, value in attributes.items() if value is not None and value != "" and value != []}


def _int(value: int | None) -> int | None:
    """An attribute's number has 64 bits."""
    return value if value is None or -(2**63) <= value < 2**63 else None


def _host(endpoint: str) -> tuple[str, int | None]:
    host, colon, port = endpoint.rpartition(":")
    return (host.strip("[]"), int(port)) if colon and port.isdecimal() else (endpoint, None)


def _ns(seconds: float) -> int:
    return max(0, round(seconds * 1e6)) * 1_000


def _ms(milliseconds: float) -> int:
    return max(0, round(milliseconds * 1e6))


def is_id(text: str, digits: int) -> bool:
    """Whether a text is an id of OpenTelemetry: so many hex digits, and not all zero."""
    if len(text) != digits:
        return False
    try:
        return int(text, 16) > 0
    except ValueError:
        return False
