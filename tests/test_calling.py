"""Tool calls that are made good from outside: their text, and whole requests over scripted engines."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guard.advice import advice
from guard.calling import CallReader, calling, mendable, owes_call
from guard.constraint.call_check import CallChecker
from guard.constraint.callform import call_form
from guard.constraint.callframe import Standing
from guard.constraint.compile import CompiledConstraint, compile_constraint
from guard.constraint.formats.content import ContentToolParser
from guard.constraint.formats.contract import TextCall
from guard.constraint.formats.families import FORMATS
from guard.constraint.input_check import InputChecker
from guard.constraint.spec import Constraint
from guard.constraint.tools import parse_tools
from guard.engines.contract import Capabilities, EngineRequest
from guard.engines.scripted import Play, Step, answer
from guard.events import (
    Closed,
    Done,
    Failed,
    Finding,
    Finished,
    FinishReason,
    Found,
    GuardEvent,
    Opened,
    Release,
    TextDelta,
    ToolDelta,
    ToolRelease,
    Usage,
)
from guard.request import GenerationRequest, ToolChoice
from tests.test_enforcement import FREE, Model, Run, end, said, wishing

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 12}, "unit": {"enum": ["c", "f"]}},
    "required": ["city", "unit"],
    "additionalProperties": False,
}
MAIL = {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]}
TOOLS = parse_tools({"tools": [{"name": "weather", "inputSchema": CITY}, {"name": "mail", "inputSchema": MAIL}]})
COMPILED = {tool.name: compile_constraint(Constraint("json_schema", tool.parameters)) for tool in TOOLS}
HERMES = call_form("hermes")
BASE = '<tool_call>\n{"name": "'
ONE = BASE + 'weather", "arguments": {"city": "Oslo", "unit": "c"}}\n</tool_call>'


def checker(names: tuple[str, ...] = ("weather", "mail"), calls: Any = ()) -> CallChecker:
    return CallChecker(HERMES, calls, {name: COMPILED[name] for name in names})


# (text, names, code of the error, good text, forced behind that)
TEXTS: list[tuple[str, tuple[str, ...], str, str, str]] = [
    ("", ("weather", "mail"), "tool.truncated", "", BASE),
    ("", ("weather",), "tool.truncated", "", BASE + 'weather", "arguments": {"city":"'),
    ("Sure", ("weather", "mail"), "tool.missing_call", "", BASE),
    (BASE, ("weather", "mail"), "tool.truncated", BASE, ""),
    (BASE + "w", ("weather", "mail"), "tool.truncated", BASE + "w", 'eather", "arguments": {"city":"'),
    (BASE + "get", ("weather", "mail"), "tool.unknown_name", BASE, ""),
    (BASE + "mails", ("weather", "mail"), "tool.unknown_name", BASE + "mail", '", "arguments": {"'),
    (BASE + 'mail", "arguments": [', ("mail",), "tool.invalid_json", BASE + 'mail", "arguments": ', '{"'),
    (
        BASE + 'weather", "arguments": {"town',
        ("weather",),
        "schema.additionalProperties",
        BASE + 'weather", "arguments": {"',
        "",
    ),
    (
        BASE + 'weather", "arguments": {"city": "Oslo", "u": 1',
        ("weather",),
        "schema.additionalProperties",
        BASE + 'weather", "arguments": {"city": "Oslo", "u',
        'nit":"',
    ),
    (ONE, ("weather",), "", ONE, ""),
    (ONE + "\n", ("weather",), "", ONE + "\n", ""),
    (ONE[:-13], ("weather",), "", ONE[:-13], ""),  # the closing markup is nobody's loss
    (ONE + " Done.", ("weather",), "tool.extra_data", ONE + " ", ""),
]


@pytest.mark.parametrize(("text", "names", "code", "good", "forced"), TEXTS)
def test_the_text_of_a_call(text: str, names: tuple[str, ...], code: str, good: str, forced: str) -> None:
    for parts in ([text], list(text), [text[at : at + 3] for at in range(0, len(text), 3)]):
        one = checker(names)
        found = [finding for part in parts for finding in one.feed(part)]
        found += one.finish(truncated=False)
        assert [finding.code for finding in found if finding.severity == "error"] == ([code] if code else [])
        assert text[: one.good] == good
    fresh = checker(names)
    fresh.feed(good)
    assert fresh.forced() == forced


@pytest.mark.parametrize("format", sorted(set(FORMATS) - {"auto"}))
def test_what_a_form_writes_is_read_as_the_same_calls(format: str) -> None:
    form = call_form(format)
    calls = [("weather", '{"city": "Oslo", "unit": "c"}'), ("mail", '{"to": "a"}')]
    text = form.before_name(calls)[: -len(form.opening.replace("{index}", "2"))].removesuffix(form.joint)
    family = format if format in ("llama3", "mistral", "deepseek_v3", "deepseek_v3_1", "kimi_k2", "longcat") else "auto"
    parser = ContentToolParser(family, TOOLS, ToolChoice("auto"))
    read = [*parser.feed(TextDelta(0, "content", text)), *parser.finish()]
    made: list[list[str]] = []
    for piece in read:
        if isinstance(piece, TextCall):
            if piece.name:
                made.append([piece.name, ""])
            made[-1][1] += piece.arguments
    assert made == [list(call) for call in calls]


ALPHABET = [
    BASE,
    "weather",
    "mail",
    '", "arguments": ',
    "{",
    "}",
    '"city"',
    ": ",
    '"Oslo"',
    ", ",
    '"unit"',
    '"c"',
    "\n",
]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from([*ALPHABET, "\n", "</tool_call>", "x", '"']), max_size=16), st.data())
def test_any_split_of_a_call_reads_the_same(words: list[str], data: st.DataObject) -> None:
    text = "".join(words)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=6)))
    parts = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    made = calling(request(), COMPILED, HERMES, Standing([], None), "tool.missing_call", behind="")
    assert made is not None

    def read(parts: list[str]) -> tuple[list[list[str]], list[str]]:
        reader = CallReader(made)
        calls: list[list[str]] = []
        codes: list[str] = []
        pieces = [piece for part in parts for piece in reader.feed(TextDelta(0, "content", part))]
        for piece in (*pieces, *reader.finish(truncated=False)):
            if isinstance(piece, Finding):
                codes.append(piece.code)
                continue
            if piece.name:
                calls.append([piece.name, ""])
            calls[-1][1] += piece.arguments
        return calls, codes

    assert read(parts) == read([text])


# --- what is forced, and what is not ----------------------------------------------------------------------------------


def request(choice: ToolChoice | None = None) -> GenerationRequest:
    chosen = choice or ToolChoice("required")
    return GenerationRequest(id="r", kind="chat", model="m", tools=TOOLS, tool_choice=chosen)


AUTO, NAMED = ToolChoice("auto"), ToolChoice("named", ("mail",))
WEATHER = ("weather", '{"city": "Oslo", "unit": "c"}')
FORCED: list[tuple[ToolChoice, Standing | None, str, str | None]] = [
    (ToolChoice("required"), Standing([], None), "tool.missing_call", BASE),
    (NAMED, Standing([], None), "tool.missing_call", BASE),
    (ToolChoice("allowed", ("mail",), required=True), Standing([], None), "tool.not_allowed", BASE),
    (AUTO, Standing([], ("weather", '{"city": "')), "schema.type", BASE + 'weather", "arguments": {"city": "'),
    (AUTO, Standing([WEATHER], ("mail", "")), "tool.invalid_json", ONE + "\n" + BASE + 'mail", "arguments": '),
    (AUTO, Standing([WEATHER], None), "tool.parallel", ONE[:-14]),
    # nobody asked for a call, so which one is not for us to say
    (AUTO, Standing([], None), "tool.unknown_name", None),
    (AUTO, Standing([WEATHER], None), "tool.unknown_name", None),
    (ToolChoice("none"), Standing([], None), "tool.forbidden", None),
    (ToolChoice("required"), None, "tool.missing_call", None),
]


@pytest.mark.parametrize(("choice", "stands", "cause", "base"), FORCED)
def test_how_a_call_goes_on(choice: ToolChoice, stands: Standing | None, cause: str, base: str | None) -> None:
    made = calling(request(choice), COMPILED, HERMES, stands, cause, behind="")
    assert (made.base if made else None) == base


def test_a_call_stands_on_a_line_of_its_own() -> None:
    made = calling(request(), COMPILED, HERMES, Standing([], None), "tool.missing_call", behind="Let me see.")
    assert made is not None
    assert made.base == "\n" + BASE


def test_what_is_about_a_call() -> None:
    assert mendable("tool.missing_call", "stream")
    assert mendable("schema.type", "tool:0")
    assert mendable("grammar.mismatch", "tool:0")
    assert not mendable("schema.type", "content")
    assert not mendable("repetition.period", "tool:0")
    assert [owes_call(c) for c in (AUTO, NAMED, ToolChoice("allowed", ("mail",)))] == [False, True, False]


# --- whole requests ---------------------------------------------------------------------------------------------------


async def ask(run: Run, choice: ToolChoice | None = None, **more: Any) -> list[GuardEvent]:
    chosen = choice or ToolChoice("required")
    return await run.ask(constraint=None, tools=TOOLS, tool_choice=chosen, tool_choice_raw="required", **more)


def calls(events: list[GuardEvent]) -> list[tuple[str, str, str]]:
    out: list[list[str]] = []
    for event in events:
        if isinstance(event, ToolRelease):
            if event.index == len(out):
                assert event.id
                out.append([event.id, event.name or "", ""])
            else:
                assert event.id is None
            out[event.index][2] += event.arguments
    return [(id_, name, arguments) for id_, name, arguments in out]


PROSE = wishing(
    (BASE, ("get", "we")),
    ('"city":"', ("Oslo",)),
    ('"city": "', ("Oslo",)),
    ("Oslo", ('",',)),
    ('",', ('"temp', '"un')),
    ('"unit":"', ("celsius", "c")),
    ('"unit": "', ("celsius", "c")),
    ('"unit": ', ("1", '"c')),
    ('"city": ', ("7", '"Oslo')),
    ("}", ("}", "\n")),
    ('arguments": {"', ("town", "ci")),
    ("Sure.", ()),
    ("", ("Sure.", "Well")),
)


@pytest.mark.parametrize("stream", [True, False])
async def test_an_engine_that_ignores_a_required_call_makes_one(stream: bool) -> None:
    model = Model(PROSE)
    run = Run(model)
    events = await ask(run, stream=stream)
    finished = end(events)
    assert isinstance(finished, Finished), finished
    ((_, name, arguments),) = calls(events)
    assert (name, json.loads(arguments)) == ("weather", {"city": "Oslo", "unit": "c"})
    assert (finished.reason, finished.verdicts.tool_choice, finished.verdicts.format) == ("tool_calls", "ok", "ok")
    assert said(events) == ""  # what was said instead of a call is no answer
    first, second, *_ = model.requests
    assert (first.request.tool_choice.mode, second.request.tool_choice.mode) == ("required", "none")
    assert second.request.tools == TOOLS
    assert all(asked.prefix is not None and not asked.prefix.tool_calls for asked in model.requests[1:])


def framed(arguments: str, name: str = "weather", **more: Any) -> Play:
    """A call as the engine itself frames it, in pieces."""
    steps: list[Step] = [[Opened("x", "m")], [ToolDelta(0, 0, "call_1", name)]]
    steps += [[ToolDelta(0, 0, arguments=arguments[at : at + 3])] for at in range(0, len(arguments), 3)]
    steps.append([FinishReason(0, "tool_calls"), Usage(5, 9, 14), Done(), Closed(True)])
    return Play(steps, **more)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("broken", ['{"city": "Oslo", "unit": "kelvin"}', '{"city": "Oslo", "uni', '{"city": "Oslo"}'])
async def test_a_call_that_breaks_its_schema_goes_on_from_its_last_good_character(stream: bool, broken: str) -> None:
    seen: list[str] = []

    def play(asked: EngineRequest) -> Play:
        seen.append(asked.prefix.content if asked.prefix is not None else "")
        if len(seen) == 1:
            return framed(broken)
        return Model(PROSE)(asked)

    run = Run(play)
    events = await ask(run, AUTO, stream=stream)
    finished = end(events)
    assert isinstance(finished, Finished), finished
    ((id_, name, arguments),) = calls(events)
    assert (name, json.loads(arguments)) == ("weather", {"city": "Oslo", "unit": "c"})
    if stream:
        assert id_ == "call_1"  # the caller has seen it
    assert all(text.startswith(BASE + 'weather", "arguments": {"city": "Oslo"') for text in seen[1:])
    assert finished.verdicts.format == "ok"


async def test_nothing_is_ever_released_that_breaks_the_schema() -> None:
    events = await ask(Run(lambda asked: framed('{"city": 7}') if asked.prefix is None else Model(PROSE)(asked)))
    text = ""
    for event in events:
        if isinstance(event, ToolRelease):
            text += event.arguments
            assert '{"city":"Oslo","unit":"c"}'.startswith("".join(text.split()))


async def test_what_follows_a_whole_call_is_cut_off_without_asking_an_engine() -> None:
    run = Run(lambda _: framed('{"city": "Oslo", "unit": "c"} and more'))
    events = await ask(run, AUTO)
    assert isinstance(end(events), Finished)
    assert [arguments for *_, arguments in calls(events)] == ['{"city": "Oslo", "unit": "c"}']
    assert run.actions == [("a", "enforce"), ("outguard", "finish")]


async def test_a_second_call_where_one_is_allowed_ends_the_answer() -> None:
    one = [ToolDelta(0, 0, "c1", "weather"), ToolDelta(0, 0, arguments='{"city": "Oslo", "unit": "c"}')]
    two = [ToolDelta(0, 1, "c2", "mail"), ToolDelta(0, 1, arguments='{"to": "a"}')]
    over: Step = [FinishReason(0, "tool_calls"), Done(), Closed(True)]
    run = Run(lambda _: Play([[Opened("x", "m")], [*one], [*two], over]))
    events = await ask(run, AUTO, parallel_tool_calls=False)
    assert isinstance(end(events), Finished)
    assert [name for _, name, _ in calls(events)] == ["weather"]


async def test_a_second_call_that_breaks_goes_on_behind_the_first() -> None:
    one = [ToolDelta(0, 0, "c1", "mail"), ToolDelta(0, 0, arguments='{"to": "a"}')]
    two = [ToolDelta(0, 1, "c2", "weather"), ToolDelta(0, 1, arguments='{"city": "Oslo", "unit": 1}')]
    over: Step = [FinishReason(0, "tool_calls"), Done(), Closed(True)]
    seen: list[str] = []

    def play(asked: EngineRequest) -> Play:
        if asked.prefix is None:
            return Play([[Opened("x", "m")], [*one], [*two], over])
        seen.append(asked.prefix.content)
        return Model(PROSE)(asked)

    events = await ask(Run(play), AUTO)
    assert isinstance(end(events), Finished)
    first, second = calls(events)
    assert first == ("c1", "mail", '{"to": "a"}')
    assert (second[0], json.loads(second[2])) == ("c2", {"city": "Oslo", "unit": "c"})
    assert seen[0].startswith('<tool_call>\n{"name": "mail", "arguments": {"to": "a"}}\n</tool_call>\n<tool_call>')


async def test_text_before_a_call_stays() -> None:
    def play(asked: EngineRequest) -> Play:
        if asked.prefix is not None:
            assert asked.prefix.content.startswith("Let me see.\n<tool_call>")
            return Model(PROSE)(asked)
        play = framed('{"city": 1}')
        play.steps.insert(1, [TextDelta(0, "content", "Let me see.")])
        return play

    events = await ask(Run(play), AUTO)
    assert isinstance(end(events), Finished)
    assert said(events) == "Let me see."


async def test_text_waits_for_the_call_that_is_owed() -> None:
    steps: list[Step] = [[Opened("x", "m")], [TextDelta(0, "content", "Let me see.")]]
    steps += framed('{"to": "a"}', "mail").steps[1:]
    events = await ask(Run(lambda _: Play(steps)))
    kinds = [type(event) for event in events if isinstance(event, Release | ToolRelease)]
    assert kinds[:2] == [Release, ToolRelease]
    assert said(events) == "Let me see."


async def test_an_unknown_name_is_not_replaced_where_no_call_was_asked_for() -> None:
    failed = end(await ask(Run(lambda _: framed("{}", "shell")), AUTO))
    assert isinstance(failed, Failed)
    assert failed.code == "constraint_violated"


async def test_another_engine_is_asked_first_while_nothing_has_left() -> None:
    run = Run(Model(PROSE), lambda _: framed('{"to": "a"}', "mail"))
    events = await ask(run, model="two", policy="patient")
    assert isinstance(end(events), Finished)
    assert run.actions == [("a", "retry"), ("b", "finish")]


async def test_where_no_engine_can_go_on_the_error_says_what_to_do() -> None:
    run = Run(lambda _: answer("Sure."), a_is=Capabilities(resume="no"))
    failed = end(await ask(run))
    assert isinstance(failed, Failed)
    assert "--enable-auto-tool-choice" in failed.message
    assert "cannot go on from a begun answer" in failed.message


async def test_a_call_that_leads_nowhere_fails_with_what_was_tried() -> None:
    failed = end(await ask(Run(Model(wishing(("Sure.", ()), ("", ("Sure.",)))))))
    assert isinstance(failed, Failed)
    assert (failed.code, "led nowhere" in failed.message) == ("constraint_violated", True)


async def test_the_bound_holds_for_calls_too() -> None:
    for policy, attempts in (("never", 1), ("few", 3)):
        failed = end(
            await ask(
                Run(Model(wishing(('{"', ("town",)), ("Sure.", ()), ("", ("Sure.",))))), NAMED_WEATHER, policy=policy
            )
        )
        assert isinstance(failed, Failed)
        assert failed.attempts == attempts


NAMED_WEATHER = ToolChoice("named", ("weather",))


async def test_an_engine_that_takes_the_text_for_reasoning_is_read_all_the_same() -> None:
    def play(asked: EngineRequest) -> Play:
        said = Model(PROSE)(asked)
        if asked.prefix is not None:
            for step in said.steps:
                for event in step if isinstance(step, list) else ():
                    if isinstance(event, TextDelta):
                        event.channel = "reasoning"
        return said

    events = await ask(Run(play), NAMED_WEATHER)
    assert isinstance(end(events), Finished), end(events)
    assert json.loads(calls(events)[0][2]) == {"city": "Oslo", "unit": "c"}


async def test_what_was_put_there_is_on_record() -> None:
    run = Run(Model(PROSE))
    events = await ask(run)
    found = [event.finding.code for event in events if isinstance(event, Found)]
    assert found.count("constraint.enforced") == len(run.actions) - 1
    first, second, *_ = run.tracing.records[0].attempts
    assert first.action == "enforce"
    # the engine had been told, and took it
    assert (first.contradictions, second.contradictions) == (["tools:tool.missing_call"], [])


@pytest.mark.parametrize("dialect", ["vllm", "sglang", "trtllm", "llamacpp", "dynamo", "plain"])
def test_advice_is_for_calls_that_did_not_come(dialect: str) -> None:
    for resumes in (True, False):
        for tried in (True, False):
            text = advice("tool.missing_call", dialect, resumes=resumes, tried=tried)
            assert text.startswith("; ")
            assert dialect in text or "dialect" in text or "started with" in text
    assert advice("json.invalid", dialect, resumes=True, tried=False) == ""
    assert advice("open.status", dialect, resumes=True, tried=True) == ""


def test_the_compiled_schemas_are_the_tools_own() -> None:
    assert all(isinstance(found, CompiledConstraint) for found in COMPILED.values())
    assert jsonschema_rs.is_valid(CITY, json.loads(WEATHER[1]))
    assert FREE.resume == "text"


# --- custom tools, which take text ------------------------------------------------------------------------------------

SQL = {"type": "custom", "name": "sql", "format": {"type": "grammar", "syntax": "regex", "definition": r"SELECT \w+;"}}
CUSTOM = parse_tools({"tools": [SQL, {"name": "mail", "inputSchema": MAIL}, {"type": "custom", "name": "note"}]})
SQL_ASKED = ToolChoice("named", ("sql",))
SQL_BEGUN = BASE + 'sql", "arguments": {"input": "'


async def ask_custom(run: Run, choice: ToolChoice, **more: Any) -> list[GuardEvent]:
    return await run.ask(constraint=None, tools=CUSTOM, tool_choice=choice, tool_choice_raw="required", **more)


def spoken(text: str, name: str = "sql") -> Play:
    """A custom tool's call as an engine frames it."""
    return framed(text, name)


