"""What views make of the rows: spans with the collector's names, and counts by the minute. Each follows its source: the
same batch twice counts once, and the spans are those that go out over OTLP."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import pytest

from guard.trace.clickhouse import ClickHouseStore
from guard.trace.context import attempt_span_id
from guard.trace.erase import Selection
from guard.trace.record import AttemptRecord, RequestRecord
from guard.trace.rows import rows
from guard.trace.spans import SpanData, spans
from guard.trace.store import parse_dsn

Make = Callable[..., RequestRecord]
_databases = (f"derived_{n}" for n in itertools.count())


@pytest.fixture
def store(server: Any) -> Iterator[ClickHouseStore]:
    made = ClickHouseStore(parse_dsn(server.dsn(next(_databases))))
    made.migrate()
    yield made
    made.close()


def put(store: ClickHouseStore, records: Sequence[RequestRecord], token: str = "t") -> None:
    copies = msgspec.msgpack.decode(
        msgspec.msgpack.encode(records), type=list[RequestRecord]
    )  # rows() takes them apart
    for table, some in rows(enumerate(copies), "s").items():
        store.insert(table, some, token)


def several(make: Make) -> list[RequestRecord]:
    """Every way in which a span's attributes can be there or not."""
    bare = AttemptRecord(choice=1, attempt=1, engine="", endpoint="unix", outcome="fault")
    busy = AttemptRecord(choice=0, attempt=1, engine="e", endpoint="[::1]:80", error_status=503, error_kind="open.busy")
    return [
        make(1, service="edge", guard_version="9.9"),
        make(
            2, kind="completion", temperature=1.0, top_p=0.1, seed=2**64 - 1, max_tokens=-1, choices=3, attempts=[bare]
        ),
        make(3, outcome="failed", error_code="engines_failed", finish_reason="stop,length,", attempts=[busy]),
        make(4, outcome="cancelled", finish_reason="", parent_span_id="b" * 16, trace_state="a=1", first_token_ms=0.0),
        make(5, outcome="ok", error_code="odd", model="", attempts=[]),
        make(6, sampled=False),
        make(7, span_id=""),
        make(8, trace_id="short"),
    ]


