"""Engine health in the pipeline: what attempts add to it, and whom it keeps from requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from guard.config import parse_config
from guard.constraint.cache import ConstraintCache
from guard.constraint.spec import Constraint
from guard.engines.contract import EngineError, EngineRequest
from guard.engines.scripted import ALL, Pause, Play, ScriptedEngine, Silence, answer, telling
from guard.events import (
    Closed,
    Done,
    Failed,
    Finished,
    FinishReason,
    Found,
    GuardEvent,
    Opened,
    Recovery,
    Release,
    Started,
    TextDelta,
)
from guard.pipeline import Pipeline
from guard.request import GenerationRequest, RequestError
from guard.trace.record import RequestRecord
from guard.trace.tracing import Tracing

STORY = (
    "The lighthouse keeper climbed the narrow stairs each evening to light the lamp. One night he saw a bottle among "
    "the rocks below, and in it a letter, written in a hand that he knew."
)
CONFIG = """\
engines:
  - {name: a, url: "http://127.0.0.1:1", cluster: east}
  - {name: b, url: "http://127.0.0.1:2", cluster: east}
  - {name: c, url: "http://127.0.0.1:3", cluster: west}
routes:
  - {model: m, engines: [a, b, c]}
  - {model: alone, engines: [a]}
  - {model: spread, engines: [a, b, c], balance: least_loaded}
policies:
  default: {backoff_initial: 0.001, backoff_max: 0.002}
  watch: {detectors: observe, backoff_initial: 0.001, backoff_max: 0.002}
