"""Start, stop, crash, restart; a store that is away; a config that is wrong."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from engine_process import free_port
from replay_server import Reply, chunk, sse
from sidecar_process import ASK, Played, Sidecar, outguard, played, until

from guard.cli import main
from guard.client import CallError

WORDS = [f"word{i} " for i in range(40)]
SLOW = Reply(sse(*(chunk(word) for word in WORDS), chunk(finish="stop")), every=400, delay=0.15)
"""About three seconds of an answer that is right."""


@pytest.fixture(scope="module")
def slow() -> Iterator[Played]:
    with played(SLOW) as engine:
        yield engine


@pytest.fixture
def quick(slow: Played) -> Played:
    slow.play(Reply(sse(chunk("All is well."), chunk(finish="stop"))))
    return slow


def _stored(sidecar: Sidecar) -> Counter[str]:
    rows = sidecar.reader.query("SELECT trace_id, count() AS rows FROM requests GROUP BY trace_id")
    return Counter({row["trace_id"]: int(row["rows"]) for row in rows})


def _ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_sigterm_lets_streams_end_and_flushes(slow: Played, tmp_path: Path) -> None:
    slow.play(SLOW)
    answers: dict[str, Any] = {}
    with Sidecar(tmp_path, {"a": slow.url}) as sidecar:

        def over_http() -> None:
            answers["http"] = sidecar.post({"stream": True})

        def over_grpc() -> None:
            with sidecar.client() as client:
                answers["grpc"] = client.generate("m", ASK, timeout=30).read()

        under_way = [threading.Thread(target=one) for one in (over_http, over_grpc)]
        for one in under_way:
            one.start()
        assert until(lambda: len(slow.asked) == 2)
        sidecar.signal(signal.SIGTERM)
        # what comes now is refused, in words or by a closed door
        time.sleep(0.3)
        with sidecar.client() as client, pytest.raises(CallError) as caught:
            client.generate("m", ASK, timeout=5).read()
        assert caught.value.status == "UNAVAILABLE"
        for one in under_way:
            one.join(20)
        assert sidecar.wait(20) == 0
        assert answers["http"].content == "".join(WORDS)
        assert answers["http"].events[-1] == "[DONE]"
        assert answers["grpc"].received() == "".join(WORDS)
        assert answers["grpc"].finished[0].reason == "stop"
        # and every row of them is in the store, before anybody asks
        ids = {answers["http"].headers["x-outguard-trace-id"], answers["grpc"].trace_id}
        assert {id_: count for id_, count in _stored(sidecar).items() if id_ in ids} == dict.fromkeys(ids, 1)
        sidecar.stop()
    assert not list((tmp_path / "store" / "outguard-spool").rglob("*.seg"))
    assert not sidecar.faults


def test_a_drain_has_an_end(slow: Played, tmp_path: Path) -> None:
    """Streams that never end, in both protocols: each gets the same time, and then the process ends, without a row
    lost and without calling it an error of its own."""
    slow.play(Reply(SLOW.body, stop_after=500, end="hang"))
    script = "import guard.serve; guard.serve.DRAIN_SECONDS = 2.0; from guard.cli import main; main()"
    sidecar = Sidecar(tmp_path, {"a": slow.url}, command=["-c", script]).start()
    ends: list[Any] = []

    def over_http() -> None:
        answer = sidecar.post({"stream": True})
        ends.append((answer.cut, "[DONE]" in answer.text))

    def over_grpc() -> None:
        with sidecar.client() as client:
            generation = client.generate("m", ASK, timeout=30)
            with pytest.raises(CallError):
                generation.read()
        ends.append((True, bool(generation.finished)))

    callers = [threading.Thread(target=one) for one in (over_http, over_grpc)]
    for one in callers:
        one.start()
    assert until(lambda: len(slow.asked) == 2)
    time.sleep(0.2)
    began = time.monotonic()
    sidecar.signal(signal.SIGTERM)
    assert sidecar.wait(30) == 0
    assert time.monotonic() - began < 8
    for one in callers:
        one.join(5)
    assert ends == [(True, False)] * 2
    assert [row.outcome for row in sidecar.reader.list_requests()] == ["cancelled"] * 2
    sidecar.stop()
    assert not sidecar.faults


def test_a_second_signal_ends_it_at_once(slow: Played, tmp_path: Path) -> None:
    slow.play(Reply(SLOW.body, stop_after=500, end="hang"))
    sidecar = Sidecar(tmp_path, {"a": slow.url}).start()
    caller = threading.Thread(target=lambda: sidecar.post({"stream": True}), daemon=True)
    caller.start()
    assert until(lambda: slow.asked)
    sidecar.signal(signal.SIGTERM)
    time.sleep(0.5)
    began = time.monotonic()
    sidecar.signal(signal.SIGTERM)
    assert sidecar.wait(10) == 128 + signal.SIGTERM
    assert time.monotonic() - began < 2
    caller.join(5)


def test_sigkill_loses_nothing_that_was_finished(quick: Played, tmp_path: Path) -> None:
    """Of every answer whose end the caller saw there is one row, once, after a restart; and the writer of a killed
    sidecar does not outlive it."""
    sidecar = Sidecar(tmp_path, {"a": quick.url}).start()
    [writer] = sidecar.children()
    seen = [sidecar.post({"stream": bool(i % 2)}).headers["x-outguard-trace-id"] for i in range(15)]
    sidecar.reader.flush()  # these are stored already, those that come now are not
    sidecar._let_go()
    seen += [sidecar.post({"stream": bool(i % 2)}).headers["x-outguard-trace-id"] for i in range(15)]
    sidecar.kill()
    assert until(partial(_ended, writer), 20)
    with sidecar:
        assert until(lambda: sidecar.reader.flush())
        stored = _stored(sidecar)
        assert {id_: stored[id_] for id_ in seen} == dict.fromkeys(seen, 1)
        attempts = sidecar.reader.query("SELECT trace_id, count() AS rows FROM attempts GROUP BY trace_id")
        assert [int(row["rows"]) for row in attempts] == [1] * len(seen)


def test_a_writer_that_is_killed_again_and_again(quick: Played, tmp_path: Path) -> None:
    with Sidecar(tmp_path, {"a": quick.url}) as sidecar:
        seen: list[str] = []
        for _ in range(3):
            [writer] = until(sidecar.children)
            os.kill(writer, signal.SIGKILL)
            seen += [sidecar.post().headers["x-outguard-trace-id"] for _ in range(5)]
            assert until(partial(_ended, writer))
        assert until(lambda: sidecar.reader.flush(), 20)
        stored = _stored(sidecar)
        assert {id_: stored[id_] for id_ in seen} == dict.fromkeys(seen, 1)
        assert sidecar.metric("outguard_trace_writer_restarts_total") >= 3


# --- stores that do not take rows ------------------------------------------------------------------------------------


def test_a_store_that_is_away(quick: Played, tmp_path: Path) -> None:
    """A ClickHouse that nobody has started: requests go on at their pace, rows wait in the spool."""
    trace = {"store": f"http://127.0.0.1:{free_port()}/outguard", "spool": str(tmp_path / "spool")}
    with Sidecar(tmp_path, {"a": quick.url}, trace=trace) as sidecar:
        for _ in range(10):
            assert sidecar.post().content == "All is well."
        assert sidecar.metric("outguard_spool_bytes") > 1000
        listed = sidecar.outguard("traces", "list")
        assert listed.returncode == 2
        assert "cannot be read" in listed.stderr
        assert "Traceback" not in listed.stderr
        began = time.monotonic()
        assert sidecar.stop() == 0
        assert time.monotonic() - began < 15
    assert list((tmp_path / "spool").rglob("*.seg"))  # for the next start
    assert not sidecar.faults


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte, where mounting is allowed."""
    import subprocess

    place = tmp_path / "full"
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], check=False, timeout=10)
    if done.returncode:
        pytest.skip("mounting a small file system is not allowed here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True, timeout=10)


def test_a_full_disk(quick: Played, tmp_path: Path, full_disk: Path) -> None:
    """Rows are lost and counted; answers are not."""
    trace = {"store": f"chdb://{tmp_path}/store", "spool": str(full_disk / "spool"), "retention": {"default": "full"}}
    with Sidecar(tmp_path, {"a": quick.url}, trace=trace) as sidecar:
        assert sidecar.post().status == 200
        os.kill(until(sidecar.children)[0], signal.SIGSTOP)  # or it makes room as fast as we fill it
        (full_disk / "ballast").write_bytes(b"x" * 900_000)
        long = [{"role": "user", "content": "x" * 20_000}]
        for _ in range(20):
            assert sidecar.post({"messages": long}).content == "All is well."
        assert sidecar.metric("outguard_lost_records") > 0
        (full_disk / "ballast").unlink()
        os.kill(sidecar.children()[0], signal.SIGCONT)
        after = sidecar.post().headers["x-outguard-trace-id"]
        assert sidecar.trace(after).outcome == "ok"
        assert sidecar.stop() == 0
    assert not sidecar.faults


# --- a start that cannot be ------------------------------------------------------------------------------------------

CONFIG = """\
listen:
  http: 127.0.0.1:0
  grpc: 127.0.0.1:0
engines:
  - name: a
    url: http://127.0.0.1:1
    dialect: vllm
routes:
  - model: m
    engines: [a]
"""


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("dialect: vllm", "dialekt: vllm", ":7: engines[0].dialekt: "),
        ("engines: [a]", "engines: [b]", ":10: routes[0].engines[0]: "),
        ("url: http://127.0.0.1:1", "url: nothing", ":6: engines[0].url: "),
        ("http: 127.0.0.1:0", "http: 8080", ":2: listen.http: "),
        ("http: 127.0.0.1:0", "http: 127.0.0.1:99999", ":2: listen.http: "),
        ("grpc: 127.0.0.1:0", "grpc: 127.0.0.1:99999", ":3: listen.grpc: "),
        ("listen:", "listen: [", ":"),
        ("dialect: vllm", "timeouts: {connect: -1}", ":7: engines[0].timeouts.connect: "),
        ("routes:", "trace:\n  store: chdb:relative\nroutes:", ":9: trace.store: "),
        ("routes:", "trace:\n  store: chdb://relative/store\nroutes:", ":9: trace.store: "),
        ("routes:", "trace:\n  store: http://host:port/x\nroutes:", ":9: trace.store: "),
    ],
)
def test_a_config_that_is_wrong(tmp_path: Path, old: str, new: str, says: str) -> None:
    path = tmp_path / "outguard.yaml"
    path.write_text(CONFIG.replace(old, new))
    done = CliRunner().invoke(main, ["serve", "--config", str(path)])
    assert done.exit_code == 2, done.output
    assert f"{path}{says}" in done.stderr
    assert not done.stdout


