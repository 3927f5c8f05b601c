"""When another attempt is allowed and how long to wait before it: tenacity's rules, asked by a loop that is not its
own.

The pipeline streams while it tries, so it cannot be a function that tenacity calls again; it asks here instead. A
change of engine costs no wait: waiting only helps an engine that was tried before.
"""

from __future__ import annotations

from typing import Any

from tenacity import RetryCallState, Retrying, stop_after_attempt, wait_random_exponential


class Attempts:
    """Counts the attempts of one answer. Times are seconds on the caller's clock."""

    def __init__(self, *, most: int, initial: float, longest: float, deadline: float) -> None:
        self._stop = stop_after_attempt(most)
        self._wait = wait_random_exponential(multiplier=initial, max=longest)
        self._deadline = deadline
        self._state = RetryCallState(retry_object=_POLICY, fn=None, args=(), kwargs={})
        self._state.attempt_number = 0

    @property
    def made(self) -> int:
        return self._state.attempt_number

    def begin(self) -> int:
        """A new attempt. Returns its number, from 1."""
        self._state.attempt_number += 1
        return self._state.attempt_number

    def forgive(self) -> None:
        """The attempt that was last begun does not count against the most that are allowed."""
        self._state.attempt_number -= 1

    def left(self, now: float) -> bool:
        """Whether another attempt may follow the one that was last begun."""
        return not self._stop(self._state) and now < self._deadline

    def pause(self, *, seen_before: bool, retry_after: float | None, now: float) -> float:
        """Seconds to wait before an engine is tried, full jitter; never beyond the deadline."""
        if not seen_before:
            return 0.0
        wait = max(float(self._wait(self._state)), retry_after or 0.0)
        return max(0.0, min(wait, self._deadline - now))


_POLICY: Any = Retrying()
