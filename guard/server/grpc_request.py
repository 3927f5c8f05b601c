"""From a GenerateRequest message to the one GenerationRequest.

Pure. The message is written as the OpenAI body that says the same and read by guard/normalise.py, so that both
protocols hold to the same ranges, and a trace or a replay needs one form only. What that body cannot say exactly (the
constraint) is put into the request directly. Paths of wrong fields are turned back into the message's own.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from msgspec import structs

from guard.constraint import spec
from guard.constraint.spec import Constraint
from guard.normalise import chat_request, completion_request
from guard.request import GenerationRequest, PolicyOverrides, RequestError, Retention
from guard.v1 import guard_pb2 as pb

MAX_ID_CHARS: Final = 128

_ROLES: Final = {
    pb.ROLE_SYSTEM: "system",
    pb.ROLE_DEVELOPER: "developer",
    pb.ROLE_USER: "user",
    pb.ROLE_ASSISTANT: "assistant",
    pb.ROLE_TOOL: "tool",
}
_RETENTIONS: Final[dict[int, Retention]] = {
    pb.RETENTION_FULL: "full",
    pb.RETENTION_HASH: "hash",
    pb.RETENTION_NONE: "none",
}
_MODES: Final = {
    pb.ToolChoice.MODE_NONE: "none",
    pb.ToolChoice.MODE_AUTO: "auto",
    pb.ToolChoice.MODE_REQUIRED: "required",
}
_GRAMMARS: Final = {
    pb.Grammar.SYNTAX_EBNF: spec.ebnf,
    pb.Grammar.SYNTAX_GBNF: spec.gbnf,
    pb.Grammar.SYNTAX_LARK: spec.lark,
}
_NUMBERS: Final = ("max_tokens", "temperature", "top_p", "seed", "frequency_penalty", "presence_penalty", "n")
_PATHS: Final = tuple(
    (re.compile(pattern), into)
    for pattern, into in (
        (r"^messages(\[\d+\])\.content(\[\d+\])", r"chat.messages\1.parts.parts\2.raw"),
        (r"^messages(\[\d+\])\.tool_calls(\[\d+\])\.function\b", r"chat.messages\1.tool_calls\2"),
        (r"^messages\b", "chat.messages"),
        (r"^tools(\[\d+\])\.function\.parameters\b", r"tools\1.parameters_json"),
        (r"^tools(\[\d+\])\.function\b", r"tools\1"),
        (r"^tool_choice\..*", "tool_choice"),
        (r"^prompt(?=\[)", "token_ids.ids"),
        (r"^outguard\.", ""),
        (
            r"^(max_tokens|temperature|top_p|seed|frequency_penalty|presence_penalty|stop|n|top_logprobs)\b",
            r"sampling.\1",
        ),
        (r"^logprobs\b", "sampling.top_logprobs"),
        (
            r"^(response_format|structured_outputs|guided_\w+|grammar|regex|ebnf|json_schema|structural_tag)\b.*",
            "constraint",
        ),
    )
)


def generation_request(
    message: pb.GenerateRequest, *, request_id: str, now: float = 0.0, check: bool = False
) -> GenerationRequest:
    """Raises RequestError with the path of the wrong field. ``check``: model and prompt may be left out."""
    kind = message.WhichOneof("prompt")
    extra = _engine_fields(message)
    body: dict[str, Any] = {"model": message.model, "stream": True}
    if check and not message.model:
        body["model"] = "unnamed"
    if message.return_token_ids:
        body["return_token_ids"] = True
    if message.metadata:
        body["metadata"] = dict(message.metadata)
    _sampling(message.sampling, body, chat=kind != "text" and kind != "token_ids")
    if kind == "chat":
        body["messages"] = [_message(one, f"chat.messages[{i}]") for i, one in enumerate(message.chat.messages)]
    elif kind == "text":
        body["prompt"] = message.text
    elif kind == "token_ids":
        body["prompt"] = list(message.token_ids.ids)
    elif check:
        body["messages"] = [{"role": "user", "content": ""}]
    else:
        _refuse("one of chat, text and token_ids must be set", "prompt", "missing_required_parameter")
    chat = "messages" in body
    _tools(message, body, chat)

    for name in extra:
        if name in body:
            _refuse("is a field of the request itself", f"engine_fields.{name}")
    read = chat_request if chat else completion_request
    try:
        request = read({**extra, **body}, request_id=_id(message.request_id) or request_id, protocol="grpc", now=now)
    except RequestError as error:
        root = re.split(r"[.\[]", error.param, maxsplit=1)[0]
        if root in extra:
            raise _at(f"engine_fields.{error.param}", error) from error
        if error.param == "prompt":
            raise _at("text" if kind == "text" else "token_ids.ids", error) from error
        raise own_error(error) from error
    for name in extra:
        if name not in request.extra:
            _refuse("is understood by the guard: it has a field of its own in the request", f"engine_fields.{name}")

    if message.HasField("constraint"):
        try:
            request.constraint = _constraint(message.constraint)
        except RequestError as error:
            raise _at(error.param, error) from error
    if check:
        request.protocol = "check"
        if not message.model:
            request.model = ""
        if kind is None:
            request.messages = []
    request.policy = message.policy
    request.overrides = _overrides(message)
    request.engines = tuple(message.engines)
    request.retention = _RETENTIONS.get(message.retention)
    if message.retention and request.retention is None:
        _refuse(f"{message.retention} is no known retention", "retention")
    return request


def field_path(param: str) -> str:
    """The message's own path of a field that is named by its path in the OpenAI body."""
    for pattern, into in _PATHS:
        path, hits = pattern.subn(into, param, count=1)
        if hits:
            return path
    return param


