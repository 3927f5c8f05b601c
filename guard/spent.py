"""What one answer costs in tokens, over its attempts. The prompt is counted once, whatever the attempts; what earlier
attempts delivered, and what was put there beside it, counts as completion."""

from __future__ import annotations

from guard.events import Usage


class Spent:
    """``usage`` is of the answer as it stands; ``wasted``: tokens that were thrown away."""

    def __init__(self) -> None:
        self.usage = Usage()
        self.wasted = 0
        self._prompt: int | None = None
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

    def end(self, seen: Usage | None, tokens: int) -> None:
        """It has ended: what the engine said of it, and the tokens that the guard has counted."""
        before = self.before
        if seen is not None and self._prompt is None:
            self._prompt = max(0, seen.prompt_tokens - before)
        spoken = seen.completion_tokens if seen and seen.completion_tokens else tokens - self._seeded
        prompt = self._prompt or 0
        self.usage = Usage(
            prompt_tokens=prompt,
            completion_tokens=before + spoken,
            total_tokens=prompt + before + spoken,
            cached_tokens=seen.cached_tokens if seen else 0,
            reasoning_tokens=seen.reasoning_tokens if seen else 0,
        )

    def throw_away(self, tokens: int, *, kept: int) -> None:
        """Of an attempt that counted so many tokens, so many of the answer's stand."""
        self.wasted += max(0, self._resumed_at + tokens - kept)

    def throw_all_away(self) -> None:
        self.wasted += self.usage.completion_tokens
        self.begin(delivered=0, seeded=0)
