"""A GenerateRequest as the guard's own request, and as the OpenAI body that says the same."""

from __future__ import annotations

import math
from typing import Any

import pytest
from google.protobuf import json_format

from guard.constraint.spec import Constraint
from guard.normalise import chat_request, completion_request, to_openai_body
from guard.request import GenerationRequest, PolicyOverrides, RequestError, Sampling, ToolChoice
from guard.server.grpc_request import field_path, generation_request
from guard.v1 import guard_pb2 as pb

USER = {"role": "ROLE_USER", "text": "hi"}


def message(**fields: Any) -> pb.GenerateRequest:
    """From proto JSON; a chat of one message unless another prompt is given."""
    if not {"chat", "text", "token_ids"} & fields.keys():
        fields["chat"] = {"messages": [USER]}
    return json_format.ParseDict({"model": "m", **fields}, pb.GenerateRequest())


def read(**fields: Any) -> GenerationRequest:
    return generation_request(message(**fields), request_id="r")


def test_messages_take_the_openai_shape() -> None:
    request = read(
        chat={
            "messages": [
                {"role": "ROLE_SYSTEM", "text": "be brief"},
                {"role": "ROLE_DEVELOPER", "text": "be kind", "name": "dev"},
                {
                    "role": "ROLE_USER",
                    "parts": {
                        "parts": [
                            {"text": "what is this?"},
                            {"raw": {"type": "image_url", "image_url": {"url": "data:,", "detail": "low", "n": 3}}},
                        ]
                    },
                },
                {
                    "role": "ROLE_ASSISTANT",
                    "reasoning": "hm",
                    "tool_calls": [{"id": "c1", "name": "look", "arguments": '{"a":1}'}],
                },
                {"role": "ROLE_TOOL", "text": "", "tool_call_id": "c1"},
                {"role": "ROLE_ASSISTANT", "text": "a cat"},
            ]
        }
    )
    assert request.kind == "chat"
    assert request.messages == [
        {"role": "system", "content": "be brief"},
        {"role": "developer", "content": "be kind", "name": "dev"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "what is this?"},
                {"type": "image_url", "image_url": {"url": "data:,", "detail": "low", "n": 3}},
            ],
        },
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "hm",
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"a":1}'}}],
        },
        {"role": "tool", "content": "", "tool_call_id": "c1"},
        {"role": "assistant", "content": "a cat"},
    ]


def test_raw_prompts() -> None:
    text = read(text="Once")
    assert (text.kind, text.prompt, text.messages) == ("completion", "Once", [])
    ids = read(token_ids={"ids": [1, 2, 3]}, sampling={"logprobs": True, "top_logprobs": 2})
    assert (ids.kind, ids.prompt) == ("completion", (1, 2, 3))
    assert (ids.sampling.logprobs, ids.sampling.top_logprobs) == (True, 2)
    assert read(text="Once", sampling={"logprobs": True}).sampling.logprobs is True
    assert read(text="Once").sampling.logprobs is False


def test_sampling_sends_what_is_set_and_nothing_else() -> None:
    assert read().sampling == Sampling()
    assert read().n == 1
    sampling = {
        "max_tokens": 5,
        "temperature": 0,
        "top_p": 0.1,
        "seed": "-9223372036854775808",
        "frequency_penalty": -2,
        "presence_penalty": 2,
        "stop": ["a", "b"],
        "n": 3,
        "logprobs": True,
        "top_logprobs": 0,
    }
    request = read(sampling=sampling)
    assert request.n == 3
    assert request.sampling == Sampling(5, 0.0, 0.1, -(2**63), -2.0, 2.0, ("a", "b"), True, 0)


PARAMETERS = '{"type":"object","properties":{"z":{"type":"integer"},"a":{"type":"string"}},"required":["z"]}'
TOOLS = [{"name": "f", "description": "does", "parameters_json": PARAMETERS, "strict": True}, {"name": "g"}]


def test_tools_keep_the_order_of_their_keys() -> None:
    request = read(tools=TOOLS, parallel_tool_calls=False)
    first, second = request.tools
    assert (first.name, first.strict, second.name, second.strict) == ("f", True, "g", False)
    assert list(first.parameters["properties"]) == ["z", "a"]
    assert first.raw["function"]["description"] == "does"
    assert request.parallel_tool_calls is False
    assert request.tool_choice == ToolChoice("auto")


