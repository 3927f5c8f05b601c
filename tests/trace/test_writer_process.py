"""The writer as a process: it ends with its parent, is killed without harm, and outlives its store."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from guard.trace.link import EXIT_LOCKED, EmbeddedReader, ask, ask_flush, connect
from guard.trace.record import RequestRecord
from guard.trace.spool import Spool
from guard.trace.store import Unavailable, open_store

Make = Callable[..., RequestRecord]
Start = Callable[..., "subprocess.Popen[bytes]"]


def wait_until(true: Callable[[], Any], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def requests_in(store: Path, spool: Path) -> dict[str, int]:
    """Request ids, and how often each is stored."""
    with open_store(f"chdb://{store}", spool) as reader:
        reader.flush(30)
        rows = reader.query("SELECT request_id, count() AS n FROM requests GROUP BY request_id")
    return {row["request_id"]: row["n"] for row in rows}


@pytest.mark.parametrize("ending", ["its parent goes", "SIGTERM"])
def test_it_stores_what_is_left_when_it_must_end(ending: str, tmp_path: Path, make: Make, start_writer: Start) -> None:
    store, spool = tmp_path / "store", tmp_path / "spool"
    worker = Spool(spool)
    process = start_writer(f"chdb://{store}", spool)
    wait_until(lambda: connect(store))
    for number in range(50):
        worker.write(make(number))
    worker.close()
    if ending == "SIGTERM":
        process.terminate()
    else:
        assert process.stdin is not None
        process.stdin.close()
    assert process.wait(20) == 0
    assert not list(spool.glob("*/*.seg"))
    assert not (store / "outguard.sock").exists()
    assert requests_in(store, spool) == {f"req-{n}": 1 for n in range(50)}


def test_killed_at_any_moment_it_loses_and_doubles_nothing(tmp_path: Path, make: Make, start_writer: Start) -> None:
    store, spool = tmp_path / "store", tmp_path / "spool"
    worker = Spool(spool, segment_bytes=300_000)
    draw = random.Random(6)
    number = 0
    stop = threading.Event()

    def work() -> None:
        nonlocal number
        while not stop.wait(0.004):
            for _ in range(4):
                worker.write(make(number))
                number += 1

    working = threading.Thread(target=work)
    working.start()
    kills = 0
    try:
        for _ in range(5):
            process = start_writer(f"chdb://{store}", spool)
            wait_until(lambda: (store / "outguard.sock").exists())
            reader = EmbeddedReader(str(store), spool)
            for _ in range(draw.randrange(1, 4)):
                # batches follow one another while flushes ask for them: some kill hits an insert in the middle
                threading.Thread(target=_quietly, args=(reader.flush, 2.0), daemon=True).start()
                time.sleep(draw.uniform(0.02, 0.35))
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
    finally:
        stop.set()
        working.join()
    worker.close()
    assert kills == 5
    assert number > 200
    start_writer(f"chdb://{store}", spool)
    stored = requests_in(store, spool)
    assert stored == {f"req-{n}": 1 for n in range(number)}
    with open_store(f"chdb://{store}", spool) as found:
        assert found.query("SELECT count() AS n, uniqExact(trace_id, attempt) AS u FROM attempts") == [
            {"n": 2 * number, "u": 2 * number}
        ]
        assert found.query("SELECT count() AS n FROM findings") == [{"n": 2 * number}]
    assert worker.lost_records == 0


def _quietly(function: Callable[..., Any], *args: Any) -> None:
    with contextlib.suppress(Unavailable, OSError):  # its writer was killed: that is the test
        function(*args)


def test_a_store_that_is_away_costs_disk_and_no_rows(
    tmp_path: Path, make: Make, start_writer: Start, own_server: Any
) -> None:
    spool = tmp_path / "spool"
    worker = Spool(spool)
    dsn = own_server.dsn("evidence")
    log = tmp_path / "log"
    process = start_writer(dsn, spool, log=log)
    worker.write(make(1))
    wait_until(lambda: ask_flush(spool, 5))  # before that its tables are still being made, which a reader minds
    with open_store(dsn, spool) as reader:
        assert len(reader.list_requests()) == 1
        own_server.stop()
        for number in range(2, 40):
            worker.write(make(number))
        assert not reader.flush(0.8)
    connection = connect(spool)
    assert connection is not None
    with connection:
        status = ask(connection, {"op": "status"}, 5.0)["status"]
    assert "not available" in status["error"]
    assert status["spooled_bytes"] > 0
    assert worker.lost_records == 0
    own_server.start()
    with open_store(dsn, spool) as reader:
        assert reader.flush(20)
        rows = reader.query("SELECT count() AS n, uniqExact(request_id) AS u FROM requests")
        assert rows == [{"n": 39, "u": 39}]
    process.terminate()
    assert process.wait(20) == 0
    said = log.read_text()
    assert "not available" in said
    assert "takes rows again" in said
    assert "guard:pass" not in said
    assert make(1).output_text not in said


def test_told_to_end_while_the_store_is_away_it_leaves_the_spool(
    tmp_path: Path, make: Make, start_writer: Start
) -> None:
    spool = tmp_path / "spool"
    worker = Spool(spool)
    worker.write(make(1))
    worker.close()
    process = start_writer("http://127.0.0.1:1/evidence", spool)
    wait_until(lambda: connect(spool))
    began = time.monotonic()
    process.terminate()
    assert process.wait(20) == 0
    assert time.monotonic() - began < 5
    assert len(list(spool.glob("*/*.seg"))) == 1


def test_a_writer_that_has_nothing_to_do_does_little(tmp_path: Path, make: Make, start_writer: Start) -> None:
    store, spool = tmp_path / "store", tmp_path / "spool"
    worker = Spool(spool)
    for number in range(200):
        worker.write(make(number))
    process = start_writer(f"chdb://{store}", spool)
    wait_until(lambda: connect(store))
    with open_store(f"chdb://{store}", spool) as reader:
        assert reader.flush(20)
    time.sleep(1.5)  # what was just stored is merged once more
    before = time.clock_gettime(clock := (~process.pid << 3) | 2)  # Linux's clock of another process's CPU
    time.sleep(2.0)
    assert time.clock_gettime(clock) - before < 0.2, "a tenth of a core for nothing"


def test_one_writer_a_store(tmp_path: Path, start_writer: Start) -> None:
    first = start_writer(f"chdb://{tmp_path / 'store'}", tmp_path / "spool")
    wait_until(lambda: connect(tmp_path / "store"))
    second = start_writer(f"chdb://{tmp_path / 'store'}", tmp_path / "other")
    assert second.wait(20) == EXIT_LOCKED
    third = start_writer(f"chdb://{tmp_path / 'elsewhere'}", tmp_path / "spool")
    assert third.wait(20) == EXIT_LOCKED
    assert first.poll() is None


def test_a_reader_without_a_sidecar_sees_what_was_left_and_makes_place_for_one(
    tmp_path: Path, make: Make, start_writer: Start
) -> None:
    store = tmp_path / "store"
    worker = Spool(store / "outguard-spool")
    worker.write(make(1))
    worker.close()
    with open_store(f"chdb://{store}") as reader:
        assert reader.flush(20)
        assert len(reader.list_requests()) == 1  # its own writer drained a dead sidecar's spool
        process = start_writer(f"chdb://{store}", store / "outguard-spool")
        again = Spool(store / "outguard-spool")
        again.write(make(2))
        wait_until(lambda: len(reader.list_requests()) == 2)
        wait_until(lambda: reader.status()["pid"] == process.pid)
        assert process.poll() is None
        process.kill()  # and when the sidecar's is gone, the reader goes on with one of its own
        process.wait()
        assert len(reader.list_requests()) == 2


def test_many_readers_at_once(tmp_path: Path, make: Make, start_writer: Start) -> None:
    store, spool = tmp_path / "store", tmp_path / "spool"
    worker = Spool(spool)
    worker.write(make(1))
    start_writer(f"chdb://{store}", spool)
    wait_until(lambda: connect(store))
    found: list[int] = []

    def read() -> None:
        with open_store(f"chdb://{store}", spool) as reader:
            reader.flush(20)
            found.extend(len(reader.attempts(make(1).trace_id)) for _ in range(10))

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert found == [2] * 80


def test_a_path_longer_than_a_socket_may_have_and_a_working_directory_with_a_trap(
    tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The embedded engine reads ./config.xml: the writer must not run where one lies."""
    store = tmp_path / ("deep" * 30) / "store"
    worker = Spool(store / "outguard-spool")
    worker.write(make(1))
    worker.close()
    (tmp_path / "config.xml").write_text("<clickhouse><this is no configuration")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".clickhouse-local").mkdir()
    (tmp_path / ".clickhouse-local" / "config.xml").write_text("<neither is this")
    with open_store(f"chdb://{store}") as reader:
        assert reader.flush(20)
        assert len(reader.list_requests()) == 1


