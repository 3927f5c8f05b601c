"""A second engine for an answer whose first token is late: who goes on, who is cancelled, what is on record."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from replay_server import ReplayServer, Reply, chunk, sse

from guard.build import build_engine
from guard.checked_yaml import ConfigError
from guard.config import parse_config
from guard.constraint.cache import ConstraintCache
from guard.engines.contract import EngineError, EngineRequest
from guard.engines.scripted import Pause, Play, ScriptedEngine, Silence, answer, telling
from guard.events import (
    Closed,
    Failed,
    Fault,
    Finished,
    GuardEvent,
    Opened,
    Recovery,
    Release,
    Started,
    TextDelta,
)
from guard.hedge import Lead, lead, race
from guard.pipeline import Pipeline
from guard.request import GenerationRequest
from guard.trace.record import RequestRecord
from guard.trace.tracing import Tracing

STORY = "The lighthouse keeper climbed the narrow stairs each evening to light the lamp."
CONFIG = """\
engines:
  - {name: a, url: "URL_A", timeouts: {first_token: 5}}
  - {name: b, url: "URL_B", timeouts: {first_token: 5}}
routes: [{model: m, engines: [a, b]}]
policies: {default: {hedge_after: 0.05, backoff_initial: 0.001, backoff_max: 0.002}}
"""


class Kept(Tracing):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[RequestRecord] = []

    def write(self, record: RequestRecord) -> None:
        self.records.append(record)


class Run:
    def __init__(self, a: Any, b: Any = None, config: str = CONFIG) -> None:
        self.engines = {"a": ScriptedEngine("a", a), "b": ScriptedEngine("b", b or telling(STORY))}
        self.tracing = Kept()
        parsed = parse_config(config.replace("URL_A", "http://127.0.0.1:1").replace("URL_B", "http://127.0.0.1:2"))
        self.pipeline = Pipeline(parsed, self.engines, ConstraintCache(), self.tracing)

    async def ask(self, **more: Any) -> list[GuardEvent]:
        asked = GenerationRequest("r", "chat", "m", [{"role": "user", "content": "A story."}], **more)
        return [event async for batch in self.pipeline.generate(asked) for event in batch]

    def attempts(self) -> list[tuple[str, int, str, str]]:
        return [(a.engine, a.attempt, a.outcome, a.action) for a in self.tracing.records[0].attempts]

    def idle(self) -> bool:
        fleet = self.pipeline.traffic.fleet
        return not fleet.under_way("a") and not fleet.under_way("b")


def said(events: list[GuardEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, Release))


def late(seconds: float) -> Any:
    return lambda asked: Play([[Opened("x", "m")], Pause(seconds), *telling(STORY)(asked).steps])


def silent(_: EngineRequest) -> Play:
    return Play([[Opened("x", "m")], Silence()])


@pytest.mark.parametrize(
    ("first", "second", "recovered"),
    [
        (silent, telling(STORY), False),
        (late(0.08), silent, False),
        (Play(wait=0.08, error=EngineError("connect", "refused")), late(0.1), True),
        (Play(error=EngineError("connect", "refused")), telling(STORY), True),
    ],
    ids=["the second is quicker", "the first is quicker", "the first fails", "a retry"],
)
async def test_an_answer_is_recovered_where_an_attempt_failed(first: Any, second: Any, recovered: bool) -> None:
    """To have been quicker than another is nothing of that kind."""
    run = Run(first if callable(first) else [first], second)
    assert said(await run.ask()) == STORY
    (record,) = run.tracing.records
    assert (record.attempts_made, record.recovered) == (2, recovered)


async def test_a_second_attempt_that_cannot_begin_keeps_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    import guard.attempt

    real, made = guard.attempt.StreamGuard, 0

    def broken(*args: Any, **more: Any) -> Any:
        nonlocal made
        made += 1
        if made == 2:
            raise RuntimeError("a fault of ours")
        return real(*args, **more)

    monkeypatch.setattr(guard.attempt, "StreamGuard", broken)
    run = Run(silent)
    with pytest.raises(RuntimeError):
        await run.ask()
    assert run.idle()


@pytest.mark.parametrize("slow", [silent, lambda _: Play(wait=5.0)], ids=["no token", "no head"])
@pytest.mark.parametrize("stream", [True, False])
async def test_the_second_takes_over_and_the_first_is_cancelled(slow: Any, stream: bool) -> None:
    before = asyncio.all_tasks()
    run = Run(slow)
    began = time.monotonic()
    events = await run.ask(stream=stream)
    assert time.monotonic() - began < 1.0
    assert said(events) == STORY
    finished = events[-1]
    assert isinstance(finished, Finished)
    assert finished.attempts == 2
    hedges = [(e.action, e.from_engine, e.to_engine, e.reason) for e in events if isinstance(e, Recovery)]
    assert hedges == [("hedge", "a", "b", "open.first_token_late")]
    assert run.attempts() == [("a", 1, "cancelled", "outrun"), ("b", 2, "ok", "finish")]
    record = run.tracing.records[0]
    assert (record.outcome, record.attempts_made, record.output_text) == ("ok", 2, "")
    assert [f.code for f in record.attempts[0].findings] == ["guard.hedged"]
    assert all(stream.closed_early for stream in run.engines["a"].streams)
    assert run.idle()
    assert run.pipeline.traffic.fleet.state("a", time.monotonic()).failure_rate == 0  # slow is not sick
    assert asyncio.all_tasks() == before


async def test_the_first_may_still_be_the_first() -> None:
    run = Run(late(0.1), lambda asked: Play(wait=3.0))
    events = await run.ask()
    assert said(events) == STORY
    assert not [e for e in events if isinstance(e, Recovery)]
    assert run.attempts() == [("a", 1, "ok", "finish"), ("b", 2, "cancelled", "outrun")]
    assert run.idle()


async def test_an_engine_in_time_is_not_hedged() -> None:
    run = Run(telling(STORY))
    await run.ask()
    assert run.attempts() == [("a", 1, "ok", "finish")]
    assert not run.engines["b"].requests


async def test_a_failure_in_time_is_an_ordinary_retry() -> None:
    run = Run(lambda _: Play(error=EngineError("connect", "refused")))
    events = await run.ask()
    assert said(events) == STORY
    assert run.attempts() == [("a", 1, "refused", "retry"), ("b", 2, "ok", "finish")]


@pytest.mark.parametrize(
    "fails",
    [Play([[Opened("x", "m")], Pause(0.1), [Fault("stall", "silent")]]), Play(wait=0.1, error=EngineError("cut", "x"))],
)
async def test_a_late_failure_leaves_it_to_the_other(fails: Play) -> None:
    run = Run(lambda _: fails, late(0.2))
    events = await run.ask()
    assert said(events) == STORY
    (engine, number, outcome, action), second = run.attempts()
    assert (engine, number, action) == ("a", 1, "outrun")
    assert outcome in ("fault", "refused")
    assert second == ("b", 2, "ok", "finish")
    assert run.pipeline.traffic.fleet.state("a", time.monotonic()).failure_rate > 0


async def test_both_fail_and_what_failed_last_is_said() -> None:
    def a(asked: EngineRequest) -> Play:
        return (
            Play(wait=0.1, error=EngineError("connect", "a is gone")) if asked.attempt == 1 else telling(STORY)(asked)
        )

    run = Run(a, lambda _: Play(wait=0.1, error=EngineError("connect", "b is gone")))
    events = await run.ask()
    assert said(events) == STORY
    assert run.attempts() == [
        ("a", 1, "refused", "outrun"),
        ("b", 2, "refused", "retry"),
        ("a", 3, "ok", "finish"),
    ]
    run = Run(
        lambda _: Play(wait=0.1, error=EngineError("connect", "gone")),
        lambda _: Play(error=EngineError("connect", "b")),
    )
    assert isinstance((await run.ask())[-1], Failed)
    assert run.idle()


async def test_hedges_are_paid_from_the_budget() -> None:
    run = Run(late(0.1), config=CONFIG + "limits: {retry_floor: 0, retry_ratio: 0.5}\n")
    await run.ask()
    assert not run.engines["b"].requests  # half a hedge is none
    await run.ask()
    assert len(run.engines["b"].requests) == 1


async def test_only_a_free_engine_is_asked() -> None:
    run = Run(late(0.1))
    run.pipeline.traffic.fleet.drain("b", True)
    assert said(await run.ask()) == STORY
    assert not run.engines["b"].requests


async def test_a_caller_that_leaves_ends_both() -> None:
    run = Run(silent, silent)
    stream = run.pipeline.generate(GenerationRequest("r", "chat", "m", [{"role": "user", "content": "x"}]))
    assert isinstance((await anext(stream))[0], Started)
    waiting = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0.15)
    assert len(run.engines["b"].streams) == 1
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await stream.aclose()
    assert run.engines["a"].streams[0].closed_early
    assert run.engines["b"].streams[0].closed_early
    assert run.idle()
    assert {outcome for _, _, outcome, _ in run.attempts()} == {"cancelled"}


async def test_a_caller_that_leaves_when_it_hears_of_the_other_ends_it() -> None:
    run = Run(silent, lambda _: Play([[TextDelta(0, "content", "Once")], Silence()]))
    stream = run.pipeline.generate(GenerationRequest("r", "chat", "m", [{"role": "user", "content": "x"}]))
    async for batch in stream:
        if isinstance(batch[0], Recovery):
            break
    await stream.aclose()
    assert run.engines["b"].streams[0].closed_early
    assert run.idle()


async def test_what_is_late_is_learned_from_the_route() -> None:
    run = Run(telling(STORY), config=CONFIG.replace("0.05", "p95"))
    router = run.pipeline.traffic.routers["m"]
    for _ in range(19):
        await run.ask()
    assert router.late() is None
    await run.ask()
    assert 0 < (router.late() or 0) < 0.1
    run.engines["a"]._next = late(0.5)
    events = await run.ask()
    assert [e.action for e in events if isinstance(e, Recovery)] == ["hedge"]


@pytest.mark.parametrize("value", ["0", "-1", "p99", "soon"])
def test_the_policy_says_when(value: str) -> None:
    with pytest.raises(ConfigError, match=r"config:5: policies.default.hedge_after"):
        parse_config(CONFIG.replace("0.05", value).replace("URL_A", "http://a").replace("URL_B", "http://b"))


# --- the race itself --------------------------------------------------------------------------------------------------


async def test_a_mistake_of_ours_in_one_ends_both() -> None:
    engine = ScriptedEngine("b", silent)

    async def broken() -> Lead:
        await asyncio.sleep(0.02)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await race(broken(), 0.0, lambda: lead(engine.open(EngineRequest(GenerationRequest("r", "chat", "m")))))
    assert engine.streams[0].closed_early


async def test_two_that_speak_in_the_same_moment() -> None:
    engines = [ScriptedEngine(name, lambda _: answer("Hello")) for name in "ab"]
    asked = EngineRequest(GenerationRequest("r", "chat", "m"))
    leads = await race(lead(engines[0].open(asked)), 0.0, lambda: lead(engines[1].open(asked)))
    assert [came is not None and came.spoke for came in leads] == [True, False]
    assert engines[1].streams == [] or engines[1].streams[0].closed_early


async def test_what_was_read_already_comes_first_and_nothing_twice() -> None:
    engine = ScriptedEngine("a", lambda _: answer("One", " two", " three"))
    found = await lead(engine.open(EngineRequest(GenerationRequest("r", "chat", "m"))))
    assert found.spoke
    assert found.stream is not None
    events = [event async for batch in found.stream for event in batch]
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == "One two three"
    assert isinstance(events[-1], Closed)


# --- over sockets -----------------------------------------------------------------------------------------------------


async def test_the_loser_hears_of_it_within_200_ms() -> None:
    good = Reply(sse(*map(chunk, ("All", " is", " well.")), chunk(finish="stop")), every=60, delay=0.002)
    hanging = Reply(sse(chunk(role="assistant"), done=False), end="hang")
    async with ReplayServer(hanging) as a, ReplayServer(good) as b:
        config = parse_config(CONFIG.replace("URL_A", a.url).replace("URL_B", b.url))
        engines = {engine.name: build_engine(engine) for engine in config.engines}
        tracing = Kept()
        pipeline = Pipeline(config, engines, ConstraintCache(), tracing)
        asked = GenerationRequest("r", "chat", "m", [{"role": "user", "content": "x"}])
        spoke = 0.0
        text = ""
        async for batch in pipeline.generate(asked):
            for event in batch:
                if isinstance(event, Release):
                    spoke = spoke or time.monotonic()
                    text += event.text
                    if len(text) < 5:
                        await a.client_gone(timeout=0.2)
        gone = time.monotonic() - spoke
        assert text == "All is well."
        assert gone < 1.0
        for engine in engines.values():
            await engine.aclose()
