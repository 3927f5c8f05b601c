"""What every engine must do, whoever it is: the scripted one, the one over HTTP and the one in this process play the
same scenes, as far as they have them: a model in this process has no wire that could be cut."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch_models
from joining import joined
from replay_server import ReplayServer, Reply, chunk, sse

from guard.engines.contract import Capabilities, Engine, EngineError, EngineRequest, Health
from guard.engines.openai_http import OpenAIHttpEngine
from guard.engines.scripted import Pause, Play, ScriptedEngine, Silence, Step
from guard.engines.torch_engine import TorchEngine
from guard.events import Closed, Done, Fault, FinishReason, Opened, StreamEvent, TextDelta, Usage
from guard.request import GenerationRequest

HELLO = [chunk("Hel"), chunk("lo"), chunk(finish="stop")]
OPENED: StreamEvent = Opened("chatcmpl-1", "m")
SAID: list[StreamEvent] = [
    OPENED,
    TextDelta(0, "content", "Hel"),
    TextDelta(0, "content", "lo"),
    FinishReason(0, "stop"),
]
TOLD = joined(SAID)
FIRST: Step = [OPENED, TextDelta(0, "content", "Hel")]


@dataclass
class Scene:
    """One answer: as the script of the fake, as the wire of a real engine, and as the tokens of a model."""

    play: Play
    reply: Reply
    tokens: list[Any] = field(default_factory=list)


WHOLE = Scene(Play([SAID, [Done(), Closed(True)]]), Reply(sse(*HELLO)), ["Hel", "lo"])
PIECES = Scene(
    Play([[event] for event in SAID] + [[Done()], [Closed(True)]]),
    Reply(sse(*HELLO), every=40, delay=0.001),
    ["Hel", "lo"],
)
NO_DONE = Scene(Play([SAID, [Closed(True)]]), Reply(sse(*HELLO, done=False)))
SILENT = Scene(
    Play([FIRST, Silence()]), Reply(sse(*HELLO[:1], done=False), end="hang"), ["Hel", threading.Event(), "lo"]
)
SLOW = Scene(
    Play([FIRST, Pause(0.02), SAID[2:], [Done(), Closed(True)]]),
    Reply(sse(*HELLO), cuts=[len(sse(HELLO[0], done=False))], delay=0.02),
    ["Hel", 0.02, "lo"],
)
FAULTY = Scene(
    Play([FIRST, [Fault("error_event", "died", 500)]]),
    Reply(sse(HELLO[0], {"error": {"message": "died", "code": 500}})),
    ["Hel", RuntimeError("died")],
)
CUT = Scene(Play([FIRST, [Fault("cut", "gone")]]), Reply(sse(HELLO[0], done=False), end="close"))
BUSY = Scene(
    Play(error=EngineError("status", "busy", status=503, retry_after=7)),
    Reply(
        b'{"error": {"message": "busy"}}',
        503,
        {"content-type": "application/json", "retry-after": "7"},
        framing="length",
    ),
)
EMPTY = Scene(Play([[Closed(True)]]), Reply(b""))


@dataclass
class Stage:
    """An engine about to play scenes. ``gone`` waits until the engine has noticed that it was left."""

    engine: Engine
    gone: Callable[[], Any]
    asked: Callable[[], int]
    seen: list[Any] = field(default_factory=list)


@asynccontextmanager
async def scripted(*scenes: Scene) -> AsyncIterator[Stage]:
    engine = ScriptedEngine("fake", [scene.play for scene in scenes])

    async def gone() -> None:
        assert engine.streams[-1].closed_early

    yield Stage(engine, gone, lambda: len(engine.requests))
    await engine.aclose()


@asynccontextmanager
async def over_http(*scenes: Scene) -> AsyncIterator[Stage]:
    async with ReplayServer(*(scene.reply for scene in scenes)) as server:
        engine = OpenAIHttpEngine("real", server.url, "vllm")
        yield Stage(engine, server.client_gone, lambda: len(server.requests))
        await engine.aclose()


@asynccontextmanager
async def in_process(*scenes: Scene) -> AsyncIterator[Stage]:
    """One model, which says the same to everyone: that of the first scene."""
    tokenizer = torch_models.new_tokenizer()
    tokens = scenes[0].tokens
    for step in tokens:
        if isinstance(step, threading.Event):
            step.clear()
    script = torch_models.Script(tokenizer, *tokens)

    def load() -> Any:
        from guard.engines.torch_model import Model

        return Model(script, tokenizer)

    engine = TorchEngine("torch", load, model="m")

    def let_go() -> None:
        for step in tokens:
            if isinstance(step, threading.Event):
                step.set()

    async def gone() -> None:
        let_go()  # a model can be left between two tokens
        async with asyncio.timeout(1):
            while engine.busy:  # noqa: ASYNC110  the engine's threads set no Event of ours
                await asyncio.sleep(0.01)

    yield Stage(engine, gone, lambda: script.calls // (len(tokens) + 1))
    let_go()
    await engine.aclose()


TORCH = pytest.param(
    in_process,
    marks=[pytest.mark.slow, pytest.mark.skipif(bool(torch_models.missing()), reason=torch_models.missing() or "-")],
)
ENGINES = pytest.mark.parametrize("on_stage", [scripted, over_http, TORCH])
ON_A_WIRE = pytest.mark.parametrize("on_stage", [scripted, over_http])
Stager = Callable[..., Any]


def a_request(**fields: Any) -> EngineRequest:
    return EngineRequest(GenerationRequest("r", "chat", "m", messages=[{"role": "user", "content": "hi"}]), **fields)


async def all_of(engine: Engine) -> list[StreamEvent]:
    stream = await engine.open(a_request())
    found = [event async for batch in stream for event in batch]
    await stream.aclose()
    return plain(found)


def plain(events: list[StreamEvent]) -> list[StreamEvent]:
    """Without what only some engines tell: ids of answers and of tokens, usage; nor how its text was cut."""
    out: list[StreamEvent] = []
    for event in events:
        if isinstance(event, TextDelta):
            out.append(TextDelta(event.choice, event.channel, event.text, count=event.count))
        elif isinstance(event, Opened):
            assert event.response_id
            out.append(Opened("chatcmpl-1", event.model))
        elif not isinstance(event, Usage):
            out.append(event)
    return joined(out)


@ENGINES
@pytest.mark.parametrize("scene", [WHOLE, PIECES, SLOW])
async def test_an_answer(on_stage: Stager, scene: Scene) -> None:
    async with on_stage(scene) as stage:
        assert await all_of(stage.engine) == [*TOLD, Done(), Closed(True)]


@ENGINES
async def test_batches_are_lists_and_none_is_empty(on_stage: Stager) -> None:
    async with on_stage(PIECES) as stage:
        stream = await stage.engine.open(a_request())
        batches = [batch async for batch in stream]
        assert len(batches) > 1
        assert all(isinstance(batch, list) and batch for batch in batches)


@ON_A_WIRE
async def test_a_stream_without_done_is_closed_and_no_more(on_stage: Stager) -> None:
    async with on_stage(NO_DONE) as stage:
        assert await all_of(stage.engine) == [*TOLD, Closed(True)]


@ON_A_WIRE
async def test_an_empty_answer(on_stage: Stager) -> None:
    async with on_stage(EMPTY) as stage:
        assert await all_of(stage.engine) == [Closed(True)]


@ON_A_WIRE
async def test_a_cut_is_the_last_event(on_stage: Stager) -> None:
    async with on_stage(CUT) as stage:
        *before, fault = await all_of(stage.engine)
        assert before == FIRST
        assert isinstance(fault, Fault)
        assert fault.kind == "cut"


@ENGINES
@pytest.mark.parametrize(("scene", "kind"), [(FAULTY, "error_event")])
async def test_a_fault_is_the_last_event(on_stage: Stager, scene: Scene, kind: str) -> None:
    async with on_stage(scene) as stage:
        *before, fault = await all_of(stage.engine)
        assert before == FIRST
        assert isinstance(fault, Fault)
        assert fault.kind == kind


@ENGINES
@pytest.mark.parametrize("scene", [WHOLE, FAULTY])
async def test_after_the_end_it_stays_ended(on_stage: Stager, scene: Scene) -> None:
    async with on_stage(scene) as stage:
        stream = await stage.engine.open(a_request())
        assert [batch async for batch in stream]
        assert [batch async for batch in stream] == []
        await stream.aclose()
        await stream.aclose()
        assert [batch async for batch in stream] == []


@ON_A_WIRE
async def test_a_refusal_is_raised_by_open(on_stage: Stager) -> None:
    async with on_stage(BUSY, WHOLE) as stage:
        with pytest.raises(EngineError) as raised:
            await stage.engine.open(a_request())
        error = raised.value
        assert (error.kind, error.message, error.status, error.retry_after) == ("status", "busy", 503, 7)
        assert error.retryable
        assert len(await all_of(stage.engine)) == len(TOLD) + 2


@ENGINES
async def test_aclose_tells_the_engine_at_once(on_stage: Stager) -> None:
    async with on_stage(SILENT) as stage:
        stream = await stage.engine.open(a_request())
        assert plain(await anext(aiter(stream))) == FIRST
        async with asyncio.timeout(0.1):
            await stream.aclose()
        await stage.gone()
        assert [batch async for batch in stream] == []


@ENGINES
async def test_aclose_wakes_whoever_reads(on_stage: Stager) -> None:
    async with on_stage(SILENT) as stage:
        stream = await stage.engine.open(a_request())

        async def read() -> list[StreamEvent]:
            return plain([event async for batch in stream for event in batch])

        reader = asyncio.create_task(read())
        await asyncio.sleep(0.05)
        await stream.aclose()
        async with asyncio.timeout(1):
            assert await reader == FIRST


@ENGINES
async def test_a_cancelled_reader_can_be_closed(on_stage: Stager) -> None:
    async with on_stage(SILENT) as stage:
        stream = await stage.engine.open(a_request())
        await anext(aiter(stream))
        reader = asyncio.create_task(anext(aiter(stream)))  # type: ignore[arg-type]
        await asyncio.sleep(0.02)
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        await stream.aclose()
        await stage.gone()


@ENGINES
async def test_many_streams_at_once(on_stage: Stager) -> None:
    async with on_stage(*[PIECES] * 20) as stage:
        answers = await asyncio.gather(*(all_of(stage.engine) for _ in range(20)))
        assert all(answer == [*TOLD, Done(), Closed(True)] for answer in answers)
        assert stage.asked() == 20


@ENGINES
async def test_closing_the_engine_ends_its_streams_and_opens_no_more(on_stage: Stager) -> None:
    async with on_stage(SILENT) as stage:
        stream = await stage.engine.open(a_request())
        await anext(aiter(stream))
        await stage.engine.aclose()
        async with asyncio.timeout(1):
            rest = [event async for batch in stream for event in batch]
        assert all(isinstance(event, Fault) for event in rest)
        with pytest.raises(EngineError):
            await stage.engine.open(a_request())


@ENGINES
async def test_it_says_who_it_is(on_stage: Stager) -> None:
    async with on_stage(WHOLE) as stage:
        assert stage.engine.name
        assert isinstance(stage.engine.capabilities, Capabilities)
        assert isinstance(await stage.engine.health(), Health)
        stream = await stage.engine.open(a_request())
        assert stream.unenforced == ()
        await stream.aclose()
