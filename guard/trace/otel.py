"""Spans, metrics and log records over OTLP/HTTP, made from finished records in the writer process.

Nothing of it runs where answers stream. An endpoint that is dead costs what its bounded queue holds, never the writer's
time: exports run on threads of their own, and the end waits for them for a few seconds at most. After the writer was
killed the last records before that are told again: spans have the same ids, the sums of metrics count them twice, log
records come twice.
"""

from __future__ import annotations

import logging
import threading
from typing import Any, Final

import msgspec
from opentelemetry import trace
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState

from guard import __version__
from guard.trace.events import Event, events
from guard.trace.packing import Packed, Record
from guard.trace.record import LossRecord, OutcomeRecord, RequestRecord
from guard.trace.retention import reduce
from guard.trace.spans import OPERATIONS, SpanData, spans

log: Final = logging.getLogger(__name__)

EXPORT_SECONDS: Final = 5.0
"""How long one export may take."""

METRICS_SECONDS: Final = 10.0
SHUTDOWN_SECONDS: Final = 3.0

DURATIONS: Final = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
"""Seconds. These and the two below are the boundaries that the GenAI conventions give."""
FIRST_TOKENS: Final = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
TOKENS: Final = tuple(float(4**power) for power in range(14))

_KINDS: Final = {"server": SpanKind.SERVER, "client": SpanKind.CLIENT}
_FLAGS: Final = TraceFlags(TraceFlags.SAMPLED)


class _GivenIds(IdGenerator):
    """The ids that the records already have."""

    trace_id = 1
    span_id = 1

    def generate_trace_id(self) -> int:
        return self.trace_id

    def generate_span_id(self) -> int:
        return self.span_id


