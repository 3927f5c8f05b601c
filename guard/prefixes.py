"""Whether an engine's prefix cache is likely to be warm for a prompt: it was lately asked with one that begins alike.

A hint for attribution only ("fails with a cold cache"): most engines do not say how much of a prompt they had cached.
A prompt is marked after each of its messages (or each 1,024 characters of a plain one, 256 of its tokens) with a hash
of all that comes before; what an engine was sent is remembered as marks, the latest so many for so long. Marks are
numbers of this process alone and are never stored. Pure: the time is given in.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from guard.request import GenerationRequest

REMEMBERED: Final = 4_096
"""Marks an engine."""

SECONDS: Final = 600.0
"""How long a beginning counts as cached: engines under load evict within minutes."""

TEXT_STEP: Final = 1_024
TOKEN_STEP: Final = 256
MOST_MARKS: Final = 64
"""Of one prompt; a longer one is marked at its beginning, where prompts are alike."""

NEVER: Final = float("-inf")


class Mark(NamedTuple):
    """``size``: how long the prompt is up to here, in characters or tokens."""

    key: int
    size: int


class Prefixes:
    """What each engine was lately asked with."""

    def __init__(self) -> None:
        self._engines: dict[str, OrderedDict[int, float]] = {}

    def hint(self, engine: str, request: GenerationRequest, now: float) -> str:
        """``cold``: no beginning of this prompt is known there; ``warm``: at least half of it is; ``partly``: less.
        Empty for a prompt that is too short to be cached. The prompt is remembered."""
        found = marks(request)
        if not found:
            return ""
        known = self._engines.setdefault(engine, OrderedDict())
        seen = max((mark.size for mark in found if now - known.get(mark.key, NEVER) <= SECONDS), default=0)
        for mark in found:
            known[mark.key] = now
            known.move_to_end(mark.key)
        while len(known) > REMEMBERED:
            known.popitem(last=False)
        return "cold" if not seen else "warm" if 2 * seen >= found[-1].size else "partly"


def marks(request: GenerationRequest) -> list[Mark]:
    """The model is part of each: the same words to another model are another prompt."""
    if request.kind == "chat":
        return _of_messages(request.model, request.messages)
    step = TEXT_STEP if isinstance(request.prompt, str) else TOKEN_STEP
    return _of_sequence(request.model, request.prompt, step)


def _of_messages(model: str, messages: Sequence[dict[str, Any]]) -> list[Mark]:
    found = []
    key, size = hash(model), 0
    for message in messages[:MOST_MARKS]:
        content = message.get("content")
        text = content if isinstance(content, str) else repr(content)
        calls = message.get("tool_calls")
        key = hash((key, message.get("role"), text, repr(calls) if calls else ""))
        size += len(text)
        found.append(Mark(key, max(size, 1)))
    return found


def _of_sequence(model: str, prompt: str | tuple[int, ...], step: int) -> list[Mark]:
    found = []
    key = hash(model)
    for end in range(step, min(len(prompt), step * MOST_MARKS) + 1, step):
        key = hash((key, prompt[end - step : end]))
        found.append(Mark(key, end))
    return found
