"""Generate over a real server: every event, how they are batched, deadlines, cancellation."""

from __future__ import annotations

import asyncio
import math
import time
from typing import Any

import grpc
import pytest

from detectors.finding import Finding
from guard.events import (
    Failed,
    Finished,
    Found,
    GuardEvent,
    Recovery,
    Release,
    Repair,
    Started,
    ToolRelease,
    Usage,
    Verdicts,
)
from guard.v1 import guard_pb2 as pb

FINISHED = Finished(0, "stop", Usage(3, 2, 5, 1, 1), Verdicts(format="ok"), attempts=1)


def ask(**more: Any) -> pb.GenerateRequest:
    request = pb.GenerateRequest(model="m", **more)
    if request.WhichOneof("prompt") is None:
        request.chat.messages.add(role=pb.ROLE_USER, text="hi")
    return request


async def events(call: Any) -> list[Any]:
    return [getattr(response, response.WhichOneof("event")) async for response in call]


async def test_every_kind_of_event_arrives_whole_and_in_order(serve: Any) -> None:
    finding = Finding(
        "repetition.period",
        "warn",
        "it repeats",
        "content",
        3,
        9,
        0.75,
        {"period": 2, "texts": ["a", "b"], "ratio": 0.5, "odd": math.inf, "none": None, "seen": (1, True)},
    )
    script: list[list[GuardEvent]] = [
        [Started("r", "t" * 32, "m", "a")],
        [Release(0, "reasoning", "hm")],
        [Release(0, "content", "héllo")],
        [Release(0, "refusal", "no")],
        [ToolRelease(0, 0, "", "call_1", "f"), ToolRelease(0, 1, '{"a":', "call_2", "g"), ToolRelease(0, 1, "1}")],
        [Found(0, finding, "a", 1)],
        [Recovery(0, 2, "resume", "a", "b", "repetition.period", "content", 5)],
        [Repair(0, "tool.index", "renumbered")],
        [Finished(0, "stop", Usage(3, 2, 5, 1, 1), Verdicts("ok", "failed", "unknown"), 2, 40, "END")],
    ]
    async with serve(*script) as served:
        got = await events(served.stub.Generate(ask()))
    assert [type(event).__name__ for event in got] == [
        "Started",
        *["Delta"] * 5,
        "Finding",
        "Recovery",
        "Repair",
        "Finished",
    ]
    started, reasoning, content, refusal, first, second, found, recovery, repair, finished = got
    assert started == pb.Started(request_id="r", trace_id="t" * 32, model="m", engine="a")
    assert (reasoning.reasoning, content.content, refusal.refusal) == ("hm", "héllo", "no")
    assert first.tool_call == pb.ToolCallDelta(index=0, id="call_1", name="f")
    assert second.tool_call == pb.ToolCallDelta(index=1, id="call_2", name="g", arguments='{"a":1}')
    assert (found.code, found.severity, found.onset, found.detected_at) == (
        "repetition.period",
        pb.SEVERITY_WARN,
        3,
        9,
    )
    evidence = found.evidence
    assert (evidence["period"], list(evidence["texts"]), evidence["odd"]) == (2, ["a", "b"], "inf")
    assert (found.confidence, found.engine, found.attempt) == (0.75, "a", 1)
    assert recovery == pb.Recovery(
        choice=0,
        attempt=2,
        action="resume",
        from_engine="a",
        to_engine="b",
        reason="repetition.period",
        channel="content",
        offset=5,
    )
    assert repair == pb.Repair(code="tool.index", message="renumbered")
    assert finished == pb.Finished(
        finish_reason="stop",
        matched_stop_text="END",
        usage=pb.Usage(
            prompt_tokens=3, completion_tokens=2, total_tokens=5, cached_tokens=1, reasoning_tokens=1, wasted_tokens=40
        ),
        verdicts=pb.Verdicts(format=pb.VERDICT_OK, tool_choice=pb.VERDICT_FAILED, execution=pb.VERDICT_UNKNOWN),
        attempts=2,
        trace_id="t" * 32,
    )


async def test_only_neighbours_of_one_channel_in_one_batch_are_joined(serve: Any) -> None:
    batch: list[GuardEvent] = [
        Release(0, "content", "a"),
        Release(0, "content", "b"),
        Release(0, "reasoning", "c"),
        Release(0, "content", "d"),
        Release(1, "content", "e"),
        Repair(0, "x.y", ""),
        Release(1, "content", "f"),
        ToolRelease(0, 0, "{", "i", "f"),
        ToolRelease(0, 0, "}"),
        ToolRelease(0, 1, "{}", "j", "g"),
    ]
    more: list[GuardEvent] = [Release(0, "content", "g")]
    ends = [FINISHED, Finished(1, "stop", Usage(), Verdicts(), 1)]
    async with serve(batch, more, more, ends) as served:
        got = await events(served.stub.Generate(ask(sampling=pb.Sampling(n=2))))
    pieces = [getattr(event, event.WhichOneof("piece")) for event in got if isinstance(event, pb.Delta)]
    shown = [piece if isinstance(piece, str) else piece.arguments for piece in pieces]
    assert shown == ["ab", "c", "d", "e", "f", "{}", "{}", "g", "g"]


