"""Where there is a way on for an answer that broke what was asked of it, and what an engine is asked for."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from guard.admission import Job
from guard.budget import RetryBudget
from guard.calling import FORBIDDEN
from guard.candidates import Candidates
from guard.config import Policy
from guard.constraint.callframe import Standing
from guard.constraint.compile import compile_constraint
from guard.constraint.spec import Constraint
from guard.delivered import Delivered
from guard.enforce import ALTERNATIVES, DEEP, Salvage
from guard.engines.contract import Capabilities
from guard.events import Release, TextDelta
from guard.health.fleet import Fleet
from guard.health.settings import HealthSettings
from guard.mending import Broken, Mending, Way
from guard.request import GenerationRequest, Tool, ToolChoice
from guard.routing import Router
from guard.watch import Condemned

FREE = Capabilities(resume="text")
ABLE = replace(FREE, constraints=frozenset({"json_schema"}))
OBJECT: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "integer"}},
    "required": ["a"],
    "additionalProperties": False,
}
SCHEMA = Constraint("json_schema", OBJECT)
COMPILED = compile_constraint(SCHEMA)
LOOK = Tool("look", OBJECT, False, {"type": "function", "function": {"name": "look"}})
CALLS = GenerationRequest("r", "chat", "m", tools=(LOOK,), tool_choice=ToolChoice("required"))
WRITES = GenerationRequest("r", "chat", "m", constraint=SCHEMA)
BROKE = Condemned("schema.type", "a number was wanted")
OWED = Condemned("tool.missing_call", "no call came", "stream")
UNWANTED = Condemned(FORBIDDEN, "a call came", "tool:0")


class Guard:
    """What an attempt leaves behind: ``said`` waits, and ``taken_back`` characters of what was let go may not stand."""

    def __init__(self, said: str, taken_back: int = 0) -> None:
        self._salvage = Salvage([TextDelta(0, "content", said)] if said else [], taken_back, None)

    def salvage(self) -> Salvage:
        return self._salvage

    def standing(self) -> Standing:
        return Standing([], None)


def made(
    engines: dict[str, Capabilities], *, stream: bool = True, tools: bool = False, tried: str = "a", **policy: Any
) -> Mending:
    request = replace(CALLS if tools else WRITES, stream=stream)
    names = tuple(engines)
    fleet = Fleet(HealthSettings(), dict.fromkeys(names, 0))
    router = Router(names, fleet, RetryBudget(0.2, 10), balanced=False, origins=dict.fromkeys(names, ("", "")))
    candidates = Candidates(names, request, engines, router)
    candidates.tried.update(tried)
    compiled, each = (None, {"look": COMPILED}) if tools else (COMPILED, {})
    formats = dict.fromkeys(names, "hermes") if tools else {}
    job = Job(request, Policy(**policy), "default", names, compiled, each, 60.0, formats)
    return Mending(job, request, 0, candidates, engines)


def delivered(text: str) -> Delivered:
    it = Delivered()
    if text:
        it.add(Release(0, "content", text))
    return it


def broken(why: Condemned, said: str = "", *, before: str = "", taken_back: int = 0, left: bool = True) -> Broken:
    guard: Any = Guard(said, taken_back)
    return Broken(guard, why, "a", delivered(before), left, 0.0)


def test_content_goes_on_from_its_last_valid_character_with_what_is_forced() -> None:
    way = made({"a": FREE}).way(broken(BROKE, "{"))
    assert way is not None
    assert (way.seed.text, way.taken_back, way.anew) == ('{"a":', 0, False)


@pytest.mark.parametrize(
    ("engines", "stream", "before", "left", "better"),
    [
        ({"a": FREE, "b": ABLE}, True, "", True, True),
        ({"a": FREE, "b": ABLE}, False, "{", True, True),  # what is kept has not left
        ({"a": FREE, "b": ABLE}, True, "{", True, False),
        ({"a": FREE, "b": ABLE}, True, "", False, False),
        ({"a": FREE, "b": FREE}, True, "", True, False),
    ],
)
def test_an_engine_that_constrains_by_itself_is_better_while_nothing_has_left(
    engines: dict[str, Capabilities], stream: bool, before: str, left: bool, better: bool
) -> None:
    way = made(engines, stream=stream).way(broken(BROKE, "" if before else "{", before=before, left=left))
    assert (way is None) == better
    tried = made(engines, stream=stream, tried="ab").way(broken(BROKE, "" if before else "{", before=before, left=left))
    assert tried is not None


@pytest.mark.parametrize(
    ("stream", "before", "left", "better"),
    [(True, "", True, True), (False, "So", True, True), (True, "So", True, False), (True, "", False, False)],
)
@pytest.mark.parametrize("why", [OWED, UNWANTED])
def test_any_other_engine_is_better_for_a_call_while_nothing_has_left(
    why: Condemned, stream: bool, before: str, left: bool, better: bool
) -> None:
    it = made({"a": FREE, "b": FREE}, stream=stream, tools=True)
    assert (it.way(broken(why, before=before, left=left)) is None) == better


@pytest.mark.parametrize("stream", [True, False])
def test_what_was_kept_can_be_taken_back_and_what_has_left_cannot(stream: bool) -> None:
    way = made({"a": FREE}, stream=stream).way(broken(BROKE, before='{"b', taken_back=2))
    if stream:
        assert way is None
    else:
        assert way is not None
        assert (way.taken_back, way.seed.text) == (2, '"a":')


@pytest.mark.parametrize("policy", [{"max_enforcements": 0}, {"resume": False}, {"constraints": "observe"}])
def test_a_policy_may_forbid_it(policy: dict[str, Any]) -> None:
    assert made({"a": FREE}, **policy).way(broken(BROKE, "{")) is None
    assert made({"a": FREE}, tools=True, **policy).way(broken(OWED)) is None
    assert made({"a": FREE}, tools=True, **policy).way(broken(UNWANTED)) is None


def test_an_engine_that_cannot_go_on_is_no_way() -> None:
    unable = replace(FREE, resume="no")
    assert made({"a": unable}).way(broken(BROKE, "{")) is None
    assert made({"a": unable}, tools=True).way(broken(OWED)) is None
    assert made({"a": unable}, tools=True).way(broken(UNWANTED, before="So")) is None


@pytest.mark.parametrize(("stream", "before", "anew"), [(True, "So", False), (False, "So", True), (True, "", True)])
def test_tools_are_withheld_once(stream: bool, before: str, anew: bool) -> None:
    it = made({"a": FREE}, stream=stream, tools=True)
    way = it.way(broken(UNWANTED, before=before))
    assert way is not None
    assert (way.anew, way.seed.text) == (anew, "")
    it.go_on(way)
    assert it.finding is not None
    assert it.finding.onset == (0 if anew else len(before))
    asked = it.asked(CALLS, "a", begun=not anew, constrained=True)
    assert (asked.tools, asked.tool_choice.mode) == ((), "none")
    assert it.way(broken(UNWANTED, before=before)) is None


@pytest.mark.parametrize("stream", [True, False])
def test_a_call_that_is_made_good_is_the_text_of_one(stream: bool) -> None:
    it = made({"a": FREE}, stream=stream, tools=True)
    way = it.way(broken(OWED, before="So"))
    assert way is not None
    assert "look" in way.seed.text
    assert (way.anew, way.seed.text[0].isspace()) == (not stream, stream)  # behind text it stands on a line of its own
    assert it.calling is not None
    assert it.has_called
    it.go_on(way)
    assert it.finding is not None
    assert it.finding.code == "constraint.enforced"


def test_decided_otherwise_the_answer_is_as_it_was_but_for_what_was_tried() -> None:
    it = made({"a": FREE}, tools=True)
    assert it.way(broken(OWED)) is not None
    it.go_on(None)
    assert (it.seed, it.calling, it.finding, it.stopped_early, it.has_called) == (None, None, None, False, True)


def asked_for(it: Mending, engine: str, **more: bool) -> int:
    sampling = it.asked(WRITES, engine, **more).sampling
    assert (sampling.top_logprobs or 0) == it.alternatives
    return it.alternatives


def test_tokens_are_asked_for_where_only_the_guard_holds_the_engine_or_has_had_to() -> None:
    it = made({"a": FREE, "b": ABLE, "c": replace(FREE, logprobs=False)}, tried="abc")
    afresh, behind = {"begun": False, "constrained": True}, {"begun": True, "constrained": False}
    assert [asked_for(it, engine, **afresh) for engine in "abc"] == [ALTERNATIVES, 0, 0]
    assert [asked_for(it, engine, **behind) for engine in "abc"] == [ALTERNATIVES, ALTERNATIVES, 0]
    assert asked_for(it, "b", begun=True, constrained=True) == 0
    it.go_on(it.way(broken(BROKE, "{")))
    assert asked_for(it, "b", begun=True, constrained=True) == ALTERNATIVES


def test_what_an_engine_has_refused_to_name_it_is_not_asked_for_again() -> None:
    it = made({"a": FREE, "b": FREE}, tried="ab")
    behind = {"begun": True, "constrained": False}
    asked_for(it, "a", **behind)
    while it.alternatives < DEEP:  # at one place where none of them was allowed, more are asked for
        way = it.way(broken(BROKE, '{"a":'))
        assert isinstance(way, Way)
        it.go_on(way)
        asked_for(it, "a", **behind)
    for less in (ALTERNATIVES, 0):
        assert it.asks_less("a")
        assert asked_for(it, "a", **behind) == less
    assert not it.asks_less("a")
    assert asked_for(it, "b", **behind) == DEEP