@pytest.mark.parametrize(
    ("said", "mode", "names", "raw"),
    [
        ({"mode": "MODE_NONE"}, "none", (), "none"),
        ({"mode": "MODE_AUTO"}, "auto", (), "auto"),
        ({"mode": "MODE_REQUIRED"}, "required", (), "required"),
        ({"name": "g"}, "named", ("g",), {"type": "function", "function": {"name": "g"}}),
    ],
)
def test_tool_choices(said: Any, mode: str, names: tuple[str, ...], raw: Any) -> None:
    request = read(tools=TOOLS, tool_choice=said)
    assert (request.tool_choice.mode, request.tool_choice.names) == (mode, names)
    assert request.tool_choice_raw == raw


@pytest.mark.parametrize("required", [True, False])
def test_a_choice_among_some_tools(required: bool) -> None:
    request = read(tools=TOOLS, tool_choice={"allowed": {"names": ["f"], "required": required}})
    assert request.tool_choice == ToolChoice("allowed", ("f",), required)


@pytest.mark.parametrize(
    ("said", "kind", "value", "syntax"),
    [
        ({"json_schema": '{"b":1,"a":1.0}'}, "json_schema", {"b": 1, "a": 1.0}, ""),
        ({"json_schema": "false"}, "json_schema", False, ""),
        ({"json_object": {}}, "json_object", None, ""),
        ({"regex": "a+"}, "regex", "a+", ""),
        ({"choice": {"values": ["x", "y"]}}, "choice", ("x", "y"), ""),
        ({"grammar": {"syntax": "SYNTAX_EBNF", "text": "root ::= 1"}}, "grammar", "root ::= 1", "ebnf"),
        ({"grammar": {"syntax": "SYNTAX_GBNF", "text": "root ::= 1"}}, "grammar", "root ::= 1", "gbnf"),
        ({"grammar": {"syntax": "SYNTAX_LARK", "text": "start: 1"}}, "grammar", "start: 1", "lark"),
        (
            {"structural_tag": '{"format":{"type":"any_text"}}'},
            "structural_tag",
            {"format": {"type": "any_text"}, "type": "structural_tag"},
            "",
        ),
    ],
)
def test_constraints(said: Any, kind: str, value: Any, syntax: str) -> None:
    constraint = read(constraint=said).constraint
    assert isinstance(constraint, Constraint)
    assert (constraint.kind, constraint.value, constraint.syntax, constraint.strict) == (kind, value, syntax, True)
    named = read(constraint={**said, "name": "n", "strict": False}).constraint
    assert named is not None
    assert (named.name, named.strict) == ("n", False)
    raw = read(text="Once", constraint=said).constraint
    assert raw is not None
    assert raw.value == value


def test_fields_for_the_engine_keep_their_kind() -> None:
    fields = {"top_k": 20, "min_p": 0.05, "chat_template_kwargs": {"enable_thinking": False, "xs": [1, None, "a"]}}
    request = read(engine_fields=fields, metadata={"user": "u"})
    assert request.extra == {**fields, "metadata": {"user": "u"}}
    assert type(request.extra["top_k"]) is int


def test_what_only_the_guard_has() -> None:
    request = read(
        policy="p",
        policy_overrides={"max_attempts": 1, "no_resume": True},
        retention="RETENTION_NONE",
        engines=["b", "a"],
        request_id="mine",
        return_token_ids=True,
    )
    assert (request.policy, request.retention, request.engines, request.id) == ("p", "none", ("b", "a"), "mine")
    assert request.overrides == PolicyOverrides(max_attempts=1, no_resume=True)
    assert request.return_token_ids
    assert request.stream
    assert request.protocol == "grpc"
    assert read().retention is None
    assert read().overrides is None
    assert read().id == "r"


def test_the_request_can_be_kept_and_sent_again_as_an_openai_body() -> None:
    fields = {
        "tools": TOOLS,
        "tool_choice": {"allowed": {"names": ["f"]}},
        "constraint": {"json_schema": PARAMETERS},
        "sampling": {"max_tokens": 5, "stop": ["x"], "n": 2, "logprobs": True, "top_logprobs": 1},
        "engine_fields": {"top_k": 3},
        "policy": "p",
        "policy_overrides": {"no_repairs": True},
        "retention": "RETENTION_HASH",
        "engines": ["a"],
        "return_token_ids": True,
    }
    request = read(**fields)
    again = chat_request(to_openai_body(request), request_id="r", protocol="grpc")
    assert again.constraint is not None
    assert request.constraint is not None
    assert again.constraint.key == request.constraint.key
    again.constraint = request.constraint
    assert again == request
    raw = read(text="Once", sampling={"logprobs": True, "top_logprobs": 2, "seed": 7})
    assert completion_request(to_openai_body(raw), request_id="r", protocol="grpc") == raw


