"""Spans and metrics as a collector gets them: decoded from the protobuf that a fake one received."""

from __future__ import annotations

import gzip
import logging
import re
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv._incubating.metrics import gen_ai_metrics

from guard import trace
from guard.trace.context import attempt_span_id
from guard.trace.drain import Drain
from guard.trace.events import events
from guard.trace.otel import SHUTDOWN_SECONDS, Telemetry
from guard.trace.record import AttemptRecord, LossRecord, OutcomeRecord, RequestRecord, ScrapeRecord
from guard.trace.spans import spans
from guard.trace.spool import Spool
from guard.trace.tracing import Tracing

Make = Callable[..., RequestRecord]


class Collector:
    """A fake OTLP/HTTP receiver."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.services: set[str] = set()
        self.metrics: dict[str, list[Any]] = {}
        self.logs: list[Any] = []
        self.bytes = b""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                outer.take(self.path, body)
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def take(self, path: str, body: bytes) -> None:
        self.bytes += body
        if path == "/v1/traces":
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                self.services.add(attributes(resource.resource)["service.name"])
                for scope in resource.scope_spans:
                    self.spans += scope.spans
        elif path == "/v1/logs":
            for resource in ExportLogsServiceRequest.FromString(body).resource_logs:
                self.services.add(attributes(resource.resource)["service.name"])
                for scope in resource.scope_logs:
                    self.logs += scope.log_records
        elif path == "/v1/metrics":
            for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                for scope in resource.scope_metrics:
                    for metric in scope.metrics:
                        data = metric.histogram if metric.HasField("histogram") else metric.sum
                        self.metrics[metric.name] = list(data.data_points)  # cumulative: the last holds

    def total(self, name: str, **wanted: Any) -> float:
        points = [
            point
            for point in self.metrics.get(name, [])
            if wanted.items() <= {key.replace(".", "_"): value for key, value in attributes(point).items()}.items()
        ]
        return sum(point.count if hasattr(point, "bucket_counts") else point.as_int for point in points)


def attributes(holder: Any) -> dict[str, Any]:
    found = {}
    for item in holder.attributes:
        kind = item.value.WhichOneof("value")
        value = getattr(item.value, kind)
        found[item.key] = [v.string_value for v in value.values] if kind == "array_value" else value
    return found


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def dead() -> Iterator[str]:
    """An endpoint that takes connections and says nothing."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


PARENT = "b7ad6b7169203331"


def test_a_request_as_spans(collector: Collector, make: Make) -> None:
    record = make(1, parent_span_id=PARENT, trace_state="vendor=x", outcome="failed", error_code="collapsed")
    telemetry = Telemetry(collector.endpoint, "guard-of-tests")
    telemetry.observe(record)
    telemetry.shutdown()
    assert collector.services == {"guard-of-tests"}
    whole = next(span for span in collector.spans if span.span_id.hex() == record.span_id)
    tries = [span for span in collector.spans if span is not whole]
    assert len(tries) == 2
    assert {span.trace_id.hex() for span in collector.spans} == {record.trace_id}
    assert whole.parent_span_id.hex() == PARENT
    assert whole.trace_state == "vendor=x"
    assert (whole.name, whole.kind) == ("chat small", 2)  # SPAN_KIND_SERVER
    assert whole.end_time_unix_nano - whole.start_time_unix_nano == 120_500_000
    assert abs(whole.start_time_unix_nano - record.started_at * 1e9) < 1e4
    told = attributes(whole)
    assert told["gen_ai.operation.name"] == "chat"
    assert told["gen_ai.request.model"] == "small"
    assert told["gen_ai.response.finish_reasons"] == ["stop"]
    assert (told["gen_ai.usage.input_tokens"], told["gen_ai.usage.output_tokens"]) == (11, 22)
    assert told["error.type"] == "collapsed"
    assert told["outguard.recovered"] is True
    assert whole.status.code == 2

    first = next(span for span in tries if attributes(span)["outguard.attempt"] == 1)
    assert first.span_id.hex() == attempt_span_id(record.span_id, 0, 1)
    assert first.parent_span_id.hex() == record.span_id
    assert first.kind == 3  # SPAN_KIND_CLIENT
    told = attributes(first)
    assert (told["server.address"], told["server.port"]) == ("10.0.0.1", 8000)
    assert (told["gen_ai.provider.name"], told["outguard.engine.image"]) == ("vllm", "img:1.2")
    assert told["error.type"] == "repetition.token"
    assert told["outguard.contradictions"] == ["json_schema:schema.required"]
    assert [attributes(event)["outguard.finding.code"] for event in first.events] == [
        "repetition.token",
        "json.truncated",
    ]
    second = next(span for span in tries if span is not first)
    assert second.status.code == 0
    assert attributes(second)["outguard.resumed_at"] == 20
    for text in (record.output_text, record.request_body, record.attempts[0].output_text, "14 times"):
        assert text.encode() not in collector.bytes


