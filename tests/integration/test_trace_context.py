"""W3C trace context, in and out, in both protocols: the engine hears the caller's trace, and a span of our own."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from sidecar_process import ASK, Played, Sidecar

from guard.client_messages import build_request
from guard.trace.context import attempt_span_id
from guard.trace.record import RequestRecord
from guard.v1 import guard_pb2_grpc

Stage = tuple[Sidecar, Played, Played]
STATE = "vendor=a1,other=b2"


def over_http(sidecar: Sidecar, headers: dict[str, str]) -> None:
    assert sidecar.post({"model": "one"}, **headers).status == 200


def over_grpc(sidecar: Sidecar, headers: dict[str, str]) -> None:
    with grpc.insecure_channel(sidecar.grpc) as channel:
        call = guard_pb2_grpc.GuardStub(channel).Generate(
            build_request("one", ASK), timeout=20, metadata=list(headers.items())
        )
        assert list(call)


@pytest.mark.parametrize("ask", [over_http, over_grpc])
@pytest.mark.parametrize("sampled", [True, False])
def test_a_callers_trace_goes_on(stage: Stage, ask: Callable[[Sidecar, dict[str, str]], None], sampled: bool) -> None:
    sidecar, engine, _ = stage
    trace_id, parent = secrets.token_hex(16), secrets.token_hex(8)
    ask(sidecar, {"traceparent": f"00-{trace_id}-{parent}-0{int(sampled)}", "tracestate": STATE})
    record: RequestRecord = sidecar.trace(trace_id)
    assert (record.trace_id, record.parent_span_id) == (trace_id, parent)
    assert (record.sampled, record.trace_state) == (sampled, STATE)
    heard = engine.heads[-1]
    span = attempt_span_id(record.span_id, 0, 1)
    assert heard["traceparent"] == f"00-{trace_id}-{span}-0{int(sampled)}"
    assert heard["tracestate"] == STATE
    rows: list[dict[str, Any]] = sidecar.reader.query(
        "SELECT SpanId AS id, ParentSpanId AS parent FROM otel_traces WHERE TraceId = {t:String} ORDER BY SpanKind",
        {"t": trace_id},
    )
    if sampled:
        assert {(row["id"], row["parent"]) for row in rows} == {(record.span_id, parent), (span, record.span_id)}
    else:
        assert rows == []


@pytest.mark.parametrize("ask", [over_http, over_grpc])
def test_without_one_a_trace_begins_here(stage: Stage, ask: Callable[[Sidecar, dict[str, str]], None]) -> None:
    sidecar, engine, _ = stage
    ask(sidecar, {"traceparent": "00-nonsense-01"})
    version, trace_id, span, flags = engine.heads[-1]["traceparent"].split("-")
    record = sidecar.trace(trace_id)
    assert (version, flags, record.parent_span_id) == ("00", "01", "")
    assert span == attempt_span_id(record.span_id, 0, 1)
