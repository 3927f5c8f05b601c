"""The contract of an engine.

``open`` sends one single-choice generation (the guard fans n > 1 out itself) and returns a stream once the engine has
accepted it, or raises EngineError. The stream is an async iterator of batches of engine events; its last event is a
Closed or a Fault, it never raises (cancellation apart), and ``aclose`` cancels the work at the engine, at once and
without waiting for it. An engine's promise is not believed: what it was asked to enforce is checked on the way back.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from msgspec import Struct

from guard.events import StreamEvent
from guard.request import GenerationRequest


class Prefix(Struct):
    """What was already released of an answer that goes on here. ``token_ids`` where every token of it is known.

    ``lead``: what the engine itself wrote before the content, reasoning and markup, where the guard has split it.
    ``reasoning`` and ``content`` are complete so far; ``tool_calls`` hold (id, name, arguments so far) in order.
    Token ids (also ``prompt_token_ids``) are only given to an engine with the tokenizer that they came from.

    ``spoken``: the raw answer so far, as the model said it, where an engine was asked in tokens: runs of token ids, and
    text that the guard itself put there. ``vocabulary`` says whose ids they are (empty: of the engine that is asked).
    """

    content: str = ""
    reasoning: str = ""
    lead: str = ""
    tool_calls: tuple[tuple[str, str, str], ...] = ()
    token_ids: tuple[int, ...] | None = None
    prompt_token_ids: tuple[int, ...] | None = None
    spoken: tuple[Sequence[int] | str, ...] | None = None
    vocabulary: str = ""


class EngineRequest(Struct):
    """One attempt. ``max_tokens`` is what is left of the budget (None: not limited by the caller); ``constrain`` says
    whether the constraint is sent (a resume inside a constrained answer must not send it to an engine that would start
    the grammar again at its root). ``remainder``: the grammar of what may still come, in GBNF, sent instead of it.
    ``ignore_eos``: the engine should not end the answer by itself, where it can do that (it had ended it before the
    constraint was met)."""

    request: GenerationRequest
    attempt: int = 1
    prefix: Prefix | None = None
    max_tokens: int | None = None
    constrain: bool = True
    remainder: str | None = None
    ignore_eos: bool = False
    deadline: float | None = None


class Capabilities(Struct, frozen=True):
    """``resume``: how this engine can go on from a prefix: token_ids, text (a chat prefill), or no.
    ``resume_constrained``: a prefill carries the JSON-schema constraint on (llama.cpp), instead of starting it
    again. ``remainder``: it takes the grammar of what is left of a constrained answer. ``vocabulary``: whose token ids
    it speaks (guard/engines/tokens/vocabulary.py); empty where that is not known."""

    chat: bool = True
    completion: bool = True
    token_ids_in: bool = False
    token_ids_out: bool = False
    logprobs: bool = True
    constraints: frozenset[str] = frozenset()
    resume: str = "no"
    resume_constrained: bool = False
    remainder: bool = False
    vocabulary: str = ""


class EngineError(Exception):
    """The engine did not accept the request.

    ``kind``: connect, connect_timeout, first_token_timeout, total_timeout, cut, status, protocol, resume. ``status``,
    ``body`` (the engine's error, shortened to a message) and ``retry_after`` (seconds) when it answered.
    ``retryable``: another try may succeed.
    """

    def __init__(
        self,
        kind: str,
        message: str,
        *,
        status: int | None = None,
        retry_after: float | None = None,
        param: str = "",
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.status = status
        self.retry_after = retry_after
        self.param = param

    @property
    def retryable(self) -> bool:
        """A 4xx is the caller's own, and would be so elsewhere; 404 (model not loaded here), 408, 409, 425 and 429 are
        not. A redirect is the operator's: that engine is not where the configuration says."""
        if self.status is None:
            return True
        return not 400 <= self.status < 500 or self.status in (401, 403, 404, 408, 409, 425, 429)


class ResumeUnsupported(EngineError):
    """This engine cannot go on from this prefix (kind ``resume``): ``message`` says which part of it. Known before
    anything was sent; another engine may be able to."""

    def __init__(self, message: str) -> None:
        super().__init__("resume", message)


class Raw(Struct, frozen=True):
    """What a stream has whose text is all that the model said, one delta a token, with reasoning and tool calls still
    in it: whose tokens they are, the ids of the prompt, and the chat template's hash."""

    vocabulary: str
    prompt: Sequence[int] = ()
    template: str = ""


class EngineStream(Protocol):
    unenforced: tuple[str, ...]
    """What of the constraint the engine was not asked to enforce (constraint kinds and keywords)."""

    def __aiter__(self) -> AsyncIterator[list[StreamEvent]]: ...

    async def aclose(self) -> None: ...

    # A stream may have ``raw``: see Raw.
    # A stream may also have ``relay(taker, hurries)``: while the iterator waits, batches go to the Taker as they are
    # read, without waking anything. Where ``hurries`` is false a few milliseconds do not matter, if they save reads.
    # Where the taker cannot hand a batch on, or raises, the iterator goes on: with an empty batch, or with that
    # exception. The batch that holds the end always comes by the iterator.


class Taker(Protocol):
    """Takes a stream's batches while nobody iterates over it, each in three stages, between which the same is done to
    those of other streams."""

    def judge(self, events: list[StreamEvent]) -> None: ...

    def hand_on(self) -> bool:
        """What has come of the batch is made ready to go. False: it cannot go now, or it is the end."""
        ...

    def push(self) -> None:
        """It goes."""
        ...


class Health(Struct):
    ok: bool
    detail: str = ""
    models: tuple[str, ...] = ()
    version: str = ""


class Engine(Protocol):
    name: str
    capabilities: Capabilities

    async def open(self, request: EngineRequest) -> EngineStream: ...

    async def health(self) -> Health: ...

    async def aclose(self) -> None: ...
