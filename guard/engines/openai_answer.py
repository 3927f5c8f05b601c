"""The JSON of an OpenAI-style answer in, chunk by chunk or whole; engine events out. Pure.

Rules.
- Nothing is invented: no finish reason where none was sent, no index, no id. A key that is missing is missing.
- An event that says nothing (the role chunk) gives no delta; one that has a token's id or logprob but no text does.
- The first chunk opens the answer (``Opened``); its prompt token ids come with it.
- Where deltas are joined, it depends on the pieces how; never what they hold together, nor of how many tokens it is.
- A logprob that is no number (null, NaN) is given as NaN.
- What no engine can mean is not passed on: a count or a token id that is negative or has no end, a name of a megabyte.
"""

from __future__ import annotations

import math
from typing import Any, Final

import msgspec

from guard.engines.error_body import error_message
from guard.engines.openai_chunks import (
    Choice,
    Chunk,
    Delta,
    FirstChunk,
    Function,
    Logprobs,
    NotAnObject,
    UsageBody,
    chunk_from,
    decode_chunk,
    decode_first,
    decode_loosely,
)
from guard.events import (
    CONTENT,
    REASONING,
    REFUSAL,
    Fault,
    FinishReason,
    Opened,
    StreamEvent,
    TextDelta,
    ToolDelta,
    Usage,
    tool_channel,
)

_REPLACEMENT: Final = "\ufffd"

MAX_COUNT: Final = 2**31 - 1
MAX_TOKEN_ID: Final = 2**32 - 1
MAX_NAME_CHARS: Final = 256
"""Of a model, an answer's id, a finish reason."""


