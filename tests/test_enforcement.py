"""Engines that do not keep to a constraint, held to it from outside: whole requests over scripted engines."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import jsonschema_rs
import pytest

from guard.config import parse_config
from guard.constraint.cache import ConstraintCache
from guard.constraint.compile import compile_constraint
from guard.constraint.spec import Constraint
from guard.engines.contract import Capabilities, EngineError, EngineRequest, ResumeUnsupported
from guard.engines.scripted import ALL, Play, ScriptedEngine, Step, answer
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
    TextDelta,
    Usage,
)
from guard.pipeline import Pipeline
from guard.request import GenerationRequest, PolicyOverrides, RequestError, Sampling
from guard.trace.record import RequestRecord
from guard.trace.retention import RetentionRules
from guard.trace.tracing import Tracing
from tests.bench.schema_pairs import Schemas

CONFIG = """\
engines:
  - {name: a, url: "http://127.0.0.1:1", dialect: vllm}
  - {name: b, url: "http://127.0.0.1:2", dialect: vllm}
routes:
  - {model: m, engines: [a]}
  - {model: two, engines: [a, b]}
policies:
  default: {max_attempts: 1, backoff_initial: 0.001, backoff_max: 0.002}
  patient: {max_attempts: 3, backoff_initial: 0.001, backoff_max: 0.002}
  never: {max_attempts: 1, max_enforcements: 0}
  few: {max_attempts: 1, max_enforcements: 2}
  whole: {max_attempts: 1, json_release: on_complete}