async def test_ids_and_logprobs_come_when_asked_for_and_survive_what_engines_do_to_them(serve: Any) -> None:
    entry = {"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": [{"token": "b", "logprob": None}]}
    script: list[list[GuardEvent]] = [
        [Release(0, "content", "a", (7,), [entry]), Release(0, "content", "b", (8, -1), [{"token": None}])],
        [FINISHED],
    ]
    async with serve(*script) as served:
        plain, _ = await events(served.stub.Generate(ask()))
        sampling = pb.Sampling(logprobs=True, top_logprobs=1)
        asked, _ = await events(served.stub.Generate(ask(return_token_ids=True, sampling=sampling)))
    assert plain == pb.Delta(content="ab")
    assert asked.content == "ab"
    assert list(asked.token_ids) == [7, 8]
    one, other = asked.logprobs
    assert (one.token, one.logprob, one.token_bytes) == ("a", -0.5, b"a")
    assert one.top[0].token == "b"
    assert math.isnan(one.top[0].logprob)
    assert not other.HasField("token_bytes")
    assert math.isnan(other.logprob)


async def test_what_a_message_cannot_hold_fails_no_call(serve: Any) -> None:
    usage = Usage(-1, 2**70, 0)
    script: list[list[GuardEvent]] = [
        [Release(0, "content", "a\ud83d"), Release(0, "content", "\ude00b\udfff")],
        [Found(0, Finding("leak.token", "info", "\ud800", evidence={"\ud800": "\ud800"}), "a", 1)],
        [Finished(0, "stop", usage, Verdicts(format="odd"), 1, matched_stop=2**80)],
    ]
    async with serve(*script) as served:
        delta, found, finished = await events(served.stub.Generate(ask()))
    assert delta.content == "a\U0001f600b\ufffd"
    assert found.message == "\ufffd"
    assert dict(found.evidence) == {"\ufffd": "\ufffd"}
    assert (finished.usage.prompt_tokens, finished.usage.completion_tokens) == (0, 2**64 - 1)
    assert finished.verdicts.format == pb.VERDICT_UNSPECIFIED
    assert finished.matched_stop_token == 2**63 - 1


async def test_events_are_not_kept_until_the_end(serve: Any) -> None:
    async with serve([Release(0, "content", "first")], 5.0, [FINISHED]) as served:
        call = served.stub.Generate(ask())
        response = await asyncio.wait_for(call.read(), 1.0)
        assert response.delta.content == "first"
        call.cancel()


async def test_a_caller_that_goes_away_closes_the_generation_at_once(serve: Any) -> None:
    async with serve([Release(0, "content", "a")], 30.0, [FINISHED]) as served:
        call = served.stub.Generate(ask())
        await call.read()
        gone_at = time.monotonic()
        call.cancel()
        await asyncio.wait_for(served.service.closed.wait(), 1.0)
        assert served.service.closed_at is not None
        assert served.service.closed_at - gone_at < 0.2


async def test_a_caller_that_goes_away_while_we_write_closes_the_generation_too(serve: Any) -> None:
    flood: list[Any] = [[Release(0, "content", "x" * 60_000)]] * 400
    async with serve(*flood, 30.0) as served:
        call = served.stub.Generate(ask())
        await call.read()  # and no more: the flow's window fills, the server's write waits
        await asyncio.sleep(0.1)
        assert not served.service.closed.is_set()
        gone_at = time.monotonic()
        call.cancel()
        await asyncio.wait_for(served.service.closed.wait(), 1.0)
        assert served.service.closed_at is not None
        assert served.service.closed_at - gone_at < 0.2


async def test_the_calls_deadline_reaches_the_service_and_ends_the_call(serve: Any) -> None:
    async with serve([Release(0, "content", "a")], 30.0, [FINISHED]) as served:
        begun = time.monotonic()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await events(served.stub.Generate(ask(), timeout=0.4))
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert time.monotonic() - begun < 2.0
        await asyncio.wait_for(served.service.closed.wait(), 1.0)
        (request,) = served.service.requests
        assert request.deadline is not None
        assert 0.3 < request.deadline - begun < 1.5  # gRPC sends the time left, so a slow start moves it


async def test_without_a_deadline_there_is_none(serve: Any) -> None:
    async with serve() as served:
        await events(served.stub.Generate(ask()))
        assert served.service.requests[0].deadline is None


async def test_metadata_says_what_headers_say(serve: Any) -> None:
    metadata = (
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ("tracestate", "a=b"),
        ("x-outguard-policy", "careful"),
        ("x-outguard-retention", "hash"),
        ("x-outguard-engines", "a, b"),
        ("x-outguard-tenant", "acme"),
        ("some-bin", b"\xff\xfe"),
    )
    async with serve() as served:
        message = ask(policy="fast", retention=pb.RETENTION_NONE, request_id="mine")
        await events(served.stub.Generate(message, metadata=metadata))
        (request,) = served.service.requests
    assert (request.traceparent, request.tracestate) == (metadata[0][1], "a=b")
    assert (request.policy, request.retention, request.engines) == ("careful", "none", ("a", "b"))
    assert (request.tenant, request.id, request.protocol) == ("acme", "mine", "grpc")


async def test_a_request_without_an_id_gets_one_of_its_own(serve: Any) -> None:
    async with serve() as served:
        await events(served.stub.Generate(ask()))
        await events(served.stub.Generate(ask()))
        one, other = served.service.requests
    assert one.id
    assert one.id != other.id


async def test_with_several_choices_one_that_finishes_is_enough(serve: Any) -> None:
    lost = Failed(1, "collapsed", "it looped", 3, 500, 1.5)
    async with serve([Started("r", "tt", "m", "a")], [lost], [FINISHED]) as served:
        _, failed, finished = await events(served.stub.Generate(ask(sampling=pb.Sampling(n=2))))
    assert isinstance(finished, pb.Finished)
    assert (failed.choice, failed.code, failed.message, failed.attempts) == (1, "collapsed", "it looped", 3)
    assert (failed.engine_status, failed.retry_after.ToMilliseconds(), failed.trace_id) == (500, 1500, "tt")
