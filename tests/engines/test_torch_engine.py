"""The engine in this process: prompts, sampling, masks, going on, stop strings, cancelling; on models of no weights."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from typing import Any

import pytest
import torch_models

from guard.constraint.compile import compile_constraint
from guard.constraint.spec import Constraint
from guard.engines.contract import EngineError, EngineRequest, Prefix, ResumeUnsupported
from guard.engines.torch_engine import TorchEngine, address
from guard.events import Closed, Done, Fault, FinishReason, Opened, StreamEvent, TextDelta, Usage
from guard.request import GenerationRequest, Sampling

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(torch_models.missing()), reason=torch_models.missing() or "all is installed"),
]

HI = [{"role": "user", "content": "hi"}]
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
CONSTRAINTS = {
    "schema": Constraint("json_schema", SCHEMA),
    "regex": Constraint("regex", r"[a-c]{2,4}-[0-9]{1,3}"),
    "choice": Constraint("choice", ("left", "right", "ri ght?")),
    "grammar": Constraint("grammar", 'root ::= "x" [0-9] [0-9]? "é"', syntax="ebnf"),
    "lark": Constraint("grammar", 'start: /[ab]{1,5}/ "!"', syntax="lark"),
}
OUTLINES = ("schema", "regex", "choice")


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return torch_models.new_tokenizer()


def engine_of(model: Any, tokenizer: Any, masks: str = "xgrammar", **more: Any) -> TorchEngine:
    def load() -> Any:
        from guard.engines.torch_model import Model

        return Model(model, tokenizer, masks)

    return TorchEngine("t", load, model="tiny", masks=masks, **more)


def ask(**fields: Any) -> EngineRequest:
    attempt = {name: fields.pop(name) for name in ("prefix", "constrain", "deadline") if name in fields}
    fields.setdefault("sampling", Sampling(temperature=0.0, seed=1))
    fields.setdefault("kind", "chat")
    fields.setdefault("messages", HI)
    tokens = fields.pop("max_tokens", 200)
    return EngineRequest(GenerationRequest(id="r", model="m", **fields), max_tokens=tokens, **attempt)


async def events_of(engine: TorchEngine, request: EngineRequest) -> list[StreamEvent]:
    stream = await engine.open(request)
    events = [event async for batch in stream for event in batch]
    await stream.aclose()
    return events


def text_of(events: list[StreamEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def judged(constraint: Constraint, text: str) -> list[str]:
    checker = compile_constraint(constraint).checker()
    return [f.code for f in (*checker.feed(text), *checker.finish(False)) if f.severity == "error"]


# --- an answer --------------------------------------------------------------------------------------------------------


async def test_an_answer_with_ids_and_usage(tokenizer: Any) -> None:
    engine = engine_of(torch_models.Script(tokenizer, "Hel", "lo"), tokenizer)
    events = await events_of(engine, ask(return_token_ids=True))
    opened, *said = events
    assert isinstance(opened, Opened)
    assert opened.prompt_token_ids == tuple(tokenizer.encode("<user>hi\n<assistant>"))
    assert [e.text for e in said if isinstance(e, TextDelta)] == ["Hel", "lo"]
    ids = [i for e in said if isinstance(e, TextDelta) for i in e.token_ids or ()]
    assert ids == tokenizer.encode("Hello")
    prompt = len(opened.prompt_token_ids)
    assert said[-4:] == [FinishReason(0, "stop"), Usage(prompt, 3, prompt + 3), Done(), Closed(True)]
    await engine.aclose()


async def test_half_a_character_waits_for_the_rest(tokenizer: Any) -> None:
    first, second = tokenizer.tokenize("é")
    engine = engine_of(torch_models.Script(tokenizer), tokenizer)
    model = await engine._ready()
    script = torch_models.Script(tokenizer, first, second, "Hel")
    script._tokenizer = type("Ids", (), {  # its steps are already tokens
        "tokenize": staticmethod(lambda token: [token]),
        "convert_tokens_to_ids": staticmethod(tokenizer.convert_tokens_to_ids),
        "eos_token": tokenizer.eos_token,
    })  # fmt: skip
    model._model = script
    deltas = [e for e in await events_of(engine, ask()) if isinstance(e, TextDelta)]
    assert [(e.text, len(e.token_ids or ())) for e in deltas] == [("é", 2), ("Hel", 1)]
    await engine.aclose()


async def test_stop_strings_and_limits(tokenizer: Any) -> None:
    engine = engine_of(torch_models.Script(tokenizer, *["Hel", "lo"] * 20), tokenizer)
    events = await events_of(engine, ask(sampling=Sampling(temperature=0.0, stop=("oHe", "zz"))))
    assert text_of(events) == "Hell"
    assert FinishReason(0, "stop", "oHe") in events
    events = await events_of(engine, ask(max_tokens=3))
    assert (text_of(events), FinishReason(0, "length") in events) == ("HelloHel", True)
    await engine.aclose()


async def test_sampling_is_its_seeds_alone(tokenizer: Any) -> None:
    engine = engine_of(torch_models.random_model(tokenizer), tokenizer)

    async def said(**sampling: Any) -> tuple[int, ...]:
        events = await events_of(engine, ask(max_tokens=12, sampling=Sampling(**sampling)))
        return tuple(i for e in events if isinstance(e, TextDelta) for i in e.token_ids or ())

    assert await said(seed=1) == await said(seed=1) != await said(seed=2)
    greedy = await said(temperature=0.0)
    assert greedy == await said(temperature=0.0, seed=5) == await said(seed=9, top_p=0.0)
    unlike = await said(temperature=0.0, frequency_penalty=2.0)
    assert len(set(unlike)) >= len(set(greedy))
    await engine.aclose()


async def test_log_probabilities_are_the_models_own(tokenizer: Any) -> None:
    engine = engine_of(torch_models.random_model(tokenizer), tokenizer)
    sampling = Sampling(temperature=0.0, logprobs=True, top_logprobs=3)
    constraint = CONSTRAINTS["choice"]
    free = ask(max_tokens=6, sampling=sampling, extra={"ignore_eos": True})
    for asked in (free, ask(sampling=sampling, constraint=constraint)):
        deltas = [e for e in await events_of(engine, asked) if isinstance(e, TextDelta)]
        entries = [entry for e in deltas for entry in e.logprobs or ()]
        assert entries
        for entry in entries:
            assert entry["logprob"] <= entry["top_logprobs"][0]["logprob"] < 0
            assert len(entry["top_logprobs"]) == 3
            assert bytes(entry["bytes"]).decode("utf-8", "replace") == entry["token"]
        if asked.request.constraint is None:
            likeliest = [
                [top["token"] for top in entry["top_logprobs"] if top["token"] != "<end>"] for entry in entries
            ]
            assert [entry["token"] for entry in entries] == [tokens[0] for tokens in likeliest]
    await engine.aclose()


# --- masks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("masks", ["xgrammar", "outlines"])
@pytest.mark.parametrize("seed", [1, 2])
async def test_a_model_of_noise_keeps_to_every_constraint(tokenizer: Any, masks: str, seed: int) -> None:
    engine = engine_of(torch_models.random_model(tokenizer, seed), tokenizer, masks)
    for name, constraint in CONSTRAINTS.items():
        if masks == "outlines" and name not in OUTLINES:
            continue
        stream = await engine.open(ask(constraint=constraint, sampling=Sampling(seed=seed), max_tokens=400))
        events = [event async for batch in stream for event in batch]
        assert FinishReason(0, "stop") in events, (name, text_of(events))
        broken = judged(constraint, text_of(events))
        assert all(code.removeprefix("schema.") in stream.unenforced for code in broken), (name, text_of(events))
        assert constraint.kind not in stream.unenforced
    await engine.aclose()


@pytest.mark.parametrize("masks", ["xgrammar", "outlines"])
async def test_a_mask_goes_on_from_a_prefix(tokenizer: Any, masks: str) -> None:
    engine = engine_of(torch_models.random_model(tokenizer), tokenizer, masks)
    cases = [("schema", '{"name": "Bo'), ("regex", "ab-"), ("choice", "ri"), ("schema", '{"name": "Bo", "age"')]
    for name, begun in cases:
        stream = await engine.open(ask(constraint=CONSTRAINTS[name], prefix=Prefix(content=begun)))
        said = text_of([event async for batch in stream for event in batch])
        assert CONSTRAINTS[name].kind not in stream.unenforced
        broken = judged(CONSTRAINTS[name], begun + said)
        assert all(code.removeprefix("schema.") in stream.unenforced for code in broken), begun + said
    await engine.aclose()


async def test_a_prefix_with_its_keys_in_another_order_stays_masked(tokenizer: Any) -> None:
    engine = engine_of(torch_models.random_model(tokenizer), tokenizer)
    begun = '{"age": 3, "tags": ["a"], '
    stream = await engine.open(ask(constraint=CONSTRAINTS["schema"], prefix=Prefix(content=begun)))
    assert stream.unenforced == ()
    assert json.loads(begun + text_of([e async for batch in stream for e in batch])).keys() == {"age", "tags", "name"}
    await engine.aclose()


async def test_what_a_mask_cannot_do_is_told(tokenizer: Any) -> None:
    model = torch_models.Script(tokenizer, "Hel", "lo")
    engine = engine_of(model, tokenizer, "outlines")
    for constraint, told in (
        (CONSTRAINTS["lark"], "grammar:lark"),
        (Constraint("regex", r"(a)\1"), "regex"),
        (Constraint("json_object"), "json_object"),
    ):
        stream = await engine.open(ask(constraint=constraint))
        assert stream.unenforced == (told,)
        assert text_of([e async for batch in stream for e in batch]) == "Hello"
    stream = await engine.open(ask(constraint=CONSTRAINTS["regex"], prefix=Prefix(content="zz")))
    assert stream.unenforced == ("regex",)
    await stream.aclose()
    stream = await engine.open(ask(constraint=CONSTRAINTS["regex"], constrain=False))
    assert stream.unenforced == ("regex",)
    await stream.aclose()
    await engine.aclose()
    unmasked = engine_of(model, tokenizer, constrains=False)
    assert not unmasked.capabilities.constraints
    stream = await unmasked.open(ask(constraint=CONSTRAINTS["regex"]))
    assert stream.unenforced == ("regex",)
    await stream.aclose()
    await unmasked.aclose()


# --- going on, leaving ------------------------------------------------------------------------------------------------


async def test_going_on_is_the_same_answer(tokenizer: Any) -> None:
    """By text and by ids, in a chat and behind a prompt of ids."""
    engine = engine_of(torch_models.random_model(tokenizer), tokenizer)
    prompt = tuple(tokenizer.encode("Once upon"))
    for fields in ({}, {"kind": "completion", "prompt": "Once upon"}, {"kind": "completion", "prompt": prompt}):
        deltas = [e for e in await events_of(engine, ask(max_tokens=12, **fields)) if isinstance(e, TextDelta)]
        whole = "".join(e.text for e in deltas)
        begun = "".join(e.text for e in deltas[:5])
        ids = tuple(i for e in deltas[:5] for i in e.token_ids or ())
        rest = await events_of(engine, ask(max_tokens=12 - len(ids), prefix=Prefix(begun, token_ids=ids), **fields))
        assert begun + text_of(rest) == whole
        other = Prefix(begun, token_ids=(1, 2, 3))  # the ids of another tokenizer: the text counts
        model = await engine._ready()
        assert model.prompt(ask(**fields).request, other)[-3:] != [1, 2, 3]
    await engine.aclose()


async def test_what_cannot_be_gone_on_from_is_refused(tokenizer: Any) -> None:
    engine = engine_of(torch_models.Script(tokenizer), tokenizer)
    for prefix in (Prefix(reasoning="so"), Prefix(tool_calls=(("1", "f", "{"),))):
        with pytest.raises(ResumeUnsupported):
            await engine.open(ask(prefix=prefix))
    await engine.aclose()


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}, "text alone"),
    ({"kind": "completion", "prompt": (10**6,)}, "no token of this model"),
    ({"kind": "completion", "prompt": "a " * 5000}, "the model's context 4096"),
    ({"kind": "completion", "prompt": ""}, "empty"),
]


@pytest.mark.parametrize(("fields", "words"), REFUSED)
async def test_refusals_are_the_callers(tokenizer: Any, fields: dict[str, Any], words: str) -> None:
    engine = engine_of(torch_models.Script(tokenizer), tokenizer)
    with pytest.raises(EngineError, match=words) as raised:
        await engine.open(ask(**fields))
    assert not raised.value.retryable
    await engine.aclose()


async def test_leaving_ends_the_work_within_a_token(tokenizer: Any) -> None:
    model = torch_models.Script(tokenizer, *[step for _ in range(400) for step in (0.01, "Hel")])
    engine = engine_of(model, tokenizer)
    stream = await engine.open(ask(max_tokens=400))
    await anext(aiter(stream))
    await stream.aclose()
    await asyncio.sleep(0.05)
    calls = model.calls
    await asyncio.sleep(0.05)
    assert model.calls == calls < 20
    assert text_of(await events_of(engine, ask(max_tokens=2))) == "HelHel"
    await engine.aclose()


async def test_a_full_engine_says_so_and_its_queue_moves_on(tokenizer: Any) -> None:
    gate = threading.Event()
    engine = engine_of(torch_models.Script(tokenizer, "Hel", gate, "lo"), tokenizer, waiting=1)
    first, second = await engine.open(ask()), await engine.open(ask())
    with pytest.raises(EngineError) as raised:
        await engine.open(ask())
    assert (raised.value.status, raised.value.retryable) == (503, True)
    gate.set()
    for stream in (first, second):
        assert text_of([e async for batch in stream for e in batch]) == "Hello"
    await engine.aclose()


async def test_time_limits(tokenizer: Any) -> None:
    gate = threading.Event()
    stalling = engine_of(torch_models.Script(tokenizer, "Hel", gate), tokenizer, between_tokens_timeout=0.05)
    assert [e.kind for e in await events_of(stalling, ask()) if isinstance(e, Fault)] == ["stall"]
    gate.set()
    slow = engine_of(torch_models.Script(tokenizer, *[s for _ in range(50) for s in (0.01, "Hel")]), tokenizer)
    events = await events_of(slow, ask(deadline=time.monotonic() + 0.1))
    assert isinstance(events[-1], Fault)
    assert events[-1].kind == "total_timeout"
    await stalling.aclose()
    await slow.aclose()


async def test_a_model_that_does_not_load_is_an_engine_that_is_away() -> None:
    engine = TorchEngine.at("t", "torch:///no/such/model")
    with pytest.raises(EngineError, match="could not be loaded") as raised:
        await engine.open(ask())
    assert raised.value.retryable
    assert not (await engine.health()).ok
    await engine.aclose()


async def test_health(tokenizer: Any) -> None:
    engine = engine_of(torch_models.Script(tokenizer), tokenizer)
    health = await engine.health()
    assert health.ok
    assert health.models == ("tiny",)
    assert re.fullmatch(r"transformers \S+, torch \S+", health.version)
    await engine.aclose()


# --- addresses --------------------------------------------------------------------------------------------------------


def test_an_address() -> None:
    assert address("torch:///a/b%20c.gguf?dtype=bf16&mask=outlines") == ("/a/b c.gguf", "bf16", "outlines", "cpu")


@pytest.mark.parametrize(
    "url", ["torch://host/a", "torch:///", "torch:///a?x=1", "torch:///a?mask=z", "torch:///a?dtype=q"]
)
def test_a_wrong_address(url: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        address(url)