"""
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer"}, "ok": {"type": "boolean"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
FREE = Capabilities(resume="text")
"""An engine that knows no constraints."""

Wish = Callable[[str], tuple[str, ...]]


class Model:
    """Writes what it likes to write next, one token a batch, as long as it may. ``wish``: from the text so far to its
    tokens, the likeliest first; none: it stops. ``names``: how many of them it would tell."""

    def __init__(self, wish: Wish, *, names: int = 1000, refuses: str = "") -> None:
        self.wish = wish
        self.names = names
        self.refuses = refuses
        self.requests: list[EngineRequest] = []

    def __call__(self, asked: EngineRequest) -> Play:
        self.requests.append(asked)
        sampling = asked.request.sampling
        if sampling.logprobs and (sampling.top_logprobs or 0) > self.names:
            return Play(error=EngineError("status", "too many top_logprobs", status=400))
        if self.refuses == "constraint" and asked.prefix is not None and asked.constrain:
            return Play(error=EngineError("status", "the grammar does not take the prefix", status=400))
        if self.refuses == "prefix" and asked.prefix is not None:
            return Play(error=ResumeUnsupported("no prefix is taken"))
        text = asked.prefix.content if asked.prefix is not None else ""
        steps: list[Step] = [[Opened("x", "m")]]
        count = 0
        reason = "stop"
        while tokens := self.wish(text):
            if count == (asked.max_tokens or 60):
                reason = "length"
                break
            entries = [self._entry(tokens, sampling)] if sampling.logprobs else None
            steps.append([TextDelta(0, "content", tokens[0], logprobs=entries)])
            text += tokens[0]
            count += 1
        return Play([*steps, [FinishReason(0, reason), Usage(5, count, 5 + count), Done(), Closed(True)]])

    def _entry(self, tokens: tuple[str, ...], sampling: Sampling) -> dict[str, Any]:
        top = [{"token": t, "logprob": -1.0 - i, "bytes": list(t.encode())} for i, t in enumerate(tokens)]
        return {**top[0], "top_logprobs": top[: sampling.top_logprobs or 0]}


def wishing(*rules: tuple[str, tuple[str, ...]]) -> Wish:
    """By the end of the text so far: the first rule that fits; the last one is for everything else."""
    return lambda text: next(tokens for end, tokens in rules if text.endswith(end))


class Kept(Tracing):
    def __init__(self) -> None:
        super().__init__(retention=RetentionRules(default="full"))
        self.records: list[RequestRecord] = []

    def write(self, record: RequestRecord) -> None:
        self.records.append(record)


class Run:
    def __init__(self, a: Any, b: Any = None, *, a_is: Capabilities = FREE, b_is: Capabilities = FREE) -> None:
        engines = {
            "a": ScriptedEngine("a", a, capabilities=a_is),
            "b": ScriptedEngine("b", b or [], capabilities=b_is),
        }
        self.tracing = Kept()
        self.pipeline = Pipeline(parse_config(CONFIG), engines, ConstraintCache(), self.tracing)
        self.engines = engines

    async def ask(self, **more: Any) -> list[GuardEvent]:
        fields: dict[str, Any] = {
            "id": "r",
            "kind": "chat",
            "model": "m",
            "messages": [{"role": "user", "content": "Who?"}],
            "constraint": Constraint("json_schema", PERSON),
        }
        asked = GenerationRequest(**{**fields, **more})
        return [event async for batch in self.pipeline.generate(asked) for event in batch]

    @property
    def actions(self) -> list[tuple[str, str]]:
        (record,) = self.tracing.records
        return [(attempt.engine, attempt.action) for attempt in record.attempts]

    def enforced(self) -> list[str]:
        (record,) = self.tracing.records
        return [f.message for a in record.attempts for f in a.findings if f.code == "constraint.enforced"]


def said(events: list[GuardEvent]) -> str:
    return "".join(e.text for e in events if isinstance(e, Release))


def end(events: list[GuardEvent]) -> Finished | Failed:
    (last,) = [e for e in events if isinstance(e, Finished | Failed)]
    return last


def is_person(text: str) -> bool:
    return bool(jsonschema_rs.is_valid(PERSON, json.loads(text)))


PROSE = wishing(
    ("", ("Sure", "Well")),
)
TALKER = wishing(
    ('{"', ("title", "name")),
    ('"name":"', ("Bo", "Al")),
    ("Bo", ('"', "b")),
    ('Bo"', (",", "}")),
    (',"', ("height", "age")),
    ('"age":', ('"', "twelve", "12", "7")),
    ("12", (" years", "}", "0")),
    ("}", ("\n\nHope", "\n")),
    ("", ("Sure", "Well")),
)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("policy", ["default", "whole"])
async def test_an_engine_that_talks_is_held_to_the_schema(stream: bool, policy: str) -> None:
    run = Run(Model(TALKER))
    events = await run.ask(stream=stream, policy=policy)
    finished = end(events)
    assert isinstance(finished, Finished), finished
    assert is_person(said(events))
    assert json.loads(said(events)) == {"name": "Bo", "age": 12}
    assert (finished.reason, finished.verdicts.format) == ("stop", "ok")
    assert {action for _, action in run.actions[:-1]} == {"enforce"}
    assert len(run.enforced()) == len(run.actions) - 1
    recoveries = [e.action for e in events if isinstance(e, Recovery)]
    assert recoveries == ["enforce"] * (len(run.actions) - 1)
    found = [e.finding.code for e in events if isinstance(e, Found)]
    assert found.count("constraint.enforced") == len(recoveries)


async def test_nothing_invalid_is_ever_released_on_the_way() -> None:
    run = Run(Model(TALKER))
    text = ""
    for event in await run.ask():
        if isinstance(event, Release):
            text += event.text
            assert '{"name":"Bo","age":12}'.startswith("".join(text.split()))


async def test_what_is_not_forced_comes_from_the_engine_alone() -> None:
    run = Run(Model(wishing(('"age":', ('"', "twelve")), ("", ("Sure",)))))
    events = await run.ask(policy="few")
    assert isinstance(end(events), Failed)
    assert end(events).code == "constraint_violated"  # type: ignore[union-attr]
    assert said(events) in ("", '{"', '{"name":"')[: len(run.actions) + 1]


async def test_the_bound_holds_and_zero_turns_it_off() -> None:
    for policy, attempts in (("never", 1), ("few", 3)):
        run = Run(Model(PROSE))
        failed = end(await run.ask(policy=policy))
        assert isinstance(failed, Failed)
        assert (failed.code, failed.attempts) == ("constraint_violated", attempts)
        assert run.actions[-1] == ("a", "fail")
        first = run.engines["a"].requests[0].request.sampling
        assert first.logprobs == (policy == "few")


async def test_what_the_guard_asked_for_is_not_shown() -> None:
    run = Run(Model(TALKER))
    assert all(e.logprobs is None for e in await run.ask() if isinstance(e, Release))
    assert run.engines["a"].requests[0].request.sampling.top_logprobs == 20
    run = Run(Model(TALKER))
    events = await run.ask(sampling=Sampling(logprobs=True, top_logprobs=1))
    entries = [entry for e in events if isinstance(e, Release) for entry in e.logprobs or ()]
    assert entries
    assert all(len(entry["top_logprobs"]) == 1 for entry in entries)
    own = "".join(entry["token"] for entry in entries)
    assert "{" not in own
    assert "name" not in own


async def test_an_engine_without_log_probabilities_is_asked_again_with_other_sampling() -> None:
    def by_seed(asked: EngineRequest) -> Play:
        warm = (asked.request.sampling.temperature or 0) > 0.5
        return Model(wishing(('"n":', ("5",) if warm else ("five",)), ("5", ("}",)), ("", ("Sure",))))(asked)

    run = Run(by_seed, a_is=Capabilities(resume="text", logprobs=False))
    number = {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
        "additionalProperties": False,
    }
    events = await run.ask(constraint=Constraint("json_schema", number), sampling=Sampling(temperature=0.0))
    assert isinstance(end(events), Finished)
    assert json.loads(said(events)) == {"n": 5}
    temperatures = [asked.request.sampling.temperature for asked in run.engines["a"].requests]
    assert temperatures == [0.0, 0.0, pytest.approx(0.3), pytest.approx(0.6)]


@pytest.mark.parametrize(("names", "asked"), [(20, {20, 200}), (5, {20})])
async def test_an_engine_that_names_fewer_tokens_is_asked_for_fewer(names: int, asked: set[int]) -> None:
    """The first refusals are about what the guard asked for, not about the caller's request."""
    model = Model(wishing(('"age":', ('"',)), *TALKER_REST), names=names)
    run = Run(model)
    events = await run.ask()
    wanted = {r.request.sampling.top_logprobs for r in model.requests if r.request.sampling.logprobs}
    assert wanted == asked
    if names == 5:
        assert model.requests[-1].request.sampling.logprobs is False
    assert isinstance(end(events), Failed)
    assert end(events).code == "constraint_violated"  # type: ignore[union-attr]


