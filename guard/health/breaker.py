"""The breaker of one engine: closed, open, half-open. Pure; times are seconds on a clock that is passed in.

- Closed: requests go through. It opens after enough failures in a row, or at a high share of failures (rates decay
  exponentially, so that one second of trouble is forgotten after a minute of health).
- Open: nothing goes through, for a time that doubles with each failed trial.
- Half-open: ``TRIALS`` at a time go through. ``PROOFS`` that did well close it, one that failed opens it again.
- Where no engine of a route is left, one that is open is asked all the same, unless it has failed ``LAST_STRAW`` times
  as often in a row as opens it (``last_resort``): an engine that answers now and then is better than none, one that is
  dead is not. Such attempts can close it, and do not lengthen its time.
- After it has closed, the engine's share of requests grows from ``FIRST_SHARE`` to the whole over the slow start; a
  breaker that opens again meanwhile goes on doubling from where it was.
"""

from __future__ import annotations

import math
from typing import Final, Literal

from guard.health.others import Known
from guard.health.settings import HealthSettings

State = Literal["closed", "half_open", "open"]

TRIALS: Final = 1
PROOFS: Final = 2
FIRST_SHARE: Final = 0.1
FAILED_TRIAL: Final = 0.5
"""The least weight at which a trial has failed; less says nothing."""

LAST_STRAW: Final = 2

LEAST_ASKED: Final = 10.0
"""Attempts within the window below which a share of failures means nothing."""


class Rate:
    """Attempts and failures, decaying with the time constant ``window`` (seconds)."""

    __slots__ = ("_at", "_window", "asked", "failed")

    def __init__(self, window: float) -> None:
        self._window = window
        self._at = 0.0
        self.asked = 0.0
        self.failed = 0.0

    def add(self, asked: float, failed: float, now: float) -> None:
        self.age(now)
        self.asked += asked
        self.failed += failed

    def age(self, now: float) -> None:
        if now > self._at:
            kept = math.exp((self._at - now) / self._window) if self.asked else 1.0
            self.asked *= kept
            self.failed *= kept
            self._at = now

    def take_back(self, failed: float, since: float, now: float) -> None:
        """A failure that was counted ``since`` was none of the engine's."""
        self.age(now)
        self.failed = max(0.0, self.failed - failed * math.exp(min(0.0, since - now) / self._window))

    @property
    def share(self) -> float:
        return self.failed / self.asked if self.asked else 0.0


class Breaker:
    """``in_a_row``: the weight of the failures since the last answer that stood. ``turns`` counts the times it closed:
    what was counted before that counts no more. ``trials``: how many are under way; ``changed``: when it last opened or
    closed."""

    __slots__ = (
        "_closed_at",
        "_level",
        "_opened_at",
        "_proofs",
        "_rules",
        "changed",
        "in_a_row",
        "rate",
        "trials",
        "turns",
    )

    def __init__(self, rules: HealthSettings) -> None:
        self._rules = rules
        self._level = 0  # openings without a recovery that lasted
        self._opened_at = -math.inf
        self._closed_at = -math.inf
        self.trials = 0
        self.changed = 0.0
        self._proofs = 0
        self.in_a_row = 0.0
        self.rate = Rate(rules.window)
        self.turns = 0

    def state(self, now: float) -> State:
        if self._opened_at == -math.inf:
            return "closed"
        return "open" if now < self._opened_at + self._open_for else "half_open"

    @property
    def closed(self) -> bool:
        return self._opened_at == -math.inf

    def admits(self, now: float, elsewhere: int = 0) -> bool:
        """``elsewhere``: trials that others make of the same engine."""
        if self._opened_at == -math.inf:
            return True
        return self.trials + elsewhere < TRIALS and now >= self._opened_at + self._open_for

    @property
    def last_resort(self) -> bool:
        """Whether it may be asked where there is no other."""
        return self.in_a_row < LAST_STRAW * self._rules.failures

    def begin(self) -> bool:
        """A request goes to the engine. Whether it is a trial, which ``leave`` and ``judge`` are to be told."""
        trial = self._opened_at != -math.inf
        self.trials += trial
        return trial

    def leave(self, trial: bool) -> None:
        self.trials -= trial

    def judge(self, weight: float, now: float, *, trial: bool) -> bool:
        """What an attempt came to. Whether that opened the breaker. While it is not closed, only trials count: what
        began before is old news."""
        if self._opened_at != -math.inf:
            return self._judge_trial(weight, now) if trial else False
        self.rate.add(1.0, weight, now)
        if not weight:
            self.in_a_row = 0.0
            if self._level and now >= self._closed_at + self._rules.slow_start:
                self._level = 0
            return False
        self.in_a_row += weight
        if self._over():
            self.open(now)
            return True
        return False

    def _judge_trial(self, weight: float, now: float) -> bool:
        if weight >= FAILED_TRIAL:
            self.in_a_row += weight
            self._proofs = 0
            if self.state(now) == "open":
                return False
            self.open(now)
            return True
        if not weight:
            self.in_a_row = 0.0
            self._proofs += 1
            if self._proofs >= PROOFS:
                self._close(now)
        return False

    def _over(self) -> bool:
        rules, rate = self._rules, self.rate
        return self.in_a_row >= rules.failures or (rate.asked >= LEAST_ASKED and rate.share >= rules.failure_rate)

    def open(self, now: float) -> None:
        self._level += 1
        self._opened_at = self.changed = now
        self._proofs = 0

    def _close(self, now: float) -> None:
        self._opened_at = -math.inf
        self._closed_at = self.changed = now
        self.in_a_row = 0.0
        self.rate = Rate(self._rules.window)
        self.turns += 1

    def take_back(self, weight: float, since: float, turn: int, now: float) -> None:
        """A failure that was counted ``since`` was not the engine's: a breaker that it opened closes again, at once."""
        if turn != self.turns:
            return
        over = self._over()
        self.in_a_row = max(0.0, self.in_a_row - weight)
        self.rate.take_back(weight, since, now)
        if self._opened_at != -math.inf and over and not self._over():
            self._opened_at = -math.inf
            self._level -= 1
            self.changed = now

    def known(self) -> Known:
        """How it stands, for other workers that ask the same engine."""
        return Known(self.changed, self._opened_at, self._level, self._closed_at)

    def hear(self, known: Known) -> bool:
        """It has opened or closed elsewhere: whether that is the latest, and it stands like that here as well."""
        if known.changed <= self.changed:
            return False
        if known.opened_at == -math.inf and self._opened_at != -math.inf:
            self._close(known.changed)
        self.changed, self._opened_at, self._level, self._closed_at = known[:4]
        self._proofs = 0
        return True

    def reopens_in(self, now: float) -> float:
        """Seconds until a trial is let through; 0 when it is."""
        return max(0.0, self._opened_at + self._open_for - now) if self._opened_at != -math.inf else 0.0

    def share(self, now: float) -> float:
        """The share of its requests that the engine is given, 0.1 to 1: it is less while it is still cold."""
        slow = self._rules.slow_start
        if not slow or now >= self._closed_at + slow:
            return 1.0
        return FIRST_SHARE + (1 - FIRST_SHARE) * (now - self._closed_at) / slow

    @property
    def _open_for(self) -> float:
        rules = self._rules
        return float(min(rules.open_max, rules.open_initial * 2 ** min(self._level - 1, 30)))