def test_the_sums(collector: Collector, make: Make) -> None:
    telemetry = Telemetry(collector.endpoint)
    for number in range(4):
        telemetry.observe(make(number))
    telemetry.observe(make(9, outcome="failed", error_code="collapsed", recovered=False, attempts=[]))
    telemetry.observe(OutcomeRecord("t", "c", 1.0, False, "no such row"))
    telemetry.observe(LossRecord("0", "disk", 17, 1.0, 2.0))
    telemetry.shutdown()
    assert collector.total("outguard.requests") == 5
    assert collector.total("outguard.requests", outguard_outcome="failed") == 1
    assert collector.total("outguard.recoveries") == 4
    assert collector.total("outguard.attempts", outguard_engine="primary", outguard_outcome="condemned") == 4
    assert collector.total("outguard.findings", outguard_finding_code="repetition.token") == 4
    assert collector.total("outguard.contradictions", outguard_engine="primary") == 4
    assert collector.total("outguard.wasted_tokens") == 15
    assert collector.total("outguard.lost_records", outguard_reason="disk") == 17
    assert collector.total("outguard.tool_executions", outguard_ok=False) == 1
    assert collector.total("gen_ai.client.operation.duration") == 8
    assert collector.total("gen_ai.client.operation.duration", error_type="repetition.token") == 4
    assert collector.total("gen_ai.server.request.duration") == 5
    assert collector.total("gen_ai.server.time_to_first_token") == 5
    assert collector.total("gen_ai.client.token.usage", gen_ai_token_type="output", outguard_engine="primary") == 4
    assert b"no such row" not in collector.bytes


def test_what_went_wrong_is_logged_beside_the_spans(collector: Collector, make: Make) -> None:
    record = make(1, outcome="failed", error_code="collapsed", recovered=False)
    telemetry = Telemetry(collector.endpoint, "guard-of-tests")
    telemetry.observe(record)
    telemetry.observe(OutcomeRecord(record.trace_id, "call", 5.0, False, "no such row"))
    telemetry.observe(LossRecord("0", "disk", 17, 1.0, 2.0))
    telemetry.observe(ScrapeRecord(1.0, "primary", "b", []))
    telemetry.shutdown()
    told = [(log.event_name, log.severity_text, log.span_id.hex()) for log in collector.logs]
    first = attempt_span_id(record.span_id, 0, 1)
    assert told == [
        ("outguard.finding", "ERROR", first),
        ("outguard.finding", "WARN", first),
        ("outguard.contradiction", "ERROR", first),
        ("outguard.attempt.failed", "WARN", first),
        ("outguard.request.failed", "ERROR", record.span_id),
        ("outguard.execution.failed", "WARN", ""),
        ("outguard.records.lost", "ERROR", ""),
    ]
    assert {log.trace_id.hex() for log in collector.logs} == {record.trace_id, ""}
    assert {span.span_id.hex() for span in collector.spans} >= {first, record.span_id}
    assert attributes(collector.logs[0])["outguard.engine.image"] == "img:1.2"
    assert collector.logs[4].time_unix_nano == round((record.started_at + 0.1205) * 1e6) * 1000
    for text in (record.output_text, record.request_body, record.attempts[0].output_text, "14 times", "no such row"):
        assert text.encode() not in collector.bytes


