"""One attempt in the words of one engine: path, JSON body, and what of the constraint the engine was not asked to
enforce. Pure.

Rules.
- A stream with its usage is always asked for, and one choice.
- ``extra`` fields of the request reach the engine as they came, and never replace one that the guard sets.
- A constraint goes out in the dialect's own words. What a dialect cannot say is listed in ``unenforced`` and is left
  to the guard's own check; nothing is sent that an engine is known to ignore in silence or to refuse.
- A prefix is continued only in a way that is known to continue it; else ResumeUnsupported, before anything is sent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from guard.constraint.regex_gbnf import Untranslatable, regex_to_gbnf
from guard.constraint.spec import Constraint
from guard.engines.contract import Capabilities, EngineRequest, Prefix, ResumeUnsupported
from guard.request import GenerationRequest

CHAT_PATH: Final = "/v1/chat/completions"
COMPLETION_PATH: Final = "/v1/completions"

Body = dict[str, Any]


class WireRequest(NamedTuple):
    """``body`` is JSON. ``drop_prefix``: text that a whole (not streamed) answer of this engine repeats."""

    path: str
    body: bytes
    unenforced: tuple[str, ...]
    drop_prefix: str = ""


# --- constraints: each returns what is not enforced ---------------------------------------------------------------


def _response_format(constraint: Constraint) -> Body:
    """The OpenAI form of a JSON constraint."""
    if constraint.kind == "json_object":
        return {"type": "json_object"}
    schema: Body = {"name": constraint.name or "answer", "schema": constraint.value}
    schema["strict"] = constraint.strict
    return {"type": "json_schema", "json_schema": schema}


def _vllm(constraint: Constraint, body: Body, kind: str) -> tuple[str, ...]:
    match constraint.kind:
        case "json_schema" | "json_object":
            body["response_format"] = _response_format(constraint)
        case "regex":
            body["structured_outputs"] = {"regex": constraint.value}
        case "choice":
            body["structured_outputs"] = {"choice": list(constraint.value)}
        case "grammar":
            # xgrammar reads EBNF in the GBNF manner, llguidance (the other backend) Lark as well
            body["structured_outputs"] = {"grammar": constraint.value}
        case "structural_tag":
            body["structured_outputs"] = {"structural_tag": _json_text(constraint.value)}
    return ()


def _sglang(constraint: Constraint, body: Body, kind: str) -> tuple[str, ...]:
    match constraint.kind:
        case "json_schema" if kind == "completion":
            body["json_schema"] = _json_text(constraint.value)
        case "json_schema" | "json_object":
            body["response_format"] = _response_format(constraint)
        case "regex":
            body["regex"] = constraint.value
        case "choice":
            body["regex"] = "|".join(f"({_quoted(choice)})" for choice in constraint.value)
        case "grammar" if constraint.syntax in ("ebnf", "gbnf"):
            body["ebnf"] = constraint.value
        case "structural_tag" if kind == "chat":
            body["response_format"] = {"type": "structural_tag", **constraint.value}
        case _:
            return (_said(constraint),)
    return ()


def _trtllm(constraint: Constraint, body: Body, kind: str) -> tuple[str, ...]:
    match constraint.kind:
        case "json_schema":
            body["response_format"] = {"type": "json", "schema": constraint.value}
        case "json_object":
            body["response_format"] = {"type": "json_object"}
        case "regex":
            body["response_format"] = {"type": "regex", "regex": constraint.value}
        case "choice":
            pattern = "|".join(f"({_quoted(choice)})" for choice in constraint.value)
            body["response_format"] = {"type": "regex", "regex": pattern}
        case "grammar" if constraint.syntax in ("ebnf", "gbnf"):
            body["response_format"] = {"type": "ebnf", "ebnf": constraint.value}
        case "structural_tag":
            body["response_format"] = {"type": "structural_tag", **constraint.value}
        case _:
            return (_said(constraint),)
    return ()


def _llamacpp(constraint: Constraint, body: Body, kind: str) -> tuple[str, ...]:
    match constraint.kind:
        case "json_schema" if kind == "completion":
            body["json_schema"] = constraint.value  # response_format is ignored there
        case "json_object" if kind == "completion":
            body["json_schema"] = {"type": "object"}
        case "json_schema" | "json_object":
            body["response_format"] = _response_format(constraint)
        case "choice":
            alternatives = " | ".join(_json_text(choice) for choice in constraint.value)
            body["grammar"] = f"root ::= {alternatives}"
        case "regex":
            try:
                body["grammar"] = regex_to_gbnf(constraint.value)
            except Untranslatable:
                return (_said(constraint),)
        case "grammar" if constraint.syntax == "gbnf":
            body["grammar"] = constraint.value
        case _:
            return (_said(constraint),)
    return ()


def _openai(constraint: Constraint, body: Body, kind: str) -> tuple[str, ...]:
    if constraint.kind in ("json_schema", "json_object") and kind == "chat":
        body["response_format"] = _response_format(constraint)
        return ()
    return (_said(constraint),)


def _said(constraint: Constraint) -> str:
    return f"{constraint.kind}:{constraint.syntax}" if constraint.syntax else constraint.kind


# --- continuing from a prefix -------------------------------------------------------------------------------------


def _continue_by_flag(messages: list[Body], prefix: Prefix, body: Body) -> None:
    """vLLM and SGLang: the last message is an assistant's, and the template leaves it open."""
    messages.append({"role": "assistant", "content": prefix.content})
    body["continue_final_message"] = True
    body["add_generation_prompt"] = False


