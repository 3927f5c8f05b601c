"""An outage is not made worse: over any window, further attempts are at most a share of the requests."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from guard.budget import STEPS, WINDOW, RetryBudget


def test_a_quiet_route_may_retry_a_little() -> None:
    budget = RetryBudget(0.2, 3)
    made = 0
    while budget.left(0.0):
        budget.spend(0.0)
        made += 1
    assert made == 3
    assert not budget.left(WINDOW - WINDOW / STEPS)
    assert budget.left(WINDOW)


def test_a_busy_one_its_share() -> None:
    budget = RetryBudget(0.2, 3)
    made = 0
    for i in range(1000):
        budget.request(i * 0.001)
        if budget.left(i * 0.001):
            budget.spend(i * 0.001)
            made += 1
    assert made == 200


def test_none_at_all() -> None:
    budget = RetryBudget(0.0, 0)
    budget.request(0.0)
    assert not budget.left(0.0)


@given(st.lists(st.tuples(st.floats(0, 3), st.booleans()), max_size=300))
def test_over_any_window_it_is_kept(steps: list[tuple[float, bool]]) -> None:
    ratio, floor = 0.2, 5
    budget = RetryBudget(ratio, floor)
    now = 0.0
    requests: list[float] = []
    retries: list[float] = []
    for pause, asks in steps:
        now += pause
        if asks:
            budget.request(now)
            requests.append(now)
        elif budget.left(now):
            budget.spend(now)
            retries.append(now)
            shortest = now - WINDOW * (STEPS - 1) / STEPS  # the window slides in steps
            recent = sum(at > shortest for at in retries)
            assert recent <= max(floor, ratio * sum(at > now - WINDOW for at in requests))
