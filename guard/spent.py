"""What one answer costs in tokens, over its attempts. The prompt is counted once, whatever the attempts; what earlier
attempts delivered, and what was put there beside it, counts as completion.

The prompt is what an engine says, or the number of ids that the guard sent. Where no engine that read it alone came to
count it, it is estimated, and said to be: from the text, or from the count of an engine that had the delivered text
behind it, which may have cut that into other tokens than it came in.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from guard.events import Usage
from guard.request import GenerationRequest

BYTES_A_TOKEN: Final = 4
"""Of English text in UTF-8, in the vocabularies of the large open models; other languages and code need more tokens."""


class Spent:
    """``usage`` is of the answer as it stands; ``wasted``: tokens that were thrown away."""

    def __init__(self) -> None:
        self.usage = Usage()
        self.wasted = 0
        self._prompt: int | None = None
        self._inferred = False
        self._resumed_at = 0
        self._seeded = 0

    @property
    def before(self) -> int:
        """The tokens behind which the attempt began."""
        return self._resumed_at + self._seeded

    def begin(self, *, delivered: int, seeded: int) -> None:
        """An attempt begins behind so many tokens."""
        self._resumed_at = delivered
        self._seeded = seeded

    def sent(self, prompt: int) -> None:
        """The engine was asked with so many ids of a prompt."""
        self._prompt = prompt

    def end(self, seen: Usage | None, tokens: int) -> None:
        """It has ended: what the engine said of it, and the tokens that the guard has counted."""
        before = self.before
        if seen is not None and (self._prompt is None or (self._inferred and not before)):
            self._prompt = max(0, seen.prompt_tokens - before)
            self._inferred = before > 0
        spoken = seen.completion_tokens if seen and seen.completion_tokens else tokens - self._seeded
        prompt = self._prompt or 0
        self.usage = Usage(
            prompt_tokens=prompt,
            completion_tokens=before + spoken,
            total_tokens=prompt + before + spoken,
            cached_tokens=seen.cached_tokens if seen else 0,
            reasoning_tokens=seen.reasoning_tokens if seen else 0,
            estimated=self._inferred,
        )

    def close(self, request: GenerationRequest) -> None:
        """The answer has ended. An engine that said something has read the prompt, whether or not it came to count
        it."""
        usage = self.usage
        if self._prompt is None and (usage.completion_tokens or self.wasted):
            prompt = estimated_prompt(request)
            total = prompt + usage.completion_tokens
            self.usage = msgspec.structs.replace(usage, prompt_tokens=prompt, total_tokens=total, estimated=True)

    def throw_away(self, tokens: int, *, kept: int) -> None:
        """Of an attempt that counted so many tokens, so many of the answer's stand."""
        self.wasted += max(0, self._resumed_at + tokens - kept)

    def throw_all_away(self) -> None:
        self.wasted += self.usage.completion_tokens
        self.begin(delivered=0, seeded=0)


def estimated_prompt(request: GenerationRequest) -> int:
    """The tokens of a prompt, from the length of its text; exact for one of token ids."""
    if isinstance(request.prompt, tuple):
        return len(request.prompt)
    size = len(request.prompt.encode()) + sum(_bytes(message.get("content")) for message in request.messages)
    return max(1, -(-size // BYTES_A_TOKEN))


def _bytes(content: Any) -> int:
    if isinstance(content, str):
        return len(content.encode("utf-8", "surrogatepass"))
    if isinstance(content, list):
        return sum(_bytes(part.get("text") if isinstance(part, dict) else part) for part in content)
    return 0