def _continue_implicitly(messages: list[Body], prefix: Prefix, body: Body) -> None:
    """llama.cpp: a last message of the assistant is always continued."""
    messages.append({"role": "assistant", "content": prefix.content})


class Dialect(NamedTuple):
    """``continue_chat`` is None where a chat turn cannot be continued. ``max_tokens`` is the field's name."""

    constrain: Callable[[Constraint, Body, str], tuple[str, ...]]
    continue_chat: Callable[[list[Body], Prefix, Body], None] | None
    capabilities: Capabilities
    token_ids_field: str = ""


_JSON: Final = frozenset({"json_schema", "json_object"})

DIALECTS: Final[dict[str, Dialect]] = {
    "vllm": Dialect(
        _vllm,
        _continue_by_flag,
        Capabilities(
            token_ids_in=True,
            token_ids_out=True,
            constraints=_JSON | {"regex", "choice", "grammar", "structural_tag"},
            resume="text",
        ),
        token_ids_field="return_token_ids",
    ),
    "sglang": Dialect(
        _sglang,
        _continue_by_flag,
        Capabilities(
            token_ids_in=True,
            constraints=_JSON | {"regex", "choice", "grammar", "structural_tag"},
            resume="text",
        ),
    ),
    "trtllm": Dialect(
        _trtllm, None, Capabilities(constraints=_JSON | {"regex", "choice", "grammar", "structural_tag"})
    ),
    "llamacpp": Dialect(
        _llamacpp,
        _continue_implicitly,
        Capabilities(
            token_ids_in=True,
            constraints=_JSON | {"regex", "choice", "grammar"},
            resume="text",
            resume_constrained=True,
        ),
    ),
    "dynamo": Dialect(_openai, None, Capabilities(constraints=_JSON)),
    "plain": Dialect(_openai, None, Capabilities(constraints=_JSON)),
}


def capabilities(dialect: str) -> Capabilities:
    return DIALECTS[dialect].capabilities


