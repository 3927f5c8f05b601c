"""Does the answer depend on the load, or on the cache? Pure.

Within one set-up the runs of a request are cut in two arms (alone and under load, cold and warm). The null hypothesis
is that a run's arm does not change what it answers, so that arms can be exchanged among the runs of a request. Two
tests, the smaller p-value counts double:

- where most of a request's runs agree, in both arms taken together: whether those that do not fall into one arm
  (exact, stratified by request and set-up). Finds rare disturbances over many requests.
- where they do not: Fisher's test of the commonest answer against the arms, request by request, put together with
  Fisher's combination of p-values. Finds answers that change as a whole, whichever way.

A single run in each arm that differs proves a difference and no dependence: such pairs are counted, not tested.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct
from scipy.special import chdtrc

from replay.groups import Group
from replay.observation import Observation
from replay.results import Rate
from replay.statistics import Stratum, fisher, rate, stratified_exact

_SMALLEST: Final = 1e-300


class Dependence(Struct, frozen=True):
    """``base`` and ``other``: how many runs of each arm are not the request's commonest answer. ``compared`` counts the
    requests (in each set-up) that ran in both arms, ``differing`` those whose arms differ in their commonest answer,
    ``unrepeated`` those of them with one run an arm. ``p`` is 1 where nothing can be tested."""

    base: Rate
    other: Rate
    compared: int
    differing: int
    unrepeated: int
    p: float

    @property
    def repeated(self) -> bool:
        return self.base.runs + self.other.runs > 2 * self.compared


def dependence(
    groups: Sequence[Group], base: Callable[[Observation], bool], other: Callable[[Observation], bool]
) -> Dependence:
    """``groups``: the runs of one request in one set-up each."""
    clear: list[Stratum] = []
    unclear: list[float] = []
    totals = [0, 0, 0, 0]
    compared = differing = unrepeated = 0
    for group in groups:
        one, two = group.part(base), group.part(other)
        if not one.runs or not two.runs:
            continue
        compared += 1
        if one.mode() != two.mode():
            differing += 1
            unrepeated += len(one.runs) == len(two.runs) == 1
        both = one.keys + two.keys
        mode = Group(group.request_id, one.runs + two.runs, both).mode()
        counted = Stratum(_unlike(two, mode), len(two.runs), _unlike(one, mode), len(one.runs))
        totals = [total + each for total, each in zip(totals, counted, strict=True)]
        if both.count(mode) * 2 > len(both):
            clear.append(counted)
        elif len(both) > 2:
            unclear.append(fisher(*counted))
    p = min(stratified_exact(clear).p, combined(unclear))
    return Dependence(
        base=rate(totals[2], totals[3]),
        other=rate(totals[0], totals[1]),
        compared=compared,
        differing=differing,
        unrepeated=unrepeated,
        p=min(1.0, 2 * p),
    )


def combined(p_values: Sequence[float]) -> float:
    """Fisher's combination of independent p-values; too large rather than too small where they are discrete."""
    if not p_values:
        return 1.0
    return float(chdtrc(2 * len(p_values), -2 * sum(math.log(max(p, _SMALLEST)) for p in p_values)))


def _unlike(group: Group, answer: object) -> int:
    return sum(key != answer for key in group.keys)
