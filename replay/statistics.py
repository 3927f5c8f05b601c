"""Exact tests, intervals, corrections and power, for counts of failures. Pure.

What each assumes:

- ``stratified_exact``: inside a stratum (a request) every run is as likely to have been the failing one: the labels
  inside and outside can be exchanged. It is the permutation test of labels within strata, enumerated instead of
  drawn; with one stratum it is Fisher's exact test. Strata may differ in their rates. Two-sided in Fisher's way: all
  outcomes no likelier than the one seen.
- ``cochran_mantel_haenszel``: the same null hypothesis by the normal distribution, for counts too large to enumerate.
- ``sign_test``: pairs are independent; only pairs that differ count (McNemar's exact test).
- ``clopper_pearson``: runs are independent and of one rate. Exact, so never too short.
- ``newcombe``: the difference of two independent rates (Newcombe 1998, method 10, from two Wilson intervals).
- ``holm``: nothing about how the tests depend on each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from scipy.special import betaincinv, gammaln, ndtr, ndtri

from replay.results import Interval, Rate

ALPHA: Final = 0.01
"""The level of every claim: small, because several families of tests speak in one triage."""

_ENUMERATED: Final = 4_000_000  # multiplications of one convolution, beyond which the normal form is taken
_TIE: Final = 1 + 1e-7  # outcomes whose probabilities differ by rounding only count as equally likely


class Stratum(NamedTuple):
    failures_in: int
    runs_in: int
    failures_out: int
    runs_out: int


class Tested(NamedTuple):
    p: float
    method: str


def fisher(failures_in: int, runs_in: int, failures_out: int, runs_out: int) -> float:
    """Fisher's exact test, two-sided."""
    return stratified_exact([Stratum(failures_in, runs_in, failures_out, runs_out)]).p


def stratified_exact(strata: Sequence[Stratum]) -> Tested:
    """The two-sided p-value of "inside fails as often as outside, within each stratum"."""
    table = np.array([each for each in strata if _tells(each)], dtype=np.int64).reshape(-1, 4)
    if not len(table):
        return Tested(1.0, "exact")
    failures, runs_in = table[:, 0] + table[:, 2], table[:, 1]
    total = runs_in + table[:, 3]
    low, high = np.maximum(0, failures - table[:, 3]), np.minimum(failures, runs_in)
    widths = high - low + 1
    if float(np.sum(np.cumsum(widths) * widths)) > _ENUMERATED:
        return Tested(cochran_mantel_haenszel(table), "Cochran-Mantel-Haenszel")
    law = np.ones(1)
    for lowest, width, fails, inside, runs in zip(low, widths, failures, runs_in, total, strict=True):
        law = np.convolve(law, _hypergeometric(lowest + np.arange(width), fails, inside, runs))
    seen = law[int(table[:, 0].sum() - low.sum())]
    p = float(law[law <= seen * _TIE].sum())
    return Tested(min(1.0, p), "Fisher's exact" if len(table) == 1 else "exact, stratified by request")


def cochran_mantel_haenszel(table: np.ndarray) -> float:
    """With the continuity correction. ``table`` has a row a stratum, as Stratum."""
    failures, total = table[:, 0] + table[:, 2], table[:, 1] + table[:, 3]
    expected, variance = moments(failures, table[:, 1], total)
    spread = float(variance.sum())
    if spread <= 0:
        return 1.0
    distance = max(0.0, abs(float(table[:, 0].sum() - expected.sum())) - 0.5)
    return float(2 * ndtr(-distance / math.sqrt(spread)))


