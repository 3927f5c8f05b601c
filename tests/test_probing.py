"""Probes: who is due, what they come to, and that callers are no trials where there are any."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from guard.config import parse_config
from guard.engines.contract import EngineError
from guard.engines.scripted import Play, ScriptedEngine, Silence, telling
from guard.events import Closed, Done, FinishReason, Opened, TextDelta
from guard.health.known_answer import TOKENS, WORDS
from guard.probing import Prober
from guard.traffic import Traffic

RIGHT = telling(" ".join(WORDS))
CONFIG = """\
engines: [{name: a, url: "http://127.0.0.1:1"}, {name: b, url: "http://127.0.0.1:2"}]
routes: [{model: m, engines: [a, b]}]
health: {failures: 2, open_initial: 5, probe_interval: 30, mode: MODE}
"""


class Lab:
    def __init__(self, a: Any = RIGHT, mode: str = "enforce") -> None:
        self.now = 1000.0
        config = parse_config(CONFIG.replace("MODE", mode))
        self.engines = {"a": ScriptedEngine("a", lambda asked: self.script(asked)), "b": ScriptedEngine("b", RIGHT)}
        self.script = a
        self.traffic = Traffic(config, lambda: self.now)
        self.came: list[tuple[str, str]] = []
        self.prober = Prober(
            config,
            self.engines,
            self.traffic,
            lambda: self.now,
            lambda name, outcome: self.came.append((name, outcome)),
        )

    async def look(self) -> list[tuple[str, str]]:
        """The probes that are due now, to their end."""
        before = len(self.came)
        self.prober.look()
        await asyncio.gather(*self.prober._under_way.values())
        await asyncio.sleep(0)
        return self.came[before:]

    def state(self) -> str:
        return self.traffic.fleet.state("a", self.now).state


def looping(_: Any) -> Play:
    steps: list[Any] = [[Opened("x", "m")], *([TextDelta(0, "content", "!")] for _ in range(200))]
    return Play([*steps, [FinishReason(0, "length"), Done(), Closed(True)]])


def refusing(status: int) -> Any:
    return lambda _: Play(error=EngineError("status", "no", status=status))


async def test_an_engine_that_has_nothing_to_do_is_asked_now_and_then() -> None:
    lab = Lab()
    assert await lab.look() == [("a", "ok"), ("b", "ok")]
    lab.now += 29
    assert await lab.look() == []
    ticket = lab.traffic.fleet.begin("a", lab.now)
    lab.now += 2
    assert await lab.look() == [("b", "ok")]  # a has been asked by a caller meanwhile
    lab.traffic.fleet.leave(ticket)
    asked = lab.engines["a"].requests[0]
    assert (asked.max_tokens, asked.request.model) == (TOKENS, "m")


@pytest.mark.parametrize(
    ("script", "outcome"),
    [
        (looping, "repetition.single_token_from_start"),
        (refusing(500), "open.status"),
        (lambda _: Play(error=EngineError("connect", "refused")), "open.connect"),
        (lambda _: Play([[TextDelta(0, "content", "lamp")], [Closed(clean=False)]]), "stream.cut"),
        (lambda _: Play([[TextDelta(0, "content", "lamp")], [Closed(clean=True)]]), "stream.no_terminal"),
    ],
)
async def test_a_failure_counts_as_it_does_for_a_caller(script: Any, outcome: str) -> None:
    lab = Lab(script)
    for _ in range(2):
        assert ("a", outcome) in await lab.look()
        lab.now += 31
    lab.now -= 31
    assert lab.state() == "open"
    assert not lab.traffic.fleet.takes("a", lab.now)


async def test_only_probes_try_an_engine_that_was_out() -> None:
    lab = Lab(refusing(500))
    for _ in range(2):
        await lab.look()
        lab.now += 31
    assert lab.state() == "half_open"
    assert not lab.traffic.fleet.takes("a", lab.now)  # callers are no trials
    assert ("a", "open.status") in await lab.look()
    assert lab.state() == "open"
    lab.now += 11  # twice as long as the first time
    lab.script = RIGHT
    assert await lab.look() == [("a", "ok")]
    assert not lab.traffic.fleet.takes("a", lab.now)
    assert await lab.look() == [("a", "ok")]
    assert lab.traffic.fleet.takes("a", lab.now)


async def test_an_engine_that_once_could_and_no_longer_can() -> None:
    lab = Lab()
    await lab.look()
    lab.script = telling("lamp harbor seven red door")
    for _ in range(4):
        lab.now += 31
        assert ("a", "probe.wrong_answer") in await lab.look()
    assert lab.state() == "open"


@pytest.mark.parametrize(("status", "outcome"), [(400, "ok"), (422, "ok"), (401, "open.status"), (429, "open.status")])
async def test_a_4xx_opens_nothing(status: int, outcome: str) -> None:
    lab = Lab(refusing(status))
    for _ in range(5):
        assert ("a", outcome) in await lab.look()
        lab.now += 31
    assert lab.state() == "closed"


async def test_one_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("guard.probing.LONGEST", 0.02)
    lab = Lab(lambda _: Play([[Opened("x", "m")], Silence()]))
    assert ("a", "probe.timeout") in await lab.look()
    assert lab.engines["a"].streams[0].closed_early


async def test_a_drained_engine_is_left_alone() -> None:
    lab = Lab()
    lab.traffic.fleet.drain("a", True)
    assert await lab.look() == [("b", "ok")]


async def test_the_loop_ends_with_its_probes() -> None:
    before = asyncio.all_tasks()
    lab = Lab(lambda _: Play([[Opened("x", "m")], Silence()]))
    loop = asyncio.ensure_future(lab.prober.run())
    await asyncio.sleep(0.01)
    assert lab.traffic.fleet.under_way("a") == 1
    loop.cancel()
    await asyncio.gather(loop, return_exceptions=True)
    assert lab.traffic.fleet.under_way("a") == 0
    assert asyncio.all_tasks() == before
