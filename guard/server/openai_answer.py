"""A whole answer: guard events in, one JSON document out. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Literal

from guard.events import CONTENT, REASONING, REFUSAL, Finished, GuardEvent, Release, ToolRelease
from guard.server.openai_error import encode
from guard.server.openai_logprobs import LegacyLogprobs
from guard.server.openai_outcome import Outcome
from guard.server.openai_stream import answer_id, call_shape


class AnswerWriter:
    """Gathers what was released until every choice has ended."""

    __slots__ = ("_choices", "_created", "_kind", "_token_ids", "outcome")

    def __init__(
        self, outcome: Outcome, kind: Literal["chat", "completion"], created: int, *, token_ids: bool = False
    ) -> None:
        self.outcome = outcome
        self._kind = kind
        self._created = created
        self._token_ids = token_ids
        self._choices = [_Choice() for _ in range(outcome.choices)]

    def feed(self, batch: Sequence[GuardEvent]) -> None:
        for event in batch:
            if type(event) is Release:
                self._choices[event.choice].take(event)
            elif type(event) is ToolRelease:
                self._choices[event.choice].take_call(event)
            else:
                self.outcome.note(event)

    def body(self) -> bytes:
        """The document. Only for an answer of which every choice has finished."""
        chat = self._kind == "chat"
        choices = []
        for index, choice in enumerate(self._choices):
            end = self.outcome.ended[index]
            assert isinstance(end, Finished)
            shown: dict[str, Any] = {"index": index}
            shown.update(choice.message(self.outcome.custom) if chat else choice.completion())
            if self._token_ids:
                shown["token_ids"] = choice.token_ids
            shown["finish_reason"] = end.reason
            if end.matched_stop is not None:
                shown["stop_reason"] = end.matched_stop
            choices.append(shown)
        return encode(
            {
                "id": answer_id(self._kind, self.outcome.name),
                "object": "chat.completion" if chat else "text_completion",
                "created": self._created,
                "model": self.outcome.model,
                "choices": choices,
                "usage": self.outcome.usage(),
                "outguard": self.outcome.extension(),
            }
        )


class _Choice:
    """``token_ids`` is None from the first piece on that came without them."""

    __slots__ = ("calls", "entries", "texts", "token_ids")

    def __init__(self) -> None:
        self.texts: dict[str, list[str]] = {}
        self.calls: dict[int, dict[str, Any]] = {}
        self.entries: dict[str, list[dict[str, Any]]] = {}
        self.token_ids: list[int] | None = []

    def take(self, event: Release) -> None:
        self.texts.setdefault(event.channel, []).append(event.text)
        if event.logprobs is not None:
            # the reasoning's tokens stand among the content's, as the engines put them
            channel = REFUSAL if event.channel == REFUSAL else CONTENT
            self.entries.setdefault(channel, []).extend(event.logprobs)
        if event.token_ids is None:
            self.token_ids = None
        elif self.token_ids is not None:
            self.token_ids.extend(event.token_ids)

    def take_call(self, event: ToolRelease) -> None:
        call = self.calls.setdefault(event.index, {"id": "", "name": "", "arguments": []})
        call["id"] = call["id"] or event.id or ""
        call["name"] = call["name"] or event.name or ""
        call["arguments"].append(event.arguments)

    def message(self, custom: Collection[str]) -> dict[str, Any]:
        content = self._text(CONTENT)
        refusal = self._text(REFUSAL)
        message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": refusal}
        if content is None and refusal is None and not self.calls:
            message["content"] = ""
        reasoning = self._text(REASONING)
        if reasoning is not None:
            message["reasoning_content"] = reasoning
        if self.calls:
            message["tool_calls"] = [
                call_shape(call["id"], call["name"], "".join(call["arguments"]), custom=call["name"] in custom)
                for _, call in sorted(self.calls.items())
            ]
        logprobs = None
        if self.entries:
            logprobs = {"content": self.entries.get(CONTENT), "refusal": self.entries.get(REFUSAL)}
        return {"message": message, "logprobs": logprobs}

    def completion(self) -> dict[str, Any]:
        shown: dict[str, Any] = {"text": self._text(CONTENT) or ""}
        reasoning = self._text(REASONING)
        if reasoning is not None:
            shown["reasoning_content"] = reasoning
        shown["logprobs"] = LegacyLogprobs().take(self.entries.get(CONTENT))
        return shown

    def _text(self, channel: str) -> str | None:
        pieces = self.texts.get(channel)
        return None if pieces is None else "".join(pieces)