def moments(failures: np.ndarray, runs_in: np.ndarray, total: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of the failures inside, when ``failures`` of ``total`` fall anywhere."""
    expected = runs_in * failures / np.maximum(total, 1)
    variance = expected * (total - failures) * (total - runs_in) / np.maximum(total * (total - 1.0), 1)
    return expected, variance


def sign_test(one_way: int, other_way: int) -> float:
    """Two-sided: of pairs that differ, as many each way."""
    pairs = one_way + other_way
    if not pairs:
        return 1.0
    counts = np.arange(min(one_way, other_way) + 1)
    tail = np.exp(gammaln(pairs + 1) - gammaln(counts + 1) - gammaln(pairs - counts + 1) - pairs * math.log(2)).sum()
    return min(1.0, 2 * float(tail))


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values, in the order given (Holm 1979)."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted, worst = [0.0] * len(p_values), 0.0
    for place, index in enumerate(order):
        worst = max(worst, min(1.0, p_values[index] * (len(p_values) - place)))
        adjusted[index] = worst
    return adjusted


def clopper_pearson(failures: int, runs: int, level: float = 0.95) -> Interval:
    tail = (1 - level) / 2
    low = float(betaincinv(failures, runs - failures + 1, tail)) if failures else 0.0
    high = float(betaincinv(failures + 1, runs - failures, 1 - tail)) if failures < runs else 1.0
    return Interval(low, high, level)


def rate(failures: int, runs: int, level: float = 0.95) -> Rate:
    return Rate(failures, runs, clopper_pearson(failures, runs, level))


def newcombe(failures_in: int, runs_in: int, failures_out: int, runs_out: int, level: float = 0.95) -> Interval:
    """The difference of the rates, inside less outside."""
    if not runs_in or not runs_out:
        return Interval(-1.0, 1.0, level)
    inside, outside = failures_in / runs_in, failures_out / runs_out
    low_in, high_in = _wilson(failures_in, runs_in, level)
    low_out, high_out = _wilson(failures_out, runs_out, level)
    difference = inside - outside
    below = math.hypot(inside - low_in, high_out - outside)
    above = math.hypot(high_in - inside, outside - low_out)
    return Interval(max(-1.0, difference - below), min(1.0, difference + above), level)


def repeats_to_tell(one: float, other: float, alpha: float = ALPHA, power: float = 0.8) -> int:
    """Runs in each of two arms so that Fisher's test at ``alpha`` finds rates ``one`` and ``other`` different in
    ``power`` of all cases (Fleiss, Tytun and Ury 1980, with the continuity correction). 0 when the rates are equal."""
    gap = abs(one - other)
    if gap == 0:
        return 0
    mean = (one + other) / 2
    wide = float(ndtri(1 - alpha / 2)) * math.sqrt(2 * mean * (1 - mean))
    narrow = float(ndtri(power)) * math.sqrt(one * (1 - one) + other * (1 - other))
    plain = (wide + narrow) ** 2 / gap**2
    return math.ceil(plain / 4 * (1 + math.sqrt(1 + 4 / (plain * gap))) ** 2)


def runs_to_see(failure_rate: float, certainty: float = 0.95) -> int:
    """Runs after which a failure of this rate has been seen at least once with this certainty. Raises ValueError when
    the rate is not above 0."""
    if failure_rate <= 0:
        raise ValueError("what never fails is never seen to fail")
    return 1 if failure_rate >= 1 else math.ceil(math.log(1 - certainty) / math.log(1 - failure_rate))


def _tells(stratum: Stratum) -> bool:
    failures, runs = stratum.failures_in + stratum.failures_out, stratum.runs_in + stratum.runs_out
    return bool(stratum.runs_in and stratum.runs_out and 0 < failures < runs)


def _hypergeometric(counts: np.ndarray, failures: int, runs_in: int, total: int) -> np.ndarray:
    def choose(n: int, k: np.ndarray) -> np.ndarray:
        return np.asarray(gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1))

    everything = choose(int(total), np.asarray(runs_in))
    law: np.ndarray = np.exp(
        choose(int(failures), counts) + choose(int(total - failures), runs_in - counts) - everything
    )
    return law


def _wilson(failures: int, runs: int, level: float) -> tuple[float, float]:
    z = float(ndtri((1 + level) / 2))
    share = failures / runs
    middle = (share + z * z / (2 * runs)) / (1 + z * z / runs)
    half = z * math.sqrt(share * (1 - share) / runs + z * z / (4 * runs * runs)) / (1 + z * z / runs)
    return max(0.0, middle - half), min(1.0, middle + half)