health: {failures: 3, open_initial: 5}
limits: {retry_floor: 1000}
"""
Script = Callable[[EngineRequest], Play]


class Kept(Tracing):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[RequestRecord] = []

    def write(self, record: RequestRecord) -> None:
        self.records.append(record)


class Run:
    """A pipeline over scripted engines on a clock that the test holds."""

    def __init__(self, config: str = CONFIG, *, unable: str = "", **scripts: Script) -> None:
        """``unable``: the engines that cannot go on from a prefix."""
        self.now = 100.0
        self.engines = {
            name: ScriptedEngine(
                name,
                scripts.get(name, telling(STORY)),
                capabilities=replace(ALL, resume="no" if name in unable else "text"),
            )
            for name in "abc"
        }
        self.tracing = Kept()
        self.pipeline = Pipeline(
            parse_config(config), self.engines, ConstraintCache(), self.tracing, clock=lambda: self.now
        )

    async def ask(self, prompt: str = "Tell me a story.", model: str = "m", **more: Any) -> list[GuardEvent]:
        asked = GenerationRequest("r", "chat", model, [{"role": "user", "content": prompt}], **more)
        return [event async for batch in self.pipeline.generate(asked) for event in batch]

    def states(self) -> dict[str, str]:
        return {state.name: state.state for state in self.pipeline.traffic.fleet.states(self.now)}

    def asked(self) -> dict[str, int]:
        return {name: len(engine.requests) for name, engine in self.engines.items()}


def said(events: list[GuardEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, Release))


def collapsing(_: EngineRequest) -> Play:
    steps: list[Any] = [[Opened("x", "m")], *([TextDelta(0, "content", "!")] for _ in range(200))]
    return Play([*steps, [FinishReason(0, "length"), Done(), Closed(True)]])


def fails(error: EngineError) -> Script:
    return lambda _: Play(error=error)


SICK: list[tuple[str, Script]] = [
    ("refused connection", fails(EngineError("connect", "refused"))),
    ("500", fails(EngineError("status", "boom", status=500))),
    ("503", fails(EngineError("status", "shutting down", status=503))),
    ("no first token", fails(EngineError("first_token_timeout", "nothing came"))),
    ("cut", lambda _: Play([[Opened("x", "m")], [Closed(clean=False)]])),
    ("no terminal event", lambda _: Play([[Opened("x", "m")], [Closed(clean=True)]])),
    ("collapse from the first token", collapsing),
]


@pytest.mark.parametrize(("what", "script"), SICK, ids=[what for what, _ in SICK])
async def test_a_sick_engine_is_asked_no_more(what: str, script: Script) -> None:
    run = Run(a=script)
    for i in range(6):
        assert said(await run.ask(f"prompt {i}")) == STORY
    assert run.states() == {"a": "open", "b": "closed", "c": "closed"}
    assert run.asked()["a"] == 3
    opened = [f for r in run.tracing.records for a in r.attempts for f in a.findings if f.code == "guard.engine_out"]
    assert [(f.severity, f.engine) for f in opened] == [("info", "a")]


@pytest.mark.parametrize("status", [400, 401, 404, 408, 422, 429])
async def test_a_4xx_never_opens_a_breaker(status: int) -> None:
    run = Run(a=fails(EngineError("status", "no", status=status)))
    for i in range(10):
        await run.ask(f"prompt {i}")
    assert run.states()["a"] == "closed"


async def test_a_caller_that_leaves_says_nothing_of_the_engine() -> None:
    run = Run(a=lambda _: Play([[TextDelta(0, "content", "Once")], Silence()]))
    for _ in range(10):
        asked = GenerationRequest("r", "chat", "m", [{"role": "user", "content": "x"}])
        stream = run.pipeline.generate(asked)
        assert isinstance((await anext(stream))[0], Started)
        await anext(stream)
        await stream.aclose()
    assert run.states()["a"] == "closed"
    assert run.pipeline.traffic.fleet.under_way("a") == 0


async def test_a_caller_that_leaves_before_anything_began_leaves_nothing_behind() -> None:
    run = Run()
    stream = run.pipeline.generate(GenerationRequest("r", "chat", "m", [{"role": "user", "content": "x"}], n=3))
    await anext(stream)
    await stream.aclose()
    assert [run.pipeline.traffic.fleet.under_way(name) for name in "abc"] == [0, 0, 0]


async def test_a_deadline_that_was_too_short_says_nothing() -> None:
    run = Run(a=lambda _: Play(wait=5.0))
    for _ in range(5):
        events = await run.ask(deadline=run.now + 0.01)
        assert isinstance(events[-1], Failed)
        assert events[-1].code in ("deadline_exceeded",)
    assert run.states()["a"] == "closed"


async def test_what_the_policy_only_observes_counts_all_the_same() -> None:
    run = Run(a=collapsing)
    for i in range(3):
        assert "!!!" in said(await run.ask(f"prompt {i}", policy="watch"))
    assert run.states()["a"] == "open"


async def test_a_broken_constraint_that_the_engine_had_accepted_counts_half() -> None:
    run = Run(a=telling("Sure! Here you are"), b=telling('{"n": 1}'), c=telling('{"n": 1}'))
    schema = Constraint("json_schema", {"type": "object", "required": ["n"]})
    for i in range(6):
        assert said(await run.ask(f"prompt {i}", constraint=schema)) == '{"n": 1}'
    assert run.states()["a"] == "open"
    assert run.asked()["a"] == 6


async def test_a_collapse_that_follows_the_prompt_is_the_models_own() -> None:
    run = Run(a=collapsing, b=collapsing, c=collapsing)
    for i in range(10):
        assert isinstance((await run.ask(f"prompt {i}"))[-1], Failed)
    assert run.states() == dict.fromkeys("abc", "closed")


async def test_with_no_engine_left_the_caller_is_told_when_to_come_again() -> None:
    run = Run(a=fails(EngineError("connect", "refused")))
    for _ in range(2):
        assert isinstance((await run.ask(model="alone"))[-1], Failed)  # three attempts each
    run.now += 1
    with pytest.raises(RequestError) as raised:
        await run.ask(model="alone")
    error = raised.value
    assert (error.code, error.retry_after) == ("engine_unavailable", 4.0)
    assert "a is out (open.connect)" in error.message
    assert run.tracing.records[-1].outcome == "failed"
    assert run.asked()["a"] == 6


async def test_engines_that_answer_now_and_then_are_better_than_none() -> None:
    """Where every answer in three is good, breakers that took all engines away would make it none."""
    dice = Random(5)

    def shaky(asked: EngineRequest) -> Play:
        return telling(STORY)(asked) if dice.random() < 0.35 else Play(error=EngineError("connect", "refused"))

    run = Run(**dict.fromkeys("abc", shaky))
    ends: list[Any] = []
    for i in range(60):
        run.now += 0.05
        ends += await asyncio.gather(run.ask(f"prompt {i}"), return_exceptions=True)
    refused = [end for end in ends if isinstance(end, Exception)]
    assert {type(end) for end in refused} <= {RequestError}
    good = sum(isinstance(end[-1], Finished) for end in ends if end not in refused)
    assert good > 20


async def test_an_engine_that_recovers_is_tried_by_one_request_and_comes_back() -> None:
    script: list[Script] = [fails(EngineError("connect", "refused"))]
    run = Run(a=lambda asked: script[0](asked))
    for _ in range(3):
        await run.ask()
    script[0] = telling(STORY)
    await run.ask()
    assert run.asked()["a"] == 3
    run.now += 5
    await asyncio.gather(*(run.ask() for _ in range(5)))
    assert run.asked()["a"] == 4  # one trial, the others went elsewhere
    await run.ask()
    assert run.states()["a"] == "closed"


async def test_a_resume_does_not_go_to_an_engine_that_is_out() -> None:
    run = Run(
        a=lambda _: Play([[Opened("x", "m")], [TextDelta(0, "content", STORY[:80])], [Closed(clean=False)]]),
        b=fails(EngineError("connect", "refused")),
    )
    events = await run.ask(engines=("b",))
    assert isinstance(events[-1], Failed)
    events = await run.ask()
    assert said(events) == STORY
    assert run.asked() == {"a": 1, "b": 3, "c": 1}


async def test_a_resume_prefers_another_cluster() -> None:
    run = Run(a=lambda _: Play([[Opened("x", "m")], [TextDelta(0, "content", STORY[:80])], [Closed(clean=False)]]))
    assert said(await run.ask()) == STORY
    assert run.asked() == {"a": 1, "b": 0, "c": 1}


async def test_an_engine_that_asked_to_be_left_alone_is_left_alone_by_all() -> None:
    run = Run(a=fails(EngineError("status", "slow down", status=429, retry_after=30.0)))
    for _ in range(3):
        assert said(await run.ask()) == STORY
    assert run.asked()["a"] == 1
    run.now += 31
    await run.ask()
    assert run.asked()["a"] == 2


async def test_draining_takes_nothing_new_and_what_is_under_way_goes_on() -> None:
    run = Run(a=lambda _: answer(STORY[:80], STORY[80:], pause=0.01))
    stream = run.pipeline.generate(GenerationRequest("r", "chat", "m", [{"role": "user", "content": "x"}]))
    first = [await anext(stream), await anext(stream)]
    run.pipeline.traffic.fleet.drain("a", True)
    assert said(await run.ask()) == STORY
    events = [event for batch in first for event in batch] + [event async for batch in stream for event in batch]
    assert said(events) == STORY
    assert isinstance(events[-1], Finished)
    assert run.asked() == {"a": 1, "b": 1, "c": 0}


async def test_many_at_once_are_spread_by_load() -> None:
    run = Run(**{name: lambda _: answer("All", " is", " well.", pause=0.01) for name in "abc"})
    await asyncio.gather(*(run.ask(f"prompt {i}", model="spread") for i in range(30)))
    assert all(4 <= asked <= 16 for asked in run.asked().values())


async def test_every_choice_is_placed_on_its_own() -> None:
    run = Run(**{name: lambda _: Play([Pause(0.01), *answer("All is well.").steps]) for name in "abc"})
    await run.ask(model="spread", n=3)
    assert run.asked() == {"a": 1, "b": 1, "c": 1}


# --- the retry budget, and a collapse that is the model's own ---------------------------------------------------------


async def test_an_outage_is_not_made_worse_and_the_error_says_why() -> None:
    config = CONFIG.replace("retry_floor: 1000", "retry_floor: 2").replace("{failures: 3,", "{mode: observe,")
    run = Run(config, **dict.fromkeys("abc", fails(EngineError("connect", "refused"))))
    for i in range(100):
        run.now += 0.01
        last = (await run.ask(f"prompt {i}"))[-1]
        assert isinstance(last, Failed)
        assert last.code == "engine_unavailable"
    assert last.message == "refused (the route's retry budget is spent)"
    assert 115 <= sum(run.asked().values()) <= 120
    run.now += 60
    assert (await run.ask())[-1].attempts == 3  # type: ignore[union-attr]


async def test_one_routes_budget_is_not_anothers() -> None:
    config = CONFIG.replace("retry_floor: 1000", "retry_floor: 1").replace("{failures: 3,", "{mode: observe,")
    run = Run(config, a=fails(EngineError("connect", "refused")))
    assert said(await run.ask()) == STORY
    assert isinstance((await run.ask())[-1], Failed)
    assert said(await run.ask(model="spread", engines=("a", "b"))) == STORY


def looping_until_asked_otherwise(asked: EngineRequest) -> Play:
    if asked.request.sampling.frequency_penalty:
        return telling(STORY)(asked)
    start = len(asked.prefix.content) if asked.prefix else 0
    text = STORY[start:80] + "!" * 200
    return Play(
        [[Opened("x", "m")], *([TextDelta(0, "content", c)] for c in text), [FinishReason(0, "length"), Done()]]
    )


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("engines", [("a",), ("a", "b"), ("a", "b", "c")])
async def test_a_second_collapse_at_the_same_place_is_answered_with_other_sampling(
    engines: tuple[str, ...], stream: bool
) -> None:
    run = Run(**dict.fromkeys("abc", looping_until_asked_otherwise))
    events = await run.ask(engines=engines, stream=stream)
    assert said(events) == STORY
    assert isinstance(events[-1], Finished)
    recoveries = [(e.action, e.offset) for e in events if isinstance(e, Recovery)]
    assert recoveries == [("resume", 80), ("vary", 80)]
    changed = [e.finding.message for e in events if isinstance(e, Found) and e.finding.code == "guard.sampling_changed"]
    assert changed == ["the answer goes on with other sampling: frequency_penalty 0.5"]
    assert sum(run.asked().values()) == 3
    assert [a.action for a in run.tracing.records[0].attempts] == ["resume", "vary", "finish"]


async def test_it_is_tried_where_the_answer_stands_once_every_engine_has_had_its_turn() -> None:
    run = Run(**dict.fromkeys("abc", looping_until_asked_otherwise))
    await run.ask(engines=("a", "b"))
    assert [a.engine for a in run.tracing.records[0].attempts] == ["a", "b", "b"]


async def test_other_sampling_is_tried_once_and_only_where_the_policy_allows_it() -> None:
    run = Run(CONFIG.replace("backoff_max: 0.002}", "backoff_max: 0.002, max_attempts: 9}", 1), a=collapsing)
    failed = (await run.ask(engines=("a",)))[-1]
    assert isinstance(failed, Failed)
    assert (failed.code, failed.attempts) == ("collapsed", 3)
    run = Run(CONFIG.replace("backoff_max: 0.002}", "backoff_max: 0.002, vary: false}", 1), a=collapsing)
    failed = (await run.ask(engines=("a",)))[-1]
    assert isinstance(failed, Failed)
    assert (failed.code, failed.attempts) == ("collapsed", 2)
    assert all(asked.request.sampling.frequency_penalty is None for asked in run.engines["a"].requests)


# --- waiting ----------------------------------------------------------------------------------------------------------


async def test_the_engine_that_is_waited_for_is_the_one_that_comes_next() -> None:
    """a wants a minute's patience, and would be resumed on; the answer starts afresh on b, which asks for nothing."""
    run = Run(a=fails(EngineError("status", "slow down", status=429, retry_after=60.0)), unable="b")
    assert said(await run.ask(engines=("a", "b"))) == STORY
    assert run.asked() == {"a": 1, "b": 1, "c": 0}


