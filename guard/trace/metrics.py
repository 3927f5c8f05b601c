"""The page for Prometheus: what this worker has done, counted from its finished records.

The names of models, engines and codes come from the configuration and from the guard, so their number is bounded; a
model that no route serves (an invalid request) is counted under an empty name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from guard.health.fleet import EngineState
from guard.trace.record import RequestRecord

SECONDS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0)
"""The buckets of durations: finest where a first token is at home, and as far as long answers go."""


class Metrics:
    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._requests = Counter(
            "outguard_requests", "Finished requests.", ("model", "protocol", "outcome"), registry=registry
        )
        self._attempts = Counter(
            "outguard_attempts", "Tries on engines.", ("engine", "outcome", "action"), registry=registry
        )
        self._findings = Counter("outguard_findings", "What was found.", ("code", "engine"), registry=registry)
        self._contradictions = Counter(
            "outguard_contradictions", "Constraints that an engine accepted and broke.", ("engine",), registry=registry
        )
        self._recoveries = Counter(
            "outguard_recoveries", "Answers that were completed after a failed attempt.", ("model",), registry=registry
        )
        self._verdicts = Counter("outguard_format_verdicts", "Format.", ("model", "verdict"), registry=registry)
        self._tokens = Counter(
            "outguard_tokens",
            "Tokens; wasted: of attempts that were thrown away.",
            ("model", "kind"),
            registry=registry,
        )
        self._executions = Counter(
            "outguard_tool_executions", "Execution verdicts that callers reported.", ("ok",), registry=registry
        )
        self._duration = Histogram(
            "outguard_request_duration_seconds", "Whole requests.", ("model",), buckets=SECONDS, registry=registry
        )
        self._first_token = Histogram(
            "outguard_first_token_seconds", "To the first token.", ("model",), buckets=SECONDS, registry=registry
        )
        self._in_flight = Gauge("outguard_requests_in_flight", "Requests under way.", registry=registry)
        self._waiting = Gauge("outguard_requests_waiting", "Requests that wait for a place.", registry=registry)
        self._engine_state = Gauge(
            "outguard_engine_state", "1 for the state that an engine is in.", ("engine", "state"), registry=registry
        )
        self._engine_under_way = Gauge(
            "outguard_engine_under_way", "Attempts under way on an engine.", ("engine",), registry=registry
        )
        self._engine_failures = Gauge(
            "outguard_engine_failure_ratio", "The share of failures lately.", ("engine",), registry=registry
        )
        self._probes = Counter(
            "outguard_probes", "Requests with a known answer.", ("engine", "outcome"), registry=registry
        )
        self._engine_openings = Gauge(
            "outguard_engine_openings", "How often its breaker opened since the start.", ("engine",), registry=registry
        )
        self._spool_bytes = Gauge("outguard_spool_bytes", "Bytes that wait for the store.", registry=registry)
        self._spooled = Gauge("outguard_spool_records", "Records written since the start.", registry=registry)
        self._lost = Gauge("outguard_lost_records", "Records that could not be kept.", ("reason",), registry=registry)
        self._writer = Gauge("outguard_trace_writer_up", "Whether the writer process lives.", registry=registry)
        self._restarts = Counter("outguard_trace_writer_restarts", "Deaths of the writer.", registry=registry)
        self._dropped: dict[str, int] = {}
        self._children: dict[tuple[Any, ...], Any] = {}

    def observe(self, record: RequestRecord) -> None:
        """Count one finished request."""
        model = record.model if record.attempts else ""
        self._child(self._requests, model, record.protocol, record.outcome).inc()
        self._child(self._duration, model).observe(record.duration_ms / 1e3)
        if record.first_token_ms:
            self._child(self._first_token, model).observe(record.first_token_ms / 1e3)
        for kind, count in (
            ("prompt", record.prompt_tokens),
            ("completion", record.completion_tokens),
            ("wasted", record.wasted_tokens),
        ):
            if count > 0:
                self._child(self._tokens, model, kind).inc(count)
        if record.recovered:
            self._child(self._recoveries, model).inc()
        if record.verdict_format != "none":
            self._child(self._verdicts, model, record.verdict_format).inc()
        for attempt in record.attempts:
            self._child(self._attempts, attempt.engine, attempt.outcome, attempt.action).inc()
            if attempt.contradictions:
                self._child(self._contradictions, attempt.engine).inc()
            for finding in attempt.findings:
                self._child(self._findings, finding.code, attempt.engine).inc()

    def outcome(self, ok: bool) -> None:
        self._child(self._executions, str(ok).lower()).inc()

    def in_flight(self, count: int) -> None:
        self._in_flight.set(count)

    def engines(self, states: Sequence[EngineState], waiting: int) -> None:
        """What is known of the engines now. ``draining`` is a state beside those of the breaker."""
        self._waiting.set(waiting)
        for one in states:
            for state in ("closed", "half_open", "open"):
                self._child(self._engine_state, one.name, state).set(one.state == state)
            self._child(self._engine_state, one.name, "draining").set(one.draining)
            self._child(self._engine_under_way, one.name).set(one.under_way)
            self._child(self._engine_failures, one.name).set(one.failure_rate)
            self._child(self._engine_openings, one.name).set(one.openings)

    def probe(self, engine: str, outcome: str) -> None:
        self._child(self._probes, engine, outcome).inc()

    def spool(self, size: int, written: int, lost: Mapping[str, int]) -> None:
        self._spool_bytes.set(size)
        self._spooled.set(written)
        for reason, count in lost.items():
            self._child(self._lost, reason).set(count)

    def dropped(self, reason: str) -> None:
        """A record that did not even reach the spool."""
        self._dropped[reason] = self._dropped.get(reason, 0) + 1
        self._child(self._lost, reason).set(self._dropped[reason])

    def writer_alive(self, alive: bool) -> None:
        self._writer.set(alive)

    def writer_restarted(self) -> None:
        self._restarts.inc()

    def page(self) -> tuple[str, bytes]:
        return CONTENT_TYPE_LATEST, generate_latest(self._registry)

    def _child(self, metric: Any, *labels: str) -> Any:
        """``labels()`` takes a lock and checks its arguments at every call: half of what counting costs."""
        key = (metric, *labels)
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = metric.labels(*labels)
        return child
