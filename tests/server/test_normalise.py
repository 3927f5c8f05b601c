"""From a body to a request, and back: tables of bodies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from guard.normalise import apply_headers, chat_request, completion_request, includes_usage, to_openai_body
from guard.request import GenerationRequest, PolicyOverrides, RequestError, Sampling, ToolChoice

HI = [{"role": "user", "content": "hi"}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def chat(**more: Any) -> GenerationRequest:
    body = {"model": "m", "messages": HI} | more
    return chat_request({k: v for k, v in body.items() if v is not ...}, request_id="r")


def completion(**more: Any) -> GenerationRequest:
    return completion_request({"model": "m", "prompt": "Say"} | more, request_id="r")


def test_the_least_that_is_a_request() -> None:
    request = chat()
    assert (request.id, request.kind, request.model, request.messages) == ("r", "chat", "m", HI)
    assert request.sampling == Sampling()
    assert request.tool_choice == ToolChoice("none")
    assert (request.n, request.stream, request.constraint, request.extra) == (1, False, None, {})
    assert (request.deadline, request.retention, request.policy, request.engines) == (None, None, "", ())


def test_every_field_that_the_guard_understands() -> None:
    request = chat_request(
        {
            "model": "m",
            "messages": HI,
            "max_tokens": 5,
            "temperature": 0,
            "top_p": 0.5,
            "seed": -1,
            "frequency_penalty": -2,
            "presence_penalty": 2.0,
            "stop": ["a", "b", "c", "d", "e"],
            "logprobs": True,
            "top_logprobs": 3,
            "n": 2,
            "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
            "tools": [TOOL],
            "tool_choice": {"type": "function", "function": {"name": "f"}},
            "parallel_tool_calls": False,
            "response_format": {"type": "json_object"},
            "return_token_ids": True,
            "outguard": {
                "policy": "p",
                "retention": "none",
                "engines": ["a", "b"],
                "timeout": 2,
                "overrides": {"max_attempts": 1, "no_resume": True},
            },
        },
        request_id="r",
        now=100.0,
        protocol="replay",
    )
    assert request.sampling == Sampling(5, 0, 0.5, -1, -2, 2.0, ("a", "b", "c", "d", "e"), True, 3)
    assert request.n == 2
    assert request.stream
    assert request.tools[0].name == "f"
    assert request.tools[0].raw == TOOL
    assert request.tool_choice.mode == "named"
    assert request.tool_choice.names == ("f",)
    assert request.parallel_tool_calls is False
    assert request.constraint is not None
    assert request.constraint.kind == "json_object"
    assert request.return_token_ids
    assert (request.policy, request.retention, request.engines) == ("p", "none", ("a", "b"))
    assert request.overrides == PolicyOverrides(max_attempts=1, no_resume=True)
    assert request.deadline == 102.0
    assert request.protocol == "replay"
    assert request.extra == {}


def test_null_is_not_set() -> None:
    names = "max_tokens temperature top_p seed stop logprobs top_logprobs n stream stream_options tools tool_choice"
    names += " response_format parallel_tool_calls frequency_penalty outguard return_token_ids max_completion_tokens"
    request = chat(**dict.fromkeys(names.split()))
    assert request == chat()


@pytest.mark.parametrize(
    ("more", "field", "value"),
    [
        ({"max_completion_tokens": 7}, "max_tokens", 7),
        ({"max_completion_tokens": 7, "max_tokens": 9}, "max_tokens", 7),
        ({"max_tokens": 7.0}, "max_tokens", 7),
        ({"stop": "x"}, "stop", ("x",)),
        ({"stop": []}, "stop", ()),
        ({"top_logprobs": 0}, "top_logprobs", None),
        ({"logprobs": False}, "logprobs", False),
        ({"seed": 2**63 - 1}, "seed", 2**63 - 1),
        ({"temperature": 2}, "temperature", 2),
    ],
)
def test_sampling_that_is_right(more: dict[str, Any], field: str, value: Any) -> None:
    assert getattr(chat(**more).sampling, field) == value


@pytest.mark.parametrize(
    "message",
    [
        {"role": "system", "content": ""},
        {"role": "developer", "content": "x"},
        {"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "video_url", "video_url": {}}, "y"]},
        {"role": "assistant"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": ""}}]},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "custom", "custom": {}}]},
        {"role": "tool", "content": "x", "tool_call_id": "1"},
        {"role": "function", "content": None, "name": "f"},
        {"role": "user", "content": "x", "name": "n", "anything": {"else": 1}},
    ],
)
def test_messages_that_are_right_stay_as_they_came(message: dict[str, Any]) -> None:
    assert chat(messages=[message]).messages == [message]


@pytest.mark.parametrize(
    ("more", "param", "says"),
    [
        ({"model": ...}, "model", "provide a model"),
        ({"model": None}, "model", "provide a model"),
        ({"model": 3}, "model", "must be a string, and is 3"),
        ({"model": " "}, "model", "empty"),
        ({"messages": ...}, "messages", "provide messages"),
        ({"messages": []}, "messages", "at least one"),
        ({"messages": {}}, "messages", "a list of messages, and is an object"),
        ({"messages": "hi"}, "messages", "a list of messages"),
        ({"messages": [1]}, "messages[0]", "an object, and is 1"),
        ({"messages": [*HI, {"content": "x"}]}, "messages[1].role", "missing"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role", "'wizard'"),
        ({"messages": [{"role": ["user"], "content": "x"}]}, "messages[0].role", "a string"),
        ({"messages": [{"role": "user"}]}, "messages[0].content", "missing"),
        ({"messages": [{"role": "system", "content": None}]}, "messages[0].content", "missing"),
        ({"messages": [{"role": "tool"}]}, "messages[0].content", "missing"),
        ({"messages": [*HI, *HI, {"role": "user", "content": 5}]}, "messages[2].content", "and is 5"),
        ({"messages": [{"role": "user", "content": [5]}]}, "messages[0].content[0]", "an object"),
        ({"messages": [{"role": "user", "content": [{}]}]}, "messages[0].content[0].type", "missing"),
        ({"messages": [{"role": "user", "content": [{"type": 1}]}]}, "messages[0].content[0].type", "a string"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text", "null"),
        ({"messages": [{"role": "user", "content": "x", "name": 1}]}, "messages[0].name", "a string"),
        ({"messages": [{"role": "tool", "content": "x", "tool_call_id": 1}]}, "messages[0].tool_call_id", "a string"),
        ({"messages": [{"role": "assistant", "tool_calls": {}}]}, "messages[0].tool_calls", "a list"),
        ({"messages": [{"role": "assistant", "tool_calls": [1]}]}, "messages[0].tool_calls[0]", "an object"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"function": {}}]}]},
            "messages[0].tool_calls[0].function.name",
            "a string",
        ),
        ({"n": 0}, "n", "at least 1"),
        ({"n": 129}, "n", "at most 128"),
        ({"n": "2"}, "n", "a whole number, and is '2'"),
        ({"n": True}, "n", "a whole number, and is true"),
        ({"n": 1.5}, "n", "a whole number"),
        ({"temperature": -0.1}, "temperature", "between 0 and 2"),
        ({"temperature": 2.1}, "temperature", "between 0 and 2"),
        ({"temperature": "hot"}, "temperature", "a number, and is 'hot'"),
        ({"temperature": False}, "temperature", "a number, and is false"),
        ({"temperature": float("nan")}, "temperature", "between 0 and 2"),
        ({"top_p": 1.01}, "top_p", "between 0 and 1"),
        ({"frequency_penalty": 3}, "frequency_penalty", "between -2 and 2"),
        ({"presence_penalty": -3}, "presence_penalty", "between -2 and 2"),
        ({"max_tokens": 0}, "max_tokens", "at least 1"),
        ({"max_tokens": -5}, "max_tokens", "at least 1"),
        ({"max_tokens": 10**40}, "max_tokens", "out of all range"),
        ({"max_tokens": "5"}, "max_tokens", "a whole number"),
        ({"max_completion_tokens": 0}, "max_completion_tokens", "at least 1"),
        ({"seed": 2**63}, "seed", "at most"),
        ({"seed": "x"}, "seed", "a whole number"),
        ({"stop": 1}, "stop", "a string or a list"),
        ({"stop": ""}, "stop", "empty"),
        ({"stop": ["a", ""]}, "stop[1]", "empty"),
        ({"stop": ["a", None]}, "stop[1]", "a string"),
        ({"stop": ["a"] * 129}, "stop", "128"),
        ({"logprobs": 1}, "logprobs", "true or false"),
        ({"top_logprobs": 2}, "top_logprobs", "together with logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "at most 20"),
        ({"logprobs": True, "top_logprobs": -1}, "top_logprobs", "at least 0"),
        ({"stream": "yes"}, "stream", "true or false"),
        ({"stream_options": {}}, "stream_options", "stream: true"),
        ({"stream": True, "stream_options": []}, "stream_options", "an object"),
        ({"stream": True, "stream_options": {"include_usage": 1}}, "stream_options.include_usage", "true or false"),
        ({"tools": 1}, "tools", "list"),
        ({"tool_choice": "required"}, "tool_choice", "no tools"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "g"}}}, "tool_choice", "not among"),
        ({"parallel_tool_calls": 1}, "parallel_tool_calls", "true or false"),
        ({"response_format": "json"}, "response_format", "object"),
        ({"return_token_ids": 1}, "return_token_ids", "true or false"),
        ({"outguard": []}, "outguard", "an object"),
        ({"outguard": {"polcy": "x"}}, "outguard.polcy", "known: policy"),
        ({"outguard": {"policy": 1}}, "outguard.policy", "a string"),
        ({"outguard": {"retention": "all"}}, "outguard.retention", "full, hash, none"),
        ({"outguard": {"retention": ["full"]}}, "outguard.retention", "full, hash, none"),
        ({"outguard": {"engines": [1]}}, "outguard.engines[0]", "a string"),
        ({"outguard": {"timeout": 0}}, "outguard.timeout", "more than 0"),
        ({"outguard": {"timeout": "1"}}, "outguard.timeout", "a number"),
        ({"outguard": {"overrides": 1}}, "outguard.overrides", "an object"),
        ({"outguard": {"overrides": {"max_attempts": 0}}}, "outguard.overrides.max_attempts", "at least 1"),
        ({"outguard": {"overrides": {"no_retry": True}}}, "outguard.overrides.no_retry", "known: max_attempts"),
    ],
)
def test_mistakes_are_named_with_their_place(more: dict[str, Any], param: str, says: str) -> None:
    with pytest.raises(RequestError) as raised:
        chat(**more)
    assert raised.value.param.startswith(param)
    assert says in raised.value.message
    assert len(raised.value.message) < 200


def test_the_callers_text_is_not_repeated_in_errors() -> None:
    secret = "the secret plan " * 10
    with pytest.raises(RequestError) as raised:
        chat(temperature=secret)
    assert "secret" not in raised.value.message


@pytest.mark.parametrize(
    ("prompt", "read"),
    [("Say", "Say"), (["Say"], "Say"), ([1, 2], (1, 2)), ([[1, 2]], (1, 2)), ([0], (0,))],
)
def test_prompts(prompt: Any, read: Any) -> None:
    assert completion(prompt=prompt).prompt == read


@pytest.mark.parametrize(
    ("more", "param", "says"),
    [
        ({"prompt": None}, "prompt", "provide a prompt"),
        ({"prompt": ""}, "prompt", "empty"),
        ({"prompt": []}, "prompt", "empty"),
        ({"prompt": 5}, "prompt", "token ids"),
        ({"prompt": ["a", "b"]}, "prompt", "2 prompts"),
        ({"prompt": [[1], [2]]}, "prompt", "2 prompts"),
        ({"prompt": [[]]}, "prompt[0]", "empty"),
        ({"prompt": [["a"]]}, "prompt[0][0]", "a token id"),
        ({"prompt": [1, "a"]}, "prompt[1]", "a token id, and is 'a'"),
        ({"prompt": [1, -1]}, "prompt[1]", "a token id"),
        ({"prompt": [True]}, "prompt[0]", "a token id"),
        ({"echo": True}, "echo", "not supported"),
        ({"echo": "yes"}, "echo", "true or false"),
        ({"best_of": 3}, "best_of", "not supported beyond n"),
        ({"logprobs": 21}, "logprobs", "at most 20"),
        ({"logprobs": True}, "logprobs", "a whole number"),
    ],
)
def test_mistakes_in_completions(more: dict[str, Any], param: str, says: str) -> None:
    with pytest.raises(RequestError) as raised:
        completion(**more)
    assert raised.value.param == param
    assert says in raised.value.message


def test_what_only_completions_have() -> None:
    request = completion(echo=False, best_of=2, n=2, suffix="!", logprobs=0, logit_bias={"5": -100})
    assert request.kind == "completion"
    assert request.extra == {"suffix": "!", "logit_bias": {"5": -100}}
    assert request.sampling.logprobs
    assert request.sampling.top_logprobs == 0
    assert not completion(logprobs=False).sampling.logprobs


def test_usage_in_streams() -> None:
    assert includes_usage({"stream_options": {"include_usage": True}})
    assert not includes_usage({"stream_options": {"include_usage": None}})
    assert not includes_usage({"stream_options": None})


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"max_tokens": 5, "temperature": 0, "seed": 3, "stop": ["x"], "n": 2, "stream": True, "top_p": 1},
        {"logprobs": True},
        {"logprobs": True, "top_logprobs": 0},
        {"logprobs": True, "top_logprobs": 4},
        {"tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": True},
        {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "f"}}},
        {"functions": [TOOL["function"]], "function_call": {"name": "f"}},
        {"functions": [TOOL["function"]], "function_call": "auto"},
        {"tools": [{"name": "f", "inputSchema": {"type": "object"}}]},
        {"response_format": {"type": "json_object"}},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA, "strict": False}}},
        {"response_format": {"type": "json_schema", "json_schema": {"schema": True}}},
        {"guided_json": SCHEMA},
        {"structured_outputs": {"regex": "[0-9]+"}},
        {"guided_choice": ["yes", "no"]},
        {"guided_grammar": 'root ::= "a"'},
        {"structured_outputs": {"grammar": 'start: "a"'}},
        {"grammar": 'root ::= "a"'},
        {"response_format": {"type": "structural_tag", "format": {"type": "const_string", "value": "a"}}},
        {"top_k": 5, "chat_template_kwargs": {"enable_thinking": False}, "user": "u"},
        {"outguard": {"policy": "p", "retention": "hash", "engines": "a,b", "overrides": {"no_repairs": True}}},
        {"return_token_ids": True},
    ],
)
def test_what_is_written_reads_the_same(more: dict[str, Any]) -> None:
    request = chat(**more)
    body = json.loads(json.dumps(to_openai_body(request)))
    again = chat_request(body, request_id="r")
    if request.constraint is not None:
        assert again.constraint is not None
        assert again.constraint.key == request.constraint.key
        assert again.constraint.strict == request.constraint.strict
        request.constraint = again.constraint = None
    assert again == request


@pytest.mark.parametrize("more", [{"prompt": [1, 2], "logprobs": 0}, {"prompt": "a", "logprobs": 3, "suffix": "!"}, {}])
def test_completions_read_the_same_too(more: dict[str, Any]) -> None:
    request = completion(**more)
    body = json.loads(json.dumps(to_openai_body(request)))
    assert completion_request(body, request_id="r") == request


def test_headers_of_the_stricter_kind() -> None:
    request = chat(outguard={"retention": "none", "timeout": 1})
    apply_headers(request, {b"x-outguard-retention": b"Full", b"x-outguard-timeout": b"5"}, 0.0)
    assert request.retention == "none"
    assert request.deadline == 1
    request = chat()
    apply_headers(request, {}, 0.0)
    assert request == chat()
    with pytest.raises(RequestError) as raised:
        apply_headers(request, {b"x-outguard-timeout": b"nan"}, 0.0)
    assert raised.value.param == "x-outguard-timeout"


def test_requests_that_real_engines_took(shared: Path) -> None:
    """Every recorded generation that its engine answered is read here, and written and read again."""
    read = {"/v1/chat/completions": chat_request, "/v1/completions": completion_request}
    refused: dict[str, str] = {}
    seen = 0
    for path in sorted((shared / "recordings").glob("*/*.request.json")):
        recorded = json.loads(path.read_text())
        body, normalise = recorded.get("body_json"), read.get(recorded["path"])
        response = path.with_name(path.name.replace(".request.json", ".response"))
        if normalise is None or not isinstance(body, dict) or not response.exists():
            continue
        if response.read_bytes().split(b" ", 2)[1] != b"200":
            continue
        seen += 1
        try:
            request = normalise(body, request_id="r")
            normalise(to_openai_body(request), request_id="r")
        except RequestError as error:
            refused[path.name.removesuffix(".request.json")] = error.param
    assert seen > 150
    others = {name: param for name, param in refused.items() if not name.startswith("err_")}
    assert others == {"completions_n2_batch": "prompt"}  # two prompts in one request
