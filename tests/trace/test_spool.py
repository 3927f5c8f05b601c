"""The spool: one write a record, never an exception, every loss counted."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from guard.trace import spool as spool_module
from guard.trace.drain import Drain
from guard.trace.frames import LOSS, Frame, scan, seed_of
from guard.trace.packing import decode, whole
from guard.trace.record import AttemptRecord, LossRecord, OutcomeRecord, RequestRecord
from guard.trace.spool import Spool


def record(n: int, **changes: object) -> RequestRecord:
    made = RequestRecord(trace_id=f"{n:032x}", request_id=f"r{n}", started_at=1.0)
    return msgspec.structs.replace(made, **changes)


def frames(root: Path) -> list[Frame]:
    out: list[Frame] = []
    for path in sorted(root.glob("*/*.seg")):
        items = list(scan(memoryview(path.read_bytes()), seed_of(path.stem)))
        assert all(isinstance(item, Frame) for item in items)
        out.extend(item for item in items if isinstance(item, Frame))
    return out


def requests(root: Path) -> list[RequestRecord]:
    found = [whole(decode(f.kind, f.payload)) for f in frames(root)]
    return [record for record in found if isinstance(record, RequestRecord)]


def losses(root: Path) -> list[LossRecord]:
    return [msgspec.msgpack.decode(f.payload, type=LossRecord) for f in frames(root) if f.kind == LOSS]


def test_a_record_comes_back_as_it_was_with_one_write_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool(tmp_path)
    calls: list[int] = []
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: calls.append(len(data)) or real(fd, data))
    full = record(
        1, request_body="{}", attempts=[AttemptRecord(choice=0, attempt=1, engine="a", token_logprobs=[-0.5])]
    )
    spool.write(full)
    spool.write_outcome(OutcomeRecord("t", "call", 2.0, True))
    assert len(calls) == 2
    assert requests(tmp_path) == [full]
    assert full.attempts[0].token_logprobs == [-0.5]
    assert spool.written == 2
    assert spool.lost_records == 0


def test_segments_are_bounded_and_their_names_ascend(tmp_path: Path) -> None:
    spool = Spool(tmp_path, segment_bytes=2_000)
    for n in range(40):
        spool.write(record(n))
    names = sorted(path.name for path in (tmp_path / "0").iterdir())
    assert len(names) > 5
    assert all((tmp_path / "0" / name).stat().st_size <= 2_000 for name in names)
    assert [r.request_id for r in requests(tmp_path)] == [f"r{n}" for n in range(40)]


def test_a_second_start_appends_to_nothing_it_found(tmp_path: Path) -> None:
    first = Spool(tmp_path)
    first.write(record(1))
    (tmp_path / "0" / "7-killed.new").touch()
    before = {path: path.read_bytes() for path in tmp_path.glob("*/*.seg")}
    _die(first)
    second = Spool(tmp_path)
    second.write(record(2))
    assert second.directory == first.directory
    assert not list(tmp_path.glob("*/*.new"))
    assert all(path.read_bytes() == data for path, data in before.items())
    assert [r.request_id for r in requests(tmp_path)] == ["r1", "r2"]


def _die(spool: Spool) -> None:
    """As kill -9 ends a worker: its locks go with its descriptors."""
    os.close(spool._fd)
    os.close(spool._lock)


def test_living_workers_never_share_a_directory(tmp_path: Path) -> None:
    one, two = Spool(tmp_path), Spool(tmp_path)
    other = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; from guard.trace.spool import Spool; print(Spool(sys.argv[1]).worker)",
            str(tmp_path),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert [one.worker, two.worker, other.stdout.strip()] == ["0", "0-2", "0-3"]
    assert Spool(tmp_path, "a").worker == "a"
    one.close()
    one.close()
    assert [Spool(tmp_path).worker for _ in range(2)] == ["0", "0-3"]


def test_more_workers_than_a_spool_has_names_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_module, "MAX_WORKERS", 2)
    held = [Spool(tmp_path), Spool(tmp_path)]
    with pytest.raises(OSError, match="2 workers write there"):
        Spool(tmp_path)
    assert len(held) == 2


def test_workers_who_never_end_a_segment_keep_the_bound_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_module, "SCAN_BYTES", 5_000)
    workers = [Spool(tmp_path, max_bytes=300_000) for _ in range(8)]
    for n in range(400):
        for worker in workers:
            worker.write(record(n, output_text="x" * 700))
    total = sum(path.stat().st_size for path in tmp_path.glob("*/*.seg"))
    assert 250_000 < total <= 300_000 + len(workers) * 6_500  # what each has written since it last looked
    assert all(worker.lost["bound"] for worker in workers)


@pytest.mark.parametrize("workers", [1, 4, 12])
def test_where_the_store_keeps_up_there_is_always_room(tmp_path: Path, workers: int) -> None:
    spools = [Spool(tmp_path, str(number), max_bytes=1_000_000) for number in range(workers)]
    drain = Drain(tmp_path)
    for n in range(6_000):
        spools[n % workers].write(record(n, output_text="x" * 700))
        if n % 20 == 0:
            store(drain)
    assert [spool.lost for spool in spools] == [{}] * workers


def test_what_is_stored_makes_room_at_the_bound_whoever_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each worker has a segment that it has not filled."""
    monkeypatch.setattr(spool_module, "RESCAN_SECONDS", 0.0)
    monkeypatch.setattr(spool_module, "SCAN_BYTES", 5_000)
    workers = [Spool(tmp_path, max_bytes=300_000) for _ in range(8)]
    while not all(worker.lost for worker in workers):
        for worker in workers:
            worker.write(record(1, output_text="x" * 700))
    store(Drain(tmp_path))
    for worker in workers:
        lost = worker.lost_records
        worker.write(record(2))
        assert worker.lost_records == lost


