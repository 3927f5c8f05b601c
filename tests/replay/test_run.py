"""A stored request is run again on each engine, through the same guard, and told as a table and as facts."""

from __future__ import annotations

import io

import msgspec
import pytest
from rich.console import Console

from guard.constraint.cache import ConstraintCache
from guard.engines.contract import EngineError
from guard.engines.scripted import Play, ScriptedEngine, answer, telling
from guard.events import Closed, Done, FinishReason, ToolDelta
from guard.normalise import to_openai_body
from guard.request import GenerationRequest, Tool
from guard.trace.record import RequestRecord
from replay.report import facts, table
from replay.run import RunResult, run_matrix
from replay.source import ReplayError, Source, source_of

DELIVERED = "The keeper lit the lamp and waited for the ship."


def record(**more: object) -> RequestRecord:
    request = GenerationRequest("r1", "chat", "m", messages=[{"role": "user", "content": "Go on."}])
    made = RequestRecord(
        "0123abcd" * 4,
        "r1",
        1.0,
        model="m",
        retention="full",
        request_body=msgspec.json.encode(to_openai_body(request)).decode(),
        output_text=DELIVERED,
    )
    return msgspec.structs.replace(made, **more)


async def replayed() -> tuple[Source, list[RunResult]]:
    source = source_of(record())
    engines = {
        "good": ScriptedEngine("good", telling(DELIVERED)),
        "drifts": ScriptedEngine("drifts", telling("The keeper put out the lamp and slept.")),
        "loops": ScriptedEngine("loops", lambda _: answer("The keeper", *["!"] * 200, reason="length")),
        "down": ScriptedEngine("down", lambda _: Play(error=EngineError("connect", "refused"))),
    }
    return source, await run_matrix(source.request, engines, ConstraintCache(), repeats=2)


async def test_what_each_engine_did() -> None:
    source, results = await replayed()
    assert [(r.engine, r.repeat) for r in results] == [
        (e, n) for e in ("good", "drifts", "loops", "down") for n in (0, 1)
    ]
    by = {r.engine: r for r in results}
    assert by["good"].text == DELIVERED
    assert (by["good"].reason, by["good"].condemned, by["good"].error) == ("stop", "", "")
    assert any(code.startswith("repetition.") for code in by["loops"].findings)
    assert by["down"].error == "refused"
    shown = facts(source, results)
    runs = {run["engine"]: run for run in shown["runs"]}
    assert runs["good"]["first_difference"] is None
    assert runs["drifts"]["first_difference"]["offset"] == len("The keeper ")
    assert runs["loops"]["condemned"].startswith("repetition.")


async def test_the_table_says_it_too() -> None:
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(table(*await replayed()))
    text = console.export_text()
    for expected in (
        "none: the same text",
        "at 11:",
        "refused",
        "repetition.",
        "good: 2 runs, 0 condemned, 1 distinct",
    ):
        assert expected in text


@pytest.mark.parametrize("retention", ["none", "hash"])
def test_what_was_not_kept_cannot_be_run_again(retention: str) -> None:
    with pytest.raises(ReplayError, match=f"was not kept \\(retention {retention}\\)"):
        source_of(record(retention=retention))


def test_a_stored_request_that_cannot_be_read_is_said_to_be_so() -> None:
    with pytest.raises(ReplayError, match="cannot be read"):
        source_of(record(request_body='{"model": "m"}'))


def test_of_several_choices_the_first_is_compared() -> None:
    assert source_of(record(choices=2, output_text='["one", "two"]')).output == "one"


async def test_an_answer_that_calls_a_tool_is_compared_with_its_call() -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    raw = {"type": "function", "function": {"name": "look", "parameters": schema}}
    request = GenerationRequest(
        "r1", "chat", "m", messages=[{"role": "user", "content": "Go on."}], tools=(Tool("look", schema, False, raw),)
    )
    call = [ToolDelta(0, 0, "c1", "look", '{"city": "Oslo"}'), FinishReason(0, "tool_calls"), Done(), Closed(True)]
    body = msgspec.json.encode(to_openai_body(request)).decode()
    stored = record(request_body=body, output_text='[{"name":"look","arguments":"{\\"city\\": \\"Oslo\\"}"}]')
    source = source_of(stored)
    results = await run_matrix(
        source.request, {"a": ScriptedEngine("a", lambda _: Play([list(call)]))}, ConstraintCache(), repeats=1
    )
    assert facts(source, results)["runs"][0]["first_difference"] is None
