"""The sums of what was stored: one entry a segment, whatever was cut short, and never too many."""

from __future__ import annotations

from pathlib import Path

import pytest

from guard.trace import ledger
from guard.trace.drain import Drain
from guard.trace.ledger import Entry, append, entries
from guard.trace.record import RequestRecord
from guard.trace.spool import Spool


def test_the_last_word_about_a_segment_holds(tmp_path: Path) -> None:
    assert entries(tmp_path) == []
    append(tmp_path, Entry("a", 10, {"requests": 1}))
    append(tmp_path, Entry("b", 10, {"requests": 2}))
    append(tmp_path, Entry("a", 10, {"requests": 1}, at=5.0))
    assert entries(tmp_path) == [Entry("a", 10, {"requests": 1}, at=5.0), Entry("b", 10, {"requests": 2})]


def test_a_line_that_was_cut_short_costs_only_itself(tmp_path: Path) -> None:
    append(tmp_path, Entry("a", 10, {}))
    with open(tmp_path / ledger.NAME, "ab") as file:
        file.write(b'{"segment": "b", "len')
    append(tmp_path, Entry("c", 10, {}))
    assert [entry.segment for entry in entries(tmp_path)] == ["a", "c"]


def test_it_is_bounded_and_forgets_the_oldest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "MAX_BYTES", 2_000)
    for number in range(100):
        append(tmp_path, Entry(f"{number:03}", 10, {"requests": number}))
    kept = [entry.segment for entry in entries(tmp_path)]
    assert kept == [f"{number:03}" for number in range(100 - len(kept), 100)]
    assert 10 < len(kept) < 40
    assert [path.name for path in tmp_path.iterdir()] == [ledger.NAME]


def test_a_disk_that_is_full_is_not_in_the_way(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    append(tmp_path / "gone", Entry("a", 10, {}))
    assert "could not be written down" in caplog.text


@pytest.mark.parametrize("crash", ["never", "between two batches", "in a batch"])
def test_sums_survive_a_writer_that_is_killed(tmp_path: Path, crash: str) -> None:
    spool = Spool(tmp_path)
    for number in range(7):
        spool.write(RequestRecord(f"{number:032x}", f"r{number}", 1.0))
    spool.close()
    while list(tmp_path.glob("*/*.seg")):
        drain = Drain(tmp_path, records=3)
        for batch in drain.batches():
            drain.begin(batch)
            if crash == "in a batch" and not batch.again:
                break
            drain.commit(batch, {"requests": len(batch.frames) - 1, "attempts": 5}, refused=1)
            if crash != "never":
                break
        drain.close()
    (entry,) = entries(tmp_path / "0")
    assert (entry.rows, entry.refused) == ({"requests": 4, "attempts": 15}, 3)
    assert entry.at > 0


def test_a_batch_without_rows_takes_nothing_away(tmp_path: Path) -> None:
    """The last one of a segment is empty when its worker ends after all of it was stored; others lack some tables."""
    spool = Spool(tmp_path)
    drain = Drain(tmp_path)
    for rows in ({"requests": 1}, {"outcomes": 1}, {}):
        spool.write(RequestRecord("1" * 32, "r", 1.0))
        for batch in drain.batches():
            drain.begin(batch)
            drain.commit(batch, rows)
    spool.close()
    for batch in drain.batches():
        drain.begin(batch)
        drain.commit(batch)
    assert [entry.rows for entry in entries(tmp_path / "0")] == [{"requests": 1, "outcomes": 1}]


def test_a_segment_whose_beginning_nobody_summed_is_not_listed(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    for number in range(4):
        spool.write(RequestRecord(f"{number:032x}", f"r{number}", 1.0))
    spool.close()
    drain = Drain(tmp_path, records=2)
    first = next(drain.batches())
    drain.begin(first)
    drain.commit(first, {"requests": 2})
    drain.close()
    place = tmp_path / "0" / "progress.json"
    place.write_bytes(b"")  # lost, as after a power cut
    again = Drain(tmp_path, records=2)
    again._progress["0"] = again.progress("0")
    again._progress["0"].segment, again._progress["0"].offset = first.segment, first.end
    for batch in again.batches():
        again.begin(batch)
        again.commit(batch, {"requests": 2})
    assert entries(tmp_path / "0") == []