async def test_a_wait_beyond_the_deadline_is_not_begun() -> None:
    config = CONFIG.replace("backoff_max: 0.002}", "backoff_max: 60}", 1)
    run = Run(config, a=fails(EngineError("status", "slow down", status=429, retry_after=30.0)))
    failed = (await run.ask(model="alone", deadline=run.now + 20))[-1]
    assert isinstance(failed, Failed)
    assert (failed.code, failed.retry_after, failed.attempts) == ("overloaded", 30.0, 1)


# --- places -----------------------------------------------------------------------------------------------------------

NARROW = CONFIG.replace("cluster: east}", "cluster: east, max_concurrency: 1}").replace(
    "limits: {", "limits: {queue_length: 1, queue_seconds: 0.2, "
)


async def test_a_full_engine_sends_requests_to_the_next() -> None:
    slow = {name: lambda _: answer("All", " is", " well.", pause=0.01) for name in "abc"}
    run = Run(NARROW, **slow)
    await asyncio.gather(*(run.ask() for _ in range(3)))
    assert run.asked() == {"a": 1, "b": 1, "c": 1}


async def test_where_all_are_full_requests_wait_and_then_are_turned_away() -> None:
    run = Run(NARROW, a=lambda _: answer("All", " is", " well.", pause=0.03))
    ends = await asyncio.gather(*(run.ask(model="alone") for _ in range(4)), return_exceptions=True)
    assert [said(end) for end in ends if isinstance(end, list)] == ["All is well."] * 2
    turned = [end for end in ends if isinstance(end, RequestError)]
    assert [error.code for error in turned] == ["overloaded"] * 2
    outcomes = sorted((record.outcome, record.error_code) for record in run.tracing.records)
    assert outcomes == [("failed", "overloaded")] * 2 + [("ok", "")] * 2


