"""What the caller already holds of one choice's answer.

It outlives the attempts: each attempt's stream guard appends what it releases, and a resume goes on from exactly this.
It never shrinks, because nothing that left can be taken back.
"""

from __future__ import annotations

import msgspec

from guard.engines.contract import Prefix
from guard.events import CONTENT, REASONING, Release, ToolRelease


class Delivered:
    """``tokens`` counts delivered tokens: exact where the engine named them (ids or logprobs), else one a delta.
    ``token_ids`` is None once a piece came without its ids. ``lead`` is what the engine wrote before the content, where
    the guard has split reasoning off it."""

    __slots__ = ("_calls", "_texts", "lead", "token_ids", "tokens")

    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {}
        self._calls: list[tuple[str, str, list[str]]] = []
        self.token_ids: list[int] | None = []
        self.tokens = 0
        self.lead = ""

    def add(self, release: Release) -> None:
        parts = self._texts.get(release.channel)
        if parts is None:
            self._texts[release.channel] = [release.text]
        else:
            parts.append(release.text)
        token_ids = release.token_ids
        if token_ids is None:
            self.token_ids = None
            self.tokens += len(release.logprobs) if release.logprobs else 1
            return
        self.tokens += len(token_ids)
        if self.token_ids is not None:
            self.token_ids.extend(token_ids)

    def add_call(self, piece: ToolRelease) -> None:
        if piece.index == len(self._calls):
            self._calls.append((piece.id or "", piece.name or "", [piece.arguments]))
        else:
            self._calls[piece.index][2].append(piece.arguments)
        self.token_ids = None
        self.tokens += 1

    @property
    def nothing(self) -> bool:
        return not self._texts and not self._calls

    @property
    def calls(self) -> tuple[tuple[str, str, str], ...]:
        """(id, name, arguments so far) in order."""
        return tuple((id_, name, "".join(parts)) for id_, name, parts in self._calls)

    def text(self, channel: str = CONTENT) -> str:
        parts = self._texts.get(channel)
        if not parts:
            return ""
        if len(parts) > 1:
            parts[:] = ["".join(parts)]
        return parts[0]

    def length(self, channel: str = CONTENT) -> int:
        return len(self.text(channel))

    def total_chars(self) -> int:
        return sum(map(self.length, self._texts)) + sum(len(part) for _, _, parts in self._calls for part in parts)

    def whole(self) -> str:
        """The content; calls follow it as JSON. What a trace keeps of an answer, and a replay compares."""
        calls = [{"name": name, "arguments": arguments} for _, name, arguments in self.calls]
        return self.text(CONTENT) + (msgspec.json.encode(calls).decode() if calls else "")

    def prefix(self, prompt_token_ids: tuple[int, ...] | None = None) -> Prefix:
        return Prefix(
            content=self.text(CONTENT),
            reasoning=self.text(REASONING),
            lead=self.lead,
            tool_calls=self.calls,
            token_ids=tuple(self.token_ids) if self.token_ids is not None else None,
            prompt_token_ids=prompt_token_ids,
        )
