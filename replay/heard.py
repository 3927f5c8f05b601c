"""What an engine said in one replay, gathered beside the stream guard, as an observation. Pure.

``text`` is what a caller would have got; of an answer that was condemned, what the engine had said until then: that is
what shows the cause. Ids, bytes and log probabilities stay side by side, token for token: where only the last ones
lack some, all are cut there; where one in the middle does, that kind is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from guard.delivered import Delivered
from guard.events import CONTENT, REASONING, REFUSAL, Opened, StreamEvent, TextDelta, ToolDelta, tool_channel
from guard.stream import StreamGuard
from replay.observation import Alternative, Counts, Found, Observation


class Heard:
    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {}
        self._calls: list[list[str]] = []
        self._ids: list[int] = []
        self._entries: list[dict[str, Any]] = []
        self._ids_known = self._entries_known = True
        self._prompt_ids: tuple[int, ...] = ()

    def feed(self, events: Sequence[StreamEvent]) -> None:
        for event in events:
            if isinstance(event, TextDelta):
                self._texts.setdefault(event.channel, []).append(event.text)
                self._tokens(event)
            elif isinstance(event, ToolDelta):
                if event.name or not self._calls:
                    self._calls.append([event.name or ""])
                self._calls[-1].append(event.arguments)
                self._ids_known = self._entries_known = False  # a call's tokens are not all named
            elif isinstance(event, Opened) and event.prompt_token_ids:
                self._prompt_ids = tuple(event.prompt_token_ids)

    def _tokens(self, delta: TextDelta) -> None:
        entries = delta.logprobs or []
        named = [entry["id"] for entry in entries if isinstance(entry.get("id"), int)]
        ids = delta.token_ids if delta.token_ids is not None else tuple(named) if len(named) == len(entries) else ()
        if not ids and not entries:
            self._ids_known = self._ids_known and not delta.text
            self._entries_known = self._entries_known and not delta.text
            return
        # what lacks here and was there before may only be the answer's last token
        self._ids_known = self._ids_known and bool(ids)
        if self._entries_known and entries and len(self._entries) >= len(self._ids):
            self._entries += entries
        elif entries:
            self._entries_known = False
        self._ids += ids

    def observation(self, seen: Observation, guard: StreamGuard, delivered: Delivered) -> Observation:
        """``seen`` with what was heard and found."""
        ids, entries = (self._ids if self._ids_known else []), self._entries if self._entries_known else []
        if ids and entries:
            together = min(len(ids), len(entries))
            ids, entries = ids[:together], entries[:together]
        usage = guard.usage
        verdicts = guard.verdicts()
        return msgspec.structs.replace(
            seen,
            text=self._said() if guard.condemned else _delivered(delivered),
            prompt_ids=self._prompt_ids or seen.prompt_ids,
            token_ids=tuple(ids),
            pieces=tuple(map(_piece, entries)),
            logprobs=tuple(float(entry.get("logprob", 0.0)) for entry in entries),
            top=_top(entries),
            finish_reason=guard.reason,
            findings=tuple(Found(f.code, f.severity, f.channel, f.onset) for f in guard.findings),
            condemned=guard.condemned.cause if guard.condemned else "",
            verdict_format=verdicts.format,
            verdict_tool_choice=verdicts.tool_choice,
            counts=Counts(usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens)
            if usage
            else Counts(completion=guard.tokens),
        )

    def _said(self) -> dict[str, str]:
        texts = {channel: "".join(parts) for channel, parts in self._texts.items() if any(parts)}
        calls = {tool_channel(i): f"{name}({''.join(parts)})" for i, (name, *parts) in enumerate(self._calls)}
        return texts | calls


def _delivered(delivered: Delivered) -> dict[str, str]:
    texts = {channel: text for channel in (REASONING, CONTENT, REFUSAL) if (text := delivered.text(channel))}
    calls = {tool_channel(i): f"{name}({arguments})" for i, (_, name, arguments) in enumerate(delivered.calls)}
    return texts | calls


def _piece(entry: dict[str, Any]) -> bytes:
    data = entry.get("bytes")
    return bytes(data) if isinstance(data, list) else str(entry.get("token", "")).encode("utf-8", "surrogatepass")


def _top(entries: Sequence[dict[str, Any]]) -> tuple[tuple[Alternative, ...], ...]:
    found = []
    for entry in entries:
        best = sorted(entry.get("top_logprobs") or (), key=lambda one: -float(one.get("logprob", 0.0)))
        found.append(
            tuple(Alternative(_id(one), _piece(one), float(one.get("logprob", 0.0))) for one in best),
        )
    return tuple(found) if any(found) else ()


def _id(entry: dict[str, Any]) -> int:
    found = entry.get("id", -1)
    return found if isinstance(found, int) else -1