async def test_the_choices_of_one_request_share_the_places() -> None:
    run = Run(NARROW, a=lambda _: answer("All", " is", " well.", pause=0.01))
    events = await run.ask(model="alone", n=4)
    assert [type(event) for event in events if isinstance(event, Finished | Failed)] == [Finished] * 4
    assert run.pipeline.traffic.fleet.under_way("a") == 0


CUT = Play([[Opened("x", "m")], [TextDelta(0, "content", STORY[:80])], [Closed(clean=False)]])


class Waits:
    """An answer that was cut on a, and waits for a place on b, which another request has."""

    def __init__(self, **more: Any) -> None:
        play = [Play([[TextDelta(0, "content", "x")], Silence()])]
        told = telling(STORY)
        self.run = Run(NARROW, a=lambda _: CUT, b=lambda request: play.pop() if play else told(request))
        self.held = self.run.pipeline.generate(GenerationRequest("r", "chat", "m", [], engines=("b",)))
        self.more = more

    async def begin(self, *engines: str) -> asyncio.Task[list[GuardEvent]]:
        await anext(self.held)
        await anext(self.held)
        waiting = asyncio.ensure_future(self.run.ask(engines=engines, **self.more))
        async with asyncio.timeout(5):
            while not self.run.pipeline.traffic.entrance.waiting:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        return waiting


