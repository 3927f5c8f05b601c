"""The breaker's three states on a clock that the test holds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.health.breaker import FIRST_SHARE, PROOFS, TRIALS, Breaker
from guard.health.settings import HealthSettings

RULES = HealthSettings(failures=3, failure_rate=0.5, open_initial=1.0, open_max=8.0, slow_start=10.0, window=60.0)


def opened(at: float = 0.0) -> Breaker:
    breaker = Breaker(RULES)
    for _ in range(2):
        assert not breaker.judge(1.0, at, trial=False)
    assert breaker.judge(1.0, at, trial=False)
    return breaker


def tried(breaker: Breaker, weight: float, now: float) -> bool:
    trial = breaker.begin()
    assert trial
    breaker.leave(trial)
    return breaker.judge(weight, now, trial=trial)


def recovered(at: float) -> Breaker:
    breaker = opened()
    for _ in range(PROOFS):
        tried(breaker, 0.0, at)
    return breaker


def test_failures_in_a_row_open_it() -> None:
    breaker = opened()
    assert breaker.state(0.5) == "open"
    assert not breaker.admits(0.5)
    assert breaker.reopens_in(0.25) == 0.75


def test_one_good_answer_between_them_is_enough() -> None:
    breaker = Breaker(RULES)
    for _ in range(2):
        for _ in range(2):
            assert not breaker.judge(1.0, 0, trial=False)
        breaker.judge(0.0, 0, trial=False)
    assert breaker.state(0) == "closed"


def test_half_failures_count_half() -> None:
    breaker = Breaker(RULES)
    results = [breaker.judge(0.5, 0, trial=False) for _ in range(6)]
    assert results == [False] * 5 + [True]


def test_a_high_share_of_failures_opens_it_although_never_many_in_a_row() -> None:
    breaker = Breaker(RULES)
    results = [breaker.judge(float(i % 3 > 0), i * 0.01, trial=False) for i in range(30)]
    assert any(results)
    assert results.index(True) >= 9  # of fewer than ten a share says nothing


def test_what_is_long_ago_is_forgotten() -> None:
    breaker = Breaker(RULES)
    for i in range(8):
        breaker.judge(float(i % 2), 0, trial=False)
    assert breaker.rate.share == 0.5
    for i in range(40):
        breaker.judge(0.0, 300 + i, trial=False)
    assert breaker.rate.share < 0.01


def test_after_its_time_single_requests_try_it() -> None:
    breaker = opened()
    assert breaker.state(1.0) == "half_open"
    for _ in range(TRIALS):
        assert breaker.admits(1.0)
        breaker.begin()
    assert not breaker.admits(1.0)
    breaker.leave(True)
    assert breaker.admits(1.0)


def test_trials_that_do_well_close_it_and_its_share_grows_slowly() -> None:
    breaker = opened()
    tried(breaker, 0.0, 1.0)
    assert breaker.state(1.0) == "half_open"
    for _ in range(PROOFS - 1):
        tried(breaker, 0.0, 1.5)
    assert breaker.state(1.5) == "closed"
    shares = [breaker.share(1.5 + second) for second in range(12)]
    assert shares[0] == pytest.approx(FIRST_SHARE)
    assert shares == sorted(shares)
    assert shares[10] == shares[11] == 1.0


def test_a_trial_that_fails_doubles_the_time_up_to_the_most() -> None:
    breaker = opened()
    now, waits = 0.0, []
    for _ in range(6):
        waits.append(breaker.reopens_in(now))
        now += waits[-1]
        assert tried(breaker, 1.0, now)
    assert waits == [1.0, 2.0, 4.0, 8.0, 8.0, 8.0]


def test_the_last_resort_ends_when_it_fails_as_often_again() -> None:
    breaker = opened()
    assert breaker.last_resort
    for i in range(3):
        assert not tried(breaker, 1.0, 0.1 * i)  # while it is open: nobody is told again
    assert not breaker.last_resort
    assert breaker.reopens_in(0.5) == 0.5  # and it is no longer out than it was


def test_the_last_resort_can_close_it() -> None:
    breaker = opened()
    tried(breaker, 1.0, 0.1)
    tried(breaker, 0.0, 0.2)
    assert breaker.state(0.2) == "open"
    tried(breaker, 0.0, 0.3)
    assert breaker.state(0.3) == "closed"


def test_a_trial_that_says_little_leaves_it_half_open() -> None:
    breaker = opened()
    assert not tried(breaker, 0.3, 1.0)
    assert breaker.state(1.0) == "half_open"
    assert breaker.admits(1.0)


def test_what_began_before_it_opened_changes_nothing() -> None:
    breaker = opened()
    for weight in (0.0, 1.0, 0.0):
        assert not breaker.judge(weight, 1.0, trial=False)
    assert breaker.state(1.0) == "half_open"


def test_a_relapse_within_the_slow_start_waits_longer_and_one_after_it_does_not() -> None:
    soon, late = recovered(1.0), recovered(1.0)
    for _ in range(3):
        soon.judge(1.0, 2.0, trial=False)
    assert soon.reopens_in(2.0) == 2.0
    late.judge(0.0, 20.0, trial=False)
    for _ in range(3):
        late.judge(1.0, 20.0, trial=False)
    assert late.reopens_in(20.0) == 1.0


def test_a_failure_that_was_not_its_own_closes_it_again() -> None:
    breaker = opened(at=5.0)
    breaker.take_back(1.0, 5.0, breaker.turns, 5.2)
    assert breaker.state(5.2) == "closed"
    assert breaker.in_a_row == 2.0
    assert breaker.share(5.2) == 1.0
    breaker.judge(1.0, 5.3, trial=False)
    assert breaker.reopens_in(5.3) == 1.0  # no longer than the first time


def test_what_was_counted_before_a_recovery_cannot_be_taken_back_from_what_came_after() -> None:
    breaker = recovered(1.0)
    breaker.judge(1.0, 2.0, trial=False)
    breaker.take_back(1.0, 0.0, 0, 2.0)
    assert breaker.in_a_row == 1.0


def test_taking_back_undoes_what_time_has_made_of_it() -> None:
    breaker = Breaker(RULES)
    breaker.judge(1.0, 0.0, trial=False)
    breaker.judge(0.5, 10.0, trial=False)
    breaker.take_back(1.0, 0.0, 0, 30.0)
    expected = Breaker(RULES)
    expected.judge(0.5, 10.0, trial=False)
    expected.rate.age(30.0)
    assert breaker.rate.failed == pytest.approx(expected.rate.failed)


STEPS = st.lists(st.tuples(st.sampled_from(["ask", "good", "bad", "cancel"]), st.floats(0, 5)), max_size=60)


@given(STEPS)
def test_whatever_happens_it_lets_requests_through_again(steps: list[tuple[str, float]]) -> None:
    """Never more trials at a time than allowed, never an open time over the most, never stuck."""
    breaker = Breaker(RULES)
    under_way: list[bool] = []
    now = 0.0
    for what, pause in steps:
        now += pause
        if what == "ask":
            if breaker.admits(now):
                under_way.append(breaker.begin())
        elif under_way:
            trial = under_way.pop(0)
            breaker.leave(trial)
            if what != "cancel":
                breaker.judge(float(what == "bad"), now, trial=trial)
        assert breaker.reopens_in(now) <= RULES.open_max
        assert sum(under_way) <= TRIALS
    for trial in under_way:
        breaker.leave(trial)
    assert breaker.admits(now + RULES.open_max)
