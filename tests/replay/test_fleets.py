"""Fleets with a planted cause are found out, and innocent ones are not blamed: a few seeds of each.

``make bench-triage`` runs a hundred seeds of each and prints the table.
"""

from __future__ import annotations

import pytest

from tests.bench.fleets import judge
from tests.replay.fleets import INNOCENT, PLANTED

SEEDS = (1, 2)  # the bound of 95 in 100 is for the bench; here each of a few must be right


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_cause_is_found_with_its_axes(name: str) -> None:
    for seed in SEEDS:
        verdict = judge(PLANTED[name](seed))
        assert verdict.cause_right, verdict
        assert verdict.axes_right, verdict


@pytest.mark.parametrize("name", INNOCENT)
def test_where_nothing_is_wrong_nothing_is_claimed(name: str) -> None:
    for seed in SEEDS:
        verdict = judge(INNOCENT[name](seed))
        assert not verdict.claims, verdict
        assert verdict.cause_right, verdict