TALKER_REST = (('{"', ("name",)), ('"name":"', ('Bo"',)), ('Bo"', (',"age":',)), ("", ("Sure",)))


async def test_an_engine_that_stopped_early_is_not_let_stop() -> None:
    def stops(asked: EngineRequest) -> Play:
        begun = asked.prefix.content if asked.prefix is not None else ""
        if not begun:
            return answer('{"name": "Bo", ')
        goes_on = Model(wishing(('"', ("age",)), ("age", ('": 3',)), ("3", ("}",)), ("", ("\n",))))
        return goes_on(asked) if asked.ignore_eos else answer()

    run = Run(stops)
    events = await run.ask()
    assert isinstance(end(events), Finished), end(events)
    assert json.loads(said(events)) == {"name": "Bo", "age": 3}


async def test_a_document_that_the_engine_left_open_is_closed_where_nothing_else_may_come() -> None:
    run = Run(lambda _: answer('{"name": "Bo", "age": 3, "ok": true'))
    events = await run.ask()
    assert said(events) == '{"name": "Bo", "age": 3, "ok": true}'
    assert isinstance(end(events), Finished)
    assert run.actions == [("a", "enforce"), ("outguard", "finish")]
    assert len(run.engines["a"].requests) == 1


async def test_the_callers_own_limit_is_no_reason_to_go_on() -> None:
    run = Run(lambda _: answer('{"name": "Bo", ', reason="length"))
    finished = end(await run.ask())
    assert isinstance(finished, Finished)
    assert finished.reason == "length"
    assert run.actions == [("a", "finish")]


@pytest.mark.parametrize("stream", [True, False])
async def test_what_follows_a_whole_document_is_cut_off(stream: bool) -> None:
    document = '{"name": "Bo", "age": 3}'
    run = Run(lambda _: answer(*document, "\n\n", "Hope", " this", " helps!"))
    events = await run.ask(stream=stream)
    assert json.loads(said(events)) == {"name": "Bo", "age": 3}
    assert isinstance(end(events), Finished)
    assert len(run.engines["a"].requests) == 1
    assert run.enforced() == ["the answer was whole, and what followed was cut off"]


