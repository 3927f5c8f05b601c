"""The engine edge against a real llama.cpp: streams, constraints, going on, cancelling, death."""

from __future__ import annotations

import asyncio
import json
import re
import time
from typing import Any

import engine_process
import pytest

from guard.constraint.spec import Constraint
from guard.engines.contract import EngineError, EngineRequest, Prefix
from guard.engines.openai_http import OpenAIHttpEngine
from guard.events import Closed, Done, Fault, FinishReason, Opened, StreamEvent, TextDelta, Usage
from guard.request import GenerationRequest, Sampling

pytestmark = pytest.mark.engine

FRANCE = [{"role": "user", "content": "What is the capital of France?"}]
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def ask(**fields: Any) -> EngineRequest:
    attempt = {name: fields.pop(name) for name in ("prefix", "constrain") if name in fields}
    tokens = fields.pop("max_tokens", 48)
    fields.setdefault("sampling", Sampling(temperature=0.0, seed=1))
    fields.setdefault("messages", FRANCE)
    fields.setdefault("kind", "chat")
    return EngineRequest(GenerationRequest(id="r", model="m", **fields), max_tokens=tokens, **attempt)


async def answered(url: str, request: EngineRequest) -> tuple[str, list[StreamEvent]]:
    engine = OpenAIHttpEngine("real", url, "llamacpp")
    try:
        stream = await engine.open(request)
        assert stream.unenforced == ()
        events = [event async for batch in stream for event in batch]
        return "".join(e.text for e in events if isinstance(e, TextDelta)), events
    finally:
        await engine.aclose()


async def test_a_stream(llamacpp_engine: str) -> None:
    text, events = await answered(llamacpp_engine, ask(max_tokens=12))
    assert text
    assert isinstance(events[0], Opened)
    assert events[0].model
    assert FinishReason(0, "length") in events
    assert [e.completion_tokens for e in events if isinstance(e, Usage)] == [12]
    assert events[-2:] == [Done(), Closed(True)]


async def test_logprobs_and_token_ids(llamacpp_engine: str) -> None:
    sampling = Sampling(temperature=0.0, logprobs=True, top_logprobs=2)
    for fields in ({}, {"kind": "completion", "prompt": "The capital of France is"}):
        _, events = await answered(llamacpp_engine, ask(max_tokens=6, sampling=sampling, **fields))
        deltas = [e for e in events if isinstance(e, TextDelta)]
        assert sum(len(e.token_ids or ()) for e in deltas) == 6
        assert all(len(entry["top_logprobs"]) == 2 for e in deltas for entry in e.logprobs or ())


async def test_a_json_schema(llamacpp_engine: str) -> None:
    schema = {
        "type": "object",
        "properties": {"ok": {"type": "boolean"}},
        "required": ["ok"],
        "additionalProperties": False,
    }
    constraint = Constraint("json_schema", schema)
    for fields in ({}, {"kind": "completion", "prompt": "A small JSON object: "}):
        text, events = await answered(llamacpp_engine, ask(max_tokens=32, constraint=constraint, **fields))
        assert json.loads(text) in ({"ok": True}, {"ok": False})
        assert FinishReason(0, "stop") in events


@pytest.mark.parametrize("pattern", [r"(Paris|London) [0-9]{3}", r"\d{4}-\d{2}-\d{2}", r"a\"b\\c-\[x\]?"])
async def test_a_regex_becomes_a_grammar(llamacpp_engine: str, pattern: str) -> None:
    text, _ = await answered(llamacpp_engine, ask(constraint=Constraint("regex", pattern)))
    assert re.fullmatch(pattern, text)


async def test_choices_and_grammars(llamacpp_engine: str) -> None:
    text, _ = await answered(llamacpp_engine, ask(constraint=Constraint("choice", ('"no"\n', "y\\es"))))
    assert text in ('"no"\n', "y\\es")
    ebnf = 'root ::= the_city ("!" | "?"){2}\n\nthe_city ::= "Rome" # a town\n  | "Oslo"\n'
    text, _ = await answered(llamacpp_engine, ask(constraint=Constraint("grammar", ebnf, syntax="ebnf")))
    assert re.fullmatch(r"(Rome|Oslo)[!?]{2}", text)


