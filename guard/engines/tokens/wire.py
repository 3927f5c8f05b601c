"""One attempt in token ids: path, JSON body, and what of the constraint the engine was not asked to enforce. Pure.

The ids are those of the whole prompt and of everything that was already said, so that going on with an answer is a
request like any other. Rules.

- What is left of the token budget is sent as it is; where the caller has set none, what the context has room for, since
  the engines' own defaults are short (vLLM 16, SGLang 128).
- Fields that only a chat endpoint knows went into the prompt, or have no meaning here: they are not sent.
- Stop strings are sent, so that the engine ends its work; the reader watches for them too.
- A constraint is written from its root, so it is sent only where nothing of the answer was said yet, or as the grammar
  of the remainder.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from guard.engines import dialect_constraints as words
from guard.engines.contract import EngineRequest
from guard.engines.dialect_constraints import Body
from guard.engines.dialects import WireRequest
from guard.engines.remainder import whole_grammar, write_remainder
from guard.request import GenerationRequest

PATHS: Final = {"vllm": "/v1/completions", "sglang": "/generate", "llamacpp": "/completion"}
"""Of the engines that can be asked in tokens, by dialect."""

CHAT_FIELDS: Final = frozenset(
    {
        "add_generation_prompt",
        "add_special_tokens",
        "chat_template",
        "chat_template_kwargs",
        "continue_final_message",
        "documents",
        "echo",
        "include_reasoning",
        "n",
        "parse_tool_calls",
        "reasoning_effort",
        "reasoning_format",
        "separate_reasoning",
        "stream_reasoning",
        "thinking",
        "thinking_forced_open",
    }
)

_SGLANG_SAMPLING: Final = frozenset(
    {
        "custom_params",
        "ignore_eos",
        "logit_bias",
        "min_p",
        "no_stop_trim",
        "repetition_penalty",
        "skip_special_tokens",
        "spaces_between_special_tokens",
        "stop_token_ids",
        "top_k",
    }
)


def write_tokens(dialect: str, attempt: EngineRequest, model: str, ids: Sequence[int], room: int) -> WireRequest:
    """``ids``: all of them up to where the answer goes on. ``room``: the most tokens that the answer may have where the
    caller set no limit; -1 where the engine knows that best."""
    write = {"vllm": _vllm, "sglang": _sglang, "llamacpp": _llamacpp}[dialect]
    constrained: Body = {}
    unenforced = _constrain(dialect, attempt, constrained)
    most = attempt.max_tokens if attempt.max_tokens is not None else room
    extra = {name: value for name, value in attempt.request.extra.items() if name not in CHAT_FIELDS}
    body = write(attempt, model, list(ids), most, extra, constrained)
    return WireRequest(PATHS[dialect], words.json_bytes(body), unenforced)


def _constrain(dialect: str, attempt: EngineRequest, body: Body) -> tuple[str, ...]:
    constraint = attempt.request.constraint
    if constraint is None:
        return ()
    if attempt.remainder is not None:
        write_remainder(dialect, attempt.remainder, body)
        return ()
    if not attempt.constrain:
        return (words.named(constraint),)
    if dialect == "llamacpp" and (grammar := whole_grammar(constraint)) is not None:
        write_remainder(dialect, grammar, body)
        return ()
    write = {"vllm": words.write_vllm, "sglang": words.write_sglang, "llamacpp": words.write_llamacpp}[dialect]
    return write(words.Asked(constraint, "completion", False), body)


def _sampling(request: GenerationRequest) -> Body:
    """What all of them call by the same name."""
    sampling = request.sampling
    fields: dict[str, Any] = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "frequency_penalty": sampling.frequency_penalty,
        "presence_penalty": sampling.presence_penalty,
        "stop": list(sampling.stop) or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _vllm(attempt: EngineRequest, model: str, ids: list[int], most: int, extra: Body, constrained: Body) -> Body:
    sampling = attempt.request.sampling
    body: Body = {**extra, **constrained, "model": model, "prompt": ids, **_sampling(attempt.request)}
    body |= {"max_tokens": most, "stream": True, "stream_options": {"include_usage": True}, "return_token_ids": True}
    if sampling.seed is not None:
        body["seed"] = sampling.seed
    if sampling.logprobs:
        body["logprobs"] = sampling.top_logprobs or 1
    if attempt.ignore_eos:
        body["ignore_eos"] = True
    return body


def _sglang(attempt: EngineRequest, model: str, ids: list[int], most: int, extra: Body, constrained: Body) -> Body:
    asked = attempt.request.sampling
    sampling = {
        **{n: v for n, v in extra.items() if n in _SGLANG_SAMPLING},
        **constrained,
        **_sampling(attempt.request),
    }
    sampling["max_new_tokens"] = most
    if asked.seed is not None:
        sampling["sampling_seed"] = asked.seed
    if "min_tokens" in extra:
        sampling["min_new_tokens"] = extra["min_tokens"]
    if attempt.ignore_eos:
        sampling["ignore_eos"] = True
    others = {n: v for n, v in extra.items() if n not in _SGLANG_SAMPLING and n != "min_tokens"}
    body: Body = {**others, "input_ids": ids, "sampling_params": sampling, "stream": True}
    if asked.logprobs:
        body |= {"return_logprob": True, "logprob_start_len": -1, "top_logprobs_num": asked.top_logprobs or 0}
    return body


def _llamacpp(attempt: EngineRequest, model: str, ids: list[int], most: int, extra: Body, constrained: Body) -> Body:
    sampling = attempt.request.sampling
    body: Body = {**extra, **constrained, "model": model, "prompt": ids, **_sampling(attempt.request)}
    body |= {"n_predict": most, "stream": True, "return_tokens": True}
    if sampling.seed is not None:
        body["seed"] = sampling.seed
    if sampling.logprobs:
        body["n_probs"] = sampling.top_logprobs or 1
    if attempt.ignore_eos:
        body["ignore_eos"] = True
    return body
