"""An engine that is asked in token ids, where that can be done, and over its chat API where not.

The guard renders the chat template, so that what the model was asked is known to the token, and reads the raw answer,
so that it can go on from any token of it: in the middle of a word, of reasoning, of a tool call. Loading, rendering and
encoding are done by threads; the ids of a prompt are kept for the next attempt at it.

With ``mode`` auto a request goes over the chat API when tokens would serve it worse: one whose messages are not text
alone, one for which the engine's own chat API enforces what a bare completion cannot (a required tool call; a format
behind reasoning), or one whose messages the template refuses.
"""

from __future__ import annotations

import asyncio
from array import array
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import replace

from guard.engines.contract import EngineError, EngineRequest, EngineStream, Health, Prefix, Raw, ResumeUnsupported
from guard.engines.openai_http import HttpStream, OpenAIHttpEngine
from guard.engines.openai_reader import OpenAIReader
from guard.engines.tokens import native
from guard.engines.tokens.prompts import KeptPrompts
from guard.engines.tokens.reader import TokenReader, Wire
from guard.engines.tokens.tokenizer import ChatTokenizer, TokenizerError, load, vocabulary_name
from guard.engines.tokens.wire import CHAT_FIELDS, PATHS, write_tokens
from guard.request import GenerationRequest

_FORCED: Final = ("required", "named")
_FORCES_CALLS: Final = ("vllm", "sglang")
_IN_THE_PROMPT: Final = frozenset({"chat_template_kwargs", "continue_final_message", "add_generation_prompt"})


