"""The Python client against a real server."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from detectors.finding import Finding
from guard.client import CallError, Client, Generation, ToolCall
from guard.client_messages import build_request
from guard.events import (
    Failed,
    Finished,
    Found,
    Recovery,
    Release,
    Repair,
    Started,
    ToolRelease,
    Usage,
    Verdicts,
)
from guard.request import RequestError
from guard.server.grpc_request import generation_request
from guard.service import Outcome

EVENTS: list[Any] = [
    Started("r", "t1", "m", "a"),
    Release(0, "reasoning", "hm", (1, 2), [{"token": "hm", "logprob": -1.0, "bytes": None, "top_logprobs": []}]),
    Release(0, "content", "Rhine, "),
    Found(0, Finding("repetition.period", "error", "it loops", "content", 7, 20, 0.5, {"period": 2.0}), "a", 1),
    Recovery(0, 2, "resume", "a", "b", "repetition.period", "content", 7),
    Repair(0, "tool.index", "renumbered"),
    ToolRelease(0, 0, "{", "c1", "f"),
    Release(1, "content", "no"),
    ToolRelease(0, 0, "}"),
    Release(0, "content", "Nile"),
    Failed(1, "stream_cut", "cut", 2, 502, 1.5, Verdicts("failed", "none", "unknown"), Usage(1, 2, 3)),
    Finished(0, "stop", Usage(1, 2, 3, 4, 5), Verdicts("ok", "failed", "unknown"), 2, 9, "END"),
]

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


async def use(served: Any, work: Callable[[Client], Any], **options: Any) -> Any:
    """The client blocks, so it works in a thread beside the server's loop."""

    def run() -> Any:
        with Client(served.target, **options) as client:
            return work(client)

    return await asyncio.to_thread(run)


async def test_events_come_back_as_they_were(serve: Any) -> None:
    batches = [[event] for event in EVENTS]
    async with serve(*batches) as served:
        answer = await use(
            served,
            lambda client: client.generate("m", "hi", n=2, return_token_ids=True, logprobs=True).read(),
        )
        again = await use(
            served, lambda client: list(client.generate("m", "hi", n=2, return_token_ids=True, logprobs=True))
        )
    assert again == EVENTS
    assert (answer.trace_id, answer.request_id, answer.engine) == ("t1", "r", "a")
    assert answer.received() == "Rhine, Nile"
    assert answer.received(1) == "no"
    assert answer.received(channel="reasoning") == "hm"
    assert answer.tool_calls() == [ToolCall("c1", "f", "{}")]
    assert answer.tool_calls(1) == []
    assert answer.finished == {0: EVENTS[-1]}
    assert answer.failed == {1: EVENTS[-2]}
    assert (answer.findings, answer.recoveries, answer.repairs) == ([EVENTS[3]], [EVENTS[4]], [EVENTS[5]])


async def test_text_reads_to_the_end(serve: Any) -> None:
    async with serve() as served:
        assert await use(served, lambda client: client.generate("m", "hi").text()) == "hello"


async def test_a_failed_call_raises_and_keeps_what_was_received(serve: Any) -> None:
    lost = Failed(0, "overloaded", "too much", 2, retry_after=1.5)

    def work(client: Client) -> tuple[Generation, CallError]:
        answer = client.generate("m", "hi")
        with pytest.raises(CallError) as caught:
            answer.read()
        return answer, caught.value

    async with serve([Started("r", "t1", "m", "a")], [Release(0, "content", "begun")], [lost]) as served:
        answer, error = await use(served, work)
    assert answer.received() == "begun"
    assert (error.code, error.status, error.message) == ("overloaded", "RESOURCE_EXHAUSTED", "too much")
    assert (error.retry_after, error.trace_id, error.field) == (1.5, "t1", "")


async def test_a_mistake_names_its_field(serve: Any) -> None:
    def work(client: Client) -> CallError:
        with pytest.raises(CallError) as caught:
            client.generate("m", "hi", temperature=9).text()
        return caught.value

    async with serve() as served:
        error = await use(served, work)
    assert (error.code, error.field, error.status) == ("out_of_range", "sampling.temperature", "INVALID_ARGUMENT")


async def test_a_server_that_is_not_there() -> None:
    with Client("127.0.0.1:1") as client, pytest.raises(CallError) as caught:
        client.generate("m", "hi", timeout=5).text()
    assert caught.value.code == "unavailable"


async def test_cancelling_closes_the_generation(serve: Any) -> None:
    def work(client: Client) -> float:
        answer = client.generate("m", "hi")
        next(iter(answer))
        gone_at = time.monotonic()
        answer.cancel()
        return gone_at

    async with serve([Release(0, "content", "a")], 30.0) as served:
        gone_at = await use(served, work)
        await asyncio.wait_for(served.service.closed.wait(), 1.0)
        assert served.service.closed_at - gone_at < 0.2


