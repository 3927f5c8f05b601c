"""Check over a real server: an output that the caller streams itself, in both forms and any split."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Any

import grpc
import pytest

from guard.events import Closed, Done, Fault, FinishReason, TextDelta, ToolDelta, Usage
from guard.request import RequestError
from guard.v1 import guard_pb2 as pb

HEADER = pb.CheckRequest(header=pb.CheckHeader(request=pb.GenerateRequest()))


def header(**fields: Any) -> pb.CheckRequest:
    return pb.CheckRequest(header=pb.CheckHeader(request=pb.GenerateRequest(**fields)))


def said(*events: pb.CheckEvent) -> pb.CheckRequest:
    return pb.CheckRequest(events=pb.CheckEvents(events=events))


def text(piece: str, choice: int = 0) -> pb.CheckEvent:
    return pb.CheckEvent(delta=pb.Delta(choice=choice, content=piece))


def finish(choice: int = 0, reason: str = "stop") -> pb.CheckEvent:
    return pb.CheckEvent(finish=pb.CheckFinish(choice=choice, finish_reason=reason))


def sse(*chunks: Any) -> bytes:
    lines = [chunk if isinstance(chunk, str) else json.dumps(chunk, ensure_ascii=False) for chunk in chunks]
    return "".join(f"data: {line}\n\n" for line in lines).encode()


def chunk(content: str | None = None, finish_reason: str | None = None) -> dict[str, Any]:
    delta = {} if content is None else {"content": content}
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


async def check(stub: Any, messages: Iterable[pb.CheckRequest]) -> list[Any]:
    return [getattr(one, one.WhichOneof("event")) async for one in stub.Check(iter(list(messages)))]


async def refused(stub: Any, *messages: pb.CheckRequest) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await check(stub, messages)
    return caught.value


@pytest.mark.parametrize("size", [1, 2, 3, 7, 10_000])
async def test_any_split_of_an_event_stream_is_the_same_output(serve: Any, size: int) -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    last = {**chunk(), "choices": [], "usage": usage}
    body = sse(chunk("Grüße"), chunk(" 🦀!"), chunk(None, "stop"), last, "[DONE]")
    pieces = [pb.CheckRequest(openai_sse=body[at : at + size]) for at in range(0, len(body), size)]
    async with serve() as served:
        *deltas, finished = await check(served.stub, [HEADER, *pieces])
        (session,) = served.service.checks
    assert "".join(delta.content for delta in deltas) == "Grüße 🦀!"
    assert finished.finish_reason == "stop"
    assert Usage(3, 2, 5) in session.fed
    assert sum(isinstance(event, Done) for event in session.fed) == 1
    assert [type(event) for event in session.fed].count(Closed) == 1


async def test_an_event_stream_that_ends_early_is_not_called_done(serve: Any) -> None:
    async with serve() as served:
        delta, failed = await check(served.stub, [HEADER, pb.CheckRequest(openai_sse=sse(chunk("a")))])
        (session,) = served.service.checks
    assert delta.content == "a"
    assert isinstance(failed, pb.Failed)
    assert Done() not in session.fed


async def test_the_callers_events_become_the_guards(serve: Any) -> None:
    call = pb.ToolCallDelta(index=1, id="i", name="f", arguments="{}")
    logprob = pb.TokenLogprob(token="a", logprob=-1, token_bytes=b"a", top=[pb.TokenLogprob(token="b", logprob=-2)])
    messages = [
        header(sampling=pb.Sampling(n=2)),
        said(
            pb.CheckEvent(delta=pb.Delta(content="a", token_ids=[5], logprobs=[logprob])),
            pb.CheckEvent(delta=pb.Delta(choice=1, reasoning="b")),
            pb.CheckEvent(delta=pb.Delta(choice=1, refusal="c")),
        ),
        said(pb.CheckEvent(delta=pb.Delta(tool_call=call)), pb.CheckEvent(delta=pb.Delta(token_ids=[6]))),
        said(pb.CheckEvent(usage=pb.Usage(prompt_tokens=1, completion_tokens=2)), finish(), finish(1, "length")),
        said(pb.CheckEvent(fault=pb.CheckFault(kind=pb.CheckFault.KIND_CUT, message="gone"))),
    ]
    async with serve() as served:
        got = await check(served.stub, messages)
        (session,) = served.service.checks
    entry = {"token": "a", "logprob": -1.0, "bytes": [97]}
    other = {"token": "b", "logprob": -2.0, "bytes": None, "top_logprobs": []}
    assert session.fed == [
        TextDelta(0, "content", "a", (5,), [{**entry, "top_logprobs": [other]}]),
        TextDelta(1, "reasoning", "b"),
        TextDelta(1, "refusal", "c"),
        ToolDelta(0, 1, "i", "f", "{}"),
        TextDelta(0, "content", "", (6,)),
        Usage(1, 2, 3),
        FinishReason(0, "stop"),
        FinishReason(1, "length"),
        Fault("cut", "gone"),
        Done(),
        Closed(clean=True),
    ]
    assert [event.finish_reason for event in got if isinstance(event, pb.Finished)] == ["stop", "length"]


async def test_answers_come_while_the_caller_still_streams(serve: Any) -> None:
    async with serve() as served:
        call = served.stub.Check()
        await call.write(HEADER)
        for piece in ("one", "two"):
            await call.write(said(text(piece)))
            response = await asyncio.wait_for(call.read(), 1.0)
            assert response.delta.content == piece
        await call.write(said(finish()))
        await call.done_writing()
        response = await asyncio.wait_for(call.read(), 1.0)
        assert response.finished.finish_reason == "stop"
        assert await call.read() is grpc.aio.EOF
        assert await call.code() is grpc.StatusCode.OK


async def test_a_condemned_output_ends_the_check_before_the_caller_does(serve: Any) -> None:
    async with serve() as served:
        call = served.stub.Check()
        await call.write(HEADER)
        await call.write(said(text("good\abad")))
        assert (await asyncio.wait_for(call.read(), 1.0)).delta.content == "good"
        assert (await asyncio.wait_for(call.read(), 1.0)).failed.code == "collapsed"
        assert await asyncio.wait_for(call.read(), 1.0) is grpc.aio.EOF
        assert await call.code() is grpc.StatusCode.OK


async def test_a_caller_that_leaves_abandons_the_check(serve: Any) -> None:
    async with serve() as served:
        call = served.stub.Check()
        await call.write(HEADER)
        await call.write(said(text("one")))
        assert (await asyncio.wait_for(call.read(), 1.0)).delta.content == "one"
        call.cancel()
        session = served.service.checks[0]
        await asyncio.wait_for(session.left.wait(), 2.0)
        assert session.fed[1:] == [Closed(clean=False)]


async def test_a_second_header_abandons_the_check(serve: Any) -> None:
    async with serve() as served:
        with pytest.raises(grpc.aio.AioRpcError, match="a second header"):
            await check(served.stub, [HEADER, said(text("one")), HEADER])
        assert served.service.checks[0].fed[-1] == Closed(clean=False)


async def test_with_two_choices_the_other_goes_on(serve: Any) -> None:
    messages = [header(sampling=pb.Sampling(n=2)), said(text("\a"), text("a", 1)), said(text("b", 1), finish(1))]
    async with serve() as served:
        failed, *deltas, finished = await check(served.stub, messages)
    assert (failed.code, failed.choice) == ("collapsed", 0)
    assert [delta.content for delta in deltas] == ["a", "b"]
    assert (finished.choice, finished.finish_reason) == (1, "stop")


async def test_a_choice_of_which_nothing_came_did_not_finish(serve: Any) -> None:
    two = header(sampling=pb.Sampling(n=2))
    body = pb.CheckRequest(openai_sse=sse(chunk("a"), chunk(None, "stop"), "[DONE]"))
    async with serve() as served:
        for output in (body, said(text("a"), finish())):
            *_, finished, failed = await check(served.stub, [two, output])
            assert (finished.choice, finished.finish_reason) == (0, "stop")
            assert (failed.choice, failed.code) == (1, "stream_cut")


async def test_the_header_is_held_to_the_rules_of_a_request(serve: Any) -> None:
    chat = pb.ChatPrompt(messages=[pb.ChatMessage(role=pb.ROLE_USER, text="hi")])
    constraint = pb.Constraint(json_object=pb.JsonObject())
    async with serve() as served:
        await check(served.stub, [header(model="m", chat=chat, constraint=constraint, policy="p"), said(finish())])
        await check(served.stub, [HEADER, said(finish())])
        full, bare = served.service.requests
    assert (full.model, full.protocol, full.policy) == ("m", "check", "p")
    assert full.constraint is not None
    assert full.messages == [{"role": "user", "content": "hi"}]
    assert (bare.model, bare.messages, bare.constraint) == ("", [], None)


async def test_what_is_no_check_is_refused(serve: Any) -> None:
    bad = header(constraint=pb.Constraint(json_schema="{"))
    async with serve() as served:
        for messages, path in (
            ((), "header"),
            ((said(text("a")),), "header"),
            ((pb.CheckRequest(),), "header"),
            ((HEADER, HEADER), "header"),
            ((HEADER, pb.CheckRequest()), "message"),
            ((HEADER, said(text("a"), pb.CheckEvent())), "events.events[1]"),
            ((HEADER, said(finish(reason=""))), "events.events[0].finish.finish_reason"),
            ((HEADER, said(pb.CheckEvent(fault=pb.CheckFault()))), "events.events[0].fault.kind"),
            ((HEADER, said(pb.CheckEvent(delta=pb.Delta()))), "events.events[0].delta"),
            ((HEADER, said(text("a"), text("b", 1))), "events.events[1].delta.choice"),
            ((HEADER, said(finish(7))), "events.events[0].finish.choice"),
            ((bad,), "constraint.json_schema"),
        ):
            error = await refused(served.stub, *messages)
            assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert (error.details() or "").startswith(f"{path}:")


async def test_a_service_that_refuses_or_breaks(serve: Any) -> None:
    async with serve() as served:
        served.service.check_error = RequestError("no such policy", "outguard.policy")
        error = await refused(served.stub, HEADER)
        assert (error.code(), error.details()) == (grpc.StatusCode.INVALID_ARGUMENT, "policy: no such policy")
        served.service.check_error = ZeroDivisionError("secret")
        error = await refused(served.stub, HEADER)
        assert error.code() is grpc.StatusCode.INTERNAL
        assert "secret" not in str(error)
