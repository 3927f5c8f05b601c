"""Every mistake a caller can make, in both protocols: the right code, a message that says what, a row where a request
had begun, and an engine that never heard of it."""

from __future__ import annotations

import json
import socket
import time
from typing import Any

import grpc
import pytest
from engine_process import free_port
from replay_server import Reply
from sidecar_process import ASK, Played, Sidecar, until

from guard.client import CallError
from guard.v1 import guard_pb2 as pb
from guard.v1 import guard_pb2_grpc

Stage = tuple[Sidecar, Played, Played]
NO_SCHEMA: dict[str, Any] = {"type": "nope"}


def _schema(schema: Any) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}


def _chat(**fields: Any) -> bytes:
    return json.dumps({"model": "m", "messages": ASK, **fields}).encode()


HTTP = {
    "unknown model": (_chat(model="nope"), 404, "model_not_found", "model", "nope"),
    "no model": (_chat(model=None), 400, "missing_required_parameter", "model", "model"),
    "empty messages": (_chat(messages=[]), 400, "empty_array", "messages", "at least one"),
    "no messages": (b'{"model": "m"}', 400, "missing_required_parameter", "messages", "messages"),
    "a message without a role": (
        _chat(messages=[{"content": "x"}]),
        400,
        "missing_required_parameter",
        "messages[0].role",
        "missing",
    ),
    "a schema that is none": (
        _chat(**_schema(NO_SCHEMA)),
        400,
        "invalid_constraint",
        "response_format.json_schema.schema",
        "nope",
    ),
    "a regex that is none": (
        _chat(structured_outputs={"regex": "(["}),
        400,
        "invalid_constraint",
        "structured_outputs.regex",
        "position 1",
    ),
    "a grammar that is none": (
        _chat(structured_outputs={"grammar": "root ::= ("}),
        400,
        "invalid_constraint",
        "structured_outputs.grammar",
        "grammar",
    ),
    "an empty choice": (_chat(structured_outputs={"choice": []}), 400, None, "structured_outputs.choice", "choice"),
    "no JSON": (b"hello", 400, "invalid_json", None, "line 1, column 1"),
    "half a JSON": (b'{"model": "m",\n "mess', 400, "invalid_json", None, "line 2"),
    "a list": (b"[1]", 400, "invalid_json", None, "array"),
    "nothing": (b"", 400, "invalid_json", None, "empty"),
    "no UTF-8": (b'{"model": "\xff"}', 400, "invalid_json", None, "UTF-8"),
    "nested without end": (b'{"model": "m", "x": ' + b"[" * 5000, 400, "invalid_json", None, "nested"),
    "over the limit": (_chat(x="x" * 1_100_000), 413, "request_too_large", None, "1000000 bytes"),
    "text for a number": (_chat(max_tokens="5"), 400, "invalid_type", "max_tokens", "whole number"),
    "a number for a truth value": (_chat(stream=1), 400, "invalid_type", "stream", "true or false"),
    "an object for messages": (_chat(messages={"a": 1}), 400, "invalid_type", "messages", "list"),
    "no tokens": (_chat(max_tokens=0), 400, "out_of_range", "max_tokens", "at least 1"),
    "too many choices": (_chat(n=1000), 400, "out_of_range", "n", "at most"),
    "hot": (_chat(temperature=3), 400, "out_of_range", "temperature", "between 0 and 2"),
    "a tool without a name": (
        _chat(tools=[{"type": "function", "function": {}}]),
        400,
        "invalid_request",
        "tools[0].function.name",
        "missing",
    ),
    "a call of no tool": (_chat(tool_choice="required"), 400, "invalid_request", "tool_choice", "no tools"),
    "an unknown field of ours": (_chat(outguard={"polcy": "x"}), 400, "invalid_request", "outguard.polcy", "known"),
    "an unknown policy": (_chat(outguard={"policy": "x"}), 400, "invalid_request", "outguard.policy", "default"),
    "an unknown engine": (_chat(outguard={"engines": ["x"]}), 400, "invalid_request", "outguard.engines", "one, two"),
    "no time": (_chat(outguard={"timeout": 0}), 400, "out_of_range", "outguard.timeout", "more than 0"),
}
BEGAN = ("unknown model", "a schema that is none", "a regex that is none", "an unknown policy", "an unknown engine")


