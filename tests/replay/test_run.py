"""A matrix is run over engines, each answer through the guard, and told as a table and as facts."""

from __future__ import annotations

import asyncio
import io
import time
from pathlib import Path

import msgspec
import pytest
import replayed
from replayed import DELIVERED, record, sources
from rich.console import Console

from guard.engines.contract import EngineError, EngineRequest
from guard.engines.scripted import Play, ScriptedEngine, answer, telling
from guard.events import Closed, Done, FinishReason, Opened, TextDelta, ToolDelta
from guard.normalise import to_openai_body
from guard.request import Tool
from replay.lanes import GIVE_UP
from replay.matrix import Asked, Matrix
from replay.report import Report, facts, reported, terminal
from replay.source import ReplayError, source_of
from replay.summary import summarise

LOOPS = answer("The keeper", *["!"] * 200, reason="length")


async def report(folder: Path) -> Report:
    engines = {
        "good": ScriptedEngine("good", telling(DELIVERED)),
        "drifts": ScriptedEngine("drifts", telling("The keeper put out the lamp and slept.")),
        "loops": ScriptedEngine("loops", lambda _: LOOPS),
        "down": ScriptedEngine("down", lambda _: Play(error=EngineError("connect", "refused"))),
    }
    outcome, journal = await replayed.run(folder, Matrix(repeats=2), engines, sources(1))
    return Report(journal.head, outcome.observations, summarise(outcome.observations, journal.head.sources))


async def test_what_each_engine_did(tmp_path: Path) -> None:
    made = await report(tmp_path)
    results = made.observations
    assert [(r.cell.engine, r.repeat) for r in results] == [
        (e, n) for e in ("good", "drifts", "loops", "down") for n in (0, 1)
    ]
    by = {r.cell.engine: r for r in results}
    assert by["good"].content == DELIVERED
    assert (by["good"].finish_reason, by["good"].condemned, by["good"].error) == ("stop", "", "")
    assert by["loops"].wrong().startswith("repetition.")
    assert by["loops"].content.startswith("The keeper!!!")  # what was condemned is evidence
    assert by["down"].error == "refused"
    shown = facts(made)
    runs = {run["engine"]: run for run in shown["runs"]}
    assert runs["good"]["first_difference"] is None
    assert runs["drifts"]["first_difference"]["offset"] == len("The keeper ")
    assert runs["loops"]["condemned"].startswith("repetition.")
    assert not made.clean


async def test_the_table_says_it_too(tmp_path: Path) -> None:
    console = Console(width=180, record=True, file=io.StringIO())
    console.print(terminal(await report(tmp_path)))
    text = console.export_text()
    for expected in (
        "8 answers to 1 requests in 4 cells",
        "1 same, 1 differs, 1 wrong, 1 error",
        "none: the same text",
        "at 11:",
        "no answer: refused",
        "repetition.token is seen again in 2 of 6 runs",
    ):
        assert expected in text


