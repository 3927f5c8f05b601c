"""A streamed answer: guard events in, server-sent events out. Pure.

The hot path is a text delta: constant bytes, the text as JSON, constant bytes; nothing else is built for it. All that
one batch says goes out as one piece. Every chunk of an answer has the same id, created and model.

A failure is an ``error`` event and nothing after it: no finish reason for the choice that failed, no [DONE].
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final, Literal

import msgspec

from guard.events import Finished, GuardEvent, Release, ToolRelease
from guard.server.openai_error import encode, from_failed
from guard.server.openai_logprobs import LegacyLogprobs, chat_logprobs
from guard.server.openai_outcome import Outcome

DONE: Final = b"data: [DONE]\n\n"
EVENT: Final = b"data: "
END: Final = b"\n\n"

_json: Final = msgspec.json.Encoder().encode


class StreamWriter:
    """``id`` is known once the guard has started, so the constants are made with the first text of each choice."""

    __slots__ = (
        "_channel",
        "_choice",
        "_created",
        "_end",
        "_kind",
        "_last",
        "_lines",
        "_start",
        "_token_ids",
        "_usage",
        "outcome",
    )

    def __init__(
        self,
        outcome: Outcome,
        kind: Literal["chat", "completion"],
        created: int,
        *,
        usage: bool = False,
        token_ids: bool = False,
    ) -> None:
        self.outcome = outcome
        self._kind = kind
        self._created = created
        self._usage = usage
        self._token_ids = token_ids
        self._lines: dict[int, _Lines] = {}
        self._choice, self._channel = -1, ""  # of the last text, and what stands before and behind it:
        self._start = self._end = b""
        self._last: Finished | None = None

    def feed(self, batch: Sequence[GuardEvent]) -> bytes:
        """What goes out for a batch; empty while there is nothing that the caller may see.

        The last choice's finish is kept for ``end``, which has the whole evidence to put beside it.
        """
        out: list[bytes] = []
        for event in batch:
            if type(event) is Release:
                if event.choice != self._choice or event.channel != self._channel:
                    self._turn(event.choice, event.channel, out)
                if not self._start or event.logprobs is not None or self._token_ids:
                    self._rare(self._lines[event.choice], event, out)
                    continue
                try:
                    out += (self._start, _json(event.text), self._end)
                except UnicodeEncodeError:
                    out += (self._start, encode(event.text), self._end)
            elif type(event) is ToolRelease:
                line = self._lines.get(event.choice) or self._open(event.choice, out)
                out += (line.tools, line.tool_piece(event, self.outcome.custom), line.tools_end)
            else:
                self.outcome.note(event)
                if type(event) is Finished:
                    if self.outcome.complete:
                        self._last = event
                    else:
                        self._finish(event, out, b"")
        return b"".join(out)

    def end(self) -> bytes:
        """The end of a whole answer: the last finish reason, the usage if it was asked for, and [DONE]."""
        out: list[bytes] = []
        told = b',"outguard":' + encode(self.outcome.extension())
        if self._last is not None:
            self._finish(self._last, out, b"" if self._usage else told)
        if self._usage:
            out.append(self._head() + b'],"usage":' + encode(self.outcome.usage()) + told + b"}" + END)
        out.append(DONE)
        return b"".join(out)

    def error(self) -> bytes:
        """The end of an answer of which at least one choice failed; others may have finished."""
        failed = self.outcome.failure()
        assert failed is not None
        out: list[bytes] = []
        if self._last is not None:
            self._finish(self._last, out, b"")
        return b"".join(out) + EVENT + from_failed(failed, self.outcome.choices, self.outcome.extension()).body + END

    # --- the constants -----------------------------------------------------------------------------------------------

    def _turn(self, choice: int, channel: str, out: list[bytes]) -> None:
        """The text that follows is of this choice and channel."""
        line = self._lines.get(choice) or self._open(choice, out)
        self._choice, self._channel = choice, channel
        self._start, self._end = line.starts.get(channel, b""), line.end

    def _head(self) -> bytes:
        chat = self._kind == "chat"
        name = b"chat.completion.chunk" if chat else b"text_completion"
        return b'data: {"id":%s,"object":"%s","created":%d,"model":%s,"choices":[' % (
            encode(answer_id(self._kind, self.outcome.name)),
            name,
            self._created,
            encode(self.outcome.model),
        )

    def _open(self, choice: int, out: list[bytes]) -> _Lines:
        """The constants of a choice; in a chat its first chunk names the role."""
        head = self._head() + b'{"index":%d,' % choice
        close = (b',"usage":null}' if self._usage else b"}") + END
        line = self._lines[choice] = _Lines(head, close, self._kind == "chat")
        if self._kind == "chat":
            out.append(
                head + b'"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]' + close
            )
        return line

    def _rare(self, line: _Lines, event: Release, out: list[bytes]) -> None:
        """A delta with log probabilities, token ids, or on a channel of no name of its own."""
        out.append(line.head)
        if self._kind == "chat":
            field = _CHAT_FIELDS.get(event.channel, b"content")
            out += (b'"delta":{"', field, b'":', encode(event.text), b'},"logprobs":')
            out.append(encode(chat_logprobs(event.channel, event.logprobs)))
        else:
            if event.channel == "content":
                out += (b'"text":', encode(event.text))
            else:
                out += (b'"text":"","', _CHAT_FIELDS.get(event.channel, b"reasoning_content"), b'":')
                out.append(encode(event.text))
            out += (b',"logprobs":', encode(line.legacy.take(event.logprobs)))
        if self._token_ids:
            ids = event.token_ids
            out += (b',"token_ids":', encode(None if ids is None else list(ids)))
        out += (b',"finish_reason":null}]', line.close)

    def _finish(self, event: Finished, out: list[bytes], told: bytes) -> None:
        line = self._lines.get(event.choice) or self._open(event.choice, out)
        out += (line.head, b'"delta":{},' if self._kind == "chat" else b'"text":"",')
        out += (b'"logprobs":null,"finish_reason":', encode(event.reason))
        if event.matched_stop is not None:
            out += (b',"stop_reason":', encode(event.matched_stop))
        out += (b"}]", told, line.close)


class _Lines:
    """The constant bytes of one choice: ``starts`` by channel + text + ``end`` is a whole event."""

    __slots__ = ("close", "custom", "end", "head", "legacy", "starts", "tools", "tools_end")

    def __init__(self, head: bytes, close: bytes, chat: bool) -> None:
        self.head = head
        self.close = close
        quiet = b'"logprobs":null,"finish_reason":null}]' + close
        if chat:
            self.starts = {channel: head + b'"delta":{"' + name + b'":' for channel, name in _CHAT_FIELDS.items()}
            self.end = b"}," + quiet
        else:
            self.starts = {"content": head + b'"text":'}
            self.end = b"," + quiet
        self.tools = head + b'"delta":{"tool_calls":['
        self.tools_end = b"]}," + quiet
        self.legacy = LegacyLogprobs()
        self.custom: set[int] = set()  # the calls of custom tools

    def tool_piece(self, event: ToolRelease, custom: Collection[str]) -> bytes:
        if event.name is not None and event.name in custom:
            self.custom.add(event.index)
        is_custom = event.index in self.custom
        if event.id is None and event.name is None:
            piece = _CUSTOM_PIECE if is_custom else _FUNCTION_PIECE
            return piece % (event.index, encode(event.arguments))
        return encode(
            {"index": event.index, **call_shape(event.id or "", event.name or "", event.arguments, custom=is_custom)}
        )


_FUNCTION_PIECE: Final = b'{"index":%d,"function":{"arguments":%s}}'
_CUSTOM_PIECE: Final = b'{"index":%d,"custom":{"input":%s}}'


def call_shape(call_id: str, name: str, said: str, *, custom: bool) -> dict[str, Any]:
    """A call as the API writes it: a function's with arguments, a custom tool's with its input."""
    if custom:
        return {"id": call_id, "type": "custom", "custom": {"name": name, "input": said}}
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": said}}


_CHAT_FIELDS: Final = {"content": b"content", "reasoning": b"reasoning_content", "refusal": b"refusal"}


def answer_id(kind: str, name: str) -> str:
    """Named after the trace, so that one leads to the other."""
    return ("chatcmpl-" if kind == "chat" else "cmpl-") + name
