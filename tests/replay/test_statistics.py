"""The tests and intervals against scipy.stats, brute force, and what they promise."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from replay.statistics import (
    ALPHA,
    Stratum,
    clopper_pearson,
    cochran_mantel_haenszel,
    fisher,
    holm,
    newcombe,
    rate,
    repeats_to_tell,
    runs_to_see,
    sign_test,
    stratified_exact,
)

ARM = st.integers(1, 30).flatmap(lambda runs: st.tuples(st.integers(0, runs), st.just(runs)))


@given(ARM, ARM)
def test_one_stratum_is_fishers_test(one: tuple[int, int], other: tuple[int, int]) -> None:
    table = [[one[0], one[1] - one[0]], [other[0], other[1] - other[0]]]
    assert fisher(*one, *other) == pytest.approx(stats.fisher_exact(table).pvalue, rel=1e-6)


def test_the_figure_of_the_issue() -> None:
    assert fisher(18, 20, 0, 140) == pytest.approx(stats.fisher_exact([[18, 2], [0, 140]]).pvalue, rel=1e-9)
    assert fisher(18, 20, 0, 140) < 1e-18


@settings(max_examples=40)
@given(
    st.lists(
        st.tuples(st.integers(1, 3), st.integers(1, 3)).flatmap(
            lambda arms: st.tuples(
                st.lists(st.booleans(), min_size=arms[0], max_size=arms[0]),
                st.lists(st.booleans(), min_size=arms[1], max_size=arms[1]),
            )
        ),
        min_size=1,
        max_size=3,
    )
)
def test_it_is_the_permutation_test_within_strata(runs: list[tuple[list[bool], list[bool]]]) -> None:
    """Every way to deal the failures out within each stratum, counted one by one."""
    ways: dict[int, int] = {0: 1}
    for inside, outside in runs:
        dealt: dict[int, int] = {}
        for places in itertools.combinations(range(len(inside) + len(outside)), sum(inside) + sum(outside)):
            hit = sum(place < len(inside) for place in places)
            dealt[hit] = dealt.get(hit, 0) + 1
        summed: dict[int, int] = {}
        for (a, many), (b, more) in itertools.product(ways.items(), dealt.items()):
            summed[a + b] = summed.get(a + b, 0) + many * more
        ways = summed
    seen = ways[sum(sum(inside) for inside, _ in runs)]
    expected = sum(many for many in ways.values() if many <= seen) / sum(ways.values())
    strata = [Stratum(sum(inside), len(inside), sum(outside), len(outside)) for inside, outside in runs]
    assert stratified_exact(strata).p == pytest.approx(expected)


def test_requests_of_different_rates_are_not_mistaken_for_an_effect() -> None:
    """Pooled, inside fails 55 of 110 and outside 19 of 110; within each request the rates are equal."""
    strata = [Stratum(54, 100, 5, 10), Stratum(1, 10, 14, 100)]
    assert fisher(55, 110, 19, 110) < 1e-5
    assert stratified_exact(strata).p > 0.5


def test_many_counts_are_taken_by_the_normal_form_which_agrees_with_the_exact_one() -> None:
    strata = [Stratum(5 + i % 3, 40, 4 + i % 2, 60) for i in range(80)]
    exact = stratified_exact(strata)
    assert exact.method.startswith("exact")
    assert cochran_mantel_haenszel(np.array(strata)) == pytest.approx(exact.p, rel=0.1)
    assert stratified_exact(strata * 20).method == "Cochran-Mantel-Haenszel"


@given(ARM, st.sampled_from([0.9, 0.95, 0.99]))
def test_clopper_pearson_is_scipys(arm: tuple[int, int], level: float) -> None:
    expected = stats.binomtest(*arm).proportion_ci(level)
    found = clopper_pearson(*arm, level)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def test_newcombes_interval_is_that_of_his_paper() -> None:
    """Newcombe 1998, table II, example (a): 56/70 against 48/80."""
    found = newcombe(56, 70, 48, 80)
    assert (found.low, found.high) == pytest.approx((0.0524, 0.3339), abs=1e-4)
    nothing = newcombe(0, 10, 0, 10)
    assert nothing.low < 0 < nothing.high


@pytest.mark.parametrize(("one", "other"), [(0, 0), (3, 3), (10, 0), (1, 7), (40, 12)])
def test_the_sign_test_is_the_binomial_one(one: int, other: int) -> None:
    expected = stats.binomtest(one, one + other).pvalue if one + other else 1.0
    assert sign_test(one, other) == pytest.approx(expected)


def test_holm() -> None:
    assert holm([]) == []
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.9]) == [1.0, 1.0]


@pytest.mark.parametrize(("one", "other"), [(0.1, 0.0), (0.5, 0.1), (0.2, 0.05), (0.9, 0.5), (0.3, 0.0)])
def test_the_repeats_asked_for_do_tell(one: float, other: float) -> None:
    """The power of Fisher's test at that number of repeats, over every possible outcome."""
    runs = repeats_to_tell(one, other)

    def power(n: int) -> float:
        counts = np.arange(n + 1)
        likely = np.outer(stats.binom.pmf(counts, n, one), stats.binom.pmf(counts, n, other))
        cells = [(a, b) for a, b in itertools.product(counts, counts) if likely[a, b] > 1e-7]
        return float(sum(likely[a, b] for a, b in cells if fisher(a, n, b, n) <= ALPHA))

    assert 0.78 < power(runs) < 0.96  # a rate of 0 is told a little sooner than the formula says
    assert power(runs // 2) < 0.7


def test_equal_rates_can_never_be_told_apart() -> None:
    assert repeats_to_tell(0.3, 0.3) == 0


def test_how_long_until_a_rare_failure_is_seen() -> None:
    assert runs_to_see(0.1) == 29
    assert 1 - (1 - 0.02) ** runs_to_see(0.02) >= 0.95
    assert runs_to_see(1.0) == 1
    with pytest.raises(ValueError, match="never"):
        runs_to_see(0.0)


def test_a_rate_prints_as_counts() -> None:
    assert str(rate(18, 20)) == "18/20"
    assert rate(0, 0).value == 0.0
    assert not math.isnan(rate(0, 0).interval.low)