DEEP = "[" * 100_000

BAD: list[tuple[dict[str, Any], str]] = [
    ({"model": ""}, "model"),
    ({"model": "  "}, "model"),
    ({"chat": {}}, "chat.messages"),
    ({"text": ""}, "text"),
    ({"token_ids": {}}, "token_ids.ids"),
    ({"token_ids": {"ids": [1, 2**31]}}, "token_ids.ids[1]"),
    ({"chat": {"messages": [USER, {"text": "hi"}]}}, "chat.messages[1].role"),
    ({"chat": {"messages": [USER, {"role": 9, "text": "hi"}]}}, "chat.messages[1].role"),
    ({"chat": {"messages": [{"role": "ROLE_USER"}]}}, "chat.messages[0].content"),
    ({"chat": {"messages": [{"role": "ROLE_USER", "parts": {}}]}}, "chat.messages[0].parts.parts"),
    ({"chat": {"messages": [{"role": "ROLE_USER", "parts": {"parts": [{}]}}]}}, "chat.messages[0].parts.parts[0]"),
    (
        {"chat": {"messages": [{"role": "ROLE_USER", "parts": {"parts": [{"text": "a"}, {"raw": {"a": 1}}]}}]}},
        "chat.messages[0].parts.parts[1].raw.type",
    ),
    (
        {"chat": {"messages": [{"role": "ROLE_USER", "parts": {"parts": [{"raw": {"type": "text"}}]}}]}},
        "chat.messages[0].parts.parts[0].raw.text",
    ),
    ({"chat": {"messages": [{"role": "ROLE_TOOL", "text": "1"}]}}, "chat.messages[0].tool_call_id"),
    ({"chat": {"messages": [{**USER, "tool_calls": [{"id": "1", "name": "f"}]}]}}, "chat.messages[0].tool_calls"),
    (
        {"chat": {"messages": [{"role": "ROLE_ASSISTANT", "tool_calls": [{"name": "f"}]}]}},
        "chat.messages[0].tool_calls[0].id",
    ),
    (
        {"chat": {"messages": [{"role": "ROLE_ASSISTANT", "tool_calls": [{"id": "1"}]}]}},
        "chat.messages[0].tool_calls[0].name",
    ),
    ({"sampling": {"max_tokens": 0}}, "sampling.max_tokens"),
    ({"sampling": {"temperature": 2.5}}, "sampling.temperature"),
    ({"sampling": {"temperature": "NaN"}}, "sampling.temperature"),
    ({"sampling": {"top_p": -0.1}}, "sampling.top_p"),
    ({"sampling": {"frequency_penalty": 3}}, "sampling.frequency_penalty"),
    ({"sampling": {"presence_penalty": "Infinity"}}, "sampling.presence_penalty"),
    ({"sampling": {"stop": ["a", ""]}}, "sampling.stop[1]"),
    ({"sampling": {"n": 0}}, "sampling.n"),
    ({"sampling": {"n": 4_000_000_000}}, "sampling.n"),
    ({"sampling": {"logprobs": True, "top_logprobs": 99}}, "sampling.top_logprobs"),
    ({"text": "a", "sampling": {"logprobs": True, "top_logprobs": 99}}, "sampling.top_logprobs"),
    ({"sampling": {"top_logprobs": 2}}, "sampling.top_logprobs"),
    ({"tools": [{}]}, "tools[0].name"),
    ({"tools": [{"name": "a b"}]}, "tools[0].name"),
    ({"tools": [{"name": "f"}, {"name": "f"}]}, "tools[1].name"),
    ({"tools": [{"name": "f", "parameters_json": "{"}]}, "tools[0].parameters_json"),
    ({"tools": [{"name": "f", "parameters_json": "[1]"}]}, "tools[0].parameters_json"),
    ({"tools": [{"name": "f", "parameters_json": '{"a": NaN}'}]}, "tools[0].parameters_json"),
    ({"tools": [{"name": "f", "parameters_json": DEEP}]}, "tools[0].parameters_json"),
    ({"tools": [{"name": "f", "parameters_json": '{"type": "nothing"}'}]}, "tools[0].parameters_json"),
    ({"tools": TOOLS, "tool_choice": {}}, "tool_choice"),
    ({"tools": TOOLS, "tool_choice": {"mode": 0}}, "tool_choice.mode"),
    ({"tools": TOOLS, "tool_choice": {"mode": 12}}, "tool_choice.mode"),
    ({"tools": TOOLS, "tool_choice": {"name": "h"}}, "tool_choice"),
    ({"tools": TOOLS, "tool_choice": {"allowed": {}}}, "tool_choice.allowed.names"),
    ({"tools": TOOLS, "tool_choice": {"allowed": {"names": ["h"]}}}, "tool_choice"),
    ({"text": "a", "tools": TOOLS}, "tools"),
    ({"text": "a", "tool_choice": {"mode": "MODE_NONE"}}, "tool_choice"),
    ({"text": "a", "parallel_tool_calls": False}, "parallel_tool_calls"),
    ({"constraint": {}}, "constraint"),
    ({"constraint": {"json_schema": "{"}}, "constraint.json_schema"),
    ({"constraint": {"json_schema": "3"}}, "constraint.json_schema"),
    ({"constraint": {"json_schema": DEEP}}, "constraint.json_schema"),
    ({"constraint": {"json_schema": r'{"const": "\ud800"}'}}, "constraint.json_schema"),
    ({"constraint": {"structural_tag": r'{"\udc00": 1}'}}, "constraint.structural_tag"),
    ({"tools": [{"name": "f", "parameters_json": r'{"const": ["\ud800"]}'}]}, "tools[0].parameters_json"),
    ({"constraint": {"regex": ""}}, "constraint.regex"),
    ({"constraint": {"choice": {}}}, "constraint.choice.values"),
    ({"constraint": {"grammar": {"text": "a"}}}, "constraint.grammar.syntax"),
    ({"constraint": {"grammar": {"syntax": "SYNTAX_LARK"}}}, "constraint.grammar.text"),
    ({"constraint": {"structural_tag": "{}"}}, "constraint.structural_tag"),
    ({"engine_fields": {"temperature": 1}}, "engine_fields.temperature"),
    ({"engine_fields": {"temperature": "hot"}}, "engine_fields.temperature"),
    ({"engine_fields": {"messages": []}}, "engine_fields.messages"),
    ({"engine_fields": {"response_format": {"type": "text"}}}, "engine_fields.response_format"),
    ({"engine_fields": {"outguard": {"policy": "p"}}}, "engine_fields.outguard"),
    ({"engine_fields": {"stream": False}}, "engine_fields.stream"),
    ({"request_id": "x" * 129}, "request_id"),
    ({"request_id": "a\nb"}, "request_id"),
    ({"retention": 8}, "retention"),
    ({"policy_overrides": {"max_attempts": 0}}, "policy_overrides.max_attempts"),
]