def as_text(value: Any) -> str:
    """As the collector writes an attribute."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.15g}"
    return json.dumps(value, separators=(",", ":")) if isinstance(value, list) else str(value)


def row_of(span: SpanData, record: RequestRecord) -> dict[str, Any]:
    attributes = span.attributes | ({"error.type": span.error} if span.error else {})
    return {
        "at": span.start_ns,
        "TraceId": span.trace_id,
        "SpanId": span.span_id,
        "ParentSpanId": span.parent_span_id,
        "TraceState": span.trace_state,
        "SpanName": span.name,
        "SpanKind": span.kind.title(),
        "ServiceName": record.service,
        "ResourceAttributes": {"service.name": record.service, "service.version": record.guard_version},
        "SpanAttributes": {name: as_text(value) for name, value in sorted(attributes.items())},
        "Duration": span.end_ns - span.start_ns,
        "StatusCode": "Error" if span.error else "Unset",
        "events": [[e.name, e.at_ns, {k: as_text(v) for k, v in sorted(e.attributes.items())}] for e in span.events],
    }


def test_spans_are_those_that_go_out_over_otlp(store: ClickHouseStore, make: Make) -> None:
    records = several(make)
    put(store, records)
    wanted = [row_of(span, record) for record in records for span in spans(record)]
    found = store.query(
        "SELECT toUnixTimestamp64Nano(Timestamp) AS at, TraceId, SpanId, ParentSpanId, TraceState, SpanName, SpanKind, "
        "ServiceName, ResourceAttributes, mapSort(SpanAttributes) AS SpanAttributes, Duration, StatusCode, "
        "arrayMap((name, when, what) -> (name, toUnixTimestamp64Nano(when), mapSort(what)), "
        "Events.Name, Events.Timestamp, Events.Attributes) AS events FROM otel_traces"
    )
    key = lambda row: (row["TraceId"], row["SpanId"])  # noqa: E731
    assert sorted(found, key=key) == sorted(wanted, key=key)
    assert len(found) == 11


def test_a_trace_is_found_in_time(store: ClickHouseStore, make: Make) -> None:
    record = make(1)
    put(store, [record, make(2)])
    (row,) = store.query(
        "SELECT min(Start) AS s, max(End) AS e, toUnixTimestamp(s) AS start FROM otel_traces_trace_id_ts "
        "WHERE TraceId = {id:String}",
        {"id": record.trace_id},
    )
    assert row["start"] == int(record.started_at)


def test_an_attempt_has_the_span_that_its_engine_was_sent(store: ClickHouseStore, make: Make) -> None:
    record = make(1)
    put(store, [record])
    found = store.query("SELECT attempt, span_id, request_span_id, finding_codes FROM attempts ORDER BY attempt")
    assert found == [
        {
            "attempt": number,
            "span_id": attempt_span_id(record.span_id, 0, number),
            "request_span_id": record.span_id,
            "finding_codes": codes,
        }
        for number, codes in ((1, ["repetition.token", "json.truncated"]), (2, []))
    ]


COUNTS = {
    "attempts_per_minute": "sum(attempts) AS n, sum(ok) AS ok, sum(condemned) AS bad, sum(contradicted) AS broken, "
    "quantilesTDigestMerge(0.5, 0.9, 0.99)(first_token_ms)[1] AS p50",
    "requests_per_minute": "sum(requests) AS n, sum(recovered) AS recovered, sum(wasted_tokens) AS wasted",
    "findings_per_minute": "sum(findings) AS n, uniqExact(code) AS codes",
}


def test_counts_by_the_minute(store: ClickHouseStore, make: Make) -> None:
    records = [make(n, attempts=make(n).attempts if n % 2 else []) for n in range(10)]
    for _ in range(3):  # the same batch: once
        put(store, records, "first")
    put(store, [make(n) for n in range(10, 12)], "second")
    found = {table: store.query(f"SELECT {what} FROM {table}")[0] for table, what in COUNTS.items()}
    assert found == {
        "attempts_per_minute": {"n": 14, "ok": 7, "bad": 7, "broken": 7, "p50": 12.25},
        "requests_per_minute": {"n": 12, "recovered": 12, "wasted": 36},
        "findings_per_minute": {"n": 14, "codes": 2},
    }
    assert store.query("SELECT count() AS n FROM otel_traces") == [{"n": 26}]


def test_counts_that_outlive_an_erasure_hold_nothing_that_a_caller_wrote(store: ClickHouseStore, make: Make) -> None:
    """Whatever a caller can put words in, also where all content is kept, and after everything else is erased."""
    words = "the-caller's own words"
    names = ("trace_id", "request_id", "trace_state", "tenant", "error_message", "request_body", "output_text")
    texts = dict.fromkeys(names, words)
    unserved = make(1, **texts, model=words, outcome="invalid", error_code="model_not_found", attempts=[])
    wrong = make(2, **texts, model=words, outcome="invalid", error_code="invalid_request", attempts=[])
    served = make(3, **texts)
    for attempt in served.attempts:
        attempt.output_text = attempt.error_message = words
        for finding in attempt.findings:
            finding.message = words
    put(store, [unserved, wrong, served])
    for table in COUNTS:
        found = store.query(f"SELECT * EXCEPT('_ms$') FROM {table}")
        assert found
        assert words not in str(found)
    assert store.query("SELECT model, sum(requests) AS n FROM requests_per_minute GROUP BY model ORDER BY model") == [
        {"model": "other", "n": 2},
        {"model": "small", "n": 1},
    ]
    erased = store.erase(Selection(tenant=words))
    assert erased.rows["requests"] == 3
    assert store.query("SELECT sum(requests) AS n FROM requests_per_minute") == [{"n": 3}]


def test_what_a_killed_server_left_out_of_a_view_is_made_up_for(store: ClickHouseStore, make: Make) -> None:
    """The rows are there, the views' are not: as after a kill between the two. The batch, sent again, completes it."""
    put(store, [make(1), make(2)])
    for table in (*COUNTS, "otel_traces"):
        store._client.command(f"TRUNCATE TABLE {table}")
        store._client.command(f"ALTER TABLE {table} MODIFY SETTING non_replicated_deduplication_window = 0")
        store._client.command(f"ALTER TABLE {table} MODIFY SETTING non_replicated_deduplication_window = 10000")
    put(store, [make(1), make(2)])
    assert store.query("SELECT count() AS n FROM requests") == [{"n": 2}]
    assert store.query("SELECT count() AS n FROM otel_traces") == [{"n": 6}]
    assert store.query("SELECT sum(attempts) AS n FROM attempts_per_minute") == [{"n": 4}]
