"""The two events that every token makes: what an engine says, and what may leave of it. The others are in events.py.

Plain classes, because they are compiled (setup.py): each is made once a token and its fields are read two dozen times.
Two are equal when all that they hold is.
"""

from __future__ import annotations

from typing import Any

Logprobs = list[dict[str, Any]]
"""OpenAI chat entries as they came: {token, logprob, bytes, top_logprobs}."""


class TextDelta:
    """Text of one channel, from an engine.

    An engine that speaks token ids gives ``token_ids`` and its adapter the text; text is never None. ``count``: of how
    many tokens it is, as far as that is known without ids and logprobs: one, or as many as deltas were joined.
    """

    __slots__ = ("channel", "choice", "count", "logprobs", "text", "token_ids")
    __match_args__ = ("choice", "channel", "text", "token_ids", "logprobs", "count")

    def __init__(
        self,
        choice: int,
        channel: str,
        text: str,
        token_ids: tuple[int, ...] | None = None,
        logprobs: Logprobs | None = None,
        count: int = 1,
    ) -> None:
        self.choice = choice
        self.channel = channel
        self.text = text
        self.token_ids = token_ids
        self.logprobs = logprobs
        self.count = count

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TextDelta) and _held(self) == _held(other)

    def __repr__(self) -> str:
        return f"TextDelta{_held(self)!r}"


class Release:
    """Text that nothing can take back any more, for the caller. The fields are those of the TextDelta."""

    __slots__ = ("channel", "choice", "count", "logprobs", "text", "token_ids")
    __match_args__ = ("choice", "channel", "text", "token_ids", "logprobs", "count")

    def __init__(
        self,
        choice: int,
        channel: str,
        text: str,
        token_ids: tuple[int, ...] | None = None,
        logprobs: Logprobs | None = None,
        count: int = 1,
    ) -> None:
        self.choice = choice
        self.channel = channel
        self.text = text
        self.token_ids = token_ids
        self.logprobs = logprobs
        self.count = count

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Release) and _held(self) == _held(other)

    def __repr__(self) -> str:
        return f"Release{_held(self)!r}"


def _held(event: TextDelta | Release) -> tuple[int, str, str, tuple[int, ...] | None, Logprobs | None, int]:
    return event.choice, event.channel, event.text, event.token_ids, event.logprobs, event.count
