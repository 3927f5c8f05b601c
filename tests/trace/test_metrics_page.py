"""The pages of several workers as one page."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from guard.trace.metrics_page import merged

HARD = 'a "quoted" {brace} \\ and\nline'


def _page(count: int) -> bytes:
    registry = CollectorRegistry()
    Counter("asked", "Asked.", ("model",), registry=registry).labels(HARD).inc(count)
    Gauge("alive", "With {braces} in its help.", registry=registry).set(count)
    Histogram("took", "Seconds.", ("model",), buckets=(1.0,), registry=registry).labels("m").observe(count)
    return generate_latest(registry)


def test_every_sample_of_every_worker_is_there_once_and_says_whose_it_is() -> None:
    pages = {"0": _page(2), "1": _page(5)}
    families = list(text_string_to_metric_families(merged(pages).decode()))
    names = [family.name for family in families]
    assert len(names) == len(set(names))
    found = {(sample.name, *sorted(sample.labels.items()), sample.value) for one in families for sample in one.samples}
    alone = {
        (sample.name, *sorted({**sample.labels, "worker": worker}.items()), sample.value)
        for worker, page in pages.items()
        for one in text_string_to_metric_families(page.decode())
        for sample in one.samples
    }
    assert found == alone
    assert ("alive", ("worker", "1"), 5.0) in found
    kinds = {family.name: family.type for family in families}
    assert kinds["asked"] == "counter"
    assert kinds["took"] == "histogram"


def test_none_is_an_empty_page() -> None:
    assert merged({}) == b""