def write_request(dialect_name: str, attempt: EngineRequest, model: str) -> WireRequest:
    """The request of one attempt. ``model`` is the name the engine serves under. Raises ResumeUnsupported."""
    dialect = DIALECTS[dialect_name]
    request = attempt.request
    body: Body = dict(request.extra)
    body["model"] = model
    drop_prefix = ""
    if request.kind == "chat":
        messages = list(request.messages)
        if attempt.prefix is not None and _said_something(attempt.prefix):
            _continue_chat(dialect_name, dialect, request, messages, attempt.prefix, body)
            drop_prefix = attempt.prefix.content if dialect_name == "llamacpp" else ""
        body["messages"] = messages
        _tools(request, body)
    else:
        body["prompt"] = _prompt(dialect_name, dialect, request, attempt.prefix)
    _sampling(request, attempt, body)
    body["stream"] = True
    body["stream_options"] = {"include_usage": True}
    body.pop("n", None)
    if request.return_token_ids and dialect.token_ids_field:
        body[dialect.token_ids_field] = True
    unenforced: tuple[str, ...] = ()
    if request.constraint is not None:
        if attempt.constrain:
            unenforced = dialect.constrain(request.constraint, body, request.kind)
        else:
            unenforced = (_said(request.constraint),)
    path = CHAT_PATH if request.kind == "chat" else COMPLETION_PATH
    return WireRequest(path, msgspec.json.encode(body), unenforced, drop_prefix)


def _said_something(prefix: Prefix) -> bool:
    return bool(prefix.content or prefix.reasoning or prefix.tool_calls)


def _continue_chat(
    name: str, dialect: Dialect, request: GenerationRequest, messages: list[Body], prefix: Prefix, body: Body
) -> None:
    if dialect.continue_chat is None:
        raise ResumeUnsupported(f"an engine of the kind {name} cannot go on with an answer in the middle")
    if prefix.tool_calls:
        raise ResumeUnsupported("an answer cannot go on within or after a tool call")
    if prefix.reasoning:
        raise ResumeUnsupported("an answer cannot go on after its reasoning has begun")
    if messages and messages[-1].get("role") == "assistant":
        raise ResumeUnsupported("the caller's own last message is an assistant's: there is none to continue")
    dialect.continue_chat(messages, prefix, body)


def _prompt(name: str, dialect: Dialect, request: GenerationRequest, prefix: Prefix | None) -> str | list[int]:
    prompt = request.prompt
    if prefix is not None and (prefix.reasoning or prefix.tool_calls):
        raise ResumeUnsupported("a text completion has no reasoning and no tool calls to go on from")
    text = prefix.content if prefix is not None else ""
    if isinstance(prompt, str):
        return prompt + text
    if not text:
        return list(prompt)
    if prefix is not None and prefix.token_ids is not None and dialect.capabilities.token_ids_in:
        return [*prompt, *prefix.token_ids]
    raise ResumeUnsupported("the prompt is token ids, and not every id of what was already said is known")


def _tools(request: GenerationRequest, body: Body) -> None:
    if not request.tools:
        return
    body["tools"] = [tool.raw for tool in request.tools]
    if request.tool_choice_raw is not None:
        body["tool_choice"] = request.tool_choice_raw
    if request.parallel_tool_calls is not None:
        body["parallel_tool_calls"] = request.parallel_tool_calls


def _sampling(request: GenerationRequest, attempt: EngineRequest, body: Body) -> None:
    sampling = request.sampling
    for field in ("temperature", "top_p", "seed", "frequency_penalty", "presence_penalty"):
        value = getattr(sampling, field)
        if value is not None:
            body[field] = value
    if attempt.max_tokens is not None:
        body["max_tokens"] = attempt.max_tokens
    if sampling.stop:
        body["stop"] = list(sampling.stop)
    if request.kind == "completion":
        if sampling.logprobs:
            body["logprobs"] = sampling.top_logprobs or 1
    elif sampling.logprobs:
        body["logprobs"] = True
        if sampling.top_logprobs is not None:
            body["top_logprobs"] = sampling.top_logprobs


def _json_text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


_SPECIAL: Final = frozenset("\\.^$*+?()[]{}|/-")


def _quoted(text: str) -> str:
    """A literal in a regex of any of the engines' flavours."""
    return "".join(f"\\{c}" if c in _SPECIAL else c for c in text)