def store(drain: Drain) -> None:
    for batch in drain.batches():
        drain.begin(batch)
        drain.commit(batch)


def test_the_bound_loses_the_newest_counts_it_and_says_so_afterwards(tmp_path: Path) -> None:
    spool = Spool(tmp_path, max_bytes=300_000)
    for n in range(800):
        spool.write(record(n))
    kept = len(requests(tmp_path))
    assert 0 < kept < 800
    assert spool.lost == {"bound": 800 - kept}
    assert sum(path.stat().st_size for path in tmp_path.glob("*/*.seg")) <= 300_000
    for path in sorted(tmp_path.glob("*/*.seg"))[:-1]:
        path.unlink()  # the writer has drained
    spool._scanned_at = 0.0
    spool.write(record(1000))
    spool.close()
    assert requests(tmp_path)[-1].request_id == "r1000"
    told = losses(tmp_path)
    assert [(loss.reason, loss.count) for loss in told] == [("bound", 800 - kept)]
    assert told[0].first_at <= told[0].last_at


def test_a_full_disk_is_counted_and_leaves_no_half_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool(tmp_path)
    spool.write(record(1))
    real = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda fd, data: real(fd, memoryview(data)[:40]))
        spool.write(record(2))

        def full(fd: int, data: object) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        patch.setattr(os, "write", full)
        spool.write(record(3))
    spool.write(record(4))
    assert [r.request_id for r in requests(tmp_path)] == ["r1", "r4"]
    assert spool.lost == {"disk": 2}
    assert [(loss.reason, loss.count) for loss in losses(tmp_path)] == [("disk", 2)]


def test_a_really_full_device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("this system has no /dev/full")
    spool = Spool(tmp_path)
    with open("/dev/full", "wb", buffering=0) as device:
        real, spool._fd = spool._fd, device.fileno()
        spool.write(record(1))
        spool._fd = real
    assert spool.lost == {"disk": 1}


def test_what_cannot_be_encoded_as_it_is(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.write(record(1, output_text="half a pair: \ud83d", attempts=[AttemptRecord(0, 1, "e", output_text="\udc00")]))
    spool.write(record(2, seed=2**70))
    spool.write(record(3))
    kept = requests(tmp_path)
    assert [r.request_id for r in kept] == ["r1", "r3"]
    assert kept[0].output_text == "half a pair: ?"
    assert spool.lost == {"encoding": 1}


def test_a_closed_spool_only_counts(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.close()
    spool.close()
    spool.write(record(1))
    assert spool.lost == {"closed": 1}


def test_a_directory_that_cannot_be_made_is_an_error_at_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError, match="file"):
        Spool(tmp_path / "file" / "spool")


def test_names_are_never_reused_even_when_the_clock_goes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_module.time, "time_ns", lambda: 5)
    spool = Spool(tmp_path, segment_bytes=500)
    for n in range(6):
        spool.write(record(n))
    _die(spool)
    again = Spool(tmp_path, segment_bytes=500)
    again.write(record(9))
    assert again.directory == spool.directory
    names = [path.name for path in tmp_path.glob("*/*.seg")]
    assert len(names) == len(set(names)) >= 7
