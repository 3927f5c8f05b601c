"""What the caller already holds of one choice's answer.

It outlives the attempts: each attempt's stream guard appends what it releases, and a resume goes on from exactly this.
It never shrinks, because nothing that left can be taken back.

Where an engine is spoken with in tokens, ``spoken`` holds the raw answer that all of this was read out of, to the
token: the texts of the channels alone do not tell what the model said between them.
"""

from __future__ import annotations

import msgspec

from guard.engines.contract import Prefix
from guard.events import CONTENT, REASONING, Release, ToolRelease, tool_channel
from guard.spoken import Spoken

_JOIN = 1024
"""Pieces of one channel that are kept apart: a long answer would hold a string for each of its tokens."""


class Delivered:
    """``token_ids`` is None once a piece came without its ids. ``lead`` is what the engine wrote before the content,
    where the guard has split reasoning off it. ``spoken`` is None once something was delivered that is not in it;
    ``channel`` is where the last piece went."""

    __slots__ = ("_calls", "_counted", "_parts", "_raw", "_texts", "channel", "lead", "spoken", "token_ids")

    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {}
        self._calls: list[tuple[str, str, list[str]]] = []
        self._counted = 0
        self._raw = False
        self._parts: list[str] | None = None  # of the ``channel``, if text was delivered there
        self.token_ids: list[int] | None = []
        self.lead = ""
        self.spoken: Spoken | None = None
        self.channel = CONTENT

    def reads_raw(self, vocabulary: str) -> Spoken | None:
        """What comes from now on is read out of a raw answer, whose tokens are added to what is returned; None where
        more was delivered than that answer holds."""
        if self.nothing:
            self.spoken = Spoken(vocabulary)
        elif self.spoken is not None and self.spoken.vocabulary != vocabulary:
            self.spoken = None
        self._raw = self.spoken is not None
        return self.spoken

    def reads_channels(self) -> None:
        """What comes from now on came in channels, as an engine read them."""
        self._raw = False

    def add(self, release: Release) -> None:
        channel = release.channel
        parts = self._parts
        if parts is None or channel != self.channel:
            self._parts = parts = self._texts.setdefault(channel, [])
            self.channel = channel
        parts.append(release.text)
        if len(parts) > _JOIN:
            parts[:] = ["".join(parts)]
        if self._raw:
            self.token_ids = None
        else:
            self.spoken = None
        token_ids = release.token_ids
        if token_ids is None:
            self.token_ids = None
            self._counted += len(release.logprobs) if release.logprobs else release.count
            return
        self._counted += len(token_ids)
        if self.token_ids is not None:
            self.token_ids.extend(token_ids)

    def add_call(self, piece: ToolRelease) -> None:
        if piece.index == len(self._calls):
            self._calls.append((piece.id or "", piece.name or "", [piece.arguments]))
        else:
            self._calls[piece.index][2].append(piece.arguments)
        self.token_ids = None
        self._counted += 1
        self.channel = tool_channel(piece.index)
        self._parts = None
        if not self._raw:
            self.spoken = None

    @property
    def tokens(self) -> int:
        """How many were delivered: exact where the engine named them (ids or logprobs), else one a delta of its own. Of
        a raw answer those that it goes on from."""
        return self.spoken.tokens if self.spoken is not None else self._counted

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
        if channel.startswith("tool:"):
            index = int(channel[5:])
            return sum(map(len, self._calls[index][2])) if index < len(self._calls) else 0
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
            token_ids=tuple(self.token_ids) if self.token_ids is not None and self.spoken is None else None,
            prompt_token_ids=prompt_token_ids,
            spoken=self.spoken.parts() if self.spoken is not None else None,
            vocabulary=self.spoken.vocabulary if self.spoken is not None else "",
        )
