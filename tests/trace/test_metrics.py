"""The page for Prometheus."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client.parser import text_string_to_metric_families

from guard.trace.metrics import Metrics
from guard.trace.record import RequestRecord

Make = Callable[..., RequestRecord]


def samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    kind, body = metrics.page()
    assert kind.startswith("text/plain")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


def test_a_page(make: Make) -> None:
    metrics = Metrics()
    metrics.observe(make(1))
    metrics.observe(make(2, outcome="failed", recovered=False))
    metrics.outcome(False)
    metrics.in_flight(3)
    metrics.spool(1234, 34, 2, {"disk": 1})
    page = samples(metrics)

    def value(name: str, **labels: str) -> float:
        return page[name, tuple(sorted(labels.items()))]

    assert value("outguard_requests_total", model="small", protocol="http", outcome="ok") == 1
    assert value("outguard_requests_total", model="small", protocol="http", outcome="failed") == 1
    assert value("outguard_attempts_total", engine="primary", outcome="condemned", action="resume") == 2
    assert value("outguard_findings_total", code="repetition.token", engine="primary") == 2
    assert value("outguard_contradictions_total", engine="primary") == 2
    assert value("outguard_recoveries_total", model="small") == 1
    assert value("outguard_format_verdicts_total", model="small", verdict="ok") == 2
    assert value("outguard_tokens_total", model="small", kind="wasted") == 6
    assert value("outguard_first_token_seconds_count", model="small") == 2
    assert value("outguard_first_token_seconds_bucket", model="small", le="0.01") == 0
    assert value("outguard_first_token_seconds_bucket", model="small", le="0.025") == 2
    assert value("outguard_request_duration_seconds_sum", model="small") == 0.241
    assert value("outguard_tool_executions_total", ok="false") == 1
    assert value("outguard_requests_in_flight") == 3
    assert value("outguard_spool_bytes") == 1234
    assert value("outguard_spool_waiting_bytes") == 34
    assert value("outguard_lost_records", reason="disk") == 1


def test_a_callers_words_are_no_time_series(make: Make) -> None:
    metrics = Metrics()
    for number in range(100):
        metrics.observe(make(number, model=f"made up {number}", attempts=[], outcome="invalid"))
        metrics.observe(make(number, model=f"made up {number}", protocol="check"))
    page = samples(metrics)
    assert not any("made up" in str(key) for key in page)
    assert page["outguard_requests_total", (("model", ""), ("outcome", "invalid"), ("protocol", "http"))] == 100


def test_what_was_turned_away_is_counted_with_its_model(make: Make) -> None:
    metrics = Metrics()
    metrics.observe(make(1, attempts=[], outcome="failed", error_code="overloaded"))
    name = "outguard_requests_total"
    assert samples(metrics)[name, (("model", "small"), ("outcome", "failed"), ("protocol", "http"))] == 1
