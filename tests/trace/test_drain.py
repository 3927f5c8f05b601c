"""Batches from the spool: in order, the same ones again after a crash, damage named, segments deleted."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guard.trace.drain import Batch, Drain
from guard.trace.record import RequestRecord
from guard.trace.spool import Spool

CRASHES = ["before it was stored", "before it was noted", "between two", "in no batch"]


def fill(spool: Spool, *numbers: int, size: int = 0) -> None:
    for n in numbers:
        spool.write(RequestRecord(trace_id=f"{n:032x}", request_id=f"r{n}", started_at=1.0, output_text="x" * size))


def names(batch: Batch) -> list[str]:
    return [msgspec.msgpack.decode(frame.payload, type=RequestRecord).request_id for frame in batch.frames]


def take(drain: Drain) -> list[str]:
    found = []
    for batch in drain.batches():
        drain.begin(batch)
        found += names(batch)
        drain.commit(batch)
    return found


def test_records_come_once_and_in_order_while_the_worker_writes_on(tmp_path: Path) -> None:
    spool = Spool(tmp_path, segment_bytes=3_000)
    drain = Drain(tmp_path)
    fill(spool, *range(10))
    assert take(drain) == [f"r{n}" for n in range(10)]
    assert take(drain) == []
    fill(spool, 10, 11)
    assert take(drain) == ["r10", "r11"]
    assert len(list(tmp_path.glob("*/*.seg"))) == 1  # only the one being written
    spool.close()
    take(drain)
    assert not list(tmp_path.glob("*/*.seg"))


def test_every_worker_has_its_own_order(tmp_path: Path) -> None:
    first, second = Spool(tmp_path, "a"), Spool(tmp_path, "b")
    fill(first, 1, 2)
    fill(second, 3)
    fill(first, 4)
    drain = Drain(tmp_path)
    assert [(batch.worker, names(batch)) for batch in drain.batches()] == [("a", ["r1", "r2", "r4"]), ("b", ["r3"])]


@given(
    st.lists(st.tuples(st.lists(st.integers(0, 300), max_size=5), st.sampled_from(CRASHES)), min_size=1, max_size=8),
    st.integers(1, 7),
    st.integers(600, 4_000),
)
@settings(max_examples=40)
def test_a_crash_anywhere_repeats_exactly_the_batch_that_was_begun(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[list[int], str]], records: int, size: int
) -> None:
    root = tmp_path_factory.mktemp("spool")
    spool = Spool(root, segment_bytes=2_000)
    stored: dict[str, list[str]] = {}
    written = 0
    for sizes, crash in [*steps, ([], "never")]:
        for one in sizes:
            fill(spool, written, size=one)
            written += 1
        if crash == "never":
            spool.close()
        drain = Drain(root, records=records, size=size)  # a new process
        for batch in drain.batches():
            drain.begin(batch)
            if crash == "before it was stored":
                break
            # the store knows a batch by its token: the same token must mean the same records
            assert stored.setdefault(batch.token, names(batch)) == names(batch)
            if crash == "before it was noted":
                break
            drain.commit(batch)
            if crash == "between two":
                break
        drain.close()
    assert [name for batch in stored.values() for name in batch] == [f"r{n}" for n in range(written)]
    assert not list(root.glob("*/*.seg"))


def test_a_batch_that_was_begun_is_said_to_be_repeated_even_when_more_has_come(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    fill(spool, 1, 2)
    drain = Drain(tmp_path)
    first = next(drain.batches())
    drain.begin(first)
    drain.close()
    fill(spool, 3)
    again = Drain(tmp_path)
    second = next(again.batches())
    assert second.again
    assert not first.again
    assert (second.token, names(second)) == (first.token, names(first))
    again.begin(second)
    again.commit(second)
    third = next(again.batches())
    assert names(third) == ["r3"]
    assert not third.again


def test_a_lost_position_puts_everything_in_doubt(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    fill(spool, 1)
    drain = Drain(tmp_path)
    take(drain)
    drain.close()
    place = tmp_path / "0" / "progress.json"
    place.write_bytes(place.read_bytes().replace(b"offset", b"offsat"))
    fill(spool, 2)
    batch = next(Drain(tmp_path).batches())
    assert names(batch) == ["r1", "r2"]
    assert batch.again


def test_the_position_is_written_in_place_so_that_a_full_disk_can_be_emptied(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    fill(spool, 1)
    drain = Drain(tmp_path)
    take(drain)
    place = tmp_path / "0" / "progress.json"
    before = place.stat()
    fill(spool, 2)
    take(drain)
    assert (place.stat().st_ino, place.stat().st_size) == (before.st_ino, before.st_size)


def test_a_torn_tail_waits_while_the_worker_lives_and_is_named_when_it_has_gone(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    fill(spool, 1)
    path = next(tmp_path.glob("*/*.seg"))
    with open(path, "ab") as file:
        file.write(b"oG\x01\x01half a header")
    drain = Drain(tmp_path)
    batch = next(drain.batches())
    assert names(batch) == ["r1"]
    assert not batch.damage
    drain.begin(batch)
    drain.commit(batch)
    assert list(drain.batches()) == []
    os.close(spool._fd)  # the worker dies
    batch = next(drain.batches())
    assert [(item.start, item.end) for item in batch.damage] == [(batch.start, path.stat().st_size)]
    assert batch.last
    drain.begin(batch)
    drain.commit(batch)
    assert not path.exists()


def test_two_sidecars_on_one_spool_wait_for_nothing_of_each_other(tmp_path: Path) -> None:
    first, second = Spool(tmp_path), Spool(tmp_path)
    drain = Drain(tmp_path)
    fill(first, 1)
    fill(second, 2)
    assert take(drain) == ["r1", "r2"]
    fill(second, 3)
    os.close(second._fd)  # one dies, and who comes after it goes on under its name
    os.close(second._lock)
    third = Spool(tmp_path)
    assert third.worker == second.worker
    fill(third, 4)
    fill(first, 5)
    assert take(drain) == ["r5", "r3", "r4"]


def test_damage_in_the_middle_costs_its_record_only(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    fill(spool, 1, 2, 3)
    spool.close()
    path = next(tmp_path.glob("*/*.seg"))
    data = bytearray(path.read_bytes())
    data[data.index(b"r2")] ^= 0xFF
    path.write_bytes(data)
    batch = next(Drain(tmp_path).batches())
    assert names(batch) == ["r1", "r3"]
    assert [item.reason for item in batch.damage] == ["the checksum does not match"]


def test_a_record_larger_than_a_batch_still_comes(tmp_path: Path) -> None:
    spool = Spool(tmp_path, segment_bytes=10_000_000)
    fill(spool, 1, size=300_000)
    fill(spool, 2)
    assert take(Drain(tmp_path, size=1_000)) == ["r1", "r2"]


def test_what_is_left_is_known_in_bytes(tmp_path: Path) -> None:
    drain = Drain(tmp_path)
    assert drain.passed(drain.tails()) == 0
    spool = Spool(tmp_path)
    fill(spool, 1, 2)
    tails = drain.tails()
    assert drain.passed(tails) == spool.bytes > 0
    fill(spool, 3)
    take(drain)
    assert drain.passed(tails) == 0


def test_a_spool_that_does_not_exist_yet_has_nothing(tmp_path: Path) -> None:
    assert take(Drain(tmp_path / "later")) == []
