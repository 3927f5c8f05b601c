"""What the engines were going through while an attempt ran, by what they said of themselves at that time.

Samples and attempts are joined by the engine's name, its cluster and the time, which is one clock's: the same machine
scrapes and records. What a sample says holds until the next; so those from one interval before an attempt to one after
it are looked at. Counters are taken as their rise over that time, and a counter that fell has begun afresh.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from guard.trace import engine_metrics as em
from guard.trace.record import AttemptRecord
from guard.trace.store import TraceReader

MARGIN_SECONDS: Final = 15.0
"""Before and after an attempt: one and a half of the default interval between two samples."""

NAMES: Final = (
    em.KV_CACHE_USAGE,
    em.RUNNING,
    em.WAITING,
    em.PREEMPTIONS,
    em.TRANSFERS,
    em.TRANSFER_SECONDS,
    em.TRANSFER_BYTES,
    em.TRANSFER_FAILURES,
    em.PREFIX_HIT_RATE,
)

MOVING: Final = """
WITH
    samples AS (
        SELECT engine, cluster, intDiv(toUnixTimestamp(at), 60) AS minute, metric, labels,
            max(value) - min(value) AS moved, max(value) AS top
        FROM engine_metrics
        WHERE metric IN ('kv_cache_usage', 'kv_transfers_total', 'preemptions_total', 'requests_waiting')
            AND at >= fromUnixTimestamp64Milli({since:Int64}, 'UTC')
        GROUP BY engine, cluster, minute, metric, labels
    ),
    minutes AS (
        SELECT engine, cluster, minute,
            maxIf(moved, metric = 'kv_cache_usage') AS kv_cache_swing,
            maxIf(top, metric = 'kv_cache_usage') AS kv_cache_top,
            sumIf(moved, metric = 'kv_transfers_total') AS kv_transfers,
            sumIf(moved, metric = 'preemptions_total') AS preemptions,
            maxIf(top, metric = 'requests_waiting') AS waiting
        FROM samples GROUP BY engine, cluster, minute
        HAVING kv_transfers > 0 OR preemptions > 0 OR kv_cache_swing >= 0.05
    ),
    wrong AS (
        SELECT trace_id, choice, attempt, engine, cluster, image, started_at, duration_ms, inter_token_max_ms, outcome,
            error_kind, arrayJoin(range(intDiv(toUnixTimestamp(started_at), 60),
                intDiv(toUnixTimestamp(started_at) + toUInt32(duration_ms / 1000), 60) + 1)) AS minute
        FROM attempts
        WHERE started_at >= fromUnixTimestamp64Milli({since:Int64}, 'UTC') AND outcome NOT IN ('ok', 'cancelled')
            AND (inter_token_max_ms >= {slow_ms:Float64} OR first_token_ms >= {slow_ms:Float64})
    )
SELECT wrong.trace_id AS trace_id, wrong.choice AS choice, wrong.attempt AS attempt, wrong.engine AS engine,
    any(wrong.image) AS image, any(wrong.started_at) AS started_at, any(wrong.inter_token_max_ms) AS inter_token_max_ms,
    any(wrong.error_kind) AS error_kind, max(minutes.kv_cache_top) AS kv_cache_top,
    max(minutes.kv_cache_swing) AS kv_cache_swing, sum(minutes.kv_transfers) AS kv_transfers,
    sum(minutes.preemptions) AS preemptions, max(minutes.waiting) AS waiting
FROM wrong INNER JOIN minutes
    ON wrong.engine = minutes.engine AND wrong.cluster = minutes.cluster AND wrong.minute = minutes.minute
