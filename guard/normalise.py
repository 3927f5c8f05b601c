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

from collections.abc import Mapping
from typing import Any, Final, Literal, cast

import msgspec

from guard.constraint import spec, tools
from guard.constraint.spec import Constraint
from guard.prompt import read_messages, read_prompt
from guard.request import GenerationRequest, PolicyOverrides, RequestError, Retention, Sampling
from guard.values import boolean, integer, number, shown, text, wrong

Protocol = Literal["http", "grpc", "replay", "check"]

RETENTIONS: Final = ("none", "hash", "full")
"""From the strictest to the laxest."""

OWN_FIELDS: Final = ("policy", "retention", "engines", "timeout", "overrides")
"""Of the body's ``outguard`` object."""

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
_CHAT: Final = _COMMON | {"messages"} | tools.TOOL_FIELDS | frozenset(spec.FIELDS)
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
    messages = read_messages(body.get("messages"))
    offered = tools.parse_tools(body)
    request = GenerationRequest(
        id=request_id,
        kind="chat",
        model=model,
        messages=messages,
        tools=offered,
        tool_choice=tools.parse_tool_choice(body, offered),
        tool_choice_raw=_choice_as_said(body),
        parallel_tool_calls=tools.parse_parallel(body),
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
    if boolean(body, "echo"):
        raise RequestError(
            "echo is not supported: the prompt is no part of the answer that is guarded", "echo", "unsupported_value"
        )
    request = GenerationRequest(
        id=request_id,
        kind="completion",
        model=model,
        prompt=read_prompt(body.get("prompt")),
        sampling=_completion_sampling(body),
    )
    request = _common(request, body, _COMPLETION, protocol, now, max_choices)
    best_of = integer(body, "best_of", 1, 128)
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
    if request.overrides is not None:
        said = msgspec.structs.asdict(request.overrides)
        own["overrides"] = {name: value for name, value in said.items() if value}
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
            raise RequestError(f"must be a number of seconds, and is {shown(timeout)}", "x-outguard-timeout") from None
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
    request.n = integer(body, "n", 1, max_choices) or 1
    request.stream = bool(boolean(body, "stream"))
    request.return_token_ids = bool(boolean(body, "return_token_ids"))
    request.protocol = protocol
    options = body.get("stream_options")
    if options is not None:
        if not isinstance(options, dict):
            raise wrong("stream_options", "an object", options)
        if not request.stream:
            raise RequestError("stream_options is only allowed together with stream: true", "stream_options")
        boolean(options, "include_usage", "stream_options.include_usage")
    _own_fields(request, body.get("outguard"), now)
    request.extra = {name: value for name, value in body.items() if name not in consumed}
    return request


def _own_fields(request: GenerationRequest, own: Any, now: float) -> None:
    if own is None:
        return
    if not isinstance(own, dict):
        raise wrong("outguard", "an object", own)
    for name, value in own.items():
        path = f"outguard.{name}"
        if name not in OWN_FIELDS:
            raise RequestError(f"is not known (known: {', '.join(OWN_FIELDS)})", path)
        if value is None:
            continue
        if name == "policy":
            request.policy = text(value, path)
        elif name == "retention":
            request.retention = _retention(value, path)
        elif name == "engines":
            if isinstance(value, list):
                request.engines = tuple(text(item, f"{path}[{i}]") for i, item in enumerate(value))
            else:
                request.engines = _names(text(value, path))
        elif name == "overrides":
            request.overrides = _overrides(value, path)
        else:
            request.deadline = now + _timeout(cast(float, number(own, "timeout", path=path)), path)


def _overrides(value: Any, path: str) -> PolicyOverrides:
    if not isinstance(value, dict):
        raise wrong(path, "an object", value)
    for name in value:
        if name not in PolicyOverrides.__struct_fields__:
            raise RequestError(
                f"is not known (known: {', '.join(PolicyOverrides.__struct_fields__)})", f"{path}.{name}"
            )
    return PolicyOverrides(
        max_attempts=integer(value, "max_attempts", 1, 10, path=f"{path}.max_attempts"),
        no_resume=bool(boolean(value, "no_resume", f"{path}.no_resume")),
        release_on_complete=bool(boolean(value, "release_on_complete", f"{path}.release_on_complete")),
        no_repairs=bool(boolean(value, "no_repairs", f"{path}.no_repairs")),
    )


def _choice_as_said(body: Mapping[str, Any]) -> Any:
    """The tool choice in today's words, also where it was said in the older ones."""
    said = body.get("tool_choice")
    older = body.get("function_call")
    if said is not None or older is None:
        return said
    return {"type": "function", "function": {"name": older["name"]}} if isinstance(older, dict) else older


def _model(body: Mapping[str, Any]) -> str:
    if body.get("model") is None:
        raise RequestError("you must provide a model", "model", "missing_required_parameter")
    model = text(body["model"], "model")
    if not model.strip():
        raise RequestError("must not be empty", "model")
    return model


def _chat_sampling(body: Mapping[str, Any]) -> Sampling:
    longest = integer(body, "max_completion_tokens", 1, INT64)  # the later name of the same; it wins
    if longest is None:
        longest = integer(body, "max_tokens", 1, INT64)
    logprobs = bool(boolean(body, "logprobs"))
    top = integer(body, "top_logprobs", 0, MAX_TOP_LOGPROBS)
    if top and not logprobs:
        raise RequestError("is only allowed together with logprobs: true", "top_logprobs")
    return _sampling(body, longest, logprobs, top if logprobs else None)


def _completion_sampling(body: Mapping[str, Any]) -> Sampling:
    top = None
    if body.get("logprobs") is not False:  # the older API counts; false is how some clients say none
        top = integer(body, "logprobs", 0, MAX_TOP_LOGPROBS)
    return _sampling(body, integer(body, "max_tokens", 1, INT64), top is not None, top)


def _sampling(body: Mapping[str, Any], max_tokens: int | None, logprobs: bool, top: int | None) -> Sampling:
    return Sampling(
        max_tokens=max_tokens,
        temperature=number(body, "temperature", 0, 2),
        top_p=number(body, "top_p", 0, 1),
        seed=integer(body, "seed", -INT64 - 1, INT64),
        frequency_penalty=number(body, "frequency_penalty", -2, 2),
        presence_penalty=number(body, "presence_penalty", -2, 2),
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
        raise wrong("stop", "a string or a list of strings", stop)
    if len(stop) > MAX_STOPS:
        raise RequestError(f"may hold {MAX_STOPS} strings at most, and holds {len(stop)}", "stop")
    for i, one in enumerate(stop):
        if not text(one, f"stop[{i}]"):
            raise RequestError("must not be an empty string: it would stop every answer at once", f"stop[{i}]")
    return tuple(stop)


# --- what only the guard has ---


def _retention(value: Any, path: str) -> Retention:
    if value not in RETENTIONS:
        raise RequestError(f"must be one of full, hash, none, and is {shown(value)}", path)
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