@pytest.mark.parametrize("what", HTTP)
def test_over_http(stage: Stage, what: str) -> None:
    sidecar, one, two = stage
    body, status, code, param, says = HTTP[what]
    request_id = f"bad-http-{list(HTTP).index(what)}"
    answer = sidecar.post(body, **{"x-request-id": request_id})
    assert answer.status == status, answer.text
    assert answer.headers["x-request-id"] == request_id
    error = answer.error
    assert error.keys() >= {"message", "type", "param", "code"}
    assert error["code"] == code or code is None
    assert error["param"] == param
    assert says in error["message"]
    assert len(error["message"]) < 600
    assert not one.asked
    assert not two.asked
    if what in BEGAN:
        record = sidecar.trace(request_id)
        assert (record.outcome, record.error_code, record.protocol) == ("invalid", code, "http")
        assert record.error_message
        assert answer.headers["x-outguard-trace-id"] == record.trace_id
        assert error["outguard"] == {"trace_id": record.trace_id}  # a client keeps bodies, and seldom headers
        assert not record.attempts


GRPC = {
    "unknown model": ({"model": "nope"}, "NOT_FOUND", "model_not_found", "model"),
    "no model": ({"model": ""}, "INVALID_ARGUMENT", None, "model"),
    "empty messages": ({"messages": []}, "INVALID_ARGUMENT", "empty_array", "chat.messages"),
    "no prompt": ({"messages": None}, "INVALID_ARGUMENT", "missing_required_parameter", "prompt"),
    "a schema that is none": (
        {"json_schema": NO_SCHEMA},
        "INVALID_ARGUMENT",
        "invalid_constraint",
        "constraint.json_schema",
    ),
    "a regex that is none": ({"regex": "(["}, "INVALID_ARGUMENT", "invalid_constraint", "constraint.regex"),
    "no tokens": ({"max_tokens": 0}, "INVALID_ARGUMENT", "out_of_range", "sampling.max_tokens"),
    "too many choices": ({"n": 100}, "INVALID_ARGUMENT", None, "sampling.n"),
    "an unknown policy": ({"policy": "x"}, "INVALID_ARGUMENT", "invalid_request", "policy"),
    "an unknown engine": ({"engines": ["x"]}, "INVALID_ARGUMENT", "invalid_request", "engines"),
    "over the limit": (
        {"messages": [{"role": "user", "content": "x" * 1_100_000}]},
        "RESOURCE_EXHAUSTED",
        None,
        "",
    ),
}


@pytest.mark.parametrize("what", GRPC)
def test_over_grpc(stage: Stage, what: str) -> None:
    sidecar, one, two = stage
    fields, status, code, field = GRPC[what]
    with sidecar.client() as client, pytest.raises(CallError) as caught:
        client.generate(**{"model": "m", "messages": ASK, "timeout": 20, **fields}).read()
    error = caught.value
    assert error.status == status
    assert error.code == code or code is None
    assert error.field == field
    assert error.message
    assert not one.asked
    assert not two.asked
    if what in BEGAN:
        record = sidecar.trace(error.trace_id)
        assert (record.outcome, record.error_code, record.protocol) == ("invalid", code, "grpc")


def test_bytes_that_are_no_message(stage: Stage) -> None:
    sidecar, _, _ = stage
    with grpc.insecure_channel(sidecar.grpc) as channel:
        call = channel.unary_stream("/guard.v1.Guard/Generate")(b"\xff\xff\xff", timeout=10)
        with pytest.raises(grpc.RpcError) as caught:
            list(call)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary("/guard.v1.Guard/Nothing")(b"", timeout=10)
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
        # a field that the contract does not have is no mistake in protobuf, and changes nothing
        request = pb.GenerateRequest(model="m", text="x")
        data = request.SerializeToString() + b"\xfa\x3f\x03abc"
        stub = guard_pb2_grpc.GuardStub(channel)
        assert list(stub.Generate(pb.GenerateRequest.FromString(data), timeout=10))