async def test_a_fenced_document_followed_by_prose_is_whole() -> None:
    pieces = ("```json\n", '{"name": "Bo", ', '"age": 3}', "\n```\n", "Hope", " this helps!")
    events = await Run(lambda _: answer(*pieces)).ask()
    assert said(events).strip() == '{"name": "Bo", "age": 3}'
    assert isinstance(end(events), Finished)


async def test_the_budget_counts_what_was_put_there() -> None:
    model = Model(TALKER)
    finished = end(await Run(model).ask(sampling=Sampling(max_tokens=40)))
    assert isinstance(finished, Finished)
    assert [r.max_tokens for r in model.requests][:3] == [40, 39, 37]  # {" and name":"
    assert finished.usage.completion_tokens >= 6
    assert finished.wasted_tokens > 0


# --- which engine -----------------------------------------------------------------------------------------------------


async def test_an_engine_that_can_constrain_is_asked_afresh_while_nothing_has_left() -> None:
    run = Run(Model(PROSE), lambda _: answer('{"name": "Bo", "age": 3}'), b_is=ALL)
    events = await run.ask(model="two", policy="patient")
    assert said(events) == '{"name": "Bo", "age": 3}'
    assert run.actions == [("a", "retry"), ("b", "finish")]


async def test_an_engine_that_stays_constrained_is_preferred_to_go_on() -> None:
    def rest(asked: EngineRequest) -> Play:
        assert asked.constrain
        assert asked.prefix is not None
        return answer(*'{"name":"Bo","age":3}'.removeprefix(asked.prefix.content))

    begun = wishing(("Bo", ("\n",)), ('"name":"', ("Bo",)), ("", ('{"name":"',)))
    llamacpp = Capabilities(resume="text", resume_constrained=True, constraints=frozenset({"json_schema"}))
    run = Run(Model(begun), rest, b_is=llamacpp)
    events = await run.ask(model="two")
    assert said(events) == '{"name":"Bo","age":3}'
    assert run.actions == [("a", "enforce"), ("b", "finish")]


async def test_an_engine_whose_grammar_does_not_take_the_prefix_goes_on_without_it() -> None:
    llamacpp = Capabilities(resume="text", resume_constrained=True, constraints=frozenset({"json_schema"}))
    model = Model(TALKER, refuses="constraint")
    run = Run(model, a_is=llamacpp)
    events = await run.ask()
    assert isinstance(end(events), Finished)
    assert is_person(said(events))
    assert [asked.constrain for asked in model.requests] == [True, True, *[False] * (len(model.requests) - 2)]


async def test_a_broken_promise_is_held_to_and_on_record() -> None:
    run = Run(Model(TALKER), a_is=ALL)
    events = await run.ask()
    assert is_person(said(events))
    (record,) = run.tracing.records
    assert record.attempts[0].contradictions == ["json_schema:json.invalid"]
    assert not any(attempt.contradictions for attempt in record.attempts[1:])


async def test_a_keyword_that_an_engine_never_took_is_no_broken_promise() -> None:
    number = Constraint("json_schema", {"type": "object", "properties": {"n": {"type": "number", "minimum": 0}}})

    def play(unenforced: tuple[str, ...]) -> Play:
        said = answer('{"n": -1}')
        said.unenforced = unenforced
        return said

    for unenforced, recorded in (((), ["json_schema:schema.minimum"]), (("minimum",), []), (("json_schema",), [])):
        run = Run(lambda _, unenforced=unenforced: play(unenforced), a_is=ALL)
        await run.ask(constraint=number, policy="never")
        assert run.tracing.records[0].attempts[0].contradictions == recorded


async def test_where_no_engine_can_go_on_nothing_is_forced() -> None:
    run = Run(Model(PROSE, refuses="prefix"), a_is=Capabilities(resume="no"))
    failed = end(await run.ask())
    assert isinstance(failed, Failed)
    assert (failed.code, failed.attempts) == ("constraint_violated", 1)


async def test_a_caller_that_forbids_going_on_is_heeded() -> None:
    run = Run(Model(TALKER))
    failed = end(await run.ask(overrides=PolicyOverrides(no_resume=True)))
    assert isinstance(failed, Failed)
    assert failed.attempts == 1


# --- what only the judge sees -----------------------------------------------------------------------------------------

LATE = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a"],
    "additionalProperties": False,
    "not": {"properties": {"a": {"const": 1}}},
}


