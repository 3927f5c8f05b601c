"""The object that the pipeline holds: quick, quiet, and back on its feet."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from guard.cli import main
from guard.trace import tracing as tracing_module
from guard.trace.link import EXIT_LOCKED, held
from guard.trace.record import OutcomeRecord, RequestRecord
from guard.trace.retention import RetentionRules
from guard.trace.store import open_store
from guard.trace.tracing import Tracing

Make = Callable[..., RequestRecord]
FULL = RetentionRules(default="full")


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not true():  # noqa: ASYNC110  what another process does has no event
            await asyncio.sleep(0.01)


async def test_without_a_store_only_the_page_is_fed(
    make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    tracing = Tracing()
    await tracing.start()
    tracing.write(make(1))
    tracing.write_outcome(OutcomeRecord("t", "c", 1.0, True))
    kind, body = tracing.metrics_page()
    assert kind.startswith("text/plain")
    assert b'outguard_requests_total{model="small",outcome="ok",protocol="http"} 1.0' in body
    await tracing.aclose()
    assert os.listdir(tmp_path) == []


async def test_from_request_to_store_and_back(tmp_path: Path, make: Make) -> None:
    dsn = f"chdb://{tmp_path / 'store'}"
    tracing = Tracing(dsn, retention=FULL)
    await tracing.start()
    record = make(1)
    tracing.write(record)
    tracing.write_outcome(OutcomeRecord(record.trace_id, "call", time.time(), True, "two rows"))

    def read() -> tuple[Any, Any]:
        with open_store(dsn) as reader:
            assert reader.flush(30)
            return reader.get_request(record.trace_id), reader.outcomes(record.trace_id)

    found, outcomes = await asyncio.to_thread(read)
    assert found.request_body == record.request_body
    assert len(found.output_fingerprint) == 32
    assert outcomes[0].detail == "two rows"
    await tracing.aclose()


def test_a_worker_loads_neither_the_engine_nor_the_exporters(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from guard.trace.record import RequestRecord\n"
        "from guard.trace.tracing import Tracing\n"
        "tracing = Tracing('chdb://' + sys.argv[1], otlp_endpoint='http://127.0.0.1:1')\n"
        "tracing.write(RequestRecord('1' * 32, 'r', 1.0))\n"
        "tracing.metrics_page()\n"
        "print([m for m in sys.modules if m.split('.')[0] in ('chdb', 'clickhouse_connect', 'opentelemetry')])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "s")], capture_output=True, check=True, timeout=30
    )
    assert done.stdout.strip() == b"[]"


async def test_a_writer_that_dies_is_started_again(tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing_module, "RESTART_SECONDS", (0.05, 0.1))
    tracing = Tracing(f"chdb://{tmp_path / 'store'}", retention=FULL)
    await tracing.start()
    first = tracing._process
    assert first is not None
    tracing.write(make(1))
    os.kill(first.pid, signal.SIGKILL)
    await asyncio.sleep(0.5)
    assert tracing._process is not first
    assert b"outguard_trace_writer_up 1.0" in tracing.metrics_page()[1]
    assert b"outguard_trace_writer_restarts_total 1.0" in tracing.metrics_page()[1]
    tracing.write(make(2))
    await tracing.aclose()

    def read() -> int:
        with open_store(f"chdb://{tmp_path / 'store'}") as reader:
            return len(reader.list_requests())

    assert await asyncio.to_thread(read) == 2


async def test_two_sidecars_on_one_spool(tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer of one drains both; when that sidecar goes, the other's takes over."""
    monkeypatch.setattr(tracing_module, "STANDBY_SECONDS", 0.05)
    dsn = f"chdb://{tmp_path / 'store'}"
    first, second = Tracing(dsn, retention=FULL), Tracing(dsn, retention=FULL)
    await first.start()
    await until(lambda: held(first._directory))
    await second.start()
    assert second._process is not None
    assert await asyncio.wait_for(second._process.wait(), 20) == EXIT_LOCKED
    await asyncio.sleep(0)
    assert b"outguard_trace_writer_up 1.0" in second.metrics_page()[1]
    first.write(make(1))
    second.write(make(2))

    def read() -> set[str]:
        with open_store(dsn) as reader:
            assert reader.flush(30)
            return {request.request_id for request in reader.list_requests()}

    assert await asyncio.to_thread(read) == {"req-1", "req-2"}
    await first.aclose()
    second.write(make(3))
    await until(lambda: second._process is not None and second._process.returncode is None)
    assert await asyncio.to_thread(read) == {"req-1", "req-2", "req-3"}
    assert b"outguard_trace_writer_restarts_total 0.0" in second.metrics_page()[1]
    await second.aclose()


async def test_a_store_that_another_spool_feeds_is_said_aloud(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tracing_module, "STANDBY_SECONDS", 0.05)
    dsn = f"chdb://{tmp_path / 'store'}"
    first, second = Tracing(dsn, tmp_path / "one"), Tracing(dsn, tmp_path / "two")
    await first.start()
    await until(lambda: held(tmp_path / "store"))
    await second.start()
    assert second._process is not None
    assert await asyncio.wait_for(second._process.wait(), 20) == EXIT_LOCKED
    await asyncio.sleep(0.1)
    assert "records wait there" in caplog.text
    await second.aclose()
    await first.aclose()