class TokenHttpEngine:
    """``chat`` speaks with the same engine over its chat API. ``tokenizer``: a path (tokenizer.py). Raises
    TokenizerError when there is no such file."""

    def __init__(self, chat: OpenAIHttpEngine, tokenizer: str | Path, mode: Literal["tokens", "auto"] = "auto") -> None:
        if chat.dialect not in PATHS:
            raise TokenizerError(f"an engine of the kind {chat.dialect} cannot be asked in tokens")
        self.name = chat.name
        self.capabilities = replace(
            chat.capabilities,
            token_ids_in=True,
            token_ids_out=True,
            resume="token_ids",
            resume_constrained=False,
            vocabulary=vocabulary_name(tokenizer),
        )
        self._chat = chat
        self._dialect = chat.dialect
        self._path = tokenizer
        self._mode = mode
        self._loading: asyncio.Task[ChatTokenizer] | None = None
        self._prompts = KeptPrompts()
        self._context = 0

    async def open(self, request: EngineRequest) -> EngineStream:
        """Raises EngineError (ResumeUnsupported among them)."""
        asked = request.request
        if self._mode == "auto" and not self._serves(asked):
            return await self._chat.open(_for_chat(request))
        tokenizer = await self.tokenizer()
        if self._mode == "auto" and tokenizer.thinks and asked.constraint is not None and request.prefix is None:
            return await self._chat.open(_for_chat(request))
        from guard.engines.tokens.template import TemplateError, Unrendered

        try:
            prompt = await self._prompt(tokenizer, asked)
        except (TemplateError, TokenizerError) as error:
            if self._mode == "auto":
                return await self._chat.open(_for_chat(request))
            param = error.param if isinstance(error, Unrendered) else "messages"
            raise EngineError("status", str(error), status=400, param=param) from error
        said = await asyncio.to_thread(self._said, tokenizer, request.prefix)
        ids = prompt + said
        if not ids:
            raise EngineError("status", "the prompt is empty", status=400, param="prompt")
        room = -1
        if request.max_tokens is None and self._dialect != "llamacpp":
            room = await self._room(len(ids))
        if tokenizer.thinks and asked.constraint is not None:
            request = replace(
                request, constrain=False, remainder=None
            )  # it would hold from the first token of the reasoning on
        if not self._chat.constrains:
            request = replace(request, constrain=False, remainder=None)
        wire = write_tokens(self._dialect, request, self._chat.model or asked.model, ids, room)
        exchange = await self._chat.send(wire, request)
        before = tokenizer.vocabulary.text(said[-64:]) if said and asked.sampling.stop else ""
        reader = TokenReader(
            self._reader(),
            tokenizer.vocabulary,
            len(ids),
            asked.sampling.stop,
            before=before,
            top=asked.sampling.top_logprobs or 0,
        )
        raw = Raw(tokenizer.vocabulary.name, prompt, tokenizer.template_hash)
        return HttpStream(exchange, reader, wire.unenforced, self._chat.wave, raw)

    async def tokenizer(self) -> ChatTokenizer:
        """Loaded once. Raises EngineError."""
        if self._loading is None or (self._loading.done() and self._loading.exception() is not None):
            self._loading = asyncio.create_task(asyncio.to_thread(load, self._path))
        try:
            return await asyncio.shield(self._loading)  # one caller's leaving must not end the loading for all
        except TokenizerError as error:
            raise EngineError("connect", str(error)) from error

    async def health(self) -> Health:
        return await self._chat.health()

    async def aclose(self) -> None:
        if self._loading is not None and not self._loading.done():
            self._loading.cancel()
        await self._chat.aclose()

    # --- the request --------------------------------------------------------------------------------------------------

    def _serves(self, request: GenerationRequest) -> bool:
        """Whether tokens serve this request as well as the chat API would."""
        if request.kind == "completion":
            return True
        if self._dialect in _FORCES_CALLS and (request.tool_choice.mode in _FORCED or request.tool_choice.required):
            return False
        return not (CHAT_FIELDS - _IN_THE_PROMPT) & request.extra.keys() and all(map(_is_text, request.messages))

    async def _prompt(self, tokenizer: ChatTokenizer, request: GenerationRequest) -> array[int]:
        if (kept := self._prompts.of(request)) is not None:
            return kept
        goes_on = self._goes_on(request)
        ids = await asyncio.to_thread(lambda: array("I", tokenizer.prompt(request, goes_on=goes_on)))
        self._prompts.keep(request, ids)
        return ids

    def _goes_on(self, request: GenerationRequest) -> bool:
        """Whether the caller has begun the answer, as this engine understands it."""
        if not request.messages or request.messages[-1].get("role") != "assistant":
            return False
        return self._dialect == "llamacpp" or request.extra.get("continue_final_message") is True

    def _said(self, tokenizer: ChatTokenizer, prefix: Prefix | None) -> array[int]:
        """The ids of what was said of the answer. Raises ResumeUnsupported."""
        ids: array[int] = array("I")
        if prefix is None:
            return ids
        if prefix.spoken is not None and prefix.vocabulary in ("", tokenizer.vocabulary.name):
            for part in prefix.spoken:
                ids.extend(tokenizer.encode(part) if isinstance(part, str) else part)
            return ids
        if (prefix.reasoning and not prefix.lead) or prefix.tool_calls:
            raise ResumeUnsupported("reasoning and tool calls that another kind of engine began cannot be gone on with")
        ids.extend(tokenizer.encode(prefix.lead + prefix.content))
        return ids

    async def _room(self, taken: int) -> int:
        """How many tokens the context has left."""
        if not self._context:
            _, body = await self._chat.get("/v1/models")
            try:
                self._context = msgspec.json.decode(body, type=_Models).data[0].max_model_len
            except (msgspec.DecodeError, IndexError) as error:
                message = "the engine does not tell how long its context is, and the request has no max_tokens"
                raise EngineError("protocol", message) from error
        if self._context <= taken:
            message = f"the prompt has {taken} tokens, and the model's context {self._context}"
            raise EngineError("status", message, status=400, param="messages")
        return self._context - taken

    def _reader(self) -> Wire:
        if self._dialect == "vllm":
            return OpenAIReader()
        return native.NativeReader(native.LlamaCpp() if self._dialect == "llamacpp" else native.SGLang())


class _Model(msgspec.Struct):
    max_model_len: int


class _Models(msgspec.Struct):
    data: list[_Model]


def _is_text(message: dict[str, Any]) -> bool:
    content = message.get("content")
    return not isinstance(content, list) or all(isinstance(p, str) or p.get("type") == "text" for p in content)


def _for_chat(request: EngineRequest) -> EngineRequest:
    """Without the ids of a raw answer, which mean nothing to a chat API."""
    if request.prefix is None or request.prefix.spoken is None:
        return request
    return replace(request, prefix=replace(request.prefix, token_ids=None, prompt_token_ids=None))
