"""Whatever JSON comes in: an answer, or an error that is the caller's."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from guard.normalise import to_openai_body
from tests.server.openai_scripted import OpenAIScript, ask, chat

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
WORDS = st.sampled_from(
    [
        "name",
        "type",
        "function",
        "parameters",
        "role",
        "content",
        "text",
        "schema",
        "json_schema",
        "strict",
        "choice",
        "regex",
        "include_usage",
        "mode",
        "tools",
        "allowed_tools",
        "policy",
        "retention",
        "engines",
        "timeout",
        "overrides",
        "tool_calls",
        "id",
        "arguments",
    ]
)
SHAPED = st.recursive(
    JSON | st.sampled_from(["user", "assistant", "function", "auto", "none", "json_object", "text", "m", "required"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=10,
)
FIELDS = st.sampled_from(
    [
        "model",
        "messages",
        "prompt",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "functions",
        "function_call",
        "response_format",
        "structured_outputs",
        "guided_json",
        "guided_choice",
        "grammar",
        "regex",
        "n",
        "max_tokens",
        "max_completion_tokens",
        "temperature",
        "top_p",
        "seed",
        "stop",
        "stream",
        "stream_options",
        "logprobs",
        "top_logprobs",
        "frequency_penalty",
        "presence_penalty",
        "echo",
        "suffix",
        "best_of",
        "outguard",
        "return_token_ids",
        "top_k",
        "user",
    ]
)
PATHS = ("/v1/chat/completions", "/v1/completions")


def answer(path: str, body: Any) -> tuple[int, OpenAIScript]:
    service = OpenAIScript()
    reply = asyncio.run(ask(service, body, path=path))
    assert reply.status in (200, 400), reply.body
    if reply.status == 400:
        assert set(reply.error) == {"message", "type", "param", "code"}
        assert reply.error["message"]
        assert len(reply.error["message"]) < 600
        assert not service.requests
    return reply.status, service


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(PATHS), JSON | st.dictionaries(FIELDS, SHAPED, max_size=6))
def test_any_json(path: str, body: Any) -> None:
    answer(path, body)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(PATHS), st.dictionaries(FIELDS, SHAPED, max_size=3))
def test_a_good_request_with_some_fields_changed(path: str, changes: dict[str, Any]) -> None:
    status, service = answer(path, chat(prompt="hi") | changes)
    if status == 200:
        again = OpenAIScript()
        reply = asyncio.run(ask(again, json.dumps(to_openai_body(service.request)).encode(), path=path))
        assert reply.status == 200, reply.body
        assert to_openai_body(again.request) == to_openai_body(service.request)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(PATHS), st.binary(max_size=40))
def test_any_bytes(path: str, raw: bytes) -> None:
    answer(path, raw)