async def test_the_password_is_on_no_command_line(tmp_path: Path) -> None:
    tracing = Tracing("http://guard:s3cret@127.0.0.1:1/x", tmp_path)
    await tracing.start()
    assert tracing._process is not None
    await asyncio.sleep(0.3)
    line = _command_line(tracing._process.pid)
    assert b"guard.trace.writer" in line
    assert b"s3cret" not in line
    await tracing.aclose()


def _command_line(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def test_the_key_is_kept_and_private(tmp_path: Path, make: Make) -> None:
    first, second = Tracing("http://h/x", tmp_path), Tracing("http://h/x", tmp_path, worker="1", writer=False)
    assert first._key == second._key
    assert len(first._key) == 32
    assert stat.S_IMODE((tmp_path / "hash.key").stat().st_mode) == 0o600
    assert Tracing("http://h/x", tmp_path, hash_key=b"given")._key == b"given"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "0-2", "1", "hash.key"]


def test_a_record_that_asks_for_more_than_it_may_is_cut_down(tmp_path: Path, make: Make) -> None:
    tracing = Tracing("http://h/x", tmp_path, retention=RetentionRules(most="full", tenants={"acme": "none"}))
    tracing.write(make(1))
    data = b"".join(path.read_bytes() for path in tmp_path.glob("*/*.seg"))
    assert b"req-1" in data
    assert b"Say" not in data


def test_nothing_that_goes_wrong_reaches_the_request(
    tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracing = Tracing("http://h/x", tmp_path, retention=FULL)
    broken = make(1)
    broken.attempts = None  # type: ignore[assignment]
    tracing.write(broken)
    assert b'outguard_lost_records{reason="retention"} 1.0' in tracing.metrics_page()[1]

    def fails(*_: Any) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(tracing.metrics, "observe", fails)
    tracing.write(make(2))
    assert tracing._spool is not None
    assert tracing._spool.written == 1
    monkeypatch.setattr(os, "write", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
    tracing.write(make(3))
    assert b'outguard_lost_records{reason="disk"} 1.0' in tracing.metrics_page()[1]


def test_outcomes_follow_the_retention_of_their_trace(
    tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing_module, "REMEMBERED", 2)
    tracing = Tracing("http://h/x", tmp_path, retention=FULL)
    for number in range(8):
        tracing.write(make(number))
    for number in (0, 7):
        tracing.write_outcome(OutcomeRecord(make(number).trace_id, "call", 1.0, True, f"detail {number}"))
    data = b"".join(path.read_bytes() for path in tmp_path.glob("*/*.seg"))
    assert b"detail 7" in data
    assert b"detail 0" not in data  # so old that nobody knows any more whether it may be kept


@pytest.mark.parametrize("dsn", ["postgres://x", "chdb://relative", "http://", "http://h:port/x", "http://h/a-b;c"])
def test_a_dsn_that_is_none(dsn: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="store"):
        Tracing(dsn, tmp_path)


async def test_texts_that_may_not_be_kept_are_sketched(tmp_path: Path, make: Make) -> None:
    dsn = f"chdb://{tmp_path / 'store'}"
    tracing = Tracing(dsn, retention=RetentionRules(default="hash", most="hash", tenants={"nobody": "none"}))
    said = "It is a long answer about lighthouses, and it goes on and on about them. "
    one, other = make(1, output_text=said * 3), make(2, output_text=said * 2 + "And then about something else.")
    for record in (one, other, make(3, tenant="nobody")):
        tracing.write(record)
    await tracing.start()
    await tracing.aclose()
    assert not tracing._sketching

    def read() -> tuple[Any, ...]:
        assert b"lighthouses" not in b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
        config = tmp_path / "outguard.yaml"
        config.write_text(
            "engines: [{name: a, url: 'http://127.0.0.1:1'}]\nroutes: [{model: m, engines: [a]}]\n"
            f"trace: {{store: '{dsn}'}}\n"
        )
        with open_store(dsn) as reader:
            reader.flush(20)
            rows = reader.query("SELECT trace_id, part, attempt FROM sketches ORDER BY trace_id, part, attempt")
            ids = [one.trace_id, other.trace_id, make(3).trace_id]
            done = [
                CliRunner().invoke(main, ["traces", "compare", *pair, "--json", "--config", str(config)])
                for pair in ((ids[0], ids[0]), (ids[0], ids[1]), (ids[0], ids[2]))
            ]
        return rows, done

    rows, (same, alike, nothing) = await asyncio.to_thread(read)
    parts = [("attempt", 1), ("output", 0), ("prompt", 0)]
    assert rows == [
        {"trace_id": trace, "part": part, "attempt": attempt}
        for trace in sorted((one.trace_id, other.trace_id))
        for part, attempt in parts
    ]
    assert (same.exit_code, alike.exit_code, nothing.exit_code) == (0, 1, 2)
    output = next(part for part in json.loads(alike.stdout) if part["part"] == "output")
    assert output["differs_from"] <= len(said) * 2 < output["differs_before"]
    assert 0.3 < output["similarity"] < 1.0
    assert "both need retention" in nothing.stderr