class AnswerReader:
    """JSON of one chunk (or of a whole answer) after another in, events out."""

    __slots__ = ("_decode", "_drop_prefix", "_halves", "_joins", "_opened", "_whole")

    def __init__(self, whole: bool = False, drop_prefix: str = "", joins: bool = False) -> None:
        self._whole = whole
        self._joins = joins
        self._drop_prefix = drop_prefix
        self._opened = False
        self._decode: Any = decode_first
        self._halves: dict[tuple[int, str], str] = {}  # the first half of a surrogate pair, by choice and channel

    def chunk(self, data: bytes, out: list[StreamEvent]) -> Fault | None:
        """Append the events of one JSON object. Returns the Fault that ends the answer, if it is or holds one."""
        raw: dict[int, Any] | None = None
        try:
            chunk: Chunk = self._decode(data)
            if chunk.choices is None:
                raise msgspec.ValidationError
        except (msgspec.DecodeError, RecursionError):
            try:
                value = decode_loosely(data)
            except NotAnObject as error:
                return Fault("protocol", f"the engine sent {error}")
            chunk, raw = chunk_from(value)
            if chunk.choices is None and chunk.usage is None and (said := error_message(value)) is not None:
                return Fault("error_event", said.message or "the engine reported an error", said.status)
            if chunk.choices is None and self._whole:
                return Fault("protocol", "the engine's answer holds no choices")
        if not self._opened:
            self._open(chunk, out)
        for choice in chunk.choices or ():
            if raw is None and not self._halves:
                delta = choice.delta
                if (
                    delta is not None
                    and delta.content
                    and delta.tool_calls is None
                    and choice.logprobs is None
                    and choice.finish_reason is None
                    and not (delta.reasoning_content or delta.reasoning or delta.refusal or delta.function_call)
                ):  # the ordinary chunk
                    self._text(choice.index, delta.content, _ids(choice.token_ids), out)
                    continue
                if delta is None and choice.text and choice.logprobs is None and choice.finish_reason is None:
                    self._text(choice.index, choice.text, _ids(choice.token_ids), out)
                    continue
            self._choice(choice, raw or {}, out)
        if chunk.usage is not None:
            out.append(_usage(chunk.usage))
        if chunk.error:
            said = error_message({"error": chunk.error})
            return Fault("error_event", said.message if said else str(chunk.error), said.status if said else None)
        return None

    @property
    def whole_characters(self) -> bool:
        """Whether no half of one is held."""
        return not self._halves

    def _text(self, index: int, text: str, ids: tuple[int, ...] | None, out: list[StreamEvent]) -> None:
        """Text of an ordinary chunk."""
        if self._joins and out and ids is None:
            last = out[-1]
            if (
                isinstance(last, TextDelta)
                and last.channel == CONTENT
                and last.choice == index
                and last.token_ids is None
                and last.logprobs is None
            ):
                last.text += text
                last.count += 1
                return
        out.append(TextDelta(index, CONTENT, text, ids))

    def flush(self, out: list[StreamEvent], choice: int | None = None) -> None:
        """What was held in the hope of its second half comes out as the replacement character."""
        for key in [key for key in self._halves if choice is None or key[0] == choice]:
            del self._halves[key]
            if key[1].startswith("tool:"):
                out.append(ToolDelta(key[0], _tool_index(key[1]), arguments=_REPLACEMENT))
            else:
                out.append(TextDelta(key[0], key[1], _REPLACEMENT))

    def _open(self, chunk: Chunk, out: list[StreamEvent]) -> None:
        self._opened = True
        self._decode = decode_chunk
        if not isinstance(chunk, FirstChunk):
            return
        ids = chunk.prompt_token_ids
        if ids is None and chunk.choices:
            ids = chunk.choices[0].prompt_token_ids
        fingerprint = _name(chunk.system_fingerprint) or None
        out.append(Opened(_name(chunk.id), _name(chunk.model), _ids(ids), fingerprint))

    def _choice(self, choice: Choice, raw: dict[int, Any], out: list[StreamEvent]) -> None:
        """``raw``: arguments that were no string; its being there also says that text may hold surrogates."""
        index = choice.index
        ids = _ids(choice.token_ids if choice.token_ids is not None else choice.response_token_ids)
        logprobs, refusal_logprobs = _entries(choice.logprobs)
        if ids is None and logprobs:
            ids = _entry_ids(logprobs)
        delta = choice.delta if choice.delta is not None else choice.message
        start = len(out)
        if delta is not None:
            self._delta(index, delta, raw, out)
        if choice.text:
            out.append(TextDelta(index, CONTENT, self._characters(index, CONTENT, choice.text)))
        if self._drop_prefix and self._whole:
            _drop(self._drop_prefix, out, start)
        if refusal_logprobs:
            _attach(out, start, index, None, refusal_logprobs, REFUSAL)
        if ids or logprobs:
            _attach(out, start, index, ids or None, logprobs, CONTENT)
        if choice.finish_reason is not None:
            if self._halves:
                self.flush(out, index)
            stop = choice.stop_reason if choice.stop_reason is not None else choice.matched_stop
            out.append(FinishReason(index, _name(choice.finish_reason), stop))

    def _delta(self, index: int, delta: Delta, raw: dict[int, Any], out: list[StreamEvent]) -> None:
        thought = delta.reasoning_content or ""
        if delta.reasoning and delta.reasoning != thought:
            thought += delta.reasoning
        for channel, text in ((REASONING, thought), (CONTENT, delta.content), (REFUSAL, delta.refusal)):
            if text:
                text = self._characters(index, channel, text)
                if text:
                    out.append(TextDelta(index, channel, text))
        for position, call in enumerate(delta.tool_calls or ()):
            where = position if self._whole else call.index
            if call.custom is not None and call.function is None:
                function = Function(call.custom.name, call.custom.input)
            else:
                function = call.function or Function(call.name, call.arguments)
            out.append(self._tool(index, where, call.id, function, raw))
        if delta.function_call is not None:
            out.append(self._tool(index, 0, None, delta.function_call, raw))

    def _tool(
        self, choice: int, index: int | None, call_id: str | None, function: Function, raw: dict[int, Any]
    ) -> ToolDelta:
        arguments = function.arguments or ""
        if arguments:
            arguments = self._characters(choice, tool_channel(index or 0), arguments)
        name = _clean(function.name) if function.name else function.name
        return ToolDelta(choice, index, call_id, name, arguments, raw.get(id(function)))

    def _characters(self, choice: int, channel: str, text: str) -> str:
        """The text with every surrogate pair joined: one that was cut between two chunks is held until it is whole;
        a half that stays alone becomes U+FFFD."""
        if not self._halves and text.isascii():
            return text
        key = (choice, channel)
        text = self._halves.pop(key, "") + text
        try:
            text.encode()
        except UnicodeEncodeError:
            if 0xD800 <= ord(text[-1]) <= 0xDBFF:
                self._halves[key] = text[-1]
                text = text[:-1]
            return _clean(text)
        return text