@pytest.mark.parametrize("length", [b"5", b"-1", b"abc", b"99999999999999999999"])
def test_a_content_length_that_is_a_lie(stage: Stage, length: bytes) -> None:
    sidecar, _, _ = stage
    host, _, port = sidecar.http.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: " + length + b"\r\n\r\n"
        connection.sendall(head + _chat())
        connection.shutdown(socket.SHUT_WR)
        answer = connection.recv(65536)
    assert answer.partition(b"\r\n")[0].split()[1] in (b"400", b"413")
    assert sidecar.get("/healthz").status == 200


def test_unknown_fields_reach_the_engine(stage: Stage) -> None:
    sidecar, one, _ = stage
    answer = sidecar.post({"min_p": 0.1, "chat_template_kwargs": {"thinking": False}, "nonsense": [1, None]})
    assert answer.content == "All is well."
    sent = one.asked[0]
    assert (sent["min_p"], sent["chat_template_kwargs"], sent["nonsense"]) == (0.1, {"thinking": False}, [1, None])


def test_an_engine_that_is_down(stage: Stage, tmp_path: Any) -> None:
    """Through a second sidecar, whose only engine is not there."""
    gone = {"gone": f"http://127.0.0.1:{free_port()}"}
    with Sidecar(tmp_path, gone, health={"mode": "observe"}) as sidecar:
        for stream in (False, True):
            answer = sidecar.post({"stream": stream})
            assert (answer.status, answer.error["code"]) == (503, "engine_unavailable")
            assert "refused" in answer.error["message"]
            assert int(answer.headers["retry-after"]) >= 1
            record = sidecar.trace(answer.headers["x-outguard-trace-id"])
            assert (record.outcome, record.error_code) == ("failed", "engine_unavailable")
            assert [(a.outcome, a.error_kind) for a in record.attempts] == [("refused", "open.connect")] * 3
        with sidecar.client() as client, pytest.raises(CallError) as caught:
            client.generate("m", ASK, timeout=20).read()
        assert (caught.value.status, caught.value.code) == ("UNAVAILABLE", "engine_unavailable")
        assert sidecar.trace(caught.value.trace_id).outcome == "failed"
        assert sidecar.outguard("engines").returncode == 1


@pytest.mark.parametrize("protocol", ["http", "http stream", "grpc"])
@pytest.mark.parametrize("where", ["before the first token", "in mid-stream"])
def test_a_deadline_that_passes(stage: Stage, protocol: str, where: str) -> None:
    sidecar, one, _ = stage
    good = one.server.replies[0]
    hanging = Reply(good.body, stop_after=good.body.index(b" well"), end="hang")
    one.play(hanging if where == "in mid-stream" else Reply(good.body, head_delay=5))
    began = time.monotonic()
    if protocol == "grpc":
        with sidecar.client() as client:
            generation = client.generate("one", ASK, timeout=0.6)
            with pytest.raises(CallError) as caught:
                generation.read()
        assert (caught.value.status, bool(generation.finished)) == ("DEADLINE_EXCEEDED", False)
        trace_id = generation.trace_id
    else:
        answer = sidecar.post({"model": "one", "stream": "stream" in protocol, "outguard": {"timeout": 0.6}})
        assert answer.error["code"] == "deadline_exceeded"
        streamed = "stream" in protocol and where == "in mid-stream"
        assert (answer.status, answer.cut) == ((200, True) if streamed else (504, False))
        assert "[DONE]" not in answer.text
        trace_id = answer.headers["x-outguard-trace-id"]
    assert 0.5 < time.monotonic() - began < 2
    assert until(one.gone, 1)  # the engine is not left working
    record = sidecar.trace(trace_id)
    assert (record.outcome, record.error_code) == ("failed", "deadline_exceeded")