GROUP BY trace_id, choice, attempt, engine
ORDER BY started_at DESC
""".strip()
"""Attempts that were slow and wrong while their engine's KV cache was moving: blocks transferred, requests preempted,
or its use up or down by five hundredths within a minute of the attempt. ``since`` is Unix milliseconds."""


class Sampled(NamedTuple):
    """One sample; ``labels`` tell the series of a metric apart."""

    at: float
    metric: str
    labels: str
    value: float


class Surroundings(Struct):
    """Of one attempt. Fractions of one, seconds, bytes; None where the engine said nothing of it. ``samples``: how many
    this is made of."""

    choice: int
    attempt: int
    engine: str
    samples: int
    kv_cache_low: float | None = None
    kv_cache_high: float | None = None
    running: float | None = None
    waiting: float | None = None
    preemptions: float | None = None
    transfers: float | None = None
    transfer_seconds: float | None = None
    transfer_bytes: float | None = None
    transfer_failures: float | None = None
    prefix_hit_rate: float | None = None


def surroundings(reader: TraceReader, attempts: Sequence[AttemptRecord]) -> list[Surroundings]:
    """Of the attempts whose engine was scraped at their time. Raises StoreError."""
    found = []
    for attempt in attempts:
        first = attempt.started_at - MARGIN_SECONDS
        last = attempt.started_at + attempt.duration_ms / 1e3 + MARGIN_SECONDS
        rows = reader.query(
            "SELECT toUnixTimestamp64Milli(at) / 1000 AS at, metric, toString(labels) AS labels, value "
            "FROM engine_metrics WHERE engine = {engine:String} AND cluster = {cluster:String} "
            "AND metric IN {names:Array(String)} AND at >= fromUnixTimestamp64Milli({first:Int64}, 'UTC') "
            "AND at <= fromUnixTimestamp64Milli({last:Int64}, 'UTC') ORDER BY at LIMIT 10000",
            {
                "engine": attempt.engine,
                "cluster": attempt.cluster,
                "names": list(NAMES),
                "first": round(first * 1e3),
                "last": round(last * 1e3),
            },
        )
        if rows:
            samples = [Sampled(float(r["at"]), str(r["metric"]), str(r["labels"]), float(r["value"])) for r in rows]
            found.append(summarise(attempt, samples))
    return found


def summarise(attempt: AttemptRecord, samples: Sequence[Sampled]) -> Surroundings:
    """``samples`` in the order of their time."""
    of: dict[str, list[Sampled]] = {name: [] for name in NAMES}
    for sample in samples:
        of[sample.metric].append(sample)
    usage = [sample.value for sample in of[em.KV_CACHE_USAGE]]
    return Surroundings(
        choice=attempt.choice,
        attempt=attempt.attempt,
        engine=attempt.engine,
        samples=len(samples),
        kv_cache_low=min(usage, default=None),
        kv_cache_high=max(usage, default=None),
        running=_together(of[em.RUNNING]),
        waiting=_together(of[em.WAITING]),
        preemptions=_rise(of[em.PREEMPTIONS]),
        transfers=_rise(of[em.TRANSFERS]),
        transfer_seconds=_rise(of[em.TRANSFER_SECONDS]),
        transfer_bytes=_rise(of[em.TRANSFER_BYTES]),
        transfer_failures=_rise(of[em.TRANSFER_FAILURES]),
        prefix_hit_rate=max((sample.value for sample in of[em.PREFIX_HIT_RATE]), default=None),
    )


def _together(samples: Iterable[Sampled]) -> float | None:
    """The most that the series of a gauge were at one moment, added up: an engine has one for each of its parts."""
    at: dict[float, float] = {}
    for sample in samples:
        at[sample.at] = at.get(sample.at, 0.0) + sample.value
    return max(at.values(), default=None)


def _rise(samples: Iterable[Sampled]) -> float | None:
    """How much a counter's series rose, all together."""
    last: dict[str, float] = {}
    rise = 0.0
    for sample in samples:
        before = last.get(sample.labels)
        if before is not None:
            rise += sample.value - before if sample.value >= before else sample.value
        last[sample.labels] = sample.value
    return rise if last else None
