"""Outcomes counted by cell and request, here and in the store."""

from __future__ import annotations

import subprocess
import sys

import pytest

from replay.counts import Count, counted, counts, counts_query, failing
from replay.observation import Cell
from tests.replay.answers import spoken

A, B = Cell("a", cluster="x"), Cell("b", cluster="y")


def test_runs_are_counted_by_cell_and_request() -> None:
    runs = [spoken("yes", A), spoken("no", A, correct=False), spoken("yes", B), spoken("", B, error="refused")]
    found = counts(runs, failing("wrong", lambda _: None), ["engine", "cluster"])
    assert found == [
        Count({"engine": "a", "cluster": "x"}, "r", 2, 1, 1),
        Count({"engine": "b", "cluster": "y"}, "r", 1, 0),
    ]
    assert sum(each.failures for each in counts(runs, failing("error", lambda _: None))) == 1
    assert counts(runs, failing("differs", lambda run: run.content == "no "), ["engine"])[0].failures == 1


def test_a_query_names_what_it_does_not_know() -> None:
    with pytest.raises(ValueError, match="no such axis: colour"):
        counts_query(["image", "colour"])
    with pytest.raises(ValueError, match="no such failure: bad"):
        counts_query(["image"], failure="bad")
    with pytest.raises(ValueError, match="no such stratum: day"):
        counts_query(["image"], stratum="day")


def test_rows_of_the_store_are_counts() -> None:
    row = {"axis_image": "1.2", "axis_concurrency": "8", "stratum": "m 64", "runs": 9, "failures": 2}
    assert counted(["image", "concurrency"], [row]) == [Count({"image": "1.2", "concurrency": "8"}, "m 64", 9, 2)]


def test_the_store_counts_what_is_attributed_here() -> None:
    """Twenty thousand attempts under the real schema; a process of its own, as the embedded engine wants it."""
    command = [sys.executable, "-m", "tests.bench.fleets", "--seeds", "0", "--stored", "20000"]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    assert "20,000 stored outcomes" in told
    (clause,) = told.splitlines()[1:]
    assert clause.strip().startswith("image 1.2 on cluster b: ")