WRITER = wishing(
    ("SELECT ", ("* FROM", "na", "x")),
    ("na", ("me",)),
    ("name", (" FROM t", ";")),
    (";", (" -- all", '"')),
    (';"', ("}",)),
    ("}}", ("\n",)),
    ("Sure", ()),
    ("\n", ()),
    ("", ("Sure", "SELE")),
)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_custom_tool_that_was_to_be_called_is_called(stream: bool) -> None:
    model = Model(WRITER)
    events = await ask_custom(Run(model), SQL_ASKED, stream=stream)
    assert isinstance(end(events), Finished), end(events)
    assert [(name, text) for _, name, text in calls(events)] == [("sql", "SELECT name;")]
    shown = model.requests[1].request.tools
    assert {tool.raw["type"] for tool in shown} == {"function"}  # as what it is written in the text
    assert shown[0].raw["function"]["parameters"]["required"] == ["input"]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("broken", ["SELECT * FROM t", "SELECT name, id;", "SELECT na", "SELECT name;\n\nThat is all."])
async def test_an_input_that_breaks_its_grammar_goes_on_from_its_last_good_character(broken: str, stream: bool) -> None:
    seen: list[str] = []

    def play(asked: EngineRequest) -> Play:
        if asked.prefix is None:
            return spoken(broken)
        seen.append(asked.prefix.content)
        return Model(WRITER)(asked)

    events = await ask_custom(Run(play), AUTO, stream=stream)
    finished = end(events)
    assert isinstance(finished, Finished), finished
    assert [(name, text) for _, name, text in calls(events)] == [("sql", "SELECT name;")]
    assert all(text.startswith(SQL_BEGUN + "SELECT ") for text in seen)
    assert finished.verdicts.format == "ok"


