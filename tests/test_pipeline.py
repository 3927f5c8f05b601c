"""A request's whole way over scripted engines: attempts, recoveries, honest ends, and what is on record afterwards."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from guard.config import parse_config
from guard.constraint.cache import ConstraintCache
from guard.constraint.spec import Constraint
from guard.engines.contract import Capabilities, EngineError
from guard.engines.scripted import ALL, Play, ScriptedEngine, Silence, answer, telling
from guard.events import (
    Closed,
    Done,
    Failed,
    Fault,
    Finished,
    FinishReason,
    GuardEvent,
    Opened,
    Recovery,
    Release,
    Started,
    TextDelta,
    ToolDelta,
    ToolRelease,
)
from guard.pipeline import Pipeline
from guard.request import GenerationRequest, PolicyOverrides, RequestError, Sampling, Tool
from guard.trace.record import RequestRecord
from guard.trace.retention import RetentionRules
from guard.trace.tracing import Tracing

CONFIG = """\
engines:
  - {name: a, url: "http://127.0.0.1:1", dialect: vllm, cluster: east}
  - {name: b, url: "http://127.0.0.1:2", dialect: vllm, cluster: west}
routes:
  - {model: m, engines: [a, b]}
policies:
  default: {backoff_initial: 0.001, backoff_max: 0.002}
  watch: {detectors: observe}
