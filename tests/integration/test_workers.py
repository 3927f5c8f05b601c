"""Several workers behind one address: they share it, one that dies is replaced, and a configuration is read again."""

from __future__ import annotations

import contextlib
import http.client
import itertools
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

from guard.trace.link import ask, connect

SECONDS = 30.0
"""For what takes a process's start, on a machine that has other things to do."""


class HeldEngine:
    """Streams numbered words until ``release`` is set, and then ends every answer in order; one that is asked for
    after that is short."""

    def __init__(self) -> None:
        self.release = threading.Event()
        held = self

        class Answer(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.end_headers()
                with contextlib.suppress(ConnectionError):  # who asked was killed
                    for number in itertools.count():
                        self.wfile.write(sse(chunk(_word(number)), done=False))
                        if held.release.wait(0.05):
                            break
                    self.wfile.write(sse(chunk(finish="stop")))

            def do_GET(self) -> None:
                self.send_error(404)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.release.set()
        self._server.shutdown()
        self._server.server_close()


def _word(number: int) -> str:
    return f"word{number} "


class Stream:
    """A caller of its own connection that reads an answer to its end, on a thread."""

    def __init__(self, sidecar: Sidecar, model: str) -> None:
        self._connection = http.client.HTTPConnection(sidecar.http.removeprefix("http://"), timeout=60)
        body = json.dumps({"model": model, "messages": ASK, "stream": True})
        self._connection.request("POST", "/v1/chat/completions", body)
        self._answer = self._connection.getresponse()
        self.trace_id = self._answer.headers["x-outguard-trace-id"]
        assert self._connection.sock is not None
        self.port = self._connection.sock.getsockname()[1]
        self.text = ""
        self.whole = False
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            data = self._answer.read()
        except (OSError, http.client.HTTPException):
            return
        events = [line[6:] for line in data.decode().split("\n") if line.startswith("data: ")]
        said = [json.loads(one) for one in events if one != "[DONE]"]
        self.text = "".join(one["choices"][0]["delta"].get("content") or "" for one in said if one.get("choices"))
        numbered = "".join(_word(number) for number in range(self.text.count(" ")))
        self.whole = bool(self.text) and self.text == numbered and events[-1] == "[DONE]"

    @property
    def under_way(self) -> bool:
        return self._thread.is_alive()

    def join(self) -> bool:
        """Whether the whole answer came."""
        self._thread.join(SECONDS)
        self._connection.close()
        return self.whole


def _connections(pid: int, port: int) -> set[int]:
    """The callers' ports of the connections to ``port`` that a process holds; 0 stands for its listening socket."""
    inodes = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        try:
            inodes.add(os.readlink(fd))
        except OSError:
            continue
    tables = [Path(f"/proc/net/{name}").read_text().splitlines()[1:] for name in ("tcp", "tcp6")]
    rows = [line.split() for table in tables for line in table]
    return {
        int(row[2].partition(":")[2], 16)
        for row in rows
        if int(row[1].partition(":")[2], 16) == port and f"socket:[{row[9]}]" in inodes
    }


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])


def _gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _family(sidecar: Sidecar) -> list[int]:
    """Everybody below the supervisor: its workers, and their trace writers."""
    workers = _children(sidecar.pid)
    return [*workers, *(child for worker in workers for child in _children(worker))]


def _streams(sidecar: Sidecar, model: str = MODEL) -> dict[int, list[Stream]]:
    """Streams under way by the worker that has them: at least one with each."""
    by_worker: dict[int, list[Stream]] = {pid: [] for pid in sidecar.children()}
    assert len(by_worker) == 2
    for _ in range(60):
        stream = Stream(sidecar, model)
        [owner] = [pid for pid in by_worker if stream.port in _connections(pid, _port(sidecar.http))]
        by_worker[owner].append(stream)
        if all(by_worker.values()):
            return by_worker
    raise AssertionError("one worker took every connection")


def _draining(sidecar: Sidecar) -> dict[str, int]:
    """By worker, whether its engine is given nothing new."""
    lines = [line for line in sidecar.get("/metrics").text.splitlines() if 'state="draining"' in line]
    return {line.partition('worker="')[2][0]: int(float(line.rpartition(" ")[2])) for line in lines}


@pytest.fixture
def engine() -> Iterator[HeldEngine]:
    one = HeldEngine()
    yield one
    one.close()


@pytest.fixture
def sidecar(engine: HeldEngine, tmp_path: Path) -> Iterator[Sidecar]:
    with Sidecar(tmp_path, {"a": engine.url}, workers=2, policies={"default": {"detectors": "off"}}) as running:
        yield running
        family = _family(running)
        engine.release.set()
        running.stop()
    assert until(lambda: all(map(_gone, family)), SECONDS)
    assert not running.faults


