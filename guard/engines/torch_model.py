"""A model in this process: its weights, its tokenizer, and one answer as a sequence of tokens. Imports torch, so only
the torch engine's threads load this module.

Log probabilities are the model's own: of its logits as they come, before temperature, penalties and masks. Without a
temperature the API's default of 1 counts.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import torch
import transformers
import xgrammar
from msgspec import Struct

from guard.constraint.custom_tool import as_function_calls, as_functions
from guard.constraint.spec import Constraint
from guard.engines.contract import EngineError, Prefix, ResumeUnsupported
from guard.engines.torch_engine import DTYPES
from guard.engines.torch_mask import Backend, Mask, Outlines, XGrammar
from guard.request import GenerationRequest, Sampling

PREFILL_CHUNK: Final = 256
"""Tokens of a prompt that are read at once: a cancelled request ends between two chunks."""

GREEDY: Final = 1e-5
"""A temperature below this takes the likeliest token."""


class Token(Struct):
    """One step. ``data``: its bytes, empty for a special token; ``entry``: OpenAI's form of its log probabilities,
    where they were asked for. ``stops``: it ends the answer."""

    id: int
    data: bytes
    entry: dict[str, Any] | None = None
    stops: bool = False


class Score(Struct, frozen=True):
    """One step of another's answer: the token that this model would have taken, its log probability and that of the
    next best, that of the token which was taken, and those of the tokens that were asked for."""

    best: int
    best_logprob: float
    second_logprob: float
    chosen_logprob: float
    wanted: tuple[float, ...]


class Model:
    """``model`` and ``tokenizer`` are transformers' own, or behave like them. ``masks``: xgrammar or outlines."""

    def __init__(self, model: Any, tokenizer: Any, masks: str = "xgrammar") -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._lock = threading.Lock()  # a fast tokenizer is not made for many threads at once
        vocabulary = int(model.config.vocab_size)
        self.stops = _stop_tokens(model, tokenizer)
        if not self.stops:
            raise ValueError("neither the model nor its tokenizer names a token that ends an answer")
        info = xgrammar.TokenizerInfo.from_huggingface(
            tokenizer, vocab_size=vocabulary, stop_token_ids=sorted(self.stops)
        )
        self._bytes: list[bytes] = list(info.decoded_vocab)
        self._special = frozenset(tokenizer.all_special_ids)
        self.context = int(getattr(model.config, "max_position_embeddings", 0) or 0) or 1 << 20
        self._masks: Backend
        if masks == "xgrammar":
            self._masks = XGrammar(info, sorted(self.stops))
        elif masks == "outlines":
            self._masks = Outlines(self._bytes, self._special, min(self.stops), self.encode)
        else:
            raise ValueError(f"there are no masks called {masks!r} (there are: outlines, xgrammar)")

    # --- the prompt --------------------------------------------------------------------------------------------------

    def encode(self, text: str) -> list[int]:
        """The tokens of a text in the middle of others."""
        with self._lock:
            return list(self._tokenizer.encode(text, add_special_tokens=False))

    def prompt(self, request: GenerationRequest, prefix: Prefix | None) -> list[int]:
        """The tokens of the request, and of what was already said. Raises EngineError."""
        if prefix is not None and (prefix.reasoning or prefix.tool_calls):
            raise ResumeUnsupported("an answer cannot go on once its reasoning or a tool call has begun")
        ids = self._chat(request) if request.kind == "chat" else self._completion(request)
        if prefix is not None and prefix.content:
            ids += self._said(prefix)
        if not ids:
            raise EngineError("status", "the prompt is empty", status=400, param="prompt")
        if len(ids) >= self.context:
            message = f"the prompt has {len(ids)} tokens, and the model's context {self.context}"
            raise EngineError("status", message, status=400)
        return ids

    def _said(self, prefix: Prefix) -> list[int]:
        """By the ids where they are this tokenizer's and say the same."""
        ids = prefix.token_ids
        if ids and all(0 <= i < len(self._bytes) for i in ids):
            said = b"".join(self.data(i) for i in ids)
            if said.decode("utf-8", "replace") == prefix.content:
                return list(ids)
        return self.encode(prefix.content)

    def _completion(self, request: GenerationRequest) -> list[int]:
        if isinstance(request.prompt, str):
            with self._lock:
                return list(self._tokenizer.encode(request.prompt))
        wrong = [i for i in request.prompt if not 0 <= i < len(self._bytes)]
        if wrong:
            raise EngineError("status", f"{wrong[0]} is no token of this model", status=400, param="prompt")
        return list(request.prompt)

    def _chat(self, request: GenerationRequest) -> list[int]:
        messages = [
            {**message, "content": _plain(message.get("content"))} for message in as_function_calls(request.messages)
        ]
        goes_on = request.extra.get("continue_final_message") is True
        offered = [tool.raw for tool in as_functions(request.tools)] if request.tool_choice.mode != "none" else []
        try:
            with self._lock:
                text = self._tokenizer.apply_chat_template(
                    messages,
                    tools=offered or None,
                    add_generation_prompt=not goes_on,
                    continue_final_message=goes_on,
                    tokenize=False,
                )
                return list(self._tokenizer.encode(text, add_special_tokens=False))
        except Exception as error:  # a template raises what it likes
            message = f"the chat template does not take these messages: {error}"
            raise EngineError("status", message, status=400, param="messages") from error

    # --- the answer --------------------------------------------------------------------------------------------------

    def mask(self, constraint: Constraint, begun: str) -> Mask | None:
        return self._masks.mask(constraint, begun)

    def dropped(self, constraint: Constraint) -> tuple[str, ...]:
        return self._masks.dropped(constraint)

    def data(self, token: int) -> bytes:
        return b"" if token in self._special or token in self.stops else self._bytes[token]

    def tokens(
        self,
        prompt: list[int],
        sampling: Sampling,
        mask: Mask | None,
        cancelled: Callable[[], bool],
        *,
        ignore_eos: bool = False,
    ) -> Iterator[Token]:
        """The answer, token after token, without an end of its own but a stop token; ends early when ``cancelled``."""
        cache = transformers.DynamicCache(config=self._model.config)
        random = _random(sampling.seed, self._model.device)
        counts = torch.zeros(0)
        if sampling.frequency_penalty or sampling.presence_penalty:
            counts = torch.zeros(int(self._model.config.vocab_size), device=self._model.device)
        ahead = prompt
        while not cancelled():
            said = self._read(ahead, cache, cancelled)
            if said is None:
                return
            logits = said.clone()  # what comes out of inference mode must not be changed
            if len(counts):
                logits -= (sampling.frequency_penalty or 0) * counts + (sampling.presence_penalty or 0) * (counts > 0)
            if mask is not None:
                mask.apply(logits)
            elif ignore_eos:
                logits[list(self.stops)] = -torch.inf
            if not bool(torch.isfinite(logits).any()):
                raise RuntimeError("no token may come next")
            token = _pick(logits, sampling, random)
            stops = token in self.stops
            if mask is not None and not stops and not mask.accept(token):
                raise RuntimeError("the mask let a token through that it does not accept")
            if len(counts):
                counts[token] += 1
            yield Token(token, self.data(token), self._entry(said, token, sampling), stops)
            if stops:
                return
            ahead = [token]

    def scores(self, prompt: Sequence[int], said: Sequence[int], wanted: Sequence[Sequence[int]]) -> list[Score]:
        """What this model would have said at each step of an answer that another has given: one reading of the whole.
        ``wanted``: for each step the tokens whose log probabilities are asked for. An answer that does not fit in the
        context is judged as far as it does."""
        said = said[: max(0, self.context - len(prompt))]
        cache = transformers.DynamicCache(config=self._model.config)
        tokens = [*prompt, *said]
        found: list[Score] = []
        for start in range(0, len(tokens) - 1, PREFILL_CHUNK):
            chunk = torch.tensor([tokens[start : start + PREFILL_CHUNK]], device=self._model.device)
            with torch.inference_mode():
                logits = self._model(chunk, cache=cache, use_cache=True, logits_to_keep=0).logits[0]
            # the logits behind position i are about token i + 1
            for place in range(max(start, len(prompt) - 1), min(start + PREFILL_CHUNK, len(tokens) - 1)):
                step = place + 1 - len(prompt)
                logprobs = torch.log_softmax(logits[place - start].float(), -1)
                best = torch.topk(logprobs, 2)
                ids = [said[step], *(wanted[step] if step < len(wanted) else ())]
                chosen, *others = logprobs[torch.tensor(ids)].tolist()
                first, second = best.values.tolist()
                found.append(Score(int(best.indices[0]), first, second, chosen, tuple(others)))
        return found

    def _read(self, tokens: list[int], cache: Any, cancelled: Callable[[], bool]) -> torch.Tensor | None:
        """The logits behind the last of ``tokens``."""
        out = None
        for start in range(0, len(tokens), PREFILL_CHUNK):
            if cancelled():
                return None
            chunk = torch.tensor([tokens[start : start + PREFILL_CHUNK]], device=self._model.device)
            with torch.inference_mode():
                out = self._model(chunk, cache=cache, use_cache=True, logits_to_keep=1).logits
        return None if out is None else out[0, -1].float()

    def _entry(self, logits: torch.Tensor, token: int, sampling: Sampling) -> dict[str, Any] | None:
        if not sampling.logprobs:
            return None
        logprobs = torch.log_softmax(logits, -1)
        best = torch.topk(logprobs, min(sampling.top_logprobs or 0, len(logprobs)))
        top = [self._logprob(i, p) for i, p in zip(best.indices.tolist(), best.values.tolist(), strict=True)]
        return {**self._logprob(token, float(logprobs[token])), "top_logprobs": top}

    def _logprob(self, token: int, logprob: float) -> dict[str, Any]:
        data = self._bytes[token]
        shown = logprob if math.isfinite(logprob) else -9999.0  # as the engines write it: JSON has no infinity
        return {"id": token, "token": data.decode("utf-8", "replace"), "logprob": shown, "bytes": list(data)}