limits: {max_requests: 3, max_choices: 4}
"""
STORY = (
    "The lighthouse keeper climbed the narrow stairs each evening to light the lamp. One night he saw a bottle among "
    "the rocks below, and in it a letter, written in a hand that he knew. It asked him to keep the light burning until "
    "the spring, when a ship with white sails would pass by the cape and bring his brother home from the war."
)
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}


class Kept(Tracing):
    """Keeps the records as they were given, before retention."""

    def __init__(self) -> None:
        super().__init__(retention=RetentionRules(default="full"))
        self.records: list[RequestRecord] = []

    def write(self, record: RequestRecord) -> None:
        self.records.append(record)


class Run:
    """One pipeline over the engines a and b. ``ask`` runs a request to its end."""

    def __init__(self, *scripts: Any, capabilities: Capabilities = ALL) -> None:
        self.engines = {
            name: ScriptedEngine(name, script if callable(script) else [script], capabilities=capabilities)
            for name, script in zip("ab", scripts, strict=False)
        }
        self.engines.setdefault("b", ScriptedEngine("b", []))
        self.tracing = Kept()
        self.pipeline = Pipeline(parse_config(CONFIG), self.engines, ConstraintCache(), self.tracing)

    async def ask(self, **more: Any) -> list[GuardEvent]:
        return [event async for batch in self.pipeline.generate(request(**more)) for event in batch]

    @property
    def record(self) -> RequestRecord:
        assert len(self.tracing.records) == 1
        return self.tracing.records[0]


def request(**more: Any) -> GenerationRequest:
    fields: dict[str, Any] = {
        "id": "r1",
        "kind": "chat",
        "model": "m",
        "messages": [{"role": "user", "content": "Tell me a story."}],
    }
    return GenerationRequest(**{**fields, **more})


def said(events: list[GuardEvent], choice: int = 0) -> str:
    return "".join(e.text for e in events if isinstance(e, Release) and e.choice == choice and e.channel == "content")


def end(events: list[GuardEvent], choice: int = 0) -> Finished | Failed:
    ends = [e for e in events if isinstance(e, Finished | Failed) and e.choice == choice]
    assert len(ends) == 1
    return ends[0]


def cut_after(text: str, *last: Any, size: int = 4) -> Play:
    """An engine that says ``text`` and then what ``last`` says, or ends in mid-body."""
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    steps: list[Any] = [[Opened("x", "m")], *([TextDelta(0, "content", piece)] for piece in pieces)]
    return Play([*steps, list(last or (Closed(clean=False),))])


def looping(text: str, token: str = "!", times: int = 400) -> Play:
    return cut_after(text + token * times, FinishReason(0, "length"), Done(), Closed(True))


# --- the ordinary way -------------------------------------------------------------------------------------------------


async def test_a_healthy_answer_passes_unchanged() -> None:
    run = Run(telling(STORY))
    events = await run.ask(sampling=Sampling(temperature=0.0, max_tokens=500))
    assert isinstance(events[0], Started)
    assert said(events) == STORY
    finished = end(events)
    assert isinstance(finished, Finished)
    assert (finished.reason, finished.attempts, finished.wasted_tokens) == ("stop", 1, 0)
    record = run.record
    assert (record.outcome, record.attempts_made, record.output_text, record.recovered) == ("ok", 1, STORY, False)
    assert json.loads(record.request_body)["messages"] == request().messages
    assert (record.attempts[0].engine, record.attempts[0].cluster, record.attempts[0].outcome) == ("a", "east", "ok")
    assert record.attempts[0].chunks > 10


async def test_a_healthy_stream_is_never_delayed() -> None:
    run = Run(telling(STORY))
    pieces = [e.text for e in await run.ask() if isinstance(e, Release)]
    assert pieces == [STORY[i : i + 4] for i in range(0, len(STORY), 4)]


async def test_every_choice_is_guarded_on_its_own() -> None:
    plays = {1: looping(STORY[:60]), 0: None, 2: None}
    seeds: list[int | None] = []

    def first_engine(asked: Any) -> Play:
        seeds.append(asked.request.sampling.seed)
        return plays.get((asked.request.sampling.seed or 0) - 7) or telling(STORY)(asked)

    run = Run(first_engine, telling(STORY))
    events = await run.ask(n=3, sampling=Sampling(seed=7))
    assert sorted(seeds) == [7, 8, 9]
    assert [said(events, choice) for choice in range(3)] == [STORY] * 3
    assert [end(events, choice).attempts for choice in range(3)] == [1, 2, 1]
    assert run.record.attempts_made == 4
    assert json.loads(run.record.output_text) == [said(events, choice) for choice in range(3)]


# --- recoveries -------------------------------------------------------------------------------------------------------

BEFORE_ANYTHING: list[tuple[str, Any]] = [
    ("refused connection", Play(error=EngineError("connect", "refused"))),
    ("500", Play(error=EngineError("status", "boom", status=500))),
    ("429", Play(error=EngineError("status", "slow down", status=429, retry_after=0.01))),
    ("model not loaded there", Play(error=EngineError("status", "no such model", status=404))),
    ("first token timeout", Play(error=EngineError("first_token_timeout", "nothing came"))),
    ("cut before any text", Play([[Opened("x", "m")], [Closed(clean=False)]])),
    ("clean end before any text", Play([[Opened("x", "m")], [Closed(clean=True)]])),
    ("error event", Play([[Fault("error_event", "engine core died", 500)]])),
    ("collapse from the first token", looping("")),
]


@pytest.mark.parametrize(("name", "play"), BEFORE_ANYTHING, ids=[name for name, _ in BEFORE_ANYTHING])
async def test_with_nothing_delivered_the_other_engine_answers(name: str, play: Play) -> None:
    run = Run(play, telling(STORY))
    events = await run.ask()
    assert said(events) == STORY
    assert end(events).attempts == 2
    recoveries = [e for e in events if isinstance(e, Recovery)]
    assert [(r.action, r.from_engine, r.to_engine, r.offset) for r in recoveries] == [("retry", "a", "b", 0)]
    assert run.record.recovered
    assert [a.action for a in run.record.attempts] == ["retry", "finish"]


IN_MID_STREAM: list[tuple[str, Any, str]] = [
    ("cut", cut_after(STORY[:80]), "stream.cut"),
    ("clean end without a reason", cut_after(STORY[:80], Closed(True)), "stream.no_terminal"),
    ("[DONE] without a reason", cut_after(STORY[:80], Done(), Closed(True)), "stream.no_terminal"),
    ("stall", cut_after(STORY[:80], Fault("stall", "silent for 20 s")), "stream.stall"),
    ("error event", cut_after(STORY[:80], Fault("error_event", "engine core died", 500)), "stream.error_event"),
    ("garbage", cut_after(STORY[:80], Fault("protocol", "not JSON")), "stream.protocol"),
    ("one token for ever", looping(STORY[:80]), "repetition.single_token"),
]


@pytest.mark.parametrize(("name", "play", "cause"), IN_MID_STREAM, ids=[name for name, *_ in IN_MID_STREAM])
async def test_in_mid_stream_the_answer_goes_on_from_the_clean_prefix(name: str, play: Play, cause: str) -> None:
    run = Run(play, telling(STORY))
    events = await run.ask(sampling=Sampling(max_tokens=500))
    assert said(events) == STORY
    finished = end(events)
    assert isinstance(finished, Finished)
    assert (finished.reason, finished.attempts) == ("stop", 2)
    recovery = next(e for e in events if isinstance(e, Recovery))
    assert (recovery.action, recovery.offset) == ("resume", 80)
    assert recovery.reason.startswith(cause)
    resumed = run.engines["b"].requests[0]
    assert resumed.prefix is not None
    assert resumed.prefix.content == STORY[:80]
    assert resumed.max_tokens == 480  # twenty tokens of four characters are spent
    first, second = run.record.attempts
    assert (first.action, second.resumed_at, second.outcome) == ("resume", 80, "ok")
    if cause.startswith("repetition"):
        assert abs(first.onset - 80) <= 1
        assert finished.wasted_tokens > 0
    assert run.engines["a"].streams[0].closed_early == cause.startswith("repetition")


async def test_an_answer_may_go_on_several_times() -> None:
    run = Run(
        lambda asked: cut_after(STORY[:40]) if asked.attempt == 1 else telling(STORY)(asked),
        lambda asked: cut_after(STORY[40:80]),
    )
    events = await run.ask()
    assert said(events) == STORY
    assert end(events).attempts == 3


async def test_an_engine_that_cannot_go_on_makes_an_honest_error() -> None:
    run = Run(cut_after(STORY[:80]), telling(STORY), capabilities=Capabilities(resume="no"))
    events = await run.ask()
    assert said(events) == STORY[:80]
    failed = end(events)
    assert isinstance(failed, Failed)
    assert failed.code == "stream_cut"
    assert run.record.outcome == "failed"
    assert run.record.output_text == STORY[:80]


async def test_a_caller_that_does_not_stream_gets_a_fresh_answer_then() -> None:
    run = Run(cut_after(STORY[:80]), telling(STORY), capabilities=Capabilities(resume="no"))
    events = await run.ask(stream=False)
    assert said(events) == STORY
    assert end(events).attempts == 2
    assert run.engines["b"].requests[0].prefix is None


async def test_an_engine_that_refuses_the_prefix_is_not_the_callers_fault() -> None:
    def b(asked: Any) -> Play:
        return Play(error=EngineError("status", "the last message must be the user's", status=400))

    run = Run(lambda asked: cut_after(STORY[:80]) if asked.attempt == 1 else telling(STORY)(asked), b)
    events = await run.ask()
    assert said(events) == STORY
    assert [a.error_kind for a in run.record.attempts] == ["stream.cut", "open.cannot_resume", ""]


async def test_resume_can_be_forbidden() -> None:
    run = Run(cut_after(STORY[:80]), telling(STORY))
    failed = end(await run.ask(overrides=PolicyOverrides(no_resume=True)))
    assert isinstance(failed, Failed)
    assert not run.engines["b"].requests


async def test_both_engines_dead_is_an_error_and_no_stop() -> None:
    run = Run(lambda _: cut_after(STORY[:80]), lambda _: Play(error=EngineError("connect", "refused")))
    events = await run.ask()
    failed = end(events)
    assert isinstance(failed, Failed)
    assert failed.attempts == 3
    assert said(events).startswith(STORY[:80])


async def test_the_callers_own_mistake_is_not_tried_elsewhere() -> None:
    run = Run(Play(error=EngineError("status", "max_tokens is too large", status=400)), telling(STORY))
    failed = end(await run.ask())
    assert isinstance(failed, Failed)
    assert (failed.code, failed.engine_status, failed.message) == ("engine_rejected", 400, "max_tokens is too large")
    assert not run.engines["b"].requests


async def test_observe_records_a_collapse_and_lets_it_through() -> None:
    run = Run(looping(STORY[:80], times=100))
    events = await run.ask(policy="watch")
    assert said(events) == STORY[:80] + "!" * 100
    assert any(f.code.startswith("repetition.") for f in run.record.attempts[0].findings)


# --- constraints ------------------------------------------------------------------------------------------------------


def schema() -> Constraint:
    return Constraint("json_schema", SCHEMA)


async def test_a_valid_document_passes_and_its_verdict_says_so() -> None:
    run = Run(telling('{"n": 42}'))
    events = await run.ask(constraint=schema())
    assert said(events) == '{"n": 42}'
    finished = end(events)
    assert isinstance(finished, Finished)
    assert finished.verdicts.format == "ok"


@pytest.mark.parametrize("bad", ['{"n": "x"}', "Sure! Here you are", "{{", '{"n": 1'])
async def test_a_document_that_breaks_its_schema_never_finishes(bad: str) -> None:
    run = Run(lambda _: answer(*bad), lambda _: answer(*bad))
    events = await run.ask(constraint=schema())
    failed = end(events)
    assert isinstance(failed, Failed)
    assert failed.code == "constraint_violated"
    assert failed.verdicts.format == "failed"
    with pytest.raises(ValueError, match=r".*"):
        json.loads(said(events))


async def test_an_engine_that_broke_its_promise_is_on_record() -> None:
    run = Run(telling("Sure! Here you are"), telling('{"n": 42}'))
    events = await run.ask(constraint=schema())
    assert said(events) == '{"n": 42}'
    assert run.record.attempts[0].contradictions == ["json_schema:json.invalid"]
    assert run.record.attempts[1].contradictions == []


# --- tools ------------------------------------------------------------------------------------------------------------

WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOL = Tool(
    "get_weather", WEATHER, False, {"type": "function", "function": {"name": "get_weather", "parameters": WEATHER}}
)
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'


def calls(events: list[GuardEvent]) -> list[tuple[str, str]]:
    made: dict[int, tuple[str, str]] = {}
    for event in events:
        if isinstance(event, ToolRelease):
            name, arguments = made.get(event.index, ("", ""))
            made[event.index] = (name + (event.name or ""), arguments + event.arguments)
    return [made[index] for index in sorted(made)]


async def test_a_call_that_the_engine_left_in_its_text_becomes_a_call() -> None:
    run = Run(telling("Let me look. " + CALL))
    events = await run.ask(tools=(TOOL,))
    assert calls(events) == [("get_weather", '{"city": "Oslo"}')]
    assert "<tool_call>" not in said(events)
    finished = end(events)
    assert isinstance(finished, Finished)
    assert finished.reason == "tool_calls"
    assert (finished.verdicts.format, finished.verdicts.tool_choice) == ("ok", "ok")


async def test_markup_without_tools_on_offer_is_a_leak() -> None:
    run = Run(telling("Let me look. " + CALL), telling(STORY))
    events = await run.ask()
    assert said(events) == "Let me look. " + STORY
    assert any(f.code == "leak.tool_markup" for f in run.record.attempts[0].findings)


async def test_a_call_with_arguments_that_break_the_tools_schema_never_finishes() -> None:
    bad = [
        ToolDelta(0, 0, "c1", "get_weather", '{"town": "Oslo"}'),
        FinishReason(0, "tool_calls"),
        Done(),
        Closed(True),
    ]
    run = Run(lambda _: Play([list(bad)]), lambda _: Play([list(bad)]))
    failed = end(await run.ask(tools=(TOOL,)))
    assert isinstance(failed, Failed)
    assert failed.code == "constraint_violated"


# --- refusals, limits, leaving ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "param", "code"),
    [
        ({"model": "other"}, "model", "model_not_found"),
        ({"policy": "none such"}, "outguard.policy", "invalid_request"),
        ({"engines": ("c",)}, "outguard.engines", "invalid_request"),
        ({"n": 5}, "n", "invalid_request"),
        ({"constraint": Constraint("regex", "(")}, "", "invalid_constraint"),
    ],
)
async def test_refusals_name_the_field_and_leave_a_row(more: dict[str, Any], param: str, code: str) -> None:
    run = Run(telling(STORY))
    with pytest.raises(RequestError) as raised:
        await run.ask(**more)
    assert raised.value.code == code
    assert not param or raised.value.param == param
    assert (run.record.outcome, run.record.error_code) == ("invalid", code)
    assert not run.engines["a"].requests


async def test_the_chosen_engine_is_the_only_one() -> None:
    run = Run(telling("from a"), telling("from b"))
    assert said(await run.ask(engines=("b",))) == "from b"


async def test_above_the_limit_a_request_is_turned_away() -> None:
    run = Run(lambda _: Play([[TextDelta(0, "content", "a")], Silence()]))
    streams = [run.pipeline.generate(request()) for _ in range(3)]
    for stream in streams:
        await anext(stream)
    with pytest.raises(RequestError) as raised:
        await run.ask()
    assert raised.value.code == "overloaded"
    assert not run.pipeline.ready()[0]
    for stream in streams:
        await stream.aclose()
    assert run.pipeline.ready()[0]


async def test_a_caller_that_leaves_ends_the_engines_work_and_is_on_record() -> None:
    run = Run(cut_after(STORY[:80], TextDelta(0, "content", "x")))
    stream = run.pipeline.generate(request())
    async for batch in stream:
        if any(isinstance(event, Release) for event in batch):
            break
    await stream.aclose()
    assert run.engines["a"].streams[0].closed_early
    assert run.record.outcome == "cancelled"
    assert run.record.attempts[0].outcome == "cancelled"


async def test_the_deadline_ends_it() -> None:
    run = Run(lambda _: Play(wait=5.0))
    started = time.monotonic()
    failed = end(await run.ask(deadline=started + 0.1))
    assert isinstance(failed, Failed)
    assert failed.code == "deadline_exceeded"
    assert time.monotonic() - started < 1.0


async def test_the_record_is_written_before_the_caller_hears_of_the_end() -> None:
    run = Run(telling(STORY))
    async for batch in run.pipeline.generate(request()):
        if isinstance(batch[-1], Finished):
            assert run.record.outcome == "ok"


async def test_nothing_is_left_running() -> None:
    before = asyncio.all_tasks()
    run = Run(lambda _: cut_after(STORY[:80]), telling(STORY))
    await run.ask(n=3)
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before


@pytest.mark.parametrize("fails", ["StreamGuard", "Reading"])
@pytest.mark.parametrize(("n", "number"), [(1, 1), (1, 2), (3, 3)], ids=["first", "retry", "choice"])
async def test_a_fault_of_ours_at_the_beginning_of_an_attempt_keeps_no_place(
    monkeypatch: pytest.MonkeyPatch, fails: str, n: int, number: int
) -> None:
    import guard.attempt

    real, made = getattr(guard.attempt, fails), 0

    def broken(*args: Any, **more: Any) -> Any:
        nonlocal made
        made += 1
        if made == number:
            raise RuntimeError("a fault of ours")
        return real(*args, **more)

    monkeypatch.setattr(guard.attempt, fails, broken)
    run = Run(Play(error=EngineError("connect", "refused")) if n == 1 else telling(STORY), telling(STORY))
    with pytest.raises(RuntimeError):
        await run.ask(n=n)
    fleet = run.pipeline.traffic.fleet
    assert [fleet.under_way(name) for name in "ab"] == [0, 0]
    assert run.record.error_code == "internal"


async def test_a_request_that_cannot_be_put_on_record_is_not_under_way() -> None:
    run = Run(telling(STORY))
    for _ in range(5):  # more than there may be at once
        with pytest.raises(UnicodeEncodeError):
            await run.ask(messages=[{"role": "user", "content": "half a pair: \ud800"}], retention="full")
    assert run.pipeline.ready() == (True, "ready")
    assert said(await run.ask()) == STORY


async def test_a_fault_of_ours_before_a_stream_is_read_closes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    import guard.pipeline

    def broken(*_: Any) -> Any:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(guard.pipeline, "Relay", broken)
    run = Run(telling(STORY))
    with pytest.raises(RuntimeError):
        await run.ask()
    assert run.engines["a"].streams[0].closed_early


# --- the caller's own stream ------------------------------------------------------------------------------------------


async def test_a_checked_stream_leaves_evidence_too() -> None:
    run = Run()
    session = await run.pipeline.check(request(constraint=schema()))
    out = session.feed([TextDelta(0, "content", '{"n": '), TextDelta(0, "content", "1}"), FinishReason(0, "stop")])
    out += session.close()
    assert isinstance(out[0], Started)
    assert said(out) == '{"n": 1}'
    assert isinstance(end(out), Finished)
    record = run.record
    assert (record.protocol, record.outcome, record.verdict_format) == ("check", "ok", "ok")
    assert record.trace_id == out[0].trace_id
    assert [(a.engine, a.outcome, a.released_chars) for a in record.attempts] == [("caller", "ok", 8)]
    session.close()
    assert len(run.tracing.records) == 1


async def test_a_check_that_its_caller_left_is_on_record() -> None:
    run = Run()
    session = await run.pipeline.check(request())
    session.feed([TextDelta(0, "content", "Once upon")])
    session.abandon()
    session.abandon()
    assert (run.record.outcome, run.record.error_code, run.record.released_chars) == ("failed", "stream_cut", 9)
    assert len(run.tracing.records) == 1


async def test_a_check_that_was_closed_cannot_be_left() -> None:
    run = Run()
    session = await run.pipeline.check(request())
    session.feed([TextDelta(0, "content", "Good day."), FinishReason(0, "stop"), Done()])
    session.close()
    session.abandon()
    assert [record.outcome for record in run.tracing.records] == ["ok"]


async def test_a_condemned_check_says_why_on_record() -> None:
    run = Run()
    session = await run.pipeline.check(request())
    out = session.feed([TextDelta(0, "content", STORY[:80]), TextDelta(0, "content", "!" * 300)]) + session.close()
    assert said(out) == STORY[:80]
    failed = end(out)
    assert isinstance(failed, Failed)
    assert failed.code == "collapsed"
    attempt = run.record.attempts[0]
    assert (attempt.outcome, attempt.error_kind, attempt.onset) == ("condemned", "repetition.single_token", 80)


async def test_a_check_is_turned_away_like_any_request() -> None:
    run = Run()
    run.pipeline.stop()
    with pytest.raises(RequestError) as raised:
        await run.pipeline.check(request())
    assert raised.value.code == "engine_unavailable"


async def test_checks_are_counted_among_what_is_under_way() -> None:
    run = Run()
    sessions = [await run.pipeline.check(request()) for _ in range(3)]
    with pytest.raises(RequestError) as raised:
        await run.pipeline.check(request())
    assert raised.value.code == "overloaded"
    with pytest.raises(RequestError):
        await anext(run.pipeline.generate(request()))
    assert not run.pipeline.ready()[0]
    sessions[0].abandon()
    sessions[0].abandon()
    sessions[1].feed([TextDelta(0, "content", "Good day."), FinishReason(0, "stop"), Done()])
    sessions[1].close()
    sessions[1].abandon()
    await run.pipeline.check(request())
    await run.pipeline.check(request())
    with pytest.raises(RequestError):
        await run.pipeline.check(request())