def own_error(error: RequestError) -> RequestError:
    """The same mistake with the message's own path."""
    return _at(field_path(error.param), error)


def _at(path: str, error: RequestError) -> RequestError:
    """Some messages begin with the path, which is said once, in front."""
    message = error.message.removeprefix(f"{error.param}: ")
    moved = RequestError(message, path, error.code, retry_after=error.retry_after)
    moved.trace_id = error.trace_id
    return moved


# --- the parts -------------------------------------------------------------------------------------------------------


def _refuse(text: str, path: str, code: str = "invalid_request") -> NoReturn:
    raise RequestError(text, path, code)


def _id(text: str) -> str:
    if len(text) > MAX_ID_CHARS or not text.isprintable():
        _refuse(f"must be at most {MAX_ID_CHARS} printable characters", "request_id")
    return text


def _sampling(sampling: pb.Sampling, body: dict[str, Any], *, chat: bool) -> None:
    for name in _NUMBERS:
        if sampling.HasField(name):
            body[name] = getattr(sampling, name)
    if sampling.HasField("n") and not sampling.n:
        _refuse("must be at least 1, and is 0", "sampling.n", "out_of_range")
    if sampling.stop:
        body["stop"] = list(sampling.stop)
    top = sampling.top_logprobs if sampling.HasField("top_logprobs") else None
    if top and not sampling.logprobs:
        _refuse("is only allowed together with logprobs", "sampling.top_logprobs")
    if chat:
        if sampling.logprobs:
            body["logprobs"] = True
        if top is not None:
            body["top_logprobs"] = top
    elif sampling.logprobs:
        body["logprobs"] = top or 0  # the older API says both with one number


def _message(message: pb.ChatMessage, path: str) -> dict[str, Any]:
    role = _ROLES.get(message.role)
    if role is None:
        if message.role == pb.ROLE_UNSPECIFIED:
            _refuse("is missing", f"{path}.role", "missing_required_parameter")
        _refuse(f"{message.role} is no known role", f"{path}.role")
    out: dict[str, Any] = {"role": role}
    form = message.WhichOneof("content")
    if form == "text":
        out["content"] = message.text
    elif form == "parts":
        if not message.parts.parts:
            _refuse("must hold at least one part, and is empty", f"{path}.parts.parts", "empty_array")
        out["content"] = [_part(part, f"{path}.parts.parts[{i}]") for i, part in enumerate(message.parts.parts)]
    elif role == "assistant":
        out["content"] = None
    if message.name:
        out["name"] = message.name
    if message.reasoning:
        out["reasoning_content"] = message.reasoning
    if message.tool_calls:
        if role != "assistant":
            _refuse("are only allowed in an assistant message", f"{path}.tool_calls")
        out["tool_calls"] = [_call(call, f"{path}.tool_calls[{i}]") for i, call in enumerate(message.tool_calls)]
    if message.tool_call_id:
        out["tool_call_id"] = message.tool_call_id
    elif role == "tool":
        _refuse("is missing: it says which call this answers", f"{path}.tool_call_id", "missing_required_parameter")
    return out


def _part(part: pb.ContentPart, path: str) -> dict[str, Any]:
    match part.WhichOneof("part"):
        case "text":
            return {"type": "text", "text": part.text}
        case "raw":
            return _plain_struct(part.raw, f"{path}.raw")
    _refuse("one of text and raw must be set", path, "missing_required_parameter")


def _call(call: pb.ToolCall, path: str) -> dict[str, Any]:
    for name in ("id", "name"):
        if not getattr(call, name):
            _refuse("is missing", f"{path}.{name}", "missing_required_parameter")
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _tools(message: pb.GenerateRequest, body: dict[str, Any], chat: bool) -> None:
    if not chat:
        for name, given in (
            ("tools", bool(message.tools)),
            ("tool_choice", message.HasField("tool_choice")),
            ("parallel_tool_calls", message.HasField("parallel_tool_calls")),
        ):
            if given:
                _refuse("is only allowed with a chat prompt", name)
        return
    if message.tools:
        body["tools"] = [_tool(tool, f"tools[{i}]") for i, tool in enumerate(message.tools)]
    if message.HasField("tool_choice"):
        body["tool_choice"] = _tool_choice(message.tool_choice)
    if message.HasField("parallel_tool_calls"):
        body["parallel_tool_calls"] = message.parallel_tool_calls


