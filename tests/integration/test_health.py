"""Engines that fall ill behind a running sidecar: callers do not notice, an operator sees it, and the sidecar says no
in time and with a reason."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

import pytest
from click.testing import CliRunner, Result
from engine_process import free_port
from replay_server import Reply, chunk, sse
from sidecar_process import Played, Sidecar, until

from guard.cli import main
from guard.client import CallError
from guard.health.known_answer import WORDS

GOOD = Reply(sse(*map(chunk, ("All", " is", " well.")), chunk(finish="stop")))
SICK = Reply(sse(*[chunk("!")] * 200, chunk(finish="length")), every=400, delay=0.01)
"""One token from the first on, at a pace."""


class Ward:
    """A sidecar over the engines one, two and three."""

    def __init__(self, sidecar: Sidecar, engines: list[Played]) -> None:
        self.sidecar = sidecar
        self.engines = engines
        for engine in engines:
            engine.play(GOOD)

    def outguard(self, *arguments: str) -> Result:
        """The command in this process, which is the same code and a second quicker."""
        return CliRunner().invoke(main, [*arguments, "--config", str(self.sidecar.config_path)])

    def states(self) -> dict[str, str]:
        shown = self.outguard("engines", "--live", "--json")
        assert shown.exit_code == 0, shown.output
        return {one["name"]: "draining" if one["draining"] else one["state"] for one in json.loads(shown.stdout)}


@pytest.fixture
def ward(tmp_path: Path) -> Iterator[Ward]:
    engines = [Played(GOOD) for _ in range(3)]
    names = ("one", "two", "three")
    with Sidecar(
        tmp_path,
        {
            name: {"url": engine.url, "max_concurrency": 4, "timeouts": {"between_tokens": 2}}
            for name, engine in zip(names, engines, strict=True)
        },
        routes={"m": list(names), "one": ["one"]},
        dialect="plain",
        listen={"http": f"127.0.0.1:{free_port()}", "grpc": "127.0.0.1:0"},
        health={"failures": 3, "open_initial": 30},
        limits={"queue_length": 2, "queue_seconds": 0.3},
    ) as sidecar:
        yield Ward(sidecar, engines)
    assert not sidecar.faults
    for engine in engines:
        engine.close()


def test_once_its_breaker_is_open_a_collapsing_engine_costs_callers_nothing(ward: Ward) -> None:
    def timed(number: int) -> float:
        began = time.monotonic()
        answer = ward.sidecar.post({"stream": True, "messages": [{"role": "user", "content": f"question {number}"}]})
        assert answer.content == "All is well."
        return time.monotonic() - began

    healthy = median(timed(number) for number in range(20))
    sick = ward.engines[0]
    sick.play(SICK)
    ill = median(timed(100 + number) for number in range(3))  # each goes through the collapse and then elsewhere
    asked = len(sick.asked)
    assert asked == 3
    after = median(timed(200 + number) for number in range(20))
    print(f"median ms: healthy {healthy * 1e3:.1f}, collapsing {ill * 1e3:.1f}, its breaker open {after * 1e3:.1f}")
    assert len(sick.asked) == asked  # nobody meets it
    assert after < ill / 2
    assert after < max(2 * healthy, healthy + 0.02)

    # and an operator sees it
    assert ward.states() == {"one": "open", "two": "closed", "three": "closed"}
    page = ward.sidecar.get("/metrics").text
    assert 'outguard_engine_state{engine="one",state="open"} 1.0' in page
    assert 'outguard_engine_state{engine="two",state="closed"} 1.0' in page
    assert 'outguard_engine_openings{engine="one"} 1.0' in page
    assert 'outguard_findings_total{code="guard.engine_out",engine="one"} 1.0' in page
    shown = ward.outguard("engines", "--live").output
    assert "out" in next(line for line in shown.splitlines() if line.lstrip().startswith("one"))
    with ward.sidecar.client() as client:
        states = {one.name: (one.state, one.cause) for one in client.engines()}
    assert states["one"] == ("open", "repetition.single_token_from_start")
    assert "one is given no requests for 30 s: repetition.single_token_from_start" in ward.sidecar.log


def test_ready_means_that_an_engine_takes_requests(ward: Ward) -> None:
    for engine in ward.engines:
        engine.play(Reply(b"oops", 500, {}, framing="length"))
    assert ward.sidecar.get("/readyz").status == 200
    for _ in range(20):  # three in a row open a breaker, and six on every engine leave no hope
        ward.sidecar.post()
        if (ready := ward.sidecar.get("/readyz")).status != 200:
            break
    assert (ready.status, ready.error["message"]) == (503, "not ready: no engine of any route takes requests")
    refused = ward.sidecar.post()
    assert (refused.status, refused.error["code"]) == (503, "engine_unavailable")
    assert 25 <= int(refused.headers["retry-after"]) <= 30
    with ward.sidecar.client() as client, pytest.raises(CallError) as raised:
        client.generate("m", "x", timeout=10).read()
    assert raised.value.status == "UNAVAILABLE"
    assert 25 <= (raised.value.retry_after or 0) <= 30
    assert ward.sidecar.trace(refused.headers["x-outguard-trace-id"]).error_code == "engine_unavailable"


def test_an_engine_is_drained_and_comes_back(ward: Ward) -> None:
    slow = Reply(GOOD.body, every=100, delay=0.1)
    ward.engines[0].play(slow)
    with ThreadPoolExecutor() as pool:
        under_way = pool.submit(ward.sidecar.post, {"stream": True})
        assert until(lambda: len(ward.engines[0].asked) == 1)
        drained = ward.outguard("drain", "one")
        assert (drained.exit_code, drained.output) == (0, "one is given nothing new\n")
        assert ward.sidecar.post().content == "All is well."
        assert under_way.result().content == "All is well."
    assert len(ward.engines[0].asked) == 1
    assert ward.states()["one"] == "draining"
    alone = ward.sidecar.post({"model": "one"})
    assert (alone.status, alone.error["code"]) == (503, "engine_unavailable")
    assert "one is draining" in alone.error["message"]
    assert ward.outguard("drain", "one", "--resume").output == "one is given requests again\n"
    ward.sidecar.post()
    assert len(ward.engines[0].asked) == 2
    nobody = ward.outguard("drain", "nobody")
    assert (nobody.exit_code, "there is no engine called 'nobody'" in nobody.output) == (2, True)
    ward.sidecar.kill()
    for arguments in (("engines", "--live"), ("drain", "one")):
        done = ward.outguard(*arguments)
        assert (done.exit_code, "no sidecar answers at 127.0.0.1:" in done.output) == (2, True)


def test_load_is_shed_in_both_protocols(ward: Ward) -> None:
    ward.engines[0].play(Reply(GOOD.body, end="hang", stop_after=len(GOOD.body) // 2))
    with ThreadPoolExecutor() as pool:
        held = [pool.submit(ward.sidecar.post, {"model": "one", "stream": True}) for _ in range(4)]
        assert until(lambda: len(ward.engines[0].asked) == 4)
        began = time.monotonic()
        answer = ward.sidecar.post({"model": "one"})
        assert (answer.status, answer.error["code"]) == (429, "overloaded")
        assert int(answer.headers["retry-after"]) >= 1
        with ward.sidecar.client() as client, pytest.raises(CallError) as raised:
            client.generate("one", "x", timeout=10).read()
        assert (raised.value.status, raised.value.code) == ("RESOURCE_EXHAUSTED", "overloaded")
        assert time.monotonic() - began < 3
        assert ward.sidecar.trace(raised.value.trace_id).error_code == "overloaded"
        assert all(one.result().cut for one in held)


def test_an_engine_that_was_out_is_probed_back_in_and_no_caller_pays(tmp_path: Path) -> None:
    words = [" ".join(WORDS)[i : i + 4] for i in range(0, len(" ".join(WORDS)), 4)]
    good = Reply(sse(*map(chunk, words), chunk(finish="stop")))
    one, two = Played(good), Played(GOOD)
    health = {"failures": 2, "open_initial": 0.3, "probe_interval": 0.2}
    with Sidecar(tmp_path, {"one": one.url, "two": two.url}, dialect="plain", health=health) as sidecar:
        assert until(lambda: sidecar.metric("outguard_probes_total") >= 2)
        assert 'outguard_probes_total{engine="one",outcome="ok"}' in sidecar.get("/metrics").text
        one.play(Reply(b"oops", 500, {}, framing="length"))
        assert until(lambda: 'engine_state{engine="one",state="closed"} 0.0' in sidecar.get("/metrics").text)
        assert sidecar.post().json["outguard"]["recoveries"] == []
        one.play(good)
        assert until(lambda: 'engine_state{engine="one",state="closed"} 1.0' in sidecar.get("/metrics").text)
        assert sidecar.metric("outguard_requests_total") == 1
    assert not sidecar.faults
    one.close()
    two.close()
