"""All engines together: who takes requests, who is blamed, who is put out."""

from __future__ import annotations

import pytest

from guard.health.fleet import LONGEST_BUSY, Fleet
from guard.health.settings import HealthSettings
from guard.health.verdict import WELL, Verdict

RULES = HealthSettings(failures=3, open_initial=1.0, slow_start=0.0)
FAILED = Verdict(1.0)
COLLAPSED = Verdict(1.0, of_prompt=True)


def fleet(engines: str = "abc", rules: HealthSettings = RULES, **more: list[str]) -> Fleet:
    return Fleet(rules, dict.fromkeys(engines, 0), [tuple(engines)], **more)


def ends(fleet: Fleet, name: str, said: Verdict, now: float = 0.0, prompt: int | None = None) -> bool:
    ticket = fleet.begin(name, 0.0)
    fleet.leave(ticket)
    return fleet.judge(ticket, said, now, cause="stream.cut", prompt=prompt)


def test_a_breaker_keeps_requests_away_and_says_why() -> None:
    it = fleet()
    opened = [ends(it, "a", FAILED) for _ in range(3)]
    assert opened == [False, False, True]
    assert [name for name in "abc" if it.takes(name, 0.5)] == ["b", "c"]
    state = it.state("a", 0.5)
    assert (state.state, state.cause, state.reopens_in, state.openings) == ("open", "stream.cut", 0.5, 1)
    assert it.takes_again_in("a", 0.5) == 0.5
    assert it.takes_again_in("ab", 0.5) == 0.0
    assert it.takes("a", 1.0)


def test_only_observed_it_takes_everything_and_is_seen_to_be_open() -> None:
    it = fleet(rules=RULES.model_copy(update={"mode": "observe"}))
    for _ in range(3):
        ends(it, "a", FAILED)
    assert it.takes("a", 0.5)
    assert it.state("a", 0.5).state == "open"


def test_tickets_count_what_is_under_way_once() -> None:
    it = fleet()
    tickets = [it.begin("a", 0.0) for _ in range(3)]
    assert it.under_way("a") == 3
    for ticket in tickets * 2:
        it.leave(ticket)
    assert it.under_way("a") == 0


def test_a_trial_whose_caller_left_leaves_the_trial_to_the_next() -> None:
    it = fleet()
    for _ in range(3):
        ends(it, "a", FAILED)
    ticket = it.begin("a", 0.0)
    assert not it.takes("a", 2.0)
    it.leave(ticket)
    assert it.takes("a", 2.0)


def test_draining_takes_nothing_new() -> None:
    it = fleet(draining=["a"])
    assert not it.takes("a", 0)
    assert it.takes_again_in("a", 0) is None
    it.drain("b", True)
    assert not it.takes("b", 0)
    it.drain("a", False)
    assert it.takes("a", 0)
    with pytest.raises(KeyError):
        it.drain("x", True)


def test_an_engine_is_left_alone_as_it_asked_but_not_for_ever() -> None:
    it = fleet()
    it.leave_alone("a", 5.0, 10.0)
    assert it.busy("a", 14.0)
    assert it.takes("a", 14.0)
    it.leave_alone("b", 1e9, 10.0)
    assert not it.busy("b", 10.0 + LONGEST_BUSY)


def test_a_prompt_that_collapses_everywhere_opens_nothing() -> None:
    it = fleet()
    for prompt in range(50):
        for name in "abc":
            ends(it, name, COLLAPSED, now=prompt * 0.1, prompt=prompt)
    assert [state.state for state in it.states(5.0)] == ["closed"] * 3
    assert it.state("a", 5.0).openings == 0


def test_an_engine_that_collapses_where_others_answer_is_out() -> None:
    it = fleet()
    for prompt in range(3):
        ends(it, "a", COLLAPSED, prompt=prompt)
        ticket = it.begin("b", 0.0)
        it.leave(ticket)
        it.answered(ticket, prompt, 0.0)
        it.judge(ticket, WELL, 0.0)
    assert [state.state for state in it.states(0.0)] == ["open", "closed", "closed"]


def test_two_that_collapse_where_the_third_answers_are_out_both() -> None:
    it = fleet()
    for prompt in range(8):
        for name in "ab":
            ends(it, name, COLLAPSED, now=prompt * 0.01, prompt=prompt)
        ticket = it.begin("c", 0.0)
        it.leave(ticket)
        it.answered(ticket, prompt, prompt * 0.01)
        it.judge(ticket, WELL, prompt * 0.01)
    assert [state.state for state in it.states(0.1)] == ["open", "open", "closed"]
    assert [state.cause for state in it.states(0.1)] == ["stream.cut", "stream.cut", ""]


def test_one_poisonous_prompt_does_not_put_out_the_only_engine() -> None:
    it = fleet("a")
    assert not any(ends(it, "a", COLLAPSED, now=i * 0.1, prompt=7) for i in range(100))


def _share(it: Fleet, name: str, every: int, asked: int = 60) -> bool:
    """Fails once in ``every``; never twice in a row."""
    return sum(ends(it, name, FAILED if i % every == 0 else WELL) for i in range(asked)) > 0


def test_one_that_stands_out_is_put_out_although_it_answers_mostly() -> None:
    it = fleet()
    for name in "bc":
        assert not _share(it, name, 40)
    assert _share(it, "a", 3)


def test_where_all_fail_alike_none_stands_out() -> None:
    it = fleet()
    for name in "abc":
        assert not _share(it, name, 3)


def test_never_more_than_half_are_put_out_for_standing_out() -> None:
    it = fleet()
    it.drain("c", True)
    assert not _share(it, "c", 40)
    assert not _share(it, "b", 40)
    assert not _share(it, "a", 3)
    assert it.takes("a", 0)


def test_the_slow_start_gives_an_engine_its_share() -> None:
    it = fleet(rules=RULES.model_copy(update={"slow_start": 10.0}))
    assert all(it.warm("a", 0) for _ in range(10))
    for _ in range(3):
        ends(it, "a", FAILED)
    for _ in range(2):
        ends(it, "a", WELL, now=1.0)
    assert it.state("a", 1.0).state == "closed"
    assert not any(it.warm("a", 1.0) for _ in range(100))  # to look is no turn

    def turns(now: float) -> int:
        taken = 0
        for _ in range(100):
            warm = it.warm("a", now)
            it.turn("a", now, taken=warm)
            taken += warm
        return taken

    assert turns(1.0) in (9, 10, 11)
    assert turns(6.0) in (54, 55, 56)
    assert all(it.warm("a", 11.0) for _ in range(10))
