"""The page for Prometheus: what this worker has done, counted from its finished records.

The names of models, engines and codes come from the configuration and from the guard, so their number is bounded; a
model that perhaps no route serves (of an invalid request, of an output to be checked) is counted under an empty name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, generate_latest

from guard.health.fleet import EngineState
from guard.trace.tally import Tally


class Metrics:
    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._tally = Tally()
        self.observe = self._tally.add
        """Count one finished request."""
        registry.register(self._tally)
        self._executions = Counter(
            "outguard_tool_executions", "Execution verdicts that callers reported.", ("ok",), registry=registry
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
        self._spool_bytes = Gauge(
            "outguard_spool_bytes", "Bytes of the spool's files, with those that are stored.", registry=registry
        )
        self._spool_waiting = Gauge("outguard_spool_waiting_bytes", "Bytes that wait for the store.", registry=registry)
        self._spooled = Gauge("outguard_spool_records", "Records written since the start.", registry=registry)
        self._lost = Gauge("outguard_lost_records", "Records that could not be kept.", ("reason",), registry=registry)
        self._writer = Gauge("outguard_trace_writer_up", "Whether the writer process lives.", registry=registry)
        self._restarts = Counter("outguard_trace_writer_restarts", "Deaths of the writer.", registry=registry)
        self._dropped: dict[str, int] = {}
        self._children: dict[tuple[Any, ...], Any] = {}

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

    def spool(self, size: int, waiting: int, written: int, lost: Mapping[str, int]) -> None:
        self._spool_bytes.set(size)
        self._spool_waiting.set(waiting)
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