def test_they_share_the_addresses_and_one_that_dies_is_replaced(engine: HeldEngine, sidecar: Sidecar) -> None:
    """The one that dies is the one whose trace writer stores what both have spooled: the other's takes over."""
    by_worker = _streams(sidecar)
    assert all(0 in _connections(pid, _port(sidecar.grpc)) for pid in by_worker)
    store = Path(sidecar.config["trace"]["store"].removeprefix("chdb://"))
    connection = until(lambda: connect(store), SECONDS)
    with connection:
        writer = ask(connection, {"op": "status"}, 10.0)["status"]["pid"]
    [victim] = [pid for pid in by_worker if writer in _children(pid)]
    [survivor] = by_worker.keys() - {victim}

    # whoever is asked answers for both: for what is under way, and for an engine that an operator drains
    page = sidecar.get("/metrics").text
    under_way = sorted(line for line in page.splitlines() if line.startswith("outguard_requests_in_flight{"))
    assert [line.partition("=")[2][:3] for line in under_way] == ['"0"', '"1"']
    assert sorted(float(line.rpartition(" ")[2]) for line in under_way) == sorted(map(len, by_worker.values()))
    assert sidecar.post(path="/admin/engines/a/drain").status == 200
    assert until(lambda: _draining(sidecar) == {"0": 1, "1": 1}, SECONDS)

    os.kill(victim, signal.SIGKILL)
    new = until(lambda: set(sidecar.children()) - {victim, survivor}, SECONDS)
    assert new
    assert until(lambda: 0 in _connections(*new, _port(sidecar.grpc)), SECONDS)
    assert all(stream.under_way for stream in by_worker[survivor])
    engine.release.set()
    assert [stream.join() for stream in by_worker[survivor]] == [True] * len(by_worker[survivor])
    assert not any(stream.join() for stream in by_worker[victim])
    assert "was ended by SIGKILL and is replaced" in sidecar.log
    assert until(lambda: _draining(sidecar) == {"0": 1, "1": 1}, SECONDS)  # the new one knows it
    assert sidecar.post(path="/admin/engines/a/resume").status == 200
    assert until(lambda: _draining(sidecar) == {"0": 0, "1": 0}, SECONDS)
    with sidecar.client() as client:
        assert client.generate(MODEL, ASK, timeout=30).read().text() == _word(0)
    # what the survivor has answered is stored, by a writer that is another one now
    for stream in by_worker[survivor]:
        assert sidecar.trace(stream.trace_id, SECONDS).outcome == "ok"


def test_a_reload_and_an_end_lose_nothing_and_a_bad_file_changes_nothing(engine: HeldEngine, sidecar: Sidecar) -> None:
    good = sidecar.config_path.read_text()
    old = sidecar.children()
    by_worker = _streams(sidecar)
    # a mistake, and an address that workers could not move to, are said with their lines
    for bad, key in ((good.replace("dialect:", "dialekt:"), "dialekt"), (_elsewhere(good), "listen.http")):
        before = sidecar.log.count("the configuration is not taken")
        sidecar.config_path.write_text(bad)
        sidecar.signal(signal.SIGHUP)
        assert until(lambda before=before: sidecar.log.count("the configuration is not taken") > before, SECONDS)
        assert f"{sidecar.config_path}:" in sidecar.log
        assert key in sidecar.log
    assert sidecar.children() == old

    refused: list[Any] = []
    asking = threading.Event()

    def keep_asking() -> None:
        while not asking.wait(0.02):
            answer = _models(sidecar)
            if answer.status != 200:
                refused.append(answer)

    caller = threading.Thread(target=keep_asking, daemon=True)
    caller.start()
    sidecar.config_path.write_text(good.replace("model: m\n", "model: new\n"))
    sidecar.signal(signal.SIGHUP)
    assert until(lambda: "workers run it" in sidecar.log, SECONDS)
    assert until(lambda: all("new" in _models(sidecar).text for _ in range(10)), SECONDS)
    streams = [stream for some in by_worker.values() for stream in some]
    assert all(stream.under_way for stream in streams)  # on workers that take nothing new any more
    engine.release.set()
    assert all(stream.join() for stream in streams)
    assert until(lambda: all(map(_gone, old)), SECONDS)
    asking.set()
    caller.join(SECONDS)
    assert not refused
    assert until(lambda: len(sidecar.children()) == 2, SECONDS)
    for stream in streams:  # and is stored by now, by the old writer or the new one
        assert sidecar.trace(stream.trace_id, SECONDS).outcome == "ok"
    # and they end in order with their supervisor: what is under way ends whole
    engine.release.clear()
    by_worker = _streams(sidecar, model="new")
    family = _family(sidecar)
    sidecar.signal(signal.SIGTERM)
    time.sleep(0.5)
    engine.release.set()
    assert all(stream.join() for some in by_worker.values() for stream in some)
    assert sidecar.wait(SECONDS) == 0
    assert until(lambda: all(map(_gone, family)), SECONDS)


def _models(sidecar: Sidecar) -> Any:
    """A connection that a worker took just before it ends may be reset before it was answered; clients try again."""
    try:
        return sidecar.get("/v1/models")
    except ConnectionError:
        return sidecar.get("/v1/models")


def _elsewhere(config: str) -> str:
    return config.replace("http: 127.0.0.1:0", "http: 127.0.0.1:1", 1)


def test_none_outlives_a_supervisor_that_is_killed(engine: HeldEngine, sidecar: Sidecar) -> None:
    by_worker = _streams(sidecar)
    family = _family(sidecar)
    sidecar.kill()
    engine.release.set()
    assert all(stream.join() for some in by_worker.values() for stream in some)
    assert until(lambda: all(map(_gone, family)), SECONDS)


def test_a_start_that_fails_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    sidecar = Sidecar(tmp_path, {"a": "http://127.0.0.1:1"}, workers=2)
    sidecar.config["trace"] = {"store": f"chdb://{tmp_path}/file/store"}
    with pytest.raises(RuntimeError, match="did not start"):
        sidecar.start()
    assert sidecar.wait() == 2
    assert sidecar.log.count("trace.spool: ") == 1
    assert "Traceback" not in sidecar.log
