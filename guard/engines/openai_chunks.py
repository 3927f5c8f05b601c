"""The wire shapes of OpenAI-style answers, and how bytes become them. Pure.

One set of structs serves chat chunks, completion chunks and whole answers. Decoding is strict first, because that is
fast (under a microsecond); what does not fit (a wrong type, NaN, a lone surrogate, bytes that are no UTF-8) is decoded
again as plain JSON and read field by field, where a field of a wrong type counts as absent. Only what is no JSON object
at all is refused.
"""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec
from msgspec import Struct


class Function(Struct, gc=False):
    name: str | None = None
    arguments: str | None = None


class Custom(Struct, gc=False):
    name: str | None = None
    input: str | None = None


class ToolCall(Struct, gc=False):
    index: int | None = None
    id: str | None = None
    function: Function | None = None
    custom: Custom | None = None
    name: str | None = None  # these two where a server leaves the wrapping out
    arguments: str | None = None


class Delta(Struct, gc=False):
    """A chat chunk's delta, or a whole answer's message."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[ToolCall] | None = None
    function_call: Function | None = None


class Logprobs(Struct, gc=False):
    """The chat shape (``content``) or the completions shape (parallel lists)."""

    content: list[dict[str, Any]] | None = None
    refusal: list[dict[str, Any]] | None = None
    tokens: list[str] | None = None
    token_logprobs: list[float | None] | None = None
    top_logprobs: list[dict[str, float | None] | None] | None = None


class Choice(Struct, gc=False):
    index: int = 0
    delta: Delta | None = None
    text: str | None = None
    finish_reason: str | None = None
    logprobs: Logprobs | None = None
    token_ids: tuple[int, ...] | None = None
    stop_reason: str | int | None = None
    matched_stop: str | int | None = None
    message: Delta | None = None
    prompt_token_ids: tuple[int, ...] | None = None
    response_token_ids: tuple[int, ...] | None = None


class PromptDetails(Struct, gc=False):
    cached_tokens: int | None = None


class CompletionDetails(Struct, gc=False):
    reasoning_tokens: int | None = None


class UsageBody(Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    reasoning_tokens: int | None = None
    prompt_tokens_details: PromptDetails | None = None
    completion_tokens_details: CompletionDetails | None = None


class Chunk(Struct, gc=False):
    choices: list[Choice] | None = None
    usage: UsageBody | None = None
    error: Any = None


class FirstChunk(Chunk, gc=False):
    """The first chunk of a stream, or a whole answer: with what names it."""

    id: str | None = None
    model: str | None = None
    system_fingerprint: str | None = None
    prompt_token_ids: tuple[int, ...] | None = None


decode_chunk: Final = msgspec.json.Decoder(Chunk).decode
decode_first: Final = msgspec.json.Decoder(FirstChunk).decode


class NotAnObject(ValueError):
    """The bytes are no JSON object; the message says what they are instead."""


def decode_loosely(data: bytes) -> dict[str, Any]:
    """Plain JSON as Python reads it (NaN and lone surrogates pass, broken UTF-8 becomes U+FFFD). Raises NotAnObject."""
    text = data.decode("utf-8", "replace")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        why = f": {error}" if isinstance(error, ValueError) else ": nested too deeply"
        raise NotAnObject(f"data that is no JSON ({_shown(text)}){why}") from error
    if not isinstance(value, dict):
        raise NotAnObject(f"data that is no JSON object ({_shown(text)})")
    return value


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:80] + "…")


def chunk_from(value: dict[str, Any]) -> tuple[FirstChunk, dict[int, Any]]:
    """A decoded object read leniently. The second result holds, by ``id()`` of a Function, the arguments that were no
    string: the one thing of a wrong type that a caller may still want."""
    raw: dict[int, Any] = {}
    choices = value.get("choices")
    return (
        FirstChunk(
            choices=[_choice(item, raw) for item in choices if isinstance(item, dict)]
            if isinstance(choices, list)
            else None,
            usage=_usage(value.get("usage")),
            error=value.get("error"),
            id=_str(value.get("id")),
            model=_str(value.get("model")),
            system_fingerprint=_str(value.get("system_fingerprint")),
            prompt_token_ids=_ints(value.get("prompt_token_ids")),
        ),
        raw,
    )


def _choice(value: dict[str, Any], raw: dict[int, Any]) -> Choice:
    return Choice(
        index=_int(value.get("index")) or 0,
        delta=_delta(value.get("delta"), raw),
        message=_delta(value.get("message"), raw),
        text=_str(value.get("text")),
        finish_reason=_str(value.get("finish_reason")),
        logprobs=_logprobs(value.get("logprobs")),
        token_ids=_ints(value.get("token_ids")),
        response_token_ids=_ints(value.get("response_token_ids")),
        prompt_token_ids=_ints(value.get("prompt_token_ids")),
        stop_reason=_str_or_int(value.get("stop_reason")),
        matched_stop=_str_or_int(value.get("matched_stop")),
    )


def _delta(value: Any, raw: dict[int, Any]) -> Delta | None:
    if not isinstance(value, dict):
        return None
    content, thought = _content(value.get("content"))
    calls = value.get("tool_calls")
    if isinstance(calls, dict):
        calls = [calls]
    call = value.get("function_call")
    return Delta(
        content=content,
        reasoning_content=_str(value.get("reasoning_content")) or thought,
        reasoning=_str(value.get("reasoning")),
        refusal=_str(value.get("refusal")),
        tool_calls=[_tool_call(item, raw) for item in calls if isinstance(item, dict)]
        if isinstance(calls, list)
        else None,
        function_call=_function(call, raw) if isinstance(call, dict) else None,
    )


def _content(value: Any) -> tuple[str | None, str | None]:
    """Text, or a list of typed parts as some gateways send it: (content, reasoning)."""
    if not isinstance(value, list):
        return _str(value), None
    content: list[str] = []
    thought: list[str] = []
    for part in value:
        if isinstance(part, str):
            content.append(part)
        elif isinstance(part, dict):
            if isinstance(part.get("text"), str):
                (thought if part.get("type") in ("thinking", "reasoning") else content).append(part["text"])
            elif "thinking" in part:
                inner = _content(part["thinking"])
                thought.append((inner[0] or "") + (inner[1] or ""))
    return "".join(content), "".join(thought) or None


def _tool_call(value: dict[str, Any], raw: dict[int, Any]) -> ToolCall:
    function, custom = value.get("function"), value.get("custom")
    if not isinstance(function, dict) and ("name" in value or "arguments" in value):
        function = value
    index = value.get("index")
    if isinstance(index, str) and index.isascii() and index.isdigit():
        index = int(index)
    return ToolCall(
        index=_int(index),
        id=_str(value.get("id")) or (str(value["id"]) if _int(value.get("id")) is not None else None),
        function=_function(function, raw) if isinstance(function, dict) else None,
        custom=Custom(name=_str(custom.get("name")), input=_str(custom.get("input")))
        if isinstance(custom, dict)
        else None,
    )


def _function(value: dict[str, Any], raw: dict[int, Any]) -> Function:
    arguments = value.get("arguments", value.get("parameters"))
    function = Function(name=_str(value.get("name")), arguments=_str(arguments))
    if arguments is not None and not isinstance(arguments, str):
        raw[id(function)] = arguments
    return function


def _logprobs(value: Any) -> Logprobs | None:
    if not isinstance(value, dict):
        return None
    tokens, numbers, top = value.get("tokens"), value.get("token_logprobs"), value.get("top_logprobs")
    return Logprobs(
        content=_entries(value.get("content")),
        refusal=_entries(value.get("refusal")),
        tokens=[t if isinstance(t, str) else "" for t in tokens] if isinstance(tokens, list) else None,
        token_logprobs=[_number(n) for n in numbers] if isinstance(numbers, list) else None,
        top_logprobs=[{str(k): _number(v) for k, v in item.items()} if isinstance(item, dict) else None for item in top]
        if isinstance(top, list)
        else None,
    )


def _entries(value: Any) -> list[dict[str, Any]] | None:
    if not isinstance(value, list):
        return None
    return [item for item in value if isinstance(item, dict)]


def _usage(value: Any) -> UsageBody | None:
    if not isinstance(value, dict):
        return None
    prompt, completion = value.get("prompt_tokens_details"), value.get("completion_tokens_details")
    return UsageBody(
        prompt_tokens=_int(value.get("prompt_tokens")),
        completion_tokens=_int(value.get("completion_tokens")),
        total_tokens=_int(value.get("total_tokens")),
        reasoning_tokens=_int(value.get("reasoning_tokens")),
        prompt_tokens_details=PromptDetails(_int(prompt.get("cached_tokens"))) if isinstance(prompt, dict) else None,
        completion_tokens_details=CompletionDetails(_int(completion.get("reasoning_tokens")))
        if isinstance(completion, dict)
        else None,
    )


def _str(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _int(value: Any) -> int | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _number(value: Any) -> float | None:
    try:
        return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
    except OverflowError:
        return None


def _str_or_int(value: Any) -> str | int | None:
    return value if isinstance(value, str) else _int(value)


def _ints(value: Any) -> tuple[int, ...] | None:
    if not isinstance(value, list):
        return None
    ids = tuple(item for item in value if isinstance(item, int) and not isinstance(item, bool))
    return ids if len(ids) == len(value) else None
