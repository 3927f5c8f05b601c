"""What the client says and hears, as messages: options into a GenerateRequest, responses into guard events. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypedDict, Unpack

from google.protobuf import json_format

from guard.events import (
    CONTENT,
    REASONING,
    REFUSAL,
    Failed,
    Finding,
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
from guard.server.grpc_events import logprob_entries
from guard.v1 import guard_pb2 as pb

Messages = str | Sequence[Mapping[str, Any]]
"""OpenAI chat messages; a string is one message of the user's."""


class Options(TypedDict, total=False):
    """What a request may say beside its prompt; each as the field of the same name in guard.proto.

    At most one constraint is given: ``json_schema`` (a dict, JSON text, or a Pydantic model), ``json_object``,
    ``regex``, ``choice``, ``grammar`` (its text, with ``syntax``) or ``structural_tag``. ``tools`` are in the OpenAI or
    the MCP shape; ``tool_choice`` is a mode, or the name of the one tool.
    """

    tools: Sequence[Mapping[str, Any]]
    tool_choice: str
    parallel_tool_calls: bool
    json_schema: Any
    json_object: bool
    regex: str
    choice: Sequence[str]
    grammar: str
    syntax: Literal["ebnf", "gbnf", "lark"]
    structural_tag: Mapping[str, Any] | str
    max_tokens: int
    temperature: float
    top_p: float
    seed: int
    frequency_penalty: float
    presence_penalty: float
    stop: str | Sequence[str]
    n: int
    logprobs: bool
    top_logprobs: int
    request_id: str
    policy: str
    retention: Literal["full", "hash", "none"]
    engines: Sequence[str]
    engine_fields: Mapping[str, Any]
    metadata: Mapping[str, str]
    return_token_ids: bool


# --- options -> message ----------------------------------------------------------------------------------------------

_MODES: Final = ("none", "auto", "required")
_KINDS: Final = ("json_schema", "json_object", "regex", "choice", "grammar", "structural_tag")
_PLAIN: Final = ("parallel_tool_calls", "request_id", "policy", "engines", "metadata", "return_token_ids")
_SAMPLING: Final = frozenset(pb.Sampling.DESCRIPTOR.fields_by_name)


def build_request(
    model: str,
    messages: Messages | None = None,
    *,
    text: str | None = None,
    token_ids: Sequence[int] | None = None,
    **options: Unpack[Options],
) -> pb.GenerateRequest:
    """The message that says the same. Raises ValueError or TypeError where no message can."""
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    request = pb.GenerateRequest(model=model, **{name: given.pop(name) for name in _PLAIN if name in given})
    if sum(prompt is not None for prompt in (messages, text, token_ids)) > 1:
        raise ValueError("only one of messages, text and token_ids can be given")
    if text is not None:
        request.text = text
    elif token_ids is not None:
        request.token_ids.ids.extend(token_ids)
    elif messages is not None:
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        request.chat.messages.extend(_message(one) for one in messages)
    request.tools.extend(_tool(one) for one in given.pop("tools", ()))
    choice = given.pop("tool_choice", None)
    if choice in _MODES:
        request.tool_choice.CopyFrom(pb.ToolChoice(mode=f"MODE_{choice.upper()}"))
    elif choice is not None:
        request.tool_choice.name = choice
    if "retention" in given:
        request.MergeFrom(pb.GenerateRequest(retention=f"RETENTION_{given.pop('retention').upper()}"))
    if "engine_fields" in given:
        request.engine_fields.update(given.pop("engine_fields"))
    _constraint(request, given)
    if "stop" in given and isinstance(given["stop"], str):
        given["stop"] = [given["stop"]]
    unknown = sorted(given.keys() - _SAMPLING)
    if unknown:
        raise TypeError(f"no such option: {', '.join(unknown)}")
    if given:
        request.sampling.CopyFrom(pb.Sampling(**given))
    return request


def _constraint(request: pb.GenerateRequest, given: dict[str, Any]) -> None:
    asked = {kind: given.pop(kind) for kind in _KINDS if kind in given}
    syntax = given.pop("syntax", "ebnf")
    if len(asked) > 1:
        raise ValueError(f"only one constraint can be given, not {', '.join(asked)}")
    for kind, value in asked.items():
        constraint = request.constraint
        match kind:
            case "json_schema" | "structural_tag":
                setattr(constraint, kind, _json_text(value))
            case "json_object":
                if value:
                    constraint.json_object.SetInParent()
            case "regex":
                constraint.regex = value
            case "choice":
                constraint.choice.CopyFrom(pb.Choices(values=value))
            case "grammar":
                constraint.grammar.CopyFrom(pb.Grammar(text=value, syntax=f"SYNTAX_{syntax.upper()}"))