async def test_text_that_needs_escapes_arrives_as_it_was_meant() -> None:
    said = 'a "quoted"\n\tline \\ é 😀'
    escaped = json.dumps(said)[1:-1]  # pairs of surrogates among them
    writer = wishing(
        (BASE, ("x", "note")), ('"arguments": {"', ("in",)), ('"input":"', (escaped + '"}',)), ("Hm", ()), ("", ("Hm",))
    )
    for size in (1, 5, 1000):

        def play(asked: EngineRequest, size: int = size) -> Play:
            whole = Model(writer)(asked)
            steps: list[Step] = []
            for step in whole.steps:
                for event in step if isinstance(step, list) else ():
                    parts = [event]
                    if isinstance(event, TextDelta):
                        parts = [
                            TextDelta(0, "content", event.text[at : at + size])
                            for at in range(0, len(event.text), size)
                        ]
                    steps += [[part] for part in parts]
            return Play(steps)

        events = await ask_custom(Run(play), ToolChoice("named", ("note",)))
        assert isinstance(end(events), Finished), end(events)
        assert [(name, text) for _, name, text in calls(events)] == [("note", said)]


async def test_a_call_behind_a_custom_one_stands_behind_it() -> None:
    one = [ToolDelta(0, 0, "c1", "sql"), ToolDelta(0, 0, arguments="SELECT id;")]
    two = [ToolDelta(0, 1, "c2", "mail"), ToolDelta(0, 1, arguments='{"to": 1}')]
    over: Step = [FinishReason(0, "tool_calls"), Done(), Closed(True)]
    seen: list[str] = []

    def play(asked: EngineRequest) -> Play:
        if asked.prefix is None:
            return Play([[Opened("x", "m")], [*one], [*two], over])
        seen.append(asked.prefix.content)
        return Model(wishing(('"to": "', ('a"}',)), ("", ())))(asked)

    events = await ask_custom(Run(play), AUTO)
    assert isinstance(end(events), Finished), end(events)
    assert calls(events) == [("c1", "sql", "SELECT id;"), ("c2", "mail", '{"to": "a"}')]
    assert seen[0].startswith(SQL_BEGUN + 'SELECT id;"}}')


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.sampled_from(['{"', "input", '": "', "SELECT ", "name", "\\u0041", "\\ud83d", "\\ude00", "x", ";", '"}'])
    ),
    st.data(),
    st.booleans(),
)
def test_an_input_reads_the_same_in_every_split(words: list[str], data: st.DataObject, free: bool) -> None:
    text = "".join(words)
    held_by = None if free else compile_constraint(Constraint("regex", r"SELECT \w+;"))
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=6)))
    parts = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]

    def read(parts: list[str]) -> tuple[Any, ...]:
        one = InputChecker(held_by)
        found = [finding for part in parts for finding in one.feed(part)]
        good, said = one.good, "".join(one.said)
        found += one.finish(truncated=False)
        return [(each.code, each.onset) for each in found], good, said, one.complete

    whole = read([text])
    assert read(parts) == whole
    assert not [code for code, _ in read([text[: whole[1]]])[0] if code != "json.truncated"]
    if whole[3]:
        assert (
            json.loads(text[: whole[1]])["input"].encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            == whole[2]
        )


