"""What lies in a spool, seen from outside: counted, dated, damage named, nothing touched."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from guard.trace.drain import Drain
from guard.trace.inventory import take
from guard.trace.record import RequestRecord
from guard.trace.spool import Spool

Make = Callable[..., RequestRecord]


def test_what_waits(tmp_path: Path, make: Make) -> None:
    assert take(tmp_path / "none").records == 0
    one, two = Spool(tmp_path, "a"), Spool(tmp_path, "b")
    for number, at in enumerate((50.0, 40.0, 60.0)):
        (two if number else one).write(make(number, started_at=at, duration_ms=2_000.0))
    before = {path: path.read_bytes() for path in tmp_path.glob("*/*")}
    found = take(tmp_path)
    assert (found.segments, found.records, found.oldest, found.bytes) == (2, 3, 42.0, one.bytes + two._size)
    assert not found.damaged
    assert {path: path.read_bytes() for path in tmp_path.glob("*/*")} == before
    drain = Drain(tmp_path)
    batch = next(drain.batches())
    drain.begin(batch)
    drain.commit(batch)
    left = take(tmp_path)
    assert (left.segments, left.records, left.oldest) == (2, 2, 42.0)


def test_damage_is_named_wherever_it_is_and_a_record_under_way_is_none(tmp_path: Path, make: Make) -> None:
    spool = Spool(tmp_path)
    for number in range(3):
        spool.write(make(number))
    path = next(tmp_path.glob("*/*.seg"))
    data = bytearray(path.read_bytes())
    data[data.index(b"req-1")] ^= 1
    path.write_bytes(data + b"oG\x01 half of one")
    (found,) = take(tmp_path).damaged
    assert (found.worker, found.segment, found.reason) == ("0", path.stem, "the checksum does not match")
    assert found.end - found.start == len(data) // 3
    os.close(spool._fd)  # its worker dies, so nothing more will come
    assert [one.reason for one in take(tmp_path).damaged][1:] == ["the record is cut short"]


def test_what_was_set_aside(tmp_path: Path) -> None:
    (tmp_path / "aside").mkdir()
    for name in ("s-16-record.row", "s-16-record.why", "s-0-requests-0.row", "s-0-requests-0.why"):
        (tmp_path / "aside" / name).touch()
    assert take(tmp_path).aside == ["s-0-requests-0", "s-16-record"]