def _json_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if hasattr(value, "model_json_schema"):
        value = value.model_json_schema()
    return json.dumps(value, ensure_ascii=False)


def _message(message: Mapping[str, Any]) -> pb.ChatMessage:
    out = pb.ChatMessage(
        role=f"ROLE_{message['role'].upper()}",
        name=message.get("name") or "",
        reasoning=message.get("reasoning_content") or message.get("reasoning") or "",
        tool_call_id=message.get("tool_call_id") or "",
    )
    content = message.get("content")
    if isinstance(content, str):
        out.text = content
    elif content is not None:
        out.parts.SetInParent()
        for part in content:
            if isinstance(part, str) or part.get("type") == "text":
                out.parts.parts.add(text=part if isinstance(part, str) else part["text"])
            else:
                out.parts.parts.add().raw.update(part)
    for call in message.get("tool_calls") or ():
        function = call["function"]
        out.tool_calls.add(id=call["id"], name=function["name"], arguments=function["arguments"])
    return out


def _tool(tool: Mapping[str, Any]) -> pb.Tool:
    function = tool.get("function", tool)
    parameters = function.get("parameters", function.get("inputSchema"))
    out = pb.Tool(name=function["name"], description=function.get("description") or "")
    if parameters is not None:
        out.parameters_json = _json_text(parameters)
    if function.get("strict") is not None:
        out.strict = function["strict"]
    return out


# --- message -> event ------------------------------------------------------------------------------------------------

_CHANNELS: Final = {"content": CONTENT, "reasoning": REASONING, "refusal": REFUSAL}


def guard_event(response: Any) -> GuardEvent:
    """The event that a GenerateResponse or CheckResponse carries."""
    kind = response.WhichOneof("event")
    if kind is None:
        raise ValueError("the server sent an event that this client does not know: it is newer")
    event = getattr(response, kind)
    match kind:
        case "started":
            return Started(event.request_id, event.trace_id, event.model, event.engine)
        case "delta":
            return _delta(event)
        case "recovery":
            return Recovery(
                event.choice,
                event.attempt,
                event.action,
                event.from_engine,
                event.to_engine,
                event.reason,
                event.channel,
                event.offset,
            )
        case "finding":
            finding = Finding(
                event.code,
                _word(pb.Severity, "SEVERITY_", event.severity),  # type: ignore[arg-type]
                event.message,
                event.channel,
                event.onset,
                event.detected_at,
                event.confidence,
                json_format.MessageToDict(event.evidence),
            )
            return Found(event.choice, finding, event.engine, event.attempt)
        case "repair":
            return Repair(event.choice, event.code, event.message)
        case "finished":
            stop = event.WhichOneof("matched_stop")
            return Finished(
                event.choice,
                event.finish_reason,
                _usage(event.usage),
                _verdicts(event.verdicts),
                event.attempts,
                event.usage.wasted_tokens,
                getattr(event, stop) if stop else None,
            )
    return Failed(
        event.choice,
        event.code,
        event.message,
        event.attempts,
        event.engine_status if event.HasField("engine_status") else None,
        event.retry_after.ToTimedelta().total_seconds() if event.HasField("retry_after") else None,
        _verdicts(event.verdicts),
        _usage(event.usage),
    )


def _delta(delta: pb.Delta) -> Release | ToolRelease:
    piece = delta.WhichOneof("piece")
    if piece == "tool_call":
        call = delta.tool_call
        return ToolRelease(
            delta.choice,
            call.index,
            call.arguments,
            call.id if call.HasField("id") else None,
            call.name if call.HasField("name") else None,
        )
    text = getattr(delta, piece) if piece else ""
    channel = _CHANNELS.get(piece or "", CONTENT)
    return Release(delta.choice, channel, text, tuple(delta.token_ids) or None, logprob_entries(delta.logprobs))


def _usage(usage: pb.Usage) -> Usage:
    return Usage(
        usage.prompt_tokens,
        usage.completion_tokens,
        usage.total_tokens,
        usage.cached_tokens,
        usage.reasoning_tokens,
        usage.estimated,
    )


def _verdicts(verdicts: pb.Verdicts) -> Verdicts:
    return Verdicts(*(_word(pb.Verdict, "VERDICT_", getattr(verdicts, name)) for name in Verdicts.__struct_fields__))


def _word(enum: Any, prefix: str, number: int) -> str:
    return str(enum.Name(number).removeprefix(prefix).lower())