def load(path: str, dtype: str = "f32", masks: str = "xgrammar", device: str = "cpu") -> Model:
    """A model from a directory as transformers saves it, or from a GGUF file (its weights are made ``dtype`` again)."""
    transformers.utils.logging.disable_progress_bar()
    place = Path(path)
    kind = getattr(torch, DTYPES[dtype])
    if place.suffix == ".gguf":
        named = {"gguf_file": place.name}
        tokenizer = transformers.AutoTokenizer.from_pretrained(place.parent, **named)
        config = transformers.GgufConfig(dequantize=True)
        model = transformers.AutoModelForCausalLM.from_pretrained(
            place.parent, quantization_config=config, dtype=kind, **named
        )
    else:
        tokenizer = transformers.AutoTokenizer.from_pretrained(place)
        model = transformers.AutoModelForCausalLM.from_pretrained(place, dtype=kind)
    return Model(model.to(device).eval(), tokenizer, masks)


def versions() -> str:
    return f"transformers {transformers.__version__}, torch {torch.__version__}"


def _stop_tokens(model: Any, tokenizer: Any) -> frozenset[int]:
    named = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    found = set(named if isinstance(named, list | tuple) else () if named is None else (named,))
    if tokenizer.eos_token_id is not None:
        found.add(tokenizer.eos_token_id)
    return frozenset(int(token) for token in found)