def test_a_config_that_is_not_there(tmp_path: Path) -> None:
    done = outguard("serve", "--config", str(tmp_path / "none.yaml"))
    assert done.returncode == 2
    assert "none.yaml: cannot be read: No such file" in done.stderr


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_port_that_is_taken(tmp_path: Path, protocol: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config = yaml.safe_load(CONFIG)
        config["listen"][protocol] = f"127.0.0.1:{port}"
        path = tmp_path / "outguard.yaml"
        path.write_text(yaml.safe_dump(config))
        done = outguard("serve", "--config", str(path))
    assert done.returncode == 2
    line = 1 + path.read_text().splitlines().index(f"  {protocol}: 127.0.0.1:{port}")
    assert f"{path}:{line}: listen.{protocol}: 127.0.0.1:{port} cannot be bound" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_store_directory_that_cannot_be_written(tmp_path: Path) -> None:
    config = yaml.safe_load(CONFIG)
    (tmp_path / "file").write_text("")
    config["trace"] = {"store": f"chdb://{tmp_path}/file/store"}
    path = tmp_path / "outguard.yaml"
    path.write_text(yaml.safe_dump(config))
    done = outguard("serve", "--config", str(path))
    assert done.returncode == 2
    assert f"{path}:" in done.stderr
    assert "trace.spool: " in done.stderr
    assert "Traceback" not in done.stderr


def test_a_second_sidecar_on_the_same_store(quick: Played, tmp_path: Path) -> None:
    """Two of them cannot write one embedded store: both answer, the rows of the first are stored, and the second says
    why its own wait."""
    with Sidecar(tmp_path, {"a": quick.url}) as first:
        second = Sidecar(tmp_path, {"a": quick.url})
        second.config["listen"] = {"http": f"127.0.0.1:{free_port()}", "grpc": ""}
        other = tmp_path / "second"
        other.mkdir()
        second.folder, second.config_path = other, other / "outguard.yaml"
        with second:
            one, two = first.post(), second.post()
            assert (one.content, two.content) == ("All is well.", "All is well.")
            assert first.trace(one.headers["x-outguard-trace-id"]).outcome == "ok"
            assert until(lambda: "another process has" in second.log)