async def test_check_guards_an_event_stream(serve: Any) -> None:
    choice = {"index": 0, "delta": {"content": "good\abad"}, "finish_reason": None}
    body = f"data: {json.dumps({'id': 'c', 'model': 'm', 'choices': [choice]})}\n\n".encode()
    async with serve() as served:
        answer = await use(served, lambda client: client.check([body[:9], body[9:]], regex="a+").read())
    assert answer.received() == "good"
    assert answer.failed[0].code == "collapsed"


async def test_engines_outcomes_keys_and_tenants(serve: Any) -> None:
    async with serve(api_keys=("k",)) as served:
        engines = await use(served, lambda client: client.engines("m"), api_key="k")
        await use(
            served, lambda client: client.report_outcome(TRACE, False, tool_call_id="c", detail="no"), api_key="k"
        )
        await use(served, lambda client: client.generate("m", "hi").text(), api_key="k", tenant="acme")
        assert [(one.name, one.ok) for one in engines] == [("a", True), ("b", False)]
        assert served.service.outcomes == [Outcome(TRACE, "c", False, "no")]
        assert served.service.requests[0].tenant == "acme"
        for work in (Client.engines, lambda client: client.report_outcome(TRACE, True)):
            with pytest.raises(CallError) as caught:
                await use(served, work)
            assert caught.value.code == "unauthenticated"


class Rivers:
    """Stands for a Pydantic model: what has a schema of its own."""

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]:
        return {"type": "array"}


def test_options_become_the_request() -> None:
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": ["a", {"type": "text", "text": "b"}, {"type": "image_url", "image_url": {}}]},
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "r",
            "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "1", "content": "2"},
    ]
    schema = {"type": "object", "properties": {"z": {}, "a": {}}}
    request = generation_request(
        build_request(
            "m",
            messages,
            tools=[
                {"type": "function", "function": {"name": "f", "description": "d", "parameters": schema}},
                {"name": "g", "inputSchema": schema},
            ],
            tool_choice="f",
            json_schema=schema,
            stop="END",
            max_tokens=3,
            engine_fields={"top_k": 2},
            retention="hash",
            engines=["a"],
        ),
        request_id="r",
    )
    assert request.messages[0] == {"role": "system", "content": "s"}
    assert request.messages[1]["content"] == [
        {"type": "text", "text": "a"},
        {"type": "text", "text": "b"},
        {"type": "image_url", "image_url": {}},
    ]
    assert request.messages[2:] == messages[2:]
    assert [tool.name for tool in request.tools] == ["f", "g"]
    assert all(list(tool.parameters["properties"]) == ["z", "a"] for tool in request.tools)
    assert (request.tool_choice.mode, request.tool_choice.names) == ("named", ("f",))
    assert request.constraint is not None
    assert request.constraint.value == schema
    assert (request.sampling.stop, request.sampling.max_tokens) == (("END",), 3)
    assert (request.extra, request.retention, request.engines) == ({"top_k": 2}, "hash", ("a",))


@pytest.mark.parametrize(
    ("options", "kind", "value"),
    [
        ({"json_schema": Rivers}, "json_schema", {"type": "array"}),
        ({"json_schema": "true"}, "json_schema", True),
        ({"json_object": True}, "json_object", None),
        ({"regex": "a"}, "regex", "a"),
        ({"choice": ["a", "b"]}, "choice", ("a", "b")),
        ({"grammar": "start: 1", "syntax": "lark"}, "grammar", "start: 1"),
    ],
)
def test_constraints(options: Any, kind: str, value: Any) -> None:
    request = generation_request(build_request("m", "hi", **options), request_id="r")
    assert request.constraint is not None
    assert (request.constraint.kind, request.constraint.value) == (kind, value)


def test_a_constraint_is_never_dropped_in_silence() -> None:
    for options in ({"choice": []}, {"regex": ""}, {"json_schema": ""}):
        with pytest.raises(RequestError):
            generation_request(build_request("m", "hi", **options), request_id="r")  # type: ignore[arg-type]
    plain = generation_request(build_request("m", "hi", json_object=False), request_id="r")
    assert plain.constraint is None


@pytest.mark.parametrize(
    "options",
    [
        {"regex": "a", "choice": ["a"]},
        {"text": "a", "messages": "b"},
        {"no_such_option": 1},
        {"messages": [{"role": "robot", "content": "a"}]},
        {"retention": "some"},
        {"grammar": "a", "syntax": "peg"},
        {"messages": "hi", "max_tokens": -1},
    ],
)
def test_what_no_message_can_say_is_refused_at_once(options: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        build_request("m", **options)