def _random(seed: int | None, device: Any) -> torch.Generator:
    generator = torch.Generator(device=device)
    if seed is None:
        generator.seed()
    else:
        generator.manual_seed(seed % (1 << 63))
    return generator


def _pick(logits: torch.Tensor, sampling: Sampling, random: torch.Generator) -> int:
    temperature = 1.0 if sampling.temperature is None else sampling.temperature
    if temperature < GREEDY:
        return int(logits.argmax())
    odds = torch.softmax(logits / temperature, -1)
    if sampling.top_p is None or sampling.top_p >= 1:
        return int(torch.multinomial(odds, 1, generator=random))
    ordered, ids = odds.sort(descending=True)
    ordered[ordered.cumsum(-1) - ordered >= sampling.top_p] = 0  # the first that passes the bound still counts
    ordered[0] = ordered[0].clamp(min=1e-12)
    return int(ids[torch.multinomial(ordered, 1, generator=random)])


def _plain(content: Any) -> Any:
    """The text of a message whose content is a list of parts."""
    if not isinstance(content, list):
        return "" if content is None else content
    parts: list[str] = []
    for part in content:
        if not isinstance(part, dict) or not isinstance(part.get("text"), str):
            raise EngineError("status", "this model reads text alone", status=400, param="messages")
        parts.append(part["text"])
    return "".join(parts)
