"""From an OpenAI request body to the one GenerationRequest, and back.

Pure: the clock's reading comes in as an argument, nothing is looked up. Rules:

- What the guard must understand is checked here, once, with the path of the field that is wrong. An engine that would
  have taken the bad value is no excuse to pass it on: one answers 400, another 200 with nonsense.
- ``null`` means: not set. Whole numbers may come as 1.0 (some clients know one kind of number); text never counts as a
  number, nor a number as a truth value.
- Everything else goes into ``extra`` unchanged and reaches the engine as it came.
- ``to_openai_body`` writes a body that normalises to the same request: that is what a trace keeps and a replay sends.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, Literal, cast

from guard.constraint import spec
from guard.constraint.spec import Constraint
from guard.request import GenerationRequest, RequestError, Retention, Sampling
from guard.server import openai_fields as tool_spec

Protocol = Literal["http", "grpc", "replay", "check"]

ROLES: Final = ("system", "developer", "user", "assistant", "tool", "function")
RETENTIONS: Final = ("none", "hash", "full")
"""From the strictest to the laxest."""

MAX_STOPS: Final = 128
MAX_TOP_LOGPROBS: Final = 20
MAX_TIMEOUT_S: Final = 86_400.0
INT64: Final = 2**63 - 1

_SAMPLING: Final = frozenset(
    {
        "max_tokens",
        "max_completion_tokens",
        "temperature",
        "top_p",
        "seed",
        "frequency_penalty",
        "presence_penalty",
        "stop",
        "logprobs",
        "top_logprobs",
    }
)
_COMMON: Final = _SAMPLING | {"model", "n", "stream", "stream_options", "return_token_ids", "outguard"}
_CHAT: Final = _COMMON | {"messages"} | tool_spec.TOOL_FIELDS | frozenset(spec.FIELDS)
_COMPLETION: Final = (_COMMON | {"prompt", "echo", "best_of"} | frozenset(spec.FIELDS)) - {
    "top_logprobs",
    "max_completion_tokens",
}


def chat_request(
    body: Mapping[str, Any],
    *,
    request_id: str,
    protocol: Protocol = "http",
    now: float = 0.0,
    max_choices: int = 128,
) -> GenerationRequest:
    """The body of POST /v1/chat/completions. ``now`` is the monotonic clock in seconds: a timeout becomes a deadline.

    Raises RequestError.
    """
    model = _model(body)
    messages = _messages(body.get("messages"))
    tools = tool_spec.parse_tools(body)
    request = GenerationRequest(
        id=request_id,
        kind="chat",
        model=model,
        messages=messages,
        tools=tools,
        tool_choice=tool_spec.parse_tool_choice(body, tools),
        tool_choice_raw=body.get("tool_choice"),
        parallel_tool_calls=_boolean(body, "parallel_tool_calls"),
        sampling=_chat_sampling(body),
    )
    return _common(request, body, _CHAT, protocol, now, max_choices)


def completion_request(
    body: Mapping[str, Any],
    *,
    request_id: str,
    protocol: Protocol = "http",
    now: float = 0.0,
    max_choices: int = 128,
) -> GenerationRequest:
    """The body of POST /v1/completions: one prompt, as text or token ids. Raises RequestError."""
    model = _model(body)
    if _boolean(body, "echo"):
        raise RequestError(
            "echo is not supported: the prompt is no part of the answer that is guarded", "echo", "unsupported_value"
        )
    request = GenerationRequest(
        id=request_id,
        kind="completion",
        model=model,
        prompt=_prompt(body),
        sampling=_completion_sampling(body),
    )
    request = _common(request, body, _COMPLETION, protocol, now, max_choices)
    best_of = _integer(body, "best_of", 1, 128)
    if best_of is not None and best_of != request.n:
        raise RequestError(
            f"best_of is not supported beyond n: every choice is guarded and delivered (best_of {best_of}, n"
            f" {request.n})",
            "best_of",
            "unsupported_value",
        )
    return request


def includes_usage(body: Mapping[str, Any]) -> bool:
    """Whether a stream ends with a chunk that carries the usage. The body has been normalised before."""
    options = body.get("stream_options")
    return bool(options and options.get("include_usage"))


def to_openai_body(request: GenerationRequest) -> dict[str, Any]:
    """What the caller asked, in the OpenAI shape. The deadline and the trace context are not part of it."""
    chat = request.kind == "chat"
    body: dict[str, Any] = {"model": request.model}
    if chat:
        body["messages"] = request.messages
    else:
        body["prompt"] = list(request.prompt) if isinstance(request.prompt, tuple) else request.prompt
    if request.tools:
        body["tools"] = [tool.raw for tool in request.tools]
    if request.tool_choice_raw is not None:
        body["tool_choice"] = request.tool_choice_raw
    if request.parallel_tool_calls is not None:
        body["parallel_tool_calls"] = request.parallel_tool_calls
    if request.constraint is not None:
        body.update(_format_fields(request.constraint))
    sampling = request.sampling
    for name in ("max_tokens", "temperature", "top_p", "seed", "frequency_penalty", "presence_penalty"):
        value = getattr(sampling, name)
        if value is not None:
            body[name] = value
    if sampling.stop:
        body["stop"] = list(sampling.stop)
    if sampling.logprobs:
        body["logprobs"] = True if chat else sampling.top_logprobs or 0
    if chat and sampling.top_logprobs is not None:
        body["top_logprobs"] = sampling.top_logprobs
    if request.n != 1:
        body["n"] = request.n
    if request.stream:
        body["stream"] = True
    if request.return_token_ids:
        body["return_token_ids"] = True
    body.update(request.extra)
    own: dict[str, Any] = {"policy": request.policy, "retention": request.retention, "engines": list(request.engines)}
    own = {name: value for name, value in own.items() if value}
    if own:
        body["outguard"] = own
    return body


def apply_headers(request: GenerationRequest, headers: Mapping[bytes, bytes], now: float) -> None:
    """Put what the caller's headers say into the request; names are lower case.

    A header wins over the body's ``outguard`` object (it may come from a gateway that does not touch bodies), save that
    of two retentions and of two timeouts the stricter holds. Raises RequestError with the header's name.
    """
    policy = _header(headers, "x-outguard-policy")
    if policy:
        request.policy = policy
    retention = _header(headers, "x-outguard-retention")
    if retention:
        request.retention = _stricter(request.retention, _retention(retention.lower(), "x-outguard-retention"))
    engines = _names(_header(headers, "x-outguard-engines"))
    if engines:
        request.engines = engines
    tenant = _header(headers, "x-outguard-tenant")
    if tenant:
        request.tenant = tenant
    timeout = _header(headers, "x-outguard-timeout")
    if timeout:
        try:
            seconds = float(timeout)
        except ValueError:
            raise RequestError(f"must be a number of seconds, and is {_shown(timeout)}", "x-outguard-timeout") from None
        deadline = now + _timeout(seconds, "x-outguard-timeout")
        request.deadline = deadline if request.deadline is None else min(deadline, request.deadline)
    request.traceparent = _header(headers, "traceparent")
    request.tracestate = _header(headers, "tracestate")


def _format_fields(constraint: Constraint) -> dict[str, Any]:
    """A constraint in the words of the API, or of vLLM where the API has none; of llama.cpp for its own grammars."""
    value = constraint.value
    match constraint.kind:
        case "json_schema":
            named: dict[str, Any] = {"name": constraint.name, "schema": value, "strict": constraint.strict}
            return {"response_format": {"type": "json_schema", "json_schema": named}}
        case "json_object":
            return {"response_format": {"type": "json_object"}}
        case "structural_tag":
            return {"response_format": value}
        case "grammar" if constraint.syntax == "gbnf":
            return {"grammar": value}
        case "choice":
            return {"structured_outputs": {"choice": list(value)}}
    return {"structured_outputs": {constraint.kind: value}}


# --- the parts -------------------------------------------------------------------------------------------------------


def _common(
    request: GenerationRequest,
    body: Mapping[str, Any],
    consumed: frozenset[str],
    protocol: Protocol,
    now: float,
    max_choices: int,
) -> GenerationRequest:
    request.constraint = spec.from_openai(body)
    request.n = _integer(body, "n", 1, max_choices) or 1
    request.stream = bool(_boolean(body, "stream"))
    request.return_token_ids = bool(_boolean(body, "return_token_ids"))
    request.protocol = protocol
    options = body.get("stream_options")
    if options is not None:
        if not isinstance(options, dict):
            raise _wrong("stream_options", "an object", options)
        if not request.stream:
            raise RequestError("stream_options is only allowed together with stream: true", "stream_options")
        _boolean(options, "include_usage", "stream_options.include_usage")
    _own_fields(request, body.get("outguard"), now)
    request.extra = {name: value for name, value in body.items() if name not in consumed}
    return request


def _own_fields(request: GenerationRequest, own: Any, now: float) -> None:
    if own is None:
        return
    if not isinstance(own, dict):
        raise _wrong("outguard", "an object", own)
    for name, value in own.items():
        path = f"outguard.{name}"
        if name not in ("policy", "retention", "engines", "timeout"):
            raise RequestError("is not known (known: policy, retention, engines, timeout)", path)
        if value is None:
            continue
        if name == "policy":
            request.policy = _text(value, path)
        elif name == "retention":
            request.retention = _retention(value, path)
        elif name == "engines":
            if isinstance(value, list):
                request.engines = tuple(_text(item, f"{path}[{i}]") for i, item in enumerate(value))
            else:
                request.engines = _names(_text(value, path))
        else:
            request.deadline = now + _timeout(cast(float, _number(own, "timeout", path=path)), path)


def _model(body: Mapping[str, Any]) -> str:
    if body.get("model") is None:
        raise RequestError("you must provide a model", "model", "missing_required_parameter")
    model = _text(body["model"], "model")
    if not model.strip():
        raise RequestError("must not be empty", "model")
    return model


def _messages(messages: Any) -> list[dict[str, Any]]:
    if messages is None:
        raise RequestError("you must provide messages", "messages", "missing_required_parameter")
    if not isinstance(messages, list):
        raise _wrong("messages", "a list of messages", messages)
    if not messages:
        raise RequestError("must hold at least one message, and is empty", "messages", "empty_array")
    for i, message in enumerate(messages):
        path = f"messages[{i}]"
        if not isinstance(message, dict):
            raise _wrong(path, "an object", message)
        role = message.get("role")
        if role is None:
            raise RequestError("is missing", f"{path}.role", "missing_required_parameter")
        if not isinstance(role, str):
            raise _wrong(f"{path}.role", "a string", role)
        if role not in ROLES:
            raise RequestError(f"must be one of {', '.join(ROLES)}, and is {_shown(role)}", f"{path}.role")
        _content(message, role, f"{path}.content")
        if message.get("name") is not None:
            _text(message["name"], f"{path}.name")
        if message.get("tool_call_id") is not None:
            _text(message["tool_call_id"], f"{path}.tool_call_id")
        _past_calls(message.get("tool_calls"), f"{path}.tool_calls")
    return messages


def _content(message: Mapping[str, Any], role: str, path: str) -> None:
    content = message.get("content")
    if content is None:
        # an assistant may have said nothing but tool calls, or a refusal; nobody else says nothing
        if role not in ("assistant", "function"):
            raise RequestError("is missing", path, "missing_required_parameter")
        return
    if isinstance(content, str):
        return
    if not isinstance(content, list):
        raise _wrong(path, "a string or a list of parts", content)
    for i, part in enumerate(content):
        if isinstance(part, str):
            continue  # vLLM and SGLang take plain strings among the parts
        if not isinstance(part, dict):
            raise _wrong(f"{path}[{i}]", "an object", part)
        kind = part.get("type")
        if kind is None:
            raise RequestError("is missing", f"{path}[{i}].type", "missing_required_parameter")
        if _text(kind, f"{path}[{i}].type") == "text":
            _text(part.get("text"), f"{path}[{i}].text")


def _past_calls(calls: Any, path: str) -> None:
    if calls is None:
        return
    if not isinstance(calls, list):
        raise _wrong(path, "a list of tool calls", calls)
    for i, call in enumerate(calls):
        if not isinstance(call, dict):
            raise _wrong(f"{path}[{i}]", "an object", call)
        function = call.get("function")
        if function is None:
            continue  # a custom tool's call has another shape
        if not isinstance(function, dict):
            raise _wrong(f"{path}[{i}].function", "an object", function)
        _text(function.get("name"), f"{path}[{i}].function.name")


def _prompt(body: Mapping[str, Any]) -> str | tuple[int, ...]:
    prompt = body.get("prompt")
    if prompt is None:
        raise RequestError("you must provide a prompt", "prompt", "missing_required_parameter")
    if isinstance(prompt, str):
        if not prompt:
            raise RequestError("must not be empty", "prompt")
        return prompt
    if not isinstance(prompt, list):
        raise _wrong("prompt", "a string or a list of token ids", prompt)
    if not prompt:
        raise RequestError("must not be empty", "prompt", "empty_array")
    if isinstance(prompt[0], (str, list)):
        if len(prompt) > 1:
            raise RequestError(
                f"holds {len(prompt)} prompts: one request is one prompt here; send them as requests of their own, at"
                " once",
                "prompt",
                "unsupported_value",
            )
        return _prompt({"prompt": prompt[0]})
    for i, token in enumerate(prompt):
        if type(token) is not int or not 0 <= token <= 2**31 - 1:
            raise _wrong(f"prompt[{i}]", "a token id", token)
    return tuple(prompt)


def _chat_sampling(body: Mapping[str, Any]) -> Sampling:
    longest = _integer(body, "max_completion_tokens", 1, INT64)  # the later name of the same; it wins
    if longest is None:
        longest = _integer(body, "max_tokens", 1, INT64)
    logprobs = bool(_boolean(body, "logprobs"))
    top = _integer(body, "top_logprobs", 0, MAX_TOP_LOGPROBS)
    if top and not logprobs:
        raise RequestError("is only allowed together with logprobs: true", "top_logprobs")
    return _sampling(body, longest, logprobs, top if logprobs else None)


def _completion_sampling(body: Mapping[str, Any]) -> Sampling:
    top = None
    if body.get("logprobs") is not False:  # the older API counts; false is how some clients say none
        top = _integer(body, "logprobs", 0, MAX_TOP_LOGPROBS)
    return _sampling(body, _integer(body, "max_tokens", 1, INT64), top is not None, top)


def _sampling(body: Mapping[str, Any], max_tokens: int | None, logprobs: bool, top: int | None) -> Sampling:
    return Sampling(
        max_tokens=max_tokens,
        temperature=_number(body, "temperature", 0, 2),
        top_p=_number(body, "top_p", 0, 1),
        seed=_integer(body, "seed", -INT64 - 1, INT64),
        frequency_penalty=_number(body, "frequency_penalty", -2, 2),
        presence_penalty=_number(body, "presence_penalty", -2, 2),
        stop=_stop(body.get("stop")),
        logprobs=logprobs,
        top_logprobs=top,
    )


def _stop(stop: Any) -> tuple[str, ...]:
    if stop is None:
        return ()
    if isinstance(stop, str):
        if not stop:
            raise RequestError("must not be an empty string: it would stop every answer at once", "stop")
        return (stop,)
    if not isinstance(stop, list):
        raise _wrong("stop", "a string or a list of strings", stop)
    if len(stop) > MAX_STOPS:
        raise RequestError(f"may hold {MAX_STOPS} strings at most, and holds {len(stop)}", "stop")
    for i, one in enumerate(stop):
        if not _text(one, f"stop[{i}]"):
            raise RequestError("must not be an empty string: it would stop every answer at once", f"stop[{i}]")
    return tuple(stop)


# --- plain values ----------------------------------------------------------------------------------------------------


def _text(value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise _wrong(path, "a string", value)
    return value


def _boolean(body: Mapping[str, Any], name: str, path: str = "") -> bool | None:
    value = body.get(name)
    if value is None or isinstance(value, bool):
        return value
    raise _wrong(path or name, "true or false", value)


def _number(
    body: Mapping[str, Any], name: str, low: float = -math.inf, high: float = math.inf, *, path: str = ""
) -> float | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _wrong(path or name, "a number", value)
    if not low <= value <= high:
        raise RequestError(f"must be between {low} and {high}, and is {_shown(value)}", path or name, "out_of_range")
    return value


def _integer(body: Mapping[str, Any], name: str, low: int, high: int) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(name, "a whole number", value)
    if value < low:
        raise RequestError(f"must be at least {low}, and is {_shown(value)}", name, "out_of_range")
    if value > high:
        raise RequestError(f"must be at most {high}, and is {_shown(value)}", name, "out_of_range")
    return value


def _retention(value: Any, path: str) -> Retention:
    if value not in RETENTIONS:
        raise RequestError(f"must be one of full, hash, none, and is {_shown(value)}", path)
    return cast(Retention, value)


def _stricter(one: Retention | None, other: Retention) -> Retention:
    return other if one is None else min(one, other, key=RETENTIONS.index)


def _timeout(seconds: float, path: str) -> float:
    if not 0 < seconds <= MAX_TIMEOUT_S:
        raise RequestError(f"must be more than 0 and at most {MAX_TIMEOUT_S:.0f} seconds", path, "out_of_range")
    return seconds


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for part in text.split(",") if (name := part.strip()))


def _header(headers: Mapping[bytes, bytes], name: str) -> str:
    return headers.get(name.encode(), b"").decode("latin-1").strip()


def _wrong(path: str, expected: str, value: Any) -> RequestError:
    return RequestError(f"must be {expected}, and is {_shown(value)}", path, "invalid_type")


def _shown(value: Any) -> str:
    """A short picture of a wrong value; of text only so much that the caller knows it again."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value) if abs(value) < 1e30 else "a number out of all range"
        case str():
            return repr(value) if len(value) <= 40 else f"a string of {len(value)} characters"
        case list() | tuple():
            return f"a list of {len(value)}"
        case dict():
            return "an object"
    return f"a {type(value).__name__}"
