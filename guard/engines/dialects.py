"""One attempt in the words of one engine: path, JSON body, and what of the constraint the engine was not asked to
enforce. Pure.

Rules.
- A stream with its usage is always asked for, and one choice.
- ``extra`` fields of the request reach the engine as they came, and never replace one that the guard sets.
- A prefix is continued only in a way that is known to continue it; else ResumeUnsupported, before anything is sent.
  Where the ids of the whole prompt and of everything said are known, and the engine takes ids, they are sent: the text
  would have to be cut into tokens again, and not always into the same ones.
"""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple

from guard.constraint.custom_tool import as_function_calls, as_function_choice, as_functions
from guard.constraint.formats.reasoning import written
from guard.engines import dialect_constraints as words
from guard.engines.contract import Capabilities, EngineRequest, Prefix, ResumeUnsupported
from guard.engines.dialect_constraints import Body
from guard.engines.remainder import write_remainder
from guard.request import GenerationRequest

CHAT_PATH: Final = "/v1/chat/completions"
COMPLETION_PATH: Final = "/v1/completions"

_JSON: Final = frozenset({"json_schema", "json_object"})
_IGNORES_EOS: Final = frozenset({"vllm", "sglang", "trtllm", "llamacpp"})
_OPENAI: Final = "plain"
"""The API's own words; engines know fewer: no custom tools, no choice of allowed tools."""
_ALL: Final = _JSON | {"regex", "choice", "grammar", "structural_tag"}


class WireRequest(NamedTuple):
    """``body`` is JSON. ``drop_prefix``: text that a whole (not streamed) answer of this engine repeats."""

    path: str
    body: bytes
    unenforced: tuple[str, ...]
    drop_prefix: str = ""


class Dialect(NamedTuple):
    """``continues``: how a chat turn of the assistant is gone on with: by flag (vLLM, SGLang: the template leaves the
    last message open), always (llama.cpp: a last message of the assistant is continued), or never.
    ``ids``: the kinds of request for which ``return_token_ids`` may be sent."""

    constrain: words.Writer
    continues: Literal["by_flag", "always", "never"]
    capabilities: Capabilities
    ids: frozenset[str] = frozenset()
    default_tool_choice: str = ""


DIALECTS: Final[dict[str, Dialect]] = {
    "vllm": Dialect(
        words.write_vllm,
        "by_flag",
        Capabilities(token_ids_in=True, token_ids_out=True, constraints=_ALL, resume="text", remainder=True),
        ids=frozenset({"chat", "completion"}),
    ),
    "sglang": Dialect(
        words.write_sglang,
        "by_flag",
        Capabilities(token_ids_in=True, token_ids_out=False, constraints=_ALL, resume="text", remainder=True),
        ids=frozenset({"completion"}),  # a streamed chat with them is refused
    ),
    "trtllm": Dialect(
        words.write_trtllm,
        "never",
        Capabilities(token_ids_in=True, constraints=_ALL),
        default_tool_choice="auto",  # its own default is none
    ),
    "llamacpp": Dialect(
        words.write_llamacpp,
        "always",
        Capabilities(
            token_ids_in=True,
            constraints=_JSON | {"regex", "choice", "grammar"},
            resume="text",
            resume_constrained=True,
            remainder=True,
        ),
    ),
    "dynamo": Dialect(words.write_openai, "never", Capabilities(token_ids_in=True, constraints=_JSON)),
    "plain": Dialect(words.write_openai, "never", Capabilities(constraints=_JSON)),
}


def capabilities(dialect: str) -> Capabilities:
    return DIALECTS[dialect].capabilities


def write_request(dialect_name: str, attempt: EngineRequest, model: str) -> WireRequest:
    """The request of one attempt. ``model`` is the name the engine serves under. Raises ResumeUnsupported."""
    dialect = DIALECTS[dialect_name]
    request, prefix = attempt.request, attempt.prefix
    if prefix is not None and not (prefix.content or prefix.reasoning or prefix.tool_calls):
        prefix = None
    sends_constraint = request.constraint is not None and attempt.constrain
    ids = _known_ids(dialect, attempt, prefix)
    kind = "completion" if ids is not None else request.kind
    body: Body = dict(request.extra)
    body["model"] = model
    drop_prefix = ""
    if ids is not None:
        body["prompt"] = ids
    elif kind == "completion":
        body["prompt"] = _prompt(request, prefix)
    else:
        messages = list(request.messages) if dialect_name == _OPENAI else as_function_calls(request.messages)
        if prefix is not None:
            lead = _lead(attempt, prefix, model)
            _continue_chat(dialect_name, dialect, messages, lead + prefix.content, body)
            drop_prefix = str(messages[-1]["content"]) if dialect.continues == "always" else ""
        body["messages"] = messages
        _tools(dialect_name, dialect, request, body)
    _sampling(request, attempt, kind, body)
    body["stream"] = True
    body["stream_options"] = {"include_usage": True}
    body.pop("n", None)
    if attempt.ignore_eos and dialect_name in _IGNORES_EOS:
        body["ignore_eos"] = True
    if request.return_token_ids and kind in dialect.ids:
        body["return_token_ids"] = True
    unenforced: tuple[str, ...] = ()
    if request.constraint is not None:
        if attempt.remainder is not None:
            write_remainder(dialect_name, attempt.remainder, body)
        elif sends_constraint:
            may_call = bool(request.tools) and request.tool_choice.mode != "none"
            unenforced = dialect.constrain(words.Asked(request.constraint, kind, may_call), body)
        else:
            unenforced = (words.named(request.constraint),)
    path = CHAT_PATH if kind == "chat" else COMPLETION_PATH
    return WireRequest(path, words.json_bytes(body), unenforced, drop_prefix)


