"""How much of a route's load may be second attempts. Pure; times are seconds on a clock that is passed in.

When engines fail, every retry is load on those that are left. Over any ``WINDOW`` seconds a route's further attempts
(retries, resumes, hedges) are at most ``ratio`` times its requests, or ``floor`` where that is more, so that a quiet
route can retry at all. The idea is that of the retry budgets of Finagle and Envoy; the window slides in ``STEPS``.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from guard.health.others import NOBODY, Others

WINDOW: Final = 30.0
STEPS: Final = 15


class RetryBudget:
    """Of one ``route``, over all workers."""

    def __init__(self, ratio: float, floor: int, route: str = "", others: Others = NOBODY) -> None:
        self._route = route
        self._others = others
        self._ratio = ratio
        self._floor = floor
        self._steps: deque[list[int]] = deque()  # step, requests, retries
        self._requests = 0
        self._retries = 0

    def request(self, now: float) -> None:
        """A request of the route's, in its first attempt."""
        self._step(now)[1] += 1
        self._requests += 1
        self._others.spent(self._route, self._requests, self._retries, now)

    def spend(self, now: float) -> None:
        """Another attempt is made."""
        self._step(now)[2] += 1
        self._retries += 1
        self._others.spent(self._route, self._requests, self._retries, now)

    def left(self, now: float) -> bool:
        """Whether one more may be made."""
        self._step(now)
        requests, retries = self._others.spent_elsewhere(self._route, now, WINDOW)
        return self._retries + retries + 1 <= max(self._floor, self._ratio * (self._requests + requests))

    def _step(self, now: float) -> list[int]:
        number = int(now * STEPS / WINDOW)
        steps = self._steps
        if not steps or steps[-1][0] != number:
            steps.append([number, 0, 0])
            while steps[0][0] <= number - STEPS:
                _, requests, retries = steps.popleft()
                self._requests -= requests
                self._retries -= retries
        return steps[-1]