async def test_going_on_from_a_prefix(llamacpp_engine: str) -> None:
    text, _ = await answered(llamacpp_engine, ask(prefix=Prefix(content="The capital of France is")))
    assert text.startswith(" Paris")


async def test_going_on_inside_a_document(llamacpp_engine: str) -> None:
    begun = '{"name": "Al'
    constraint = Constraint("json_schema", PERSON)
    text, _ = await answered(llamacpp_engine, ask(constraint=constraint, prefix=Prefix(content=begun)))
    assert json.loads(begun + text)["name"].startswith("Al")


async def test_going_on_by_token_ids_is_the_same_answer(llamacpp_engine: str) -> None:
    """The ids of a whole greedy answer, cut after five, and the rest asked for again."""
    prompt = engine_process.tokenize(llamacpp_engine, "Once upon a time")
    sampling = Sampling(temperature=0.0, logprobs=True, top_logprobs=1)
    fields: dict[str, Any] = {"kind": "completion", "prompt": tuple(prompt), "sampling": sampling}
    whole, events = await answered(llamacpp_engine, ask(max_tokens=20, **fields))
    deltas = [e for e in events if isinstance(e, TextDelta) and e.token_ids]
    ids = tuple(i for e in deltas[:5] for i in e.token_ids or ())
    begun = "".join(e.text for e in deltas[:5])
    rest, _ = await answered(
        llamacpp_engine, ask(max_tokens=20 - len(ids), prefix=Prefix(begun, token_ids=ids), **fields)
    )
    assert begun + rest == whole


async def test_cancelling_frees_the_engine_within_a_second(llamacpp_engine: str) -> None:
    engine = OpenAIHttpEngine("real", llamacpp_engine, "llamacpp")
    stream = await engine.open(ask(max_tokens=4000, extra={"ignore_eos": True}))
    for _ in range(5):
        await anext(aiter(stream))
    assert await asyncio.to_thread(engine_process.requests_processing, llamacpp_engine) == 1
    begun = time.monotonic()
    await stream.aclose()
    while await asyncio.to_thread(engine_process.requests_processing, llamacpp_engine):
        assert time.monotonic() - begun < 1
        await asyncio.sleep(0.01)
    await engine.aclose()


async def test_a_refusal_in_its_own_words(llamacpp_engine: str) -> None:
    engine = OpenAIHttpEngine("real", llamacpp_engine, "llamacpp")
    with pytest.raises(EngineError) as raised:
        await engine.open(ask(constraint=Constraint("json_schema", {"type": "nonsense"})))
    assert raised.value.status == 400
    assert "nonsense" in raised.value.message
    assert not raised.value.retryable
    assert (await engine.health()).models == (engine_process.MODEL,)
    await engine.aclose()


async def test_killed_in_midstream() -> None:
    if reason := engine_process.missing():
        pytest.skip(reason)
    own = await asyncio.to_thread(engine_process.start_engine, 1, 4096)
    try:
        engine = OpenAIHttpEngine("real", own.url, "llamacpp")
        stream = await engine.open(ask(max_tokens=3000, extra={"ignore_eos": True}))
        events: list[StreamEvent] = []
        async for batch in stream:
            events += batch
            if len(events) > 5 and own.alive:
                own.kill()
        assert isinstance(events[-1], Fault)
        assert events[-1].kind == "cut"
        assert not any(isinstance(e, FinishReason | Done | Closed) for e in events)
        with pytest.raises(EngineError) as raised:
            await engine.open(ask())
        assert raised.value.kind == "connect"
        assert not (await engine.health()).ok
        await engine.aclose()
    finally:
        own.stop()
