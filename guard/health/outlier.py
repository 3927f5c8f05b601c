"""Whether an engine fails more often than its route's other engines, beyond what chance does. Pure.

A fixed share of failures cannot tell a sick engine from a hard load: where every engine breaks a fifth of its answers,
it is the load or the model; where one does, it is that engine. The test is the usual one for two proportions
(pooled variance, one-sided); ``STANDS_OUT`` standard errors are seen by chance less than once in 30,000 looks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from guard.health.breaker import LEAST_ASKED, Rate

STANDS_OUT: Final = 4.0
LEAST_MORE: Final = 0.1
"""A difference in the share of failures that is worth an ejection, however certain a smaller one may be."""


def stands_out(own: Rate, others: Sequence[Rate]) -> bool:
    """All rates are of the same age."""
    asked = sum(rate.asked for rate in others)
    if own.asked < LEAST_ASKED or asked < LEAST_ASKED:
        return False
    failed = sum(rate.failed for rate in others)
    more = own.share - failed / asked
    if more < LEAST_MORE:
        return False
    pooled = (own.failed + failed) / (own.asked + asked)
    error = math.sqrt(pooled * (1 - pooled) * (1 / own.asked + 1 / asked))
    return error == 0 or more / error >= STANDS_OUT


def most_ejected(engines: int) -> int:
    """How many engines of a route may be out for standing out, those that are out for any reason counted."""
    return engines // 2