@pytest.mark.parametrize(("stream", "ends"), [(False, Finished), (True, Failed)])
async def test_what_was_kept_can_be_taken_back_and_what_has_left_cannot(stream: bool, ends: type) -> None:
    """The document is invalid as a whole, which only its last character shows."""
    seen: list[str] = []

    def play(asked: EngineRequest) -> Play:
        seen.append(asked.prefix.content if asked.prefix is not None else "")
        return answer(*('{"a": 1}' if len(seen) == 1 else '{"a": 2}'.removeprefix(seen[-1])))

    run = Run(play)
    events = await run.ask(constraint=Constraint("json_schema", LATE), stream=stream)
    assert isinstance(end(events), ends)
    if not stream:
        assert json.loads(said(events)) == {"a": 2}


# --- other constraints ------------------------------------------------------------------------------------------------


async def test_a_choice_and_a_regex() -> None:
    run = Run(Model(wishing(("", ("The", "r", "l")))))
    events = await run.ask(constraint=Constraint("choice", ("left", "right")))
    assert said(events) == "right"
    run = Run(Model(wishing(("7", (" apples",)), ("", ("About", "7")))))
    events = await run.ask(constraint=Constraint("regex", "[0-9]+"))
    assert said(events) == "7"
    assert isinstance(end(events), Finished)


# --- whatever the engine and the schema -------------------------------------------------------------------------------

WORDS = [
    "{",
    "}",
    "[",
    "]",
    '"',
    ":",
    ",",
    " ",
    "\n",
    "1",
    "-",
    "0",
    "true",
    "false",
    "null",
    "a",
    "é",
    "\\",
    "re",
    "d",
]


def monkey(seed: int) -> Wish:
    """Likes any token anywhere; the same one at the same place."""

    def wish(text: str) -> tuple[str, ...]:
        rng = random.Random(f"{seed} {text}")
        return () if rng.random() < 0.1 else tuple(rng.sample(WORDS, len(WORDS)))

    return wish


@pytest.mark.parametrize("seed", range(60))
async def test_what_finishes_is_valid_and_what_leaves_may_become_so(seed: int) -> None:
    schema = Schemas(seed).schema()
    try:
        compile_constraint(Constraint("json_schema", schema))
    except RequestError:
        pytest.skip("the generated schema is refused")
    run = Run(Model(monkey(seed)))
    stream = seed % 3 > 0
    policy = ("default", "whole")[seed % 2]
    events = await run.ask(constraint=Constraint("json_schema", schema), stream=stream, policy=policy)
    last = end(events)
    if isinstance(last, Finished) and last.reason == "stop":
        assert jsonschema_rs.validator_for(schema).is_valid(json.loads(said(events)))
        assert last.verdicts.format == "ok"
    else:
        with pytest.raises(ValueError, match=r"."):
            json.loads(said(events))


# --- behind reasoning -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [True, False])
async def test_what_follows_reasoning_in_the_content_goes_on_behind_it(stream: bool) -> None:
    """The engine has no reasoning parser: what it goes on from is what it has itself written."""
    seen: list[str] = []

    def play(asked: EngineRequest) -> Play:
        if asked.prefix is None:
            return answer("<think>", "\nBo ", "is 12.\n", "</think>", "\n\n", "Sure")
        seen.append(asked.prefix.lead)
        return Model(TALKER)(asked)

    run = Run(play)
    events = await run.ask(stream=stream)
    assert isinstance(end(events), Finished), end(events)
    texts = {channel: "".join(e.text for e in events if isinstance(e, Release) and e.channel == channel)
             for channel in ("reasoning", "content")}  # fmt: skip
    assert texts["reasoning"] == "Bo is 12."
    assert is_person(texts["content"])
    assert set(seen) == {"<think>\nBo is 12.\n</think>\n\n"}


async def test_what_an_engine_takes_for_reasoning_behind_the_beginning_of_an_answer_is_the_answer() -> None:
    def play(asked: EngineRequest) -> Play:
        said = Model(TALKER)(asked)
        if asked.prefix is not None:
            for step in said.steps:
                for event in step if isinstance(step, list) else ():
                    if isinstance(event, TextDelta):
                        event.channel = "reasoning"
        return said

    events = await Run(play).ask()
    assert isinstance(end(events), Finished), end(events)
    assert {e.channel for e in events if isinstance(e, Release)} == {"content"}
    assert is_person(said(events))