# --- going on from a prefix ---------------------------------------------------------------------------------------


def _known_ids(dialect: Dialect, attempt: EngineRequest, prefix: Prefix | None) -> list[int] | None:
    """All token ids up to where the answer goes on, when they are known and a completion over them is the same answer:
    nothing in it is left for the engine's own parsers, and its length is limited (a completion's default is short)."""
    if prefix is None or not prefix.token_ids or not dialect.capabilities.token_ids_in:
        return None
    request = attempt.request
    prompt = request.prompt if isinstance(request.prompt, tuple) else prefix.prompt_token_ids
    if request.kind == "chat":
        if request.tools or (prefix.reasoning and not prefix.lead) or prefix.tool_calls or attempt.max_tokens is None:
            return None
        if request.constraint is not None and attempt.constrain and attempt.remainder is None:
            return None
    return [*prompt, *prefix.token_ids] if prompt else None


def _lead(attempt: EngineRequest, prefix: Prefix, model: str) -> str:
    """The text before the content: what the engine wrote there; or its reasoning as its model writes it, where the
    content is checked by a constraint, so that it does not matter whether the engine takes it for reasoning again."""
    if prefix.tool_calls:
        raise ResumeUnsupported("a chat answer cannot go on within or after a tool call")
    if not prefix.reasoning or prefix.lead:
        return prefix.lead
    checked = prefix.content and (attempt.request.constraint is not None or attempt.request.tools)
    lead = written(model, prefix.reasoning) if checked else None
    if lead is None:
        raise ResumeUnsupported("a chat answer cannot go on once its reasoning has begun")
    return lead


def _continue_chat(name: str, dialect: Dialect, messages: list[Body], said: str, body: Body) -> None:
    if dialect.continues == "never":
        raise ResumeUnsupported(f"an engine of the kind {name} cannot go on with a chat answer in the middle")
    flagged = body.get("continue_final_message") is True
    begun = messages[-1] if messages and (dialect.continues == "always" or flagged) else {}
    if begun.get("role") == "assistant":
        # the caller began the turn, and the engine goes on with the caller's words: ours come behind them
        if not isinstance(begun.get("content"), str):
            raise ResumeUnsupported("the caller's own beginning of the answer is no plain text")
        messages[-1] = {**begun, "content": begun["content"] + said}
    else:
        messages.append({"role": "assistant", "content": said})
    if dialect.continues == "by_flag":
        body["continue_final_message"] = True
        body["add_generation_prompt"] = False


def _prompt(request: GenerationRequest, prefix: Prefix | None) -> str | list[int]:
    if prefix is not None and (prefix.reasoning or prefix.tool_calls):
        raise ResumeUnsupported("a text completion has no reasoning and no tool calls to go on from")
    if isinstance(request.prompt, str):
        return request.prompt + (prefix.content if prefix is not None else "")
    if prefix is not None:
        raise ResumeUnsupported("the prompt is token ids, and not every id of what was already said is known")
    return list(request.prompt)


# --- the rest -----------------------------------------------------------------------------------------------------


def _tools(name: str, dialect: Dialect, request: GenerationRequest, body: Body) -> None:
    if not request.tools:
        return
    tools, choice, sampling = request.tools, request.tool_choice_raw, request.sampling
    if name != _OPENAI:
        tools, choice = as_functions(tools), as_function_choice(choice)
    if request.tool_choice.mode == "allowed" and name != _OPENAI:
        # only the allowed tools are offered instead
        tools = tuple(tool for tool in tools if tool.name in request.tool_choice.names)
        choice = "required" if request.tool_choice.required else "auto"
    if name == "llamacpp" and sampling.logprobs and request.tool_choice.mode == "none":
        # it refuses log probabilities beside tools, but its template shows the model those that it is given itself
        given = body.get("chat_template_kwargs")
        body["chat_template_kwargs"] = {
            **(given if isinstance(given, dict) else {}),
            "tools": [tool.raw for tool in tools],
        }
        return
    body["tools"] = [tool.raw for tool in tools]
    if choice is not None or dialect.default_tool_choice:
        body["tool_choice"] = choice if choice is not None else dialect.default_tool_choice
    if request.parallel_tool_calls is not None:
        body["parallel_tool_calls"] = request.parallel_tool_calls


def _sampling(request: GenerationRequest, attempt: EngineRequest, kind: str, body: Body) -> None:
    sampling = request.sampling
    fields: dict[str, Any] = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "seed": sampling.seed,
        "frequency_penalty": sampling.frequency_penalty,
        "presence_penalty": sampling.presence_penalty,
        "max_tokens": attempt.max_tokens,
        "stop": list(sampling.stop) or None,
    }
    if sampling.logprobs and kind == "completion":
        fields["logprobs"] = sampling.top_logprobs or 1
    elif sampling.logprobs:
        fields["logprobs"] = True
        fields["top_logprobs"] = sampling.top_logprobs
    body.update((name, value) for name, value in fields.items() if value is not None)
    if attempt.max_tokens is not None:
        body.pop("max_completion_tokens", None)