# --- a call that was not to be made -----------------------------------------------------------------------------------

NONE = ToolChoice("none")


def caller(asked: EngineRequest) -> Play:
    """An engine that calls whatever it is offered, whether it may or not."""
    if asked.request.tools:
        play = framed('{"to": "a"}', "mail")
        play.steps.insert(1, [TextDelta(0, "content", "Let me ")])
        return play
    return answer("see.", " It rains.")


@pytest.mark.parametrize("stream", [True, False])
async def test_an_engine_that_calls_although_none_is_wanted_answers_without_the_tools(stream: bool) -> None:
    run = Run(caller)
    events = await ask(run, NONE, stream=stream)
    finished = end(events)
    assert isinstance(finished, Finished), finished
    assert calls(events) == []
    assert said(events) == ("Let me see. It rains." if stream else "see. It rains.")
    assert (finished.reason, finished.verdicts.tool_choice) == ("stop", "ok")
    first, second = run.engines["a"].requests
    assert (first.request.tools, second.request.tools) == (TOOLS, ())
    assert second.request.tool_choice_raw is None
    assert (second.prefix is not None) == stream
    assert run.actions == [("a", "enforce"), ("a", "finish")]
    found = [event.finding.message for event in events if isinstance(event, Found)]
    assert any("without the tools" in message for message in found)
    assert run.tracing.records[0].attempts[0].contradictions == ["tools:tool.forbidden"]