def _tool(tool: pb.Tool, path: str) -> dict[str, Any]:
    if not tool.name:
        _refuse("is missing", f"{path}.name", "missing_required_parameter")
    function: dict[str, Any] = {"name": tool.name}
    if tool.description:
        function["description"] = tool.description
    if tool.parameters_json:
        function["parameters"] = _schema(tool.parameters_json, f"{path}.parameters_json")
    if tool.HasField("strict"):
        function["strict"] = tool.strict
    return {"type": "function", "function": function}


def _tool_choice(choice: pb.ToolChoice) -> Any:
    match choice.WhichOneof("choice"):
        case "mode":
            mode = _MODES.get(choice.mode)
            if mode is None:
                _refuse("must be one of none, auto and required", "tool_choice.mode")
            return mode
        case "name":
            return {"type": "function", "function": {"name": choice.name}}
        case "allowed":
            if not choice.allowed.names:
                _refuse("must name at least one tool", "tool_choice.allowed.names", "empty_array")
            named = [{"type": "function", "function": {"name": name}} for name in choice.allowed.names]
            mode = "required" if choice.allowed.required else "auto"
            return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": named}}
    _refuse("one of mode, name and allowed must be set", "tool_choice", "missing_required_parameter")


def _constraint(constraint: pb.Constraint) -> Constraint:
    kind = constraint.WhichOneof("kind")
    path = f"constraint.{kind}"
    match kind:
        case "json_schema":
            found = spec.schema((path, constraint.json_schema))
        case "structural_tag":
            found = spec.structural_tag((path, constraint.structural_tag))
        case "json_object":
            found = Constraint("json_object", param=path)
        case "regex":
            found = spec.regex((path, constraint.regex))
        case "choice":
            found = spec.choice((f"{path}.values", list(constraint.choice.values)))
        case "grammar":
            read = _GRAMMARS.get(constraint.grammar.syntax)
            if read is None:
                _refuse("must be one of EBNF, GBNF and LARK", f"{path}.syntax", "invalid_constraint")
            found = read((f"{path}.text", constraint.grammar.text))
        case _:
            _refuse("one of its kinds must be set", "constraint", "missing_required_parameter")
    strict = constraint.strict if constraint.HasField("strict") else True
    return structs.replace(found, name=constraint.name, strict=strict)


def _overrides(message: pb.GenerateRequest) -> PolicyOverrides | None:
    if not message.HasField("policy_overrides"):
        return None
    asked = message.policy_overrides
    if asked.HasField("max_attempts") and not asked.max_attempts:
        _refuse("must be at least 1, and is 0", "policy_overrides.max_attempts", "out_of_range")
    return PolicyOverrides(
        max_attempts=asked.max_attempts if asked.HasField("max_attempts") else None,
        no_resume=asked.no_resume,
        release_on_complete=asked.release_on_complete,
        no_repairs=asked.no_repairs,
    )


# --- free-form values ------------------------------------------------------------------------------------------------


def _schema(text: str, path: str) -> Any:
    try:
        value = json.loads(text, parse_constant=_no_number)
    except RecursionError:
        raise RequestError("is nested too deeply to be read", path, "constraint_too_complex") from None
    except ValueError as error:
        raise RequestError(f"is not JSON: {error}", path, "invalid_json") from None
    if not isinstance(value, dict):
        _refuse("must be a JSON schema, which is an object", path, "invalid_constraint")
    if spec.half_characters(text, value):
        _refuse(spec.HALF_CHARACTERS, path, "invalid_constraint")
    return value


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _engine_fields(message: pb.GenerateRequest) -> dict[str, Any]:
    return _plain_struct(message.engine_fields, "engine_fields") if message.HasField("engine_fields") else {}


def _plain_struct(struct: Any, path: str) -> dict[str, Any]:
    return {name: _plain(value, f"{path}.{name}") for name, value in struct.fields.items()}


def _plain(value: Any, path: str) -> Any:
    match value.WhichOneof("kind"):
        case "number_value":
            number: float = value.number_value
            if not math.isfinite(number):
                _refuse("must be a finite number", path)
            # a Struct knows one kind of number; engines want top_k as 20, not as 20.0
            return int(number) if number.is_integer() and abs(number) <= 2**53 else number
        case "string_value":
            return value.string_value
        case "bool_value":
            return value.bool_value
        case "struct_value":
            return _plain_struct(value.struct_value, path)
        case "list_value":
            return [_plain(one, f"{path}[{i}]") for i, one in enumerate(value.list_value.values)]
    return None


def headers(metadata: Any) -> Mapping[bytes, bytes]:
    """A call's metadata as HTTP headers, whose names they share; binary values are left out."""
    return {name.encode(): value.encode() for name, value in metadata or () if isinstance(value, str)}