def test_a_request_that_ended_well_says_nothing() -> None:
    plain = RequestRecord("1" * 32, "r", 1.0, span_id="2" * 16, attempts=[AttemptRecord(0, 1, "e")])
    assert events(plain) == []
    assert events(OutcomeRecord("1" * 32, "call", 1.0, True)) == []
    plain.recovered, plain.attempts_made = True, 2
    assert [event.name for event in events(plain)] == ["outguard.request.recovered"]


@pytest.mark.parametrize("trace_id", ["", "0" * 32, "nonsense"])
def test_events_without_a_trace_are_told_all_the_same(trace_id: str, make: Make) -> None:
    found = events(make(1, trace_id=trace_id))
    assert len(found) == 5
    assert {(event.trace_id, event.span_id) for event in found} == {("", "")}


def test_the_names_are_the_conventions() -> None:
    """Every ``gen_ai`` name that is used is one of the semantic conventions that are installed."""
    known = {
        value
        for module in (gen_ai_attributes, gen_ai_metrics)
        for value in vars(module).values()
        if isinstance(value, str)
    }
    used = set()
    for name in ("spans", "otel", "events"):
        used |= set(re.findall(r'"(gen_ai\.[a-z_.]+)"', Path(f"{trace.__path__[0]}/{name}.py").read_text()))
    assert len(used) > 15
    assert used <= known, used - known


def test_a_caller_who_wants_no_spans_gets_none(make: Make) -> None:
    assert len(spans(make(1))) == 3
    assert spans(make(1, sampled=False)) == []
    assert spans(make(1, trace_id="", span_id="")) == []
    assert spans(make(1, trace_id="0" * 32)) == []
    assert spans(make(1, parent_span_id="nonsense"))[0].parent_span_id == ""


def test_numbers_that_no_span_can_hold(collector: Collector, make: Make) -> None:
    telemetry = Telemetry(collector.endpoint)
    odd = make(1, seed=2**64 - 1, max_tokens=-1, started_at=0.0, duration_ms=-5.0, trace_state="no,,state==")
    telemetry.observe(odd)
    telemetry.shutdown()
    assert len(collector.spans) == 3


@pytest.mark.parametrize("kind", ["silent", "refused"])
def test_a_dead_endpoint_does_not_hold_the_end_up(
    kind: str, dead: str, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "opentelemetry")
    telemetry = Telemetry(dead if kind == "silent" else "http://127.0.0.1:1")
    began = time.process_time()
    for number in range(50):
        telemetry.observe(make(number))
    assert time.process_time() - began < 1.0
    waited = time.monotonic()
    telemetry.shutdown()
    assert time.monotonic() - waited < SHUTDOWN_SECONDS + 1.0


def test_the_writer_tells_while_the_store_is_away(
    tmp_path: Path, make: Make, collector: Collector, start_writer: Callable[..., subprocess.Popen[bytes]]
) -> None:
    spool = Spool(tmp_path)
    spool.write(make(1))
    process = start_writer("http://127.0.0.1:1/evidence", tmp_path, "--otlp", collector.endpoint)
    _until(lambda: len(collector.spans) == 3)
    spool.write(make(2))
    _until(lambda: len(collector.spans) == 6)
    process.terminate()
    assert process.wait(20) == 0
    assert collector.total("outguard.requests") == 2


async def test_telemetry_without_a_store_empties_the_spool(tmp_path: Path, make: Make, collector: Collector) -> None:
    tracing = Tracing("none", tmp_path, otlp_endpoint=collector.endpoint, service_name="edge")
    await tracing.start()
    for number in range(3):
        tracing.write(make(number))
    await tracing.aclose()
    assert collector.services == {"edge"}
    assert len(collector.spans) == 9
    assert Drain(tmp_path).tails() == {}


async def test_a_dead_endpoint_does_not_hold_the_sidecar_up(tmp_path: Path, make: Make, dead: str) -> None:
    tracing = Tracing("none", tmp_path, otlp_endpoint=dead)
    await tracing.start()
    tracing.write(make(1))
    began = time.monotonic()
    await tracing.aclose()
    assert time.monotonic() - began < 9


def _until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)