async def test_an_engine_that_calls_what_it_is_not_even_offered_fails_with_what_it_did() -> None:
    run = Run(lambda _: framed('{"to": "a"}', "mail"))
    failed = end(await ask(run, NONE))
    assert isinstance(failed, Failed)
    assert (failed.code, "tool_choice is none" in failed.message) == ("constraint_violated", True)
    assert run.actions == [("a", "enforce"), ("a", "fail")]


async def test_another_engine_is_asked_before_tools_are_withheld() -> None:
    run = Run(lambda _: framed('{"to": "a"}', "mail"), lambda _: answer("It rains."))
    events = await ask(run, NONE, model="two", policy="patient")
    assert (said(events), run.actions) == ("It rains.", [("a", "retry"), ("b", "finish")])


async def test_tools_are_not_withheld_where_nothing_is_enforced_or_the_answer_cannot_go_on() -> None:
    for policy, a_is in (("never", FREE), ("default", Capabilities(resume="no"))):
        failed = end(await ask(Run(caller, a_is=a_is), NONE, policy=policy))
        assert isinstance(failed, Failed)
        assert failed.code == "constraint_violated"


async def test_reasoning_may_come_again_where_the_answer_starts_without_tools() -> None:
    def play(asked: EngineRequest) -> Play:
        return framed('{"to": "a"}', "mail") if asked.request.tools else answer("<think>so</think>", "It rains.")

    events = await ask(Run(play), NONE)
    texts = {event.channel: event.text for event in events if isinstance(event, Release)}
    assert texts == {"reasoning": "so", "content": "It rains."}
