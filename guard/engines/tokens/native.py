"""Streams of the engines' own token endpoints: llama.cpp's ``/completion`` and SGLang's ``/generate``. Pure.

Both become the events of any engine: deltas with token ids and log probabilities, a finish reason, usage. Rules.

- SGLang says everything again with each event (ids, text and log probabilities); an event with more ids than tokens
  counted is one that says only what is new.
- llama.cpp has no [DONE]: the event whose ``stop`` is true is its end mark.
- An event that is not of the engine's shape is a Fault, in the engine's words where it is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import Struct

from guard.engines.error_body import error_message, read_error_body
from guard.engines.sse import MAX_EVENT_BYTES, SseReader
from guard.events import CONTENT, Closed, Done, Fault, FinishReason, Opened, StreamEvent, TextDelta, Usage

Entries = list[dict[str, Any]]


class NativeReader:
    """Like OpenAIReader: ``feed``, ``end``, ``whole``; ``done`` and ``ended``. ``parse`` appends the events of one
    object."""

    def __init__(self, parse: Callable[[bytes, list[StreamEvent]], Fault | None]) -> None:
        self._sse = SseReader(MAX_EVENT_BYTES)
        self._parse = parse
        self.done = False
        self.ended = False

    def feed(self, data: bytes) -> list[StreamEvent]:
        out: list[StreamEvent] = []
        if not self.ended:
            self._take(self._sse.feed(data), out)
        return out

    def end(self, clean: bool = True) -> list[StreamEvent]:
        out: list[StreamEvent] = []
        if self.ended:
            return out
        if clean and self._take(self._sse.finish(), out):
            return out
        self.ended = True
        if clean or self.done:
            out.append(Closed(clean=clean))
        else:
            out.append(Fault("cut", "the connection ended in the middle of the answer"))
        return out

    def whole(self, body: bytes) -> list[StreamEvent]:
        """An engine that answers a stream request with one object."""
        out: list[StreamEvent] = []
        fault = self._parse(body, out)
        self.ended = True
        return [*out, fault] if fault is not None else [*out, Done(), Closed(clean=True)]

    def _take(self, events: list[tuple[str, bytes]], out: list[StreamEvent]) -> bool:
        """Whether the answer has ended with these."""
        for name, data in events:
            if data.strip() == b"[DONE]":
                if not self.done:
                    out.append(Done())
                self.done = True
                continue
            if not data.strip():
                continue
            if name == "error":
                said = read_error_body(data)
                fault: Fault | None = Fault("error_event", said.message or "the engine reported an error", said.status)
            else:
                fault = self._parse(data, out)
            if fault is not None:
                self._fail(fault, out)
                return True
            if out and type(out[-1]) is Done:
                self.done = True
        if self._sse.broken is not None:
            self._fail(Fault("protocol", f"the engine's stream holds {self._sse.broken}"), out)
            return True
        return False

    def _fail(self, fault: Fault, out: list[StreamEvent]) -> None:
        self.ended = True
        out.append(fault)


def refused(data: bytes) -> Fault:
    """What an object says that is not of the expected shape."""
    try:
        said = error_message(msgspec.json.decode(data))
    except (msgspec.DecodeError, RecursionError):
        return Fault("protocol", "the engine sent bytes that are no JSON")
    if said is not None:
        return Fault("error_event", said.message or "the engine reported an error", said.status)
    return Fault("protocol", "the engine sent an event without tokens")


# --- llama.cpp --------------------------------------------------------------------------------------------------------


class _Timings(Struct, gc=False):
    cache_n: int = 0


class _Completion(Struct, gc=False):
    stop: bool
    tokens: tuple[int, ...] = ()
    content: str = ""
    completion_probabilities: list[dict[str, Any]] | None = None
    model: str = ""
    tokens_predicted: int = 0
    tokens_evaluated: int = 0
    stop_type: str = ""
    stopping_word: str = ""
    timings: _Timings | None = None


_completion: Final = msgspec.json.Decoder(_Completion).decode
_LLAMACPP_ENDS: Final = {"eos": "stop", "word": "stop", "limit": "length"}


class LlamaCpp:
    """Parses events of /completion."""

    def __init__(self) -> None:
        self._opened = False

    def __call__(self, data: bytes, out: list[StreamEvent]) -> Fault | None:
        try:
            said = _completion(data)
        except (msgspec.DecodeError, RecursionError):
            return refused(data)
        if not self._opened:
            self._opened = True
            out.append(Opened("", said.model))
        if said.tokens or said.content:
            out.append(TextDelta(0, CONTENT, said.content, said.tokens, said.completion_probabilities or None))
        if said.stop:
            reason = _LLAMACPP_ENDS.get(said.stop_type)
            if reason is not None:
                out.append(FinishReason(0, reason, said.stopping_word or None))
            prompt, made = max(0, said.tokens_evaluated), max(0, said.tokens_predicted)
            cached = max(0, said.timings.cache_n) if said.timings is not None else 0
            out += [Usage(prompt, made, prompt + made, cached), Done()]
        return None


# --- SGLang -----------------------------------------------------------------------------------------------------------


class _Meta(Struct, gc=False):
    id: str = ""
    finish_reason: dict[str, Any] | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    output_token_logprobs: list[tuple[float | None, int, str | None]] | None = None
    output_top_logprobs: list[list[tuple[float | None, int, str | None]] | None] | None = None


class _Generated(Struct, gc=False):
    output_ids: tuple[int, ...]
    meta_info: _Meta


_generated: Final = msgspec.json.Decoder(_Generated).decode


class SGLang:
    """Parses events of /generate."""

    def __init__(self) -> None:
        self._opened = False
        self._seen = 0

    def __call__(self, data: bytes, out: list[StreamEvent]) -> Fault | None:
        try:
            said = _generated(data)
        except (msgspec.DecodeError, RecursionError):
            return refused(data)
        meta = said.meta_info
        if not self._opened:
            self._opened = True
            out.append(Opened(meta.id, ""))
        ids = said.output_ids
        new = ids[self._seen :] if len(ids) == meta.completion_tokens else ids
        self._seen += len(new)
        if new:
            out.append(TextDelta(0, CONTENT, "", new, _sglang_entries(meta, len(new))))
        if meta.finish_reason is not None:
            reason = meta.finish_reason.get("type")
            if reason == "abort":
                told = meta.finish_reason.get("message")
                return Fault("error_event", told if isinstance(told, str) else "the engine aborted the answer")
            matched = meta.finish_reason.get("matched")
            out.append(FinishReason(0, str(reason), matched if isinstance(matched, str | int) else None))
            total = meta.prompt_tokens + meta.completion_tokens
            out.append(
                Usage(meta.prompt_tokens, meta.completion_tokens, total, meta.cached_tokens, meta.reasoning_tokens)
            )
        return None


def _sglang_entries(meta: _Meta, new: int) -> Entries | None:
    """The entries of the last ``new`` tokens."""
    chosen = (meta.output_token_logprobs or [])[-new:]
    if len(chosen) != new:
        return None
    tops = (meta.output_top_logprobs or [])[-new:] or [None] * new
    return [
        {**_entry(one), "top_logprobs": [_entry(other) for other in top or ()]}
        for one, top in zip(chosen, tops, strict=False)
    ]


def _entry(one: tuple[float | None, int, str | None]) -> dict[str, Any]:
    logprob, token, _ = one
    return {"id": token, "logprob": float("nan") if logprob is None else logprob}