@pytest.mark.parametrize(("fields", "path"), BAD)
def test_a_wrong_field_is_named(fields: dict[str, Any], path: str) -> None:
    with pytest.raises(RequestError) as caught:
        read(**fields)
    error = caught.value
    assert error.param == path
    assert error.message
    assert not error.message.startswith(path)


def test_a_request_without_a_prompt_is_refused() -> None:
    with pytest.raises(RequestError, match="chat, text and token_ids"):
        generation_request(pb.GenerateRequest(model="m"), request_id="r")


def test_a_number_that_json_has_not_is_refused() -> None:
    request = message()
    request.engine_fields.update({"a": {"b": [1.0]}})
    request.engine_fields.fields["a"].struct_value.fields["b"].list_value.values[0].number_value = math.nan
    with pytest.raises(RequestError) as caught:
        generation_request(request, request_id="r")
    assert caught.value.param == "engine_fields.a.b[0]"


@pytest.mark.parametrize(
    ("param", "path"),
    [
        ("", ""),
        ("model", "model"),
        ("n", "sampling.n"),
        ("not_a_field", "not_a_field"),
        ("outguard.engines", "engines"),
        ("x-outguard-timeout", "x-outguard-timeout"),
        ("tools[2].function.parameters/properties/a", "tools[2].parameters_json/properties/a"),
        ("constraint.json_schema", "constraint.json_schema"),
        ("response_format.json_schema.schema", "constraint"),
    ],
)
def test_paths_of_the_openai_body_become_the_messages_own(param: str, path: str) -> None:
    assert field_path(param) == path
