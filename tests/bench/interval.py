"""Exact (Clopper-Pearson) confidence intervals of a share, without a statistics library."""

from __future__ import annotations

import math


def interval(hits: int, total: int, level: float = 0.95) -> tuple[float, float]:
    """The interval that holds the true share with probability ``level`` when ``hits`` of ``total`` were seen."""
    if total == 0:
        return 0.0, 1.0
    tail = (1 - level) / 2
    low = 0.0 if hits == 0 else _solve(lambda p: 1 - _at_most(hits - 1, total, p), tail)
    high = 1.0 if hits == total else _solve(lambda p: -_at_most(hits, total, p), -tail)
    return low, high


def _solve(rising: object, value: float) -> float:
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if rising(middle) < value:  # type: ignore[operator]
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _at_most(hits: int, total: int, p: float) -> float:
    """P(X <= hits) of a binomial, summed over whichever tail is shorter."""
    if hits < 0:
        return 0.0
    if p <= 0.0 or hits >= total:
        return 1.0
    if p >= 1.0:
        return 0.0
    if hits > total // 2:
        return 1.0 - sum(_point(k, total, p) for k in range(hits + 1, total + 1))
    return sum(_point(k, total, p) for k in range(hits + 1))


def _point(k: int, total: int, p: float) -> float:
    log = math.lgamma(total + 1) - math.lgamma(k + 1) - math.lgamma(total - k + 1)
    return math.exp(log + k * math.log(p) + (total - k) * math.log1p(-p))