async def test_an_answer_under_way_waits_for_its_turn_before_new_requests() -> None:
    waits = Waits()
    waiting = await waits.begin("a", "b")
    new = asyncio.ensure_future(waits.run.ask("Another.", engines=("b",)))
    await asyncio.sleep(0.3)  # longer than a new request may wait
    assert isinstance(new.exception(), RequestError)
    assert not waiting.done()
    new = asyncio.ensure_future(waits.run.ask("Another.", engines=("b",)))
    await asyncio.sleep(0.01)
    await waits.held.aclose()
    events = await waiting
    assert isinstance(events[-1], Finished)
    assert (said(events), events[-1].attempts) == (STORY, 2)
    assert said(await new) == STORY
    assert [request.prefix is not None for request in waits.run.engines["b"].requests] == [False, True, False]


async def test_an_answer_waits_no_longer_than_its_deadline() -> None:
    waits = Waits(deadline=100.3)
    failed = (await (await waits.begin("a", "b")))[-1]
    assert isinstance(failed, Failed)
    assert (failed.code, failed.attempts) == ("deadline_exceeded", 1)
    assert waits.run.tracing.records[0].error_code == "deadline_exceeded"
    await waits.held.aclose()


async def test_an_engine_that_drains_while_an_answer_waits_for_it_is_waited_for_no_longer() -> None:
    waits = Waits()
    waiting = await waits.begin("a", "b")
    waits.run.pipeline.drain("a", True)
    waits.run.pipeline.drain("b", True)
    failed = (await asyncio.wait_for(waiting, 5))[-1]
    assert isinstance(failed, Failed)
    assert failed.code == "engine_unavailable"
    assert failed.message.endswith("b is draining")
    assert not any(isinstance(event, Recovery) for event in waiting.result())  # it has gone on nowhere
    await waits.held.aclose()


@pytest.mark.parametrize("how", ["full", "draining"])
async def test_another_that_can_do_the_same_is_taken_instead(how: str) -> None:
    """c frees no place of its own: it is there, and was only the second choice."""
    calls: list[str] = []
    config = NARROW.replace("backoff_initial: 0.001, backoff_max: 0.002}", "backoff_initial: 0.1, backoff_max: 0.2}")
    run = Run(config, a=lambda _: CUT, c=telling(STORY))
    held = None
    if how == "full":
        held = run.pipeline.generate(GenerationRequest("r", "chat", "m", [], engines=("b",)))
        await anext(held)
    asked = GenerationRequest("r", "chat", "m", [{"role": "user", "content": "?"}])
    events: list[GuardEvent] = []
    async for batch in run.pipeline.generate(asked):
        events += batch
        if how == "draining" and said(events) and not calls:
            calls.append("drained")
            run.pipeline.drain("c", True)
    assert isinstance(events[-1], Finished)
    assert said(events) == STORY
    told = [event.to_engine for event in events if isinstance(event, Recovery)]
    assert told == ["c" if how == "full" else "b"]
    assert len(run.engines[told[0]].requests) == 1
    if held is not None:
        await held.aclose()


@pytest.mark.parametrize("mode", ["enforce", "observe"])
async def test_what_is_said_of_an_engine_that_is_out_is_what_is_done(
    mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    run = Run(CONFIG.replace("health: {", f"health: {{mode: {mode}, "), a=fails(EngineError("connect", "refused")))
    for _ in range(3):
        await run.ask()
    (line,) = [record.message for record in caplog.records if record.name == "outguard.traffic"]
    said_so = "a would be given no requests" if mode == "observe" else "a is given no requests"
    assert line.startswith(said_so)
    asked = run.asked()["a"]
    await run.ask()
    assert run.asked()["a"] == asked + (mode == "observe")
