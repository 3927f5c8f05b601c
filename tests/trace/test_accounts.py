"""Counting what the store has against what was given to it: every way in which the two can differ is named."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from guard.trace.accounts import KEPT_SECONDS, Difference, verify
from guard.trace.delivery import Delivery
from guard.trace.drain import Drain
from guard.trace.memory import MemoryStore
from guard.trace.record import RequestRecord
from guard.trace.spool import Spool

Make = Callable[..., RequestRecord]


class Counting(MemoryStore):
    """Answers the two questions that are asked here, from its rows. ``gone``: how many were erased, by table and
    segment."""

    def __init__(self) -> None:
        super().__init__()
        self.gone: dict[tuple[str, str], int] = {}

    def query(self, sql: str, params: Mapping[str, Any] | None = None, *, limit: int = 10_000) -> list[dict[str, Any]]:
        assert params is not None
        table = sql.partition(" FROM ")[2].split()[0]
        if table == "erasures":
            found_gone = {segment: n for (name, segment), n in self.gone.items() if name == params["table"]}
            return [{"segment": segment, "places": places} for segment, places in found_gone.items()]
        lengths = dict(zip(params["segments"], params["lengths"], strict=True))
        found: dict[str, list[tuple[int, int]]] = {}
        for row in self._rows.get(table, []):
            if row["spool_offset"] < lengths.get(row["spool_segment"], 0):
                found.setdefault(row["spool_segment"], []).append((row["spool_offset"], row["spool_row"]))
        return [{"segment": key, "rows": len(at), "places": len(set(at))} for key, at in found.items()]


@pytest.fixture
def stored(tmp_path: Path, make: Make) -> Counting:
    """Seven requests in three batches: two segments that are done, and half of one that is under way."""
    spool, store = Spool(tmp_path, segment_bytes=4_000), Counting()
    drain = Drain(tmp_path)
    for number in range(7):
        spool.write(make(number))
        if number == 5:
            deliver(drain, store, tmp_path)
    return store


def deliver(drain: Drain, store: Counting, root: Path) -> None:
    delivery = Delivery(store, root / "aside")
    for batch in drain.batches():
        drain.begin(batch)
        drain.commit(batch, *delivery.send(delivery.prepare(batch)))


def test_all_is_there_once(stored: Counting, tmp_path: Path) -> None:
    found = verify(stored, tmp_path)
    assert found.differences == []
    assert (found.requests, found.rows) == (6, 6 * 5)
    assert found.segments >= 2


@pytest.mark.parametrize("table", ["requests", "attempts", "findings"])
def test_a_row_that_is_lost_or_doubled(stored: Counting, tmp_path: Path, table: str) -> None:
    gone = stored._rows[table].pop(1)
    (found,) = verify(stored, tmp_path).differences
    assert (found.segment, found.table, found.missing, found.doubled) == (gone["spool_segment"], table, 1, 0)
    stored._rows[table] += [gone, gone]
    (found,) = verify(stored, tmp_path).differences
    assert (found.missing, found.doubled) == (0, 1)
    stored._rows[table].pop()
    assert verify(stored, tmp_path).differences == []


def test_what_was_erased_is_not_missing(stored: Counting, tmp_path: Path) -> None:
    gone = stored._rows["requests"].pop(1)
    stored.gone["requests", gone["spool_segment"]] = 1
    assert verify(stored, tmp_path).differences == []
    stored._rows["requests"].append(gone)  # cut off before the row went
    (found,) = verify(stored, tmp_path).differences
    assert (found.expected, found.rows) == (0, 1)


def test_a_doubled_row_does_not_hide_a_lost_one(stored: Counting, tmp_path: Path) -> None:
    rows = stored._rows["requests"]
    rows[1] = dict(rows[0])
    found = verify(stored, tmp_path).differences
    assert (sum(one.missing for one in found), sum(one.doubled for one in found)) == (1, 1)


def test_what_comes_meanwhile_is_no_difference(stored: Counting, tmp_path: Path) -> None:
    late = dict(stored._rows["requests"][-1], spool_offset=10**9)
    stored._rows["requests"].append(late)
    assert verify(stored, tmp_path).differences == []


def test_nothing_is_claimed_of_what_has_expired(stored: Counting, tmp_path: Path) -> None:
    stored._rows.clear()
    now = next(iter(verify(stored, tmp_path).differences))
    assert isinstance(now, Difference)
    later = verify(stored, tmp_path, now=4e9)
    assert later.segments == 1  # the one under way
    assert KEPT_SECONDS < 90 * 86_400
