"""The fake itself: its scripts and what it remembers."""

from __future__ import annotations

import pytest

from guard.engines.contract import EngineError, EngineRequest, Prefix
from guard.engines.scripted import Play, ScriptedEngine, answer, telling
from guard.events import Closed, FinishReason, TextDelta
from guard.request import GenerationRequest


def ask(**fields: object) -> EngineRequest:
    return EngineRequest(GenerationRequest("r", "chat", "m"), **fields)  # type: ignore[arg-type]


async def said(engine: ScriptedEngine, request: EngineRequest) -> tuple[str, str]:
    events = [event async for batch in await engine.open(request) for event in batch]
    assert isinstance(events[-1], Closed)
    text = "".join(e.text for e in events if isinstance(e, TextDelta))
    return text, "".join(e.reason for e in events if isinstance(e, FinishReason))


async def test_plays_in_turn_and_then_no_more() -> None:
    engine = ScriptedEngine("a", [answer("x"), answer("y", "z", reason="length")])
    assert await said(engine, ask()) == ("x", "stop")
    assert await said(engine, ask()) == ("yz", "length")
    with pytest.raises(EngineError, match="no further play"):
        await engine.open(ask())
    assert len(engine.requests) == 3
    assert [stream.closed_early for stream in engine.streams] == [False, False]


async def test_a_close_is_added_where_the_script_has_none() -> None:
    engine = ScriptedEngine("a", [Play([[TextDelta(0, "content", "x")]])])
    assert await said(engine, ask()) == ("x", "")


async def test_telling_goes_on_from_a_prefix_and_keeps_to_the_budget() -> None:
    engine = ScriptedEngine("a", telling("one two three", size=4))
    assert await said(engine, ask()) == ("one two three", "stop")
    assert await said(engine, ask(prefix=Prefix(content="one t"))) == ("wo three", "stop")
    assert await said(engine, ask(max_tokens=2)) == ("one two ", "length")


async def test_what_was_left_early_is_known() -> None:
    engine = ScriptedEngine("a", [answer("x", "y", "z")])
    stream = await engine.open(ask())
    await anext(aiter(stream))
    await stream.aclose()
    assert stream.closed_early
    assert len(stream.given) == 1