async def test_an_answer_that_calls_a_tool_is_compared_with_its_call(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    raw = {"type": "function", "function": {"name": "look", "parameters": schema}}
    asked = replayed.request(tools=(Tool("look", schema, False, raw),))
    call = [ToolDelta(0, 0, "c1", "look", '{"city": "Oslo"}'), FinishReason(0, "tool_calls"), Done(), Closed(True)]
    stored = record(
        request_body=msgspec.json.encode(to_openai_body(asked)).decode(),
        output_text='[{"name":"look","arguments":"{\\"city\\": \\"Oslo\\"}"}]',
    )
    engine = ScriptedEngine("a", lambda _: Play([list(call)]))
    outcome, journal = await replayed.run(tmp_path, Matrix(), {"a": engine}, [source_of(stored)])
    assert outcome.observations[0].text == {"tool:0": 'look({"city": "Oslo"})'}
    made = Report(journal.head, outcome.observations, summarise(outcome.observations, journal.head.sources))
    assert facts(made)["runs"][0]["first_difference"] is None
    assert made.clean


# --- what is sent ----------------------------------------------------------------------------------------------------


async def test_log_probabilities_ids_and_overrides_are_asked_for(tmp_path: Path) -> None:
    engine = ScriptedEngine("a", telling("Yes."))
    matrix = Matrix(sampling=Asked(temperature=0, max_tokens=7), top_logprobs=3)
    await replayed.run(tmp_path, matrix, {"a": engine}, sources(1))
    sent = engine.requests[0]
    assert sent.max_tokens == 7
    assert sent.request.sampling.temperature == 0
    assert (sent.request.sampling.logprobs, sent.request.sampling.top_logprobs) == (True, 3)
    assert sent.request.return_token_ids
    assert sent.request.n == 1


async def test_what_an_engine_refuses_with_log_probabilities_is_asked_without(tmp_path: Path) -> None:
    """llama.cpp: logprobs is not supported with tools + stream."""

    def play(request: EngineRequest) -> Play:
        if request.request.sampling.logprobs:
            return Play(error=EngineError("status", "logprobs is not supported here", status=400))
        return telling("Yes.")(request)

    engine = ScriptedEngine("a", play)
    outcome, _ = await replayed.run(tmp_path, Matrix(), {"a": engine}, sources(1))
    assert (outcome.observations[0].error, outcome.observations[0].content) == ("", "Yes.")
    refuses = ScriptedEngine("a", lambda _: Play(error=EngineError("status", "no such model", status=404)))
    outcome, _ = await replayed.run(tmp_path / "b", Matrix(), {"a": refuses}, sources(1))
    assert outcome.observations[0].error == "HTTP 404: no such model"
    assert len(refuses.requests) == 1


async def test_a_recorded_prompt_of_token_ids_is_sent_as_such(tmp_path: Path) -> None:
    body = b'{"model": "m", "prompt": [5, 6, 7], "max_tokens": 3}'
    engine = ScriptedEngine("a", telling("Yes."))
    stored = record(kind="completion", request_body=body.decode())
    outcome, _ = await replayed.run(tmp_path, Matrix(), {"a": engine}, [source_of(stored)])
    assert engine.requests[0].request.prompt == (5, 6, 7)
    assert outcome.observations[0].prompt_ids == (5, 6, 7)


async def test_cold_requests_share_no_salt_and_warm_ones_are_primed(tmp_path: Path) -> None:
    engine = ScriptedEngine("a", telling("Yes."))
    await replayed.run(tmp_path, Matrix(cache=("cold", "warm"), repeats=2), {"a": engine}, sources(2))
    salts = [sent.request.extra.get("cache_salt") for sent in engine.requests]
    cold = [salt for salt in salts if salt]
    assert len(cold) == len(set(cold)) == 4
    assert len(salts) == 4 + 2 * 4  # each warm one is primed
    assert sum(sent.max_tokens == 1 for sent in engine.requests) == 4


@pytest.mark.parametrize("load", ["copies:3", "others:3", "cancelled:3"])
async def test_a_load_is_there_while_an_answer_is_made(tmp_path: Path, load: str) -> None:
    under_way, most = 0, 0

    class Counting(ScriptedEngine):
        async def open(self, request: EngineRequest):  # type: ignore[no-untyped-def]
            nonlocal under_way, most
            stream = await super().open(request)
            under_way += 1
            most = max(most, under_way)
            close = stream.aclose

            async def aclose() -> None:
                nonlocal under_way
                under_way -= 1
                await close()

            stream.aclose = aclose  # type: ignore[method-assign]
            return stream

    engine = Counting("a", lambda _: answer("Yes", ".", pause=0.01))
    outcome, _ = await replayed.run(tmp_path, Matrix(concurrency=("alone", load)), {"a": engine}, sources(3))
    assert most == 3
    assert under_way == 0
    alone = [one for one in outcome.observations if one.cell.concurrency == 1]
    loaded = [one for one in outcome.observations if one.cell.concurrency == 3]
    assert all(one.in_flight == () for one in alone)
    assert all(len(one.in_flight) == 2 for one in loaded)
    assert len(alone) == 3
    assert len(loaded) == (9 if load == "copies:3" else 3)
    assert len({(one.request_id, one.cell, one.repeat) for one in outcome.observations}) == len(outcome.observations)


async def test_an_alone_request_is_alone_also_beside_other_cells(tmp_path: Path) -> None:
    """Two engines of the configuration at one address are one lane."""
    config = replayed.configured("a", "b", a={"url": "http://127.0.0.1:9"}, b={"url": "http://127.0.0.1:9"})
    under_way, most = 0, 0

    def play(_: EngineRequest) -> Play:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        return answer("Yes", pause=0.005)

    class One(ScriptedEngine):
        pass

    def told(_: object) -> None:
        nonlocal under_way
        under_way -= 1

    engines = {name: One(name, play) for name in ("a", "b")}
    await replayed.run(tmp_path, Matrix(), engines, sources(3), told, config)
    assert most == 1


# --- how it ends -----------------------------------------------------------------------------------------------------


async def test_an_engine_that_answers_nothing_is_given_up(tmp_path: Path) -> None:
    down = ScriptedEngine("down", lambda _: Play(error=EngineError("connect", "refused")))
    up = ScriptedEngine("up", telling("Yes."))
    outcome, _ = await replayed.run(tmp_path, Matrix(), {"down": down, "up": up}, sources(9))
    assert len(down.requests) == GIVE_UP
    assert len(up.requests) == 9
    assert outcome.left == 9 - GIVE_UP
    assert "5 in a row got no answer: refused" in outcome.given_up["http://127.0.0.1:8001"]


async def test_a_request_that_cannot_be_sent_stops_no_other(tmp_path: Path) -> None:
    chosen = sources(2)
    chosen[0].body["response_format"] = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": 5}}}
    engine = ScriptedEngine("a", telling("Yes."))
    outcome, _ = await replayed.run(tmp_path, Matrix(), {"a": engine}, chosen)
    assert [one.request_id for one in outcome.observations] == [chosen[1].id]
    assert list(outcome.unsent) == [chosen[0].id]


async def test_pacing(tmp_path: Path) -> None:
    engine = ScriptedEngine("a", telling("Yes."))
    started = asyncio.get_running_loop().time()
    await replayed.run(tmp_path, Matrix(limits={"per_second": 50}), {"a": engine}, sources(6))  # type: ignore[arg-type]
    assert asyncio.get_running_loop().time() - started >= 5 / 50


async def test_thousands_of_replays_cost_little(tmp_path: Path) -> None:
    """Measured in CPU, because a busy machine says nothing about time: 10,000 within five minutes on one core."""
    engines = {name: ScriptedEngine(name, telling(DELIVERED)) for name in "abcd"}
    started = time.process_time()
    outcome, journal = await replayed.run(tmp_path, Matrix(repeats=10), engines, sources(25))
    reported(journal.head, outcome.observations)
    assert len(outcome.observations) == 1000
    assert time.process_time() - started < 30


# --- what is stored -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("retention", ["none", "hash"])
def test_what_was_not_kept_cannot_be_run_again(retention: str) -> None:
    with pytest.raises(ReplayError, match=f"was not kept \\(retention {retention}\\)"):
        source_of(record(retention=retention))


def test_a_stored_request_that_cannot_be_read_is_said_to_be_so() -> None:
    for body in ('{"model": "m"}', "{"):
        with pytest.raises(ReplayError, match="cannot be read"):
            source_of(record(request_body=body))


def test_of_several_choices_the_first_is_compared() -> None:
    assert source_of(record(choices=2, output_text='["one", "two"]')).output == "one"


# --- ids and log probabilities ------------------------------------------------------------------------------------


def entry(text: str, id_: int | None = None, logprob: float = -0.1) -> dict[str, object]:
    made: dict[str, object] = {"token": text, "logprob": logprob, "bytes": list(text.encode())}
    made["top_logprobs"] = [{"token": "?", "logprob": -3.0, "bytes": [63]}, dict(made)]
    return made if id_ is None else {**made, "id": id_, "top_logprobs": [{"id": id_, **dict(made)}]}


async def heard(tmp_path: Path, *deltas: TextDelta):  # type: ignore[no-untyped-def]
    events = [
        [Opened("x", "m", (1, 2))],
        *[[delta] for delta in deltas],
        [FinishReason(0, "stop"), Done(), Closed(True)],
    ]
    engine = ScriptedEngine("a", lambda _: Play(events))  # type: ignore[arg-type]
    outcome, _ = await replayed.run(tmp_path, Matrix(), {"a": engine}, sources(1))
    return outcome.observations[0]


async def test_ids_of_the_engine_with_their_log_probabilities(tmp_path: Path) -> None:
    """vLLM: ids beside the text, the end mark's id in a last piece without text."""
    seen = await heard(
        tmp_path,
        TextDelta(0, "content", "Yes", (7,), [entry("Yes")]),
        TextDelta(0, "content", ".", (8,), [entry(".", logprob=-0.5)]),
        TextDelta(0, "content", "", (2,), [entry("<end>")]),
    )
    assert seen.prompt_ids == (1, 2)
    assert seen.token_ids == (7, 8, 2)
    assert seen.pieces == (b"Yes", b".", b"<end>")
    assert seen.logprobs == (-0.1, -0.5, -0.1)
    assert [best[0].piece for best in seen.top] == [b"Yes", b".", b"<end>"]  # the best first, however they came


async def test_ids_inside_the_log_probabilities(tmp_path: Path) -> None:
    """llama.cpp."""
    seen = await heard(
        tmp_path,
        TextDelta(0, "content", "Yes", None, [entry("Yes", 7)]),
        TextDelta(0, "content", ".", None, [entry(".", 8)]),
    )
    assert seen.token_ids == (7, 8)
    assert seen.top[0][0].token_id == 7


async def test_ids_alone_and_log_probabilities_alone(tmp_path: Path) -> None:
    seen = await heard(tmp_path / "a", TextDelta(0, "content", "Yes.", (7, 8)))
    assert (seen.token_ids, seen.logprobs) == ((7, 8), ())
    seen = await heard(tmp_path / "b", TextDelta(0, "content", "Yes.", None, [entry("Yes"), entry(".")]))
    assert (seen.token_ids, seen.pieces) == ((), (b"Yes", b"."))


async def test_what_lacks_in_the_middle_is_not_guessed(tmp_path: Path) -> None:
    seen = await heard(
        tmp_path,
        TextDelta(0, "content", "Yes", (7,), [entry("Yes")]),
        TextDelta(0, "content", ",", (9,)),
        TextDelta(0, "content", " sir", (8,), [entry(" sir")]),
    )
    assert (seen.token_ids, seen.logprobs, seen.top) == ((7, 9, 8), (), ())
    seen = await heard(
        tmp_path / "b",
        TextDelta(0, "content", "Yes", (7,), [entry("Yes")]),
        TextDelta(0, "content", ",", None),
        TextDelta(0, "content", " sir", (8,), [entry(" sir")]),
    )
    assert (seen.token_ids, seen.logprobs) == ((), ())
