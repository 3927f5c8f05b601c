"""Every way a call can fail: status, details, and what was sent before."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from guard.errors import ERRORS
from guard.events import Failed, Release, Started
from guard.request import RequestError
from guard.server.grpc_error import failed_status, request_error_status
from guard.v1 import guard_pb2 as pb

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
HELLO = pb.GenerateRequest(model="m", chat=pb.ChatPrompt(messages=[pb.ChatMessage(role=pb.ROLE_USER, text="hi")]))


async def failure(call: Any) -> tuple[grpc.aio.AioRpcError, dict[str, Any], list[Any]]:
    """The error, its details by name, and the responses that came before it."""
    before = []
    try:
        if hasattr(call, "__aiter__"):
            async for response in call:
                before.append(response)  # noqa: PERF401 (what came before the error counts)
        else:
            await call
    except grpc.aio.AioRpcError as error:
        rich = rpc_status.from_call(error)
        details: dict[str, Any] = {}
        for packed in rich.details if rich else ():
            for kind in (error_details_pb2.ErrorInfo, error_details_pb2.BadRequest, error_details_pb2.RetryInfo):
                detail = kind()
                if packed.Unpack(detail):
                    details[kind.DESCRIPTOR.name] = detail
        return error, details, before
    raise AssertionError("the call did not fail")


@pytest.mark.parametrize("code", [*ERRORS, "out_of_range", "missing_required_parameter"])
async def test_every_mistake_of_the_caller_has_its_status(serve: Any, code: str) -> None:
    async with serve(RequestError("is wrong", "messages[0].content", code)) as served:
        error, details, before = await failure(served.stub.Generate(HELLO))
    assert error.code().name == (ERRORS[code].grpc if code in ERRORS else "INVALID_ARGUMENT")
    assert error.details() == "chat.messages[0].content: is wrong"
    assert (details["ErrorInfo"].reason, details["ErrorInfo"].domain) == (code, "outguard")
    (violation,) = details["BadRequest"].field_violations
    assert (violation.field, violation.description) == ("chat.messages[0].content", "is wrong")
    assert before == []


@pytest.mark.parametrize("code", [*ERRORS, "never_heard_of"])
async def test_every_failure_of_an_answer_has_its_status(serve: Any, code: str) -> None:
    failed = Failed(0, code, "so it ended", 3, engine_status=503, retry_after=2.5)
    async with serve([Started("r", "t1", "m", "a")], [Release(0, "content", "begun"), failed]) as served:
        error, details, before = await failure(served.stub.Generate(HELLO))
    assert error.code().name == (ERRORS[code].grpc if code in ERRORS else "INTERNAL")
    assert error.details() == "so it ended"
    info = details["ErrorInfo"]
    assert (info.reason, info.domain) == (code, "outguard")
    assert dict(info.metadata) == {"attempts": "3", "trace_id": "t1", "engine_status": "503"}
    assert details["RetryInfo"].retry_delay.ToMilliseconds() == 2500
    assert [response.WhichOneof("event") for response in before] == ["started", "delta"]


async def test_when_no_choice_finishes_the_call_fails_after_their_events(serve: Any) -> None:
    ends = [Failed(1, "collapsed", "it looped", 1), Failed(0, "stream_cut", "it was cut", 2)]
    async with serve([Started("r", "t1", "m", "a")], *[[end] for end in ends]) as served:
        request = pb.GenerateRequest()
        request.CopyFrom(HELLO)
        request.sampling.n = 2
        error, details, before = await failure(served.stub.Generate(request))
    assert error.code() is grpc.StatusCode.DATA_LOSS
    assert error.details() == "choice 1 of 2: it looped"
    assert details["ErrorInfo"].reason == "collapsed"
    assert "RetryInfo" not in details
    assert [response.WhichOneof("event") for response in before] == ["started", "failed", "failed"]


async def test_what_goes_wrong_inside_is_logged_and_not_told(serve: Any, caplog: pytest.LogCaptureFixture) -> None:
    async with serve([Started("r", "t1", "m", "a")], ZeroDivisionError("secret")) as served:
        error, details, _ = await failure(served.stub.Generate(HELLO))
    assert error.code() is grpc.StatusCode.INTERNAL
    assert "secret" not in str(error)
    assert "secret" in caplog.text
    assert dict(details["ErrorInfo"].metadata) == {"trace_id": "t1"}


async def test_an_answer_without_an_end_is_no_success(serve: Any) -> None:
    async with serve([Release(0, "content", "a")]) as served:
        error, _, before = await failure(served.stub.Generate(HELLO))
    assert error.code() is grpc.StatusCode.INTERNAL
    assert len(before) == 1


async def test_bytes_that_are_no_message_are_the_callers_mistake(serve: Any) -> None:
    async with serve() as served:
        for method in ("Generate", "Check"):
            call = served.channel.stream_stream(f"/guard.v1.Guard/{method}")(iter([b"\xff\xff"]))
            error, details, _ = await failure(call)
            assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert details["ErrorInfo"].reason == "invalid_request"
        for method in ("ReportOutcome", "ListEngines"):
            error, _, _ = await failure(served.channel.unary_unary(f"/guard.v1.Guard/{method}")(b"\x0a\xff"))
            assert error.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_message_over_the_limit_is_refused(serve: Any) -> None:
    async with serve(max_message_bytes=10_000) as served:
        request = pb.GenerateRequest(model="m", text="x" * 20_000)
        error, _, _ = await failure(served.stub.Generate(request))
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert served.service.requests == []


def test_long_texts_are_cut_to_what_trailers_hold() -> None:
    error = RequestError("ж" * 50_000, "messages" + "[0]" * 9_000)
    status = request_error_status(error)
    assert len(status.SerializeToString()) < 3_500
    assert status.message.endswith("...")
    assert len(failed_status(Failed(0, "engine_error", "\ud800" * 9_000, 1), "t").SerializeToString()) < 3_500


async def test_long_texts_arrive_as_an_error_and_not_as_too_much_metadata(serve: Any) -> None:
    async with serve([Failed(0, "engine_error", "界" * 50_000, 1)]) as served:
        error, details, _ = await failure(served.stub.Generate(HELLO))
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert details["ErrorInfo"].reason == "engine_error"


@pytest.mark.parametrize("header", [None, "Bearer wrong", "Basic key-one", "Bearer", "key-one", "Bearer key-onee"])
async def test_without_a_key_nothing_is_answered(serve: Any, header: str | None) -> None:
    metadata = [("authorization", header)] if header else []
    async with serve(api_keys=("key-one", "key-two")) as served:
        header_message = pb.CheckRequest(header=pb.CheckHeader(request=HELLO))
        for call in (
            served.stub.Generate(HELLO, metadata=metadata),
            served.stub.Check(iter([header_message]), metadata=metadata),
            served.stub.ListEngines(pb.ListEnginesRequest(), metadata=metadata),
            served.stub.ReportOutcome(pb.ReportOutcomeRequest(trace_id=TRACE, execution=2), metadata=metadata),
        ):
            error, details, _ = await failure(call)
            assert error.code() is grpc.StatusCode.UNAUTHENTICATED
            assert details["ErrorInfo"].reason == "unauthenticated"
        assert served.service.requests == []
        assert served.service.outcomes == []


@pytest.mark.parametrize("header", ["Bearer key-one", "bearer key-two", "Bearer  key-one"])
async def test_with_a_key_it_is(serve: Any, header: str) -> None:
    async with serve(api_keys=("key-one", "key-two")) as served:
        got = [one async for one in served.stub.Generate(HELLO, metadata=[("authorization", header)])]
    assert got[-1].finished.finish_reason == "stop"
