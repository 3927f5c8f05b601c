"""Finished requests, counted: additions to plain dictionaries while they come, series only when the page is asked for.

The counters of prometheus_client take a lock and look at their labels at every addition, which is a third of what
evidence would cost a request.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate
from typing import Final

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from guard.trace.record import RequestRecord

SECONDS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0)
"""The buckets of durations: finest where a first token is at home, and as far as long answers go."""

_LIMITS: Final = (*map(floatToGoString, SECONDS), "+Inf")

_COUNTERS: Final = {
    "outguard_requests": ("Finished requests.", ("model", "protocol", "outcome")),
    "outguard_attempts": ("Tries on engines.", ("engine", "outcome", "action")),
    "outguard_findings": ("What was found.", ("code", "engine")),
    "outguard_contradictions": ("Constraints that an engine accepted and broke.", ("engine",)),
    "outguard_recoveries": ("Answers that were completed after a failed attempt.", ("model",)),
    "outguard_format_verdicts": ("Format.", ("model", "verdict")),
    "outguard_tokens": ("Tokens; wasted: of attempts that were thrown away.", ("model", "kind")),
}


class _Durations:
    """A histogram by model."""

    def __init__(self) -> None:
        self.counts: dict[str, list[int]] = {}
        self.sums: dict[str, float] = {}

    def add(self, model: str, seconds: float) -> None:
        counts = self.counts.get(model)
        if counts is None:
            counts = self.counts[model] = [0] * len(_LIMITS)
            self.sums[model] = 0.0
        counts[bisect_left(SECONDS, seconds)] += 1
        self.sums[model] += seconds

    def family(self, name: str, help_: str) -> Metric:
        made = HistogramMetricFamily(name, help_, labels=("model",))
        for model, counts in self.counts.items():
            buckets = list(zip(_LIMITS, map(float, accumulate(counts)), strict=True))
            made.add_metric((model,), buckets, self.sums[model])
        return made


class Tally(Collector):
    def __init__(self) -> None:
        self._counts: dict[str, dict[tuple[str, ...], int]] = {name: {} for name in _COUNTERS}
        (
            self._requests,
            self._attempts,
            self._findings,
            self._contradictions,
            self._recoveries,
            self._verdicts,
            self._tokens,
        ) = self._counts.values()
        self._duration = _Durations()
        self._first_token = _Durations()

    def add(self, record: RequestRecord) -> None:
        """One finished request."""
        attempts = record.attempts
        model = "" if record.outcome == "invalid" or record.protocol == "check" else record.model
        _add(self._requests, (model, record.protocol, record.outcome))
        self._duration.add(model, record.duration_ms / 1e3)
        if record.first_token_ms:
            self._first_token.add(model, record.first_token_ms / 1e3)
        if record.prompt_tokens > 0:
            _add(self._tokens, (model, "prompt"), record.prompt_tokens)
        if record.completion_tokens > 0:
            _add(self._tokens, (model, "completion"), record.completion_tokens)
        if record.wasted_tokens > 0:
            _add(self._tokens, (model, "wasted"), record.wasted_tokens)
        if record.recovered:
            _add(self._recoveries, (model,))
        if record.verdict_format != "none":
            _add(self._verdicts, (model, record.verdict_format))
        for attempt in attempts:
            _add(self._attempts, (attempt.engine, attempt.outcome, attempt.action))
            if attempt.contradictions:
                _add(self._contradictions, (attempt.engine,))
            for finding in attempt.findings:
                _add(self._findings, (finding.code, attempt.engine))

    def collect(self) -> Iterator[Metric]:
        for name, (help_, labels) in _COUNTERS.items():
            made = CounterMetricFamily(name, help_, labels=labels)
            for values, count in self._counts[name].items():
                made.add_metric(values, count)
            yield made
        yield self._duration.family("outguard_request_duration_seconds", "Whole requests.")
        yield self._first_token.family("outguard_first_token_seconds", "To the first token.")


def _add(counts: dict[tuple[str, ...], int], labels: tuple[str, ...], more: int = 1) -> None:
    counts[labels] = counts.get(labels, 0) + more