def _clean(text: str) -> str:
    """Pairs of surrogates joined, halves replaced."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _tool_index(channel: str) -> int:
    return int(channel[5:])


def _usage(body: UsageBody) -> Usage:
    prompt, completion = _count(body.prompt_tokens), _count(body.completion_tokens)
    cached = body.prompt_tokens_details.cached_tokens if body.prompt_tokens_details else None
    reasoning = body.completion_tokens_details.reasoning_tokens if body.completion_tokens_details else None
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=completion,
        total_tokens=_count(body.total_tokens) if body.total_tokens is not None else prompt + completion,
        cached_tokens=_count(cached),
        reasoning_tokens=_count(reasoning or body.reasoning_tokens),
    )


def _count(value: int | None) -> int:
    return 0 if value is None or value < 0 else min(value, MAX_COUNT)


def _ids(ids: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """Token ids, where all of them can be such."""
    return None if ids and not (min(ids) >= 0 and max(ids) <= MAX_TOKEN_ID) else ids


def _name(text: str | None) -> str:
    return _clean(text[:MAX_NAME_CHARS]) if text else ""


Entries = list[dict[str, Any]]


def _entries(logprobs: Logprobs | None) -> tuple[Entries | None, Entries | None]:
    """Chat-shaped entries for the content and for the refusal, whichever shape they came in."""
    if logprobs is None:
        return None, None
    if logprobs.content is None and logprobs.tokens:
        return _from_parallel(logprobs, logprobs.tokens), None
    return _fitted(logprobs.content or []) or None, _fitted(logprobs.refusal or []) or None


def _fitted(entries: Entries) -> Entries:
    """The entries as they came, and put right where they are none."""
    for entry in entries:
        if type(entry.get("logprob")) is not float:
            entry["logprob"] = _float(entry.get("logprob"))
        if type(entry.get("token")) is not str:
            entry["token"] = ""
        top = entry.get("top_logprobs")
        if top:
            entry["top_logprobs"] = _fitted([one for one in top if type(one) is dict]) if type(top) is list else []
    return entries


def _from_parallel(logprobs: Logprobs, tokens: list[str]) -> Entries:
    numbers = logprobs.token_logprobs or []
    tops = logprobs.top_logprobs or []
    entries: Entries = []
    for i, token in enumerate(tokens):
        top = (tops[i] if i < len(tops) else None) or {}
        entries.append(
            {
                "token": token,
                "logprob": _float(numbers[i] if i < len(numbers) else None),
                "bytes": None,
                "top_logprobs": [{"token": t, "logprob": _float(n), "bytes": None} for t, n in top.items()],
            }
        )
    return entries


def _float(value: Any) -> float:
    try:
        return float(value) if isinstance(value, (int, float)) else math.nan
    except OverflowError:
        return math.nan


def _entry_ids(entries: Entries) -> tuple[int, ...] | None:
    """llama.cpp names each token's id in its logprob entry."""
    ids = tuple(entry["id"] for entry in entries if type(entry.get("id")) is int)
    return _ids(ids) if len(ids) == len(entries) else None


def _attach(
    out: list[StreamEvent], start: int, choice: int, ids: tuple[int, ...] | None, entries: Entries | None, default: str
) -> None:
    """Token ids and logprobs belong to the last delta of the chunk, or to an empty one where it has none."""
    for i in range(len(out) - 1, start - 1, -1):
        event = out[i]
        if isinstance(event, TextDelta) and (default == CONTENT) == (event.channel != REFUSAL):
            event.token_ids = event.token_ids or ids
            event.logprobs = event.logprobs or entries
            return
        if isinstance(event, ToolDelta) and default == CONTENT and entries is None:
            event.token_ids = ids
            return
    out.append(TextDelta(choice, default, "", ids, entries))


def _drop(prefix: str, out: list[StreamEvent], start: int) -> None:
    for i in range(start, len(out)):
        event = out[i]
        if isinstance(event, TextDelta) and event.channel == CONTENT:
            if event.text.startswith(prefix):
                event.text = event.text[len(prefix) :]
            return