class Telemetry:
    """``endpoint`` is the collector's base address (``http://collector:4318``); the signals' paths are added to it."""

    def __init__(
        self, endpoint: str, service_name: str = "outguard", *, metrics_seconds: float = METRICS_SECONDS
    ) -> None:
        base = endpoint.rstrip("/").removesuffix("/v1/traces").removesuffix("/v1/metrics").removesuffix("/v1/logs")
        resource = Resource.create({"service.name": service_name, "service.version": __version__})
        self._ids = _GivenIds()
        self._tracers = TracerProvider(
            sampler=ALWAYS_ON, resource=resource, id_generator=self._ids, shutdown_on_exit=False
        )
        self._tracers.add_span_processor(
            BatchSpanProcessor(
                OTLPSpanExporter(f"{base}/v1/traces", timeout=EXPORT_SECONDS),
                max_queue_size=20_000,
                schedule_delay_millis=1_000,
                max_export_batch_size=512,
            )
        )
        self._loggers = LoggerProvider(resource, shutdown_on_exit=False)
        self._loggers.add_log_record_processor(
            BatchLogRecordProcessor(
                OTLPLogExporter(f"{base}/v1/logs", timeout=EXPORT_SECONDS),
                schedule_delay_millis=1_000,
                max_export_batch_size=512,
                max_queue_size=20_000,
            )
        )
        self._logger = self._loggers.get_logger("outguard", __version__)
        reader = PeriodicExportingMetricReader(
            OTLPMetricExporter(f"{base}/v1/metrics", timeout=EXPORT_SECONDS),
            export_interval_millis=metrics_seconds * 1e3,
            export_timeout_millis=EXPORT_SECONDS * 1e3,
        )
        self._meters = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
        self._tracer = self._tracers.get_tracer("outguard", __version__)
        meter = self._meters.get_meter("outguard", __version__)
        self._duration = meter.create_histogram(
            "gen_ai.client.operation.duration",
            "s",
            "Attempts on engines.",
            explicit_bucket_boundaries_advisory=DURATIONS,
        )
        self._usage = meter.create_histogram(
            "gen_ai.client.token.usage",
            "{token}",
            "Input and output tokens.",
            explicit_bucket_boundaries_advisory=TOKENS,
        )
        self._whole = meter.create_histogram(
            "gen_ai.server.request.duration",
            "s",
            "Whole requests.",
            explicit_bucket_boundaries_advisory=DURATIONS,
        )
        self._first = meter.create_histogram(
            "gen_ai.server.time_to_first_token",
            "s",
            "To the first token that was delivered.",
            explicit_bucket_boundaries_advisory=FIRST_TOKENS,
        )
        self._requests = meter.create_counter("outguard.requests", "{request}", "Finished requests.")
        self._attempts = meter.create_counter("outguard.attempts", "{attempt}", "Tries on engines.")
        self._findings = meter.create_counter("outguard.findings", "{finding}", "What was found.")
        self._recoveries = meter.create_counter(
            "outguard.recoveries", "{request}", "Answers completed after a failure."
        )
        self._contradictions = meter.create_counter(
            "outguard.contradictions", "{attempt}", "Constraints that an engine accepted and broke."
        )
        self._wasted = meter.create_counter("outguard.wasted_tokens", "{token}", "Tokens of thrown away attempts.")
        self._executions = meter.create_counter("outguard.tool_executions", "{call}", "Execution verdicts reported.")
        self._lost = meter.create_counter("outguard.lost_records", "{record}", "Records that could not be kept.")

    def observe(self, record: Record) -> None:
        if isinstance(record, Packed):
            record = record.request
        if isinstance(record, RequestRecord):
            # also of a record that may keep its content: spans leave the machine
            record = msgspec.structs.replace(reduce(record, "none", b""), retention=record.retention)
            for span in spans(record):
                self._span(span)
            self._measure(record)
        elif isinstance(record, OutcomeRecord):
            self._executions.add(1, {"outguard.ok": record.ok})
        elif isinstance(record, LossRecord):
            self._lost.add(record.count, {"outguard.reason": record.reason})
        else:
            return  # what engines say of themselves: their own pages are for that
        for event in events(record):
            self._log(event)

    def shutdown(self) -> None:
        """Export what is left, for at most SHUTDOWN_SECONDS."""
        ends = [
            threading.Thread(target=end, args=arguments, daemon=True)
            for end, arguments in (
                (self._tracers.shutdown, ()),
                (self._loggers.shutdown, ()),
                (self._meters.shutdown, (SHUTDOWN_SECONDS * 1e3,)),
            )
        ]
        for thread in ends:
            thread.start()
        deadline = SHUTDOWN_SECONDS
        for thread in ends:
            thread.join(deadline)
            if thread.is_alive():
                log.warning("telemetry was not exported to the end: its endpoint does not answer")
                return

    def _log(self, event: Event) -> None:
        told = LogRecord(
            timestamp=event.at_ns,
            event_name=event.name,
            severity_text=event.severity,
            severity_number=SeverityNumber[event.severity],
            body=event.body,
            attributes=event.attributes,
        )
        if event.trace_id:
            told.trace_id = int(event.trace_id, 16)
        if event.span_id:
            told.span_id, told.trace_flags = int(event.span_id, 16), _FLAGS
        self._logger.emit(told)

    def _span(self, data: SpanData) -> None:
        self._ids.trace_id, self._ids.span_id = int(data.trace_id, 16), int(data.span_id, 16)
        context = None
        if data.parent_span_id:
            parent = SpanContext(
                self._ids.trace_id,
                int(data.parent_span_id, 16),
                is_remote=data.remote_parent,
                trace_flags=_FLAGS,
                trace_state=TraceState.from_header([data.trace_state]) if data.trace_state else None,
            )
            context = trace.set_span_in_context(NonRecordingSpan(parent))
        span = self._tracer.start_span(
            data.name,
            context=context,
            kind=_KINDS[data.kind],
            attributes=data.attributes,
            start_time=data.start_ns,
            record_exception=False,
        )
        for event in data.events:
            span.add_event(event.name, event.attributes, event.at_ns)
        if data.error:
            span.set_attribute("error.type", data.error)
            span.set_status(Status(StatusCode.ERROR))
        span.end(data.end_ns)

    def _measure(self, record: RequestRecord) -> None:
        operation = OPERATIONS.get(record.kind, record.kind)
        # a model that no route serves is a caller's text: it must not become a time series
        model = record.model if record.attempts else ""
        common: dict[str, Any] = {"gen_ai.operation.name": operation, "gen_ai.request.model": model}
        served = {**common, "gen_ai.provider.name": "outguard"}
        failed = {"error.type": record.error_code or record.outcome} if record.outcome != "ok" else {}
        self._whole.record(record.duration_ms / 1e3, {**served, **failed})
        self._requests.add(1, {**common, "outguard.outcome": record.outcome, "outguard.protocol": record.protocol})
        if record.first_token_ms:
            self._first.record(record.first_token_ms / 1e3, served)
        if record.recovered:
            self._recoveries.add(1, common)
        if record.wasted_tokens > 0:
            self._wasted.add(record.wasted_tokens, common)
        for attempt in record.attempts:
            client = {
                **common,
                "gen_ai.provider.name": attempt.dialect or "unknown",
                "gen_ai.response.model": attempt.engine_model,
                "outguard.engine": attempt.engine,
            }
            failed = {"error.type": attempt.error_kind or attempt.outcome} if attempt.outcome != "ok" else {}
            self._duration.record(attempt.duration_ms / 1e3, {**client, **failed})
            for kind, count in (("input", attempt.prompt_tokens), ("output", attempt.completion_tokens)):
                if count > 0:
                    self._usage.record(count, {**client, "gen_ai.token.type": kind})
            where = {"outguard.engine": attempt.engine}
            self._attempts.add(1, {**where, "outguard.outcome": attempt.outcome, "outguard.action": attempt.action})
            if attempt.contradictions:
                self._contradictions.add(1, where)
            for finding in attempt.findings:
                self._findings.add(1, {**where, "outguard.finding.code": finding.code})
