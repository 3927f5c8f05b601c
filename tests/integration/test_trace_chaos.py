"""kill -9 of the sidecar, its writer and the store, under load: what a caller saw finished is stored exactly once.

A few kills in ``make test``; the full count, with a table of what happened, by ``make chaos-trace``, which sets
OUTGUARD_KILLS to how often the sidecar and how often the store is killed.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from pathlib import Path

import pytest
from chaos import ANSWER, Callers, Reckoning, reckon
from clickhouse_server import Server
from sidecar_process import Sidecar, played

SIDECAR_KILLS, STORE_KILLS = map(int, os.environ.get("OUTGUARD_KILLS", "3 1").split())
LONGEST = 0.8
"""Seconds of load before a kill, at most: drawn evenly, so that it hits any stage of a request, a batch and a start."""


def tell(capsys: pytest.CaptureFixture[str], what: str, kills: int, callers: Callers, found: Reckoning) -> None:
    stored = found.verified["stored"]
    with capsys.disabled():
        print(
            f"\n{what}: {kills} kills, {callers.asked:,} requests begun, {found.finished:,} seen finished: "
            f"{found.once:,} stored once, {len(found.missing)} missing, {len(found.doubled)} doubled; "
            f"{stored['requests']:,} requests in {stored['segments']} segments verified, "
            f"{len(stored['differences'])} differences"
        )


def test_the_sidecar_is_killed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every second time its writer dies with it, otherwise that one stores what was spooled and makes place."""
    draw = random.Random(SIDECAR_KILLS)
    with played(ANSWER) as engine, Sidecar(tmp_path, {"a": engine.url}) as sidecar:
        with Callers(sidecar) as callers:
            for number in range(SIDECAR_KILLS):
                callers.wait_for(3)
                time.sleep(draw.uniform(0.0, LONGEST))
                writers = sidecar.children() if number % 2 else []
                sidecar.kill()
                for pid in writers:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                sidecar.start()
            callers.wait_for(3)
        found = reckon(sidecar, callers.finished)
        tell(capsys, "sidecar", SIDECAR_KILLS, callers, found)
        assert found.finished >= 3 * SIDECAR_KILLS
        assert found.kept, found
        assert "records are being lost" not in sidecar.log


def test_the_store_is_killed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draw = random.Random(STORE_KILLS)
    (tmp_path / "clickhouse").mkdir()
    store = Server(tmp_path / "clickhouse")
    store.start()
    trace = {"store": store.dsn("evidence"), "spool": str(tmp_path / "spool"), "retention": {"default": "full"}}
    try:
        with played(ANSWER) as engine, Sidecar(tmp_path, {"a": engine.url}, trace=trace) as sidecar:
            with Callers(sidecar) as callers:
                for _ in range(STORE_KILLS):
                    callers.wait_for(20)
                    time.sleep(draw.uniform(0.5, 0.5 + 2 * LONGEST))
                    store.stop()
                    callers.wait_for(20)  # without a store it goes on
                    store.start()
                callers.wait_for(20)
            found = reckon(sidecar, callers.finished)
            tell(capsys, "store", STORE_KILLS, callers, found)
            assert found.kept, found
            assert "records are being lost" not in sidecar.log
    finally:
        store.stop()
