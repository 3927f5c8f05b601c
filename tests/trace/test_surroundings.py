"""What an engine went through while an attempt ran: joined by engine and time, counters as their rise."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from guard.trace.clickhouse import ClickHouseStore, ServerReader
from guard.trace.delivery import Delivery
from guard.trace.drain import Drain
from guard.trace.record import AttemptRecord, EngineSample, RequestRecord, ScrapeRecord
from guard.trace.spool import Spool
from guard.trace.store import parse_dsn
from guard.trace.surroundings import MOVING, Sampled, summarise, surroundings

NOW = float(int(time.time()) // 60 * 60 - 3_600)
"""The beginning of a minute, an hour ago."""

README = Path(__file__).parents[2] / "deploy" / "clickhouse" / "README.md"


def attempt(**changes: Any) -> AttemptRecord:
    given = {"choice": 0, "attempt": 1, "engine": "a", "cluster": "east", "started_at": NOW, "duration_ms": 20_000.0}
    return AttemptRecord(**{**given, **changes})


def test_gauges_and_counters() -> None:
    found = summarise(
        attempt(),
        [
            Sampled(1, "kv_cache_usage", "x", 0.5),
            Sampled(1, "requests_waiting", "x", 2),
            Sampled(1, "requests_waiting", "y", 3),
            Sampled(1, "kv_transfers_total", "x", 100),
            Sampled(2, "kv_cache_usage", "x", 0.9),
            Sampled(2, "requests_waiting", "x", 4),
            Sampled(2, "kv_transfers_total", "x", 103),
            Sampled(2, "kv_transfers_total", "y", 50),
            Sampled(3, "kv_transfers_total", "x", 2),
            Sampled(3, "kv_transfers_total", "y", 51),
        ],
    )
    assert (found.kv_cache_low, found.kv_cache_high, found.waiting) == (0.5, 0.9, 5)
    assert found.transfers == 3 + 2 + 1  # x rose by three and began afresh, y rose by one
    assert (found.running, found.preemptions, found.prefix_hit_rate) == (None, None, None)


@pytest.fixture
def reader(server: Any, tmp_path: Path) -> Iterator[ServerReader]:
    """Four attempts, of which one was slow and wrong while blocks were moving on its engine."""
    target = parse_dsn(server.dsn("surroundings"))
    store = ClickHouseStore(target)
    store.migrate()
    spool = Spool(tmp_path / "spool")
    slow = {"outcome": "condemned", "error_kind": "repetition.token", "inter_token_max_ms": 900.0}
    for number, made in enumerate(
        (
            attempt(**slow),
            attempt(inter_token_max_ms=900.0),  # slow and right
            attempt(**slow, engine="b"),  # slow and wrong, and its cache stood still
            attempt(**slow, started_at=NOW + 600),  # and this one came later
        )
    ):
        spool.write(RequestRecord(f"{number + 1:032x}", f"r{number}", NOW, attempts=[made]))
    for step in range(7):
        at = NOW + 10.0 * step
        moving = [
            EngineSample("kv_cache_usage", 0.5 + 0.05 * step, {"__name__": "vllm:kv_cache_usage_perc"}),
            EngineSample("kv_transfers_total", 100.0 + step, {"__name__": "vllm:nixl_xfer_time_seconds_count"}),
            EngineSample("vllm:whatever", 1.0, {}),
        ]
        spool.write_scrape(ScrapeRecord(at, "a", "east", moving))
        spool.write_scrape(ScrapeRecord(at, "b", "east", [EngineSample("kv_cache_usage", 0.5, {})]))
    spool.close()
    drain = Drain(tmp_path / "spool")
    delivery = Delivery(store, tmp_path / "aside")
    for batch in drain.batches():
        delivery.send(delivery.prepare(batch))
    assert delivery.refused == 0
    store.close()
    with ServerReader(target, tmp_path / "spool") as found:
        yield found
        ClickHouseStore(target)._client.command("DROP DATABASE surroundings")


def test_an_attempt_and_what_its_engine_said_meanwhile(reader: ServerReader) -> None:
    (one,) = surroundings(reader, [attempt()])
    assert (one.engine, one.kv_cache_low, one.transfers) == ("a", 0.5, 3.0)
    assert one.kv_cache_high == pytest.approx(0.65)
    assert surroundings(reader, [attempt(started_at=NOW + 7_200), attempt(cluster="west")]) == []


def test_slow_and_wrong_while_the_cache_was_moving(reader: ServerReader) -> None:
    (found,) = reader.query(MOVING, {"since": round((NOW - 60) * 1e3), "slow_ms": 500.0})
    assert (found["trace_id"], found["engine"], found["error_kind"]) == (f"{1:032x}", "a", "repetition.token")
    assert found["kv_transfers"] == 5  # within the minute of the attempt
    assert found["kv_cache_swing"] == pytest.approx(0.25)
    assert reader.query(MOVING, {"since": round((NOW - 60) * 1e3), "slow_ms": 1_000.0}) == []


def test_the_query_is_the_one_that_operators_are_given() -> None:
    given = " ".join(README.read_text().split())
    assert " ".join(MOVING.split()) in given
