"""What two worker processes share: limits hold over both, one that is killed gives back what it had, and a breaker that
opens in one is open in the other."""

from __future__ import annotations

import http.client
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from replay_server import chunk, sse
from sidecar_process import ASK, MODEL, Sidecar, until

SECONDS = 20.0


class CountingEngine:
    """Says a word and is silent until ``release`` is set. ``most``: how many answers were under way at once.
    ``broken``: it answers 500 instead."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.broken = False
        self.active = self.most = self.asked = 0
        self._lock = threading.Lock()
        engine = self

        class Answer(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                engine.asked += 1
                if engine.broken:
                    self.send_error(500)
                    return
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.end_headers()
                engine.count(1)
                try:
                    self.wfile.write(sse(chunk("Well"), done=False))
                    while not engine.release.wait(0.02):
                        self.wfile.write(b": still here\n\n")
                except OSError:
                    return
                finally:
                    engine.count(-1)  # before its last word is out: the next may come at once
                self.wfile.write(sse(chunk("."), chunk(finish="stop")))

            def do_GET(self) -> None:
                self.send_error(404)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def count(self, more: int) -> None:
        with self._lock:
            self.active += more
            self.most = max(self.most, self.active)

    def settles_at(self, number: int, seconds: float = 0.5) -> bool:
        """Whether as many are under way, and stay so."""
        end = time.monotonic() + seconds
        while self.active == number:
            if time.monotonic() > end:
                return True
            time.sleep(0.01)
        return False

    def close(self) -> None:
        self.release.set()
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def engine() -> Iterator[CountingEngine]:
    one = CountingEngine()
    yield one
    one.close()


class Callers:
    """Each on a connection and a thread of its own. ``ends``: the status of each, 0 for one that was cut."""

    def __init__(self, sidecar: Sidecar) -> None:
        self._sidecar = sidecar
        self.ends: list[int] = []
        self._threads: list[threading.Thread] = []

    def ask(self, number: int, *tenants: str) -> None:
        for _ in range(number):
            for tenant in tenants or ("t",):
                thread = threading.Thread(target=self._one, args=(tenant,), daemon=True)
                thread.start()
                self._threads.append(thread)

    def _one(self, tenant: str) -> None:
        try:
            answer = self._sidecar.post({"stream": True}, **{"x-outguard-tenant": tenant})
            self.ends.append(
                0 if answer.cut or (answer.status == 200 and "[DONE]" not in answer.text) else answer.status
            )
        except (OSError, http.client.HTTPException):
            self.ends.append(0)

    def join(self) -> list[int]:
        for thread in self._threads:
            thread.join(SECONDS)
        return self.ends


def _states(sidecar: Sidecar, state: str) -> list[int]:
    """By worker, whether the engine is in that state."""
    lines = [line for line in sidecar.get("/metrics").text.splitlines() if f'state="{state}"' in line]
    return [int(float(line.rpartition(" ")[2])) for line in lines]


def _owners(sidecar: Sidecar) -> dict[str, int]:
    """Requests under way by worker."""
    lines = sidecar.get("/metrics").text.splitlines()
    found = [line for line in lines if line.startswith("outguard_requests_in_flight{")]
    return {line.partition('worker="')[2][0]: int(float(line.rpartition(" ")[2])) for line in found}


def _both(sidecar: Sidecar) -> bool:
    return all(_owners(sidecar).values())


POLICIES = {"default": {"detectors": "off", "max_attempts": 1}}


def test_an_engines_limit_holds_over_both_and_a_killed_workers_places_are_given_back(
    engine: CountingEngine, tmp_path: Path
) -> None:
    limits = {"queue_seconds": 60, "queue_length": 100}
    engines = {"a": {"url": engine.url, "max_concurrency": 4}}
    trace = {"store": "none"}
    with Sidecar(tmp_path, engines, workers=2, policies=POLICIES, limits=limits, trace=trace) as sidecar:
        callers = Callers(sidecar)
        callers.ask(24)
        assert until(lambda: _both(sidecar) and sum(_owners(sidecar).values()) == 24, SECONDS)
        assert until(lambda: engine.active == 4, SECONDS)
        time.sleep(0.3)
        assert (engine.active, engine.most) == (4, 4)
        victim, survivor = sidecar.children()
        before = engine.asked
        os.kill(victim, signal.SIGKILL)
        # what it had on the engine is free again at once, and those that wait in the other have it. The engine itself
        # sees that a caller is gone only when it writes, so for that long it counts some of both
        assert until(lambda: engine.asked > before, 5)
        assert until(lambda: engine.settles_at(4), SECONDS)
        engine.most = 4
        engine.release.set()
        ends = callers.join()
        assert len(ends) == 24
        assert set(ends) == {0, 200}  # those of the one that was killed were cut
        assert 4 <= ends.count(200) < 24
        assert engine.most == 4
        assert survivor in sidecar.children()
        assert until(lambda: not any(_owners(sidecar).values()), SECONDS)
        # and nothing was lost of the places: the same four, for both
        engine.release.clear()
        again = Callers(sidecar)
        again.ask(8)
        assert until(lambda: engine.active == 4, SECONDS)
        engine.release.set()
        assert again.join() == [200] * 8
        assert not sidecar.faults


def test_who_waits_in_one_worker_is_not_passed_by_all_that_come_to_the_other(
    engine: CountingEngine, tmp_path: Path
) -> None:
    engine.release.set()
    limits = {"queue_seconds": 60, "queue_length": 100}
    engines = {"a": {"url": engine.url, "max_concurrency": 1}}
    with Sidecar(tmp_path, engines, workers=2, policies=POLICIES, limits=limits, trace={"store": "none"}) as sidecar:
        callers = Callers(sidecar)
        began = time.monotonic()
        callers.ask(60)
        assert callers.join() == [200] * 60
        assert engine.most == 1
        assert time.monotonic() - began < 15


def test_a_tenants_limit_holds_over_both(engine: CountingEngine, tmp_path: Path) -> None:
    limits = {"max_per_tenant": 3, "queue_seconds": 60, "queue_length": 100}
    with Sidecar(
        tmp_path, {"a": engine.url}, workers=2, policies=POLICIES, limits=limits, trace={"store": "none"}
    ) as sidecar:
        callers = Callers(sidecar)
        callers.ask(10, "x", "y")
        assert until(lambda: _both(sidecar) and sum(_owners(sidecar).values()) == 20, SECONDS)
        assert until(lambda: engine.active == 6, SECONDS)
        time.sleep(0.3)
        assert engine.most == 6
        engine.release.set()
        assert callers.join() == [200] * 20
        assert engine.most == 6


def test_a_breaker_that_opens_in_one_is_open_in_the_other_within_a_second(
    engine: CountingEngine, tmp_path: Path
) -> None:
    engine.release.set()
    engine.broken = True
    health = {"failures": 3, "open_initial": 3, "open_max": 3, "slow_start": 0}
    with Sidecar(
        tmp_path, {"a": engine.url}, workers=2, policies=POLICIES, health=health, trace={"store": "none"}
    ) as sidecar:
        connection = http.client.HTTPConnection(sidecar.http.removeprefix("http://"), timeout=30)  # to one of the two
        body = json.dumps({"model": MODEL, "messages": ASK})
        for _ in range(3):
            connection.request("POST", "/v1/chat/completions", body)
            assert connection.getresponse().read()
        opened = time.monotonic()
        assert until(lambda: _states(sidecar, "open") == [1, 1], 5)
        took = time.monotonic() - opened
        print(f"open in both after {took * 1e3:.0f} ms")
        assert took < 3.0  # a second, on a machine that has one to spare
        lines = sidecar.get("/metrics").text.splitlines()
        openings = [float(line.rpartition(" ")[2]) for line in lines if line.startswith("outguard_engine_openings{")]
        assert sum(openings) == 1.0  # it opened once, and the other was told
        # well again, shown to one of them, is well again for both
        engine.broken = False
        assert until(lambda: _states(sidecar, "half_open") == [1, 1], 10)
        for _ in range(2):
            connection.request("POST", "/v1/chat/completions", body)
            assert connection.getresponse().read()
        assert until(lambda: _states(sidecar, "closed") == [1, 1], 1)
        connection.close()
        assert not sidecar.faults