def test_nonsense_on_the_socket_ends_that_conversation_only(tmp_path: Path, start_writer: Start) -> None:
    store = tmp_path / "store"
    start_writer(f"chdb://{store}", tmp_path / "spool")
    wait_until(lambda: connect(store))
    for nonsense in (b"GET / HTTP/1.1\r\n\r\n", b"\x00\x00\x00\x02\xc1\xc1", b"\x00\x00"):
        connection = connect(store)
        assert connection is not None
        with connection:
            connection.sendall(nonsense)
            connection.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionResetError):
                assert connection.recv(100) == b""
    connection = connect(store)
    assert connection is not None
    with connection, pytest.raises(Exception, match="no operation"):
        ask(connection, {"op": "drop everything"}, 5.0)
    assert os.stat(store / "outguard.sock").st_mode & 0o077 == 0


def test_a_sidecar_that_is_killed_leaves_nothing_behind(tmp_path: Path) -> None:
    """kill -9 of the worker: the writer it had started stores what was spooled, and ends."""
    script = (
        "import asyncio, sys, time\n"
        "from guard.trace.record import RequestRecord\n"
        "from guard.trace.retention import RetentionRules\n"
        "from guard.trace.tracing import Tracing\n"
        "async def main():\n"
        "    tracing = Tracing(sys.argv[1], retention=RetentionRules(default='full'))\n"
        "    await tracing.start()\n"
        "    n = 0\n"
        "    while True:\n"
        "        for _ in range(20):\n"
        "            tracing.write(RequestRecord('%032x' % (n + 1), f'req-{n}', time.time(), retention='full'))\n"
        "            print(n, tracing._process.pid if tracing._process else 0, flush=True)\n"
        "            n += 1\n"
        "        await asyncio.sleep(0.02)\n"
        "asyncio.run(main())\n"
    )
    store = tmp_path / "store"
    process = subprocess.Popen([sys.executable, "-c", script, f"chdb://{store}"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    lines: list[bytes] = []
    try:
        for line in process.stdout:
            lines.append(line)
            if len(lines) >= 1_500:
                break
    finally:
        process.kill()
    lines += process.stdout.readlines()
    process.stdout.close()
    process.wait()
    last, writer = map(int, lines[-1].split())
    wait_until(lambda: not Path(f"/proc/{writer}").exists())
    stored = requests_in(store, store / "outguard-spool")
    assert set(stored.values()) == {1}
    assert {f"req-{n}" for n in range(last + 1)} <= stored.keys()
