"""What is on the disk, as opposed to the kernel's memory: told by what was synced, and in which order."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from guard.trace import durable
from guard.trace.drain import Drain
from guard.trace.durable import Syncer, settle_disk
from guard.trace.record import RequestRecord
from guard.trace.spool import Spool
from guard.trace.store import Target
from guard.trace.writing import Writer

Make = Callable[..., RequestRecord]


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of what was synced, in order."""
    names: list[str] = []
    fsync = os.fsync

    def told(fd: int) -> None:
        names.append(Path(os.readlink(f"/proc/self/fd/{fd}")).name)
        fsync(fd)

    monkeypatch.setattr(os, "fsync", told)
    return names


def test_what_has_grown_is_synced_once(tmp_path: Path, make: Make, synced: list[str]) -> None:
    first, second = Spool(tmp_path, "a"), Spool(tmp_path, "b")
    syncer = Syncer(Drain(tmp_path))
    first.write(make(1))
    assert syncer.sync() == 2
    new = {path.name for path in tmp_path.glob("*/*.seg")}
    assert set(synced) == new | {"a", "b"}  # and the directories that name the new segments
    synced.clear()
    assert syncer.sync() == 0
    assert not synced
    second.write(make(2))
    assert syncer.sync() == 1
    assert synced == [next((tmp_path / "b").glob("*.seg")).name]
    next((tmp_path / "a").glob("*.seg")).unlink()
    assert syncer.sync() == 0


def test_a_batch_is_in_doubt_on_the_disk_before_it_is_sent(tmp_path: Path, make: Make, synced: list[str]) -> None:
    spool = Spool(tmp_path)
    spool.write(make(1))
    drain = Drain(tmp_path, durable=True)
    batch = next(drain.batches())
    drain.begin(batch)
    assert synced == ["progress.json"]
    drain.commit(batch)
    assert synced == ["progress.json"]


def test_an_embedded_store_is_on_the_disk_before_its_segment_goes(
    tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(tmp_path / "spool")
    spool.write(make(1))
    spool.close()
    seen: list[tuple[Path, int]] = []
    writer = Writer(None, tmp_path / "spool")
    writer._open()
    writer._target = Target(embedded=True, path=str(tmp_path / "store"))

    def settled(directory: Path) -> None:
        seen.append((directory, len(list(tmp_path.glob("spool/*/*.seg")))))

    monkeypatch.setattr("guard.trace.writing.settle_disk", settled)
    writer._round()
    assert seen == [(tmp_path / "store", 1)]
    assert not list(tmp_path.glob("spool/*/*.seg"))


def test_a_disk_is_settled_or_it_is_said(tmp_path: Path) -> None:
    settle_disk(tmp_path)
    with pytest.raises(OSError, match="nowhere"):
        settle_disk(tmp_path / "nowhere")


def test_a_disk_that_fails_is_told_and_tried_again(
    tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tries: list[Path] = []

    def failing(path: Path) -> None:
        tries.append(path)
        raise OSError(5, "it is broken")

    monkeypatch.setattr(durable, "_sync", failing)
    monkeypatch.setattr(durable, "SYNC_SECONDS", 0.01)
    spool = Spool(tmp_path)
    spool.write(make(1))
    syncer = Syncer(Drain(tmp_path))
    syncer.start()
    while len(tries) < 3:
        time.sleep(0.01)
    syncer.stop()
    assert [record.message for record in caplog.records].count(
        "the spool cannot be brought to its disk: it is broken"
    ) == 1
