"""Which engine is asked: in order, by load, by what it knows, and by what failed."""

from __future__ import annotations

from collections import Counter

import pytest

from guard.budget import RetryBudget
from guard.health.fleet import Fleet
from guard.health.settings import HealthSettings
from guard.health.verdict import Verdict
from guard.request import GenerationRequest
from guard.routing import HEAD_CHARS, Router, head

ORIGINS = {"a": ("east", "v1"), "b": ("east", "v1"), "c": ("west", "v2"), "d": ("", "")}


def made(engines: str, *, balanced: bool = False, **rules: float) -> tuple[Router, Fleet]:
    fleet = Fleet(HealthSettings(failures=1, **rules), dict.fromkeys(engines, 0))  # type: ignore[arg-type]
    return Router(engines, fleet, RetryBudget(0.2, 10), balanced=balanced, origins=ORIGINS), fleet


def asked(prompt: str = "Tell me a story.") -> GenerationRequest:
    return GenerationRequest("r", "chat", "m", [{"role": "user", "content": prompt}])


def fails(fleet: Fleet, name: str) -> None:
    ticket = fleet.begin(name, 0.0)
    fleet.leave(ticket)
    fleet.judge(ticket, Verdict(1.0), 0.0)


def test_in_order_it_is_the_first_that_takes_requests() -> None:
    router, fleet = made("abc")
    assert router.first("abc", asked(), 0) == "a"
    fails(fleet, "a")
    assert router.first("abc", asked(), 0) == "b"
    fleet.drain("b", True)
    assert router.first("abc", asked(), 0) == "c"
    fleet.drain("c", True)
    assert router.first("abc", asked(), 0) == "a"  # better than none, until it has shown that it is not
    assert router.takes("a", 0)
    fails(fleet, "a")
    assert router.first("abc", asked(), 0) is None
    assert not router.takes("a", 0)


def test_one_that_asked_to_be_left_alone_is_asked_last() -> None:
    router, fleet = made("abc")
    fleet.leave_alone("a", 5, 0)
    assert router.first("abc", asked(), 0) == "b"
    assert router.first("a", asked(), 0) == "a"


def test_one_that_has_just_recovered_gets_a_share_unless_it_is_alone() -> None:
    router, fleet = made("ab", slow_start=10.0)
    fails(fleet, "a")
    for _ in range(2):
        ticket = fleet.begin("a", 0.0)
        fleet.leave(ticket)
        fleet.judge(ticket, Verdict(0.0), 5.0)
    chosen: Counter[str] = Counter()
    for _ in range(100):
        looks = {router.first("ab", asked(), 10.0) for _ in range(3)}  # to look is no turn
        (name,) = looks
        assert name
        router.placed("ab", name, 10.0)
        chosen[name] += 1
    assert 50 <= chosen["a"] <= 60
    assert router.first("a", asked(), 5.0) == "a"


def test_by_load_the_least_loaded_is_asked() -> None:
    router, fleet = made("abc", balanced=True)
    chosen = Counter()
    for i in range(300):
        name = router.first("abc", asked(f"prompt {i}"), 0)
        assert name
        fleet.begin(name, 0.0)
        chosen[name] += 1
    assert max(chosen.values()) <= 1.5 * min(chosen.values()) + 2


def test_prompts_that_begin_alike_go_to_one_engine() -> None:
    router, _ = made("abc", balanced=True)
    system = "You are a helpful assistant. " * 50
    assert len({router.first("abc", asked(system + str(i)), 0) for i in range(20)}) == 1
    spread = Counter(router.first("abc", asked(f"{i} {system}"), 0) for i in range(300))
    assert all(60 < count < 140 for count in spread.values())


def test_the_others_keep_their_prompts_when_an_engine_goes() -> None:
    router, fleet = made("abc", balanced=True)
    before = {i: router.first("abc", asked(f"{i}"), 0) for i in range(100)}
    fleet.drain("a", True)
    after = {i: router.first("abc", asked(f"{i}"), 0) for i in range(100)}
    assert all(after[i] == before[i] for i in before if before[i] != "a")
    assert {after[i] for i in before if before[i] == "a"} == {"b", "c"}


def test_affinity_is_given_up_where_it_would_overload() -> None:
    router, fleet = made("abc", balanced=True)
    chosen = Counter()
    for _ in range(60):
        name = router.first("abc", asked(), 0)
        assert name
        fleet.begin(name, 0.0)
        chosen[name] += 1
    assert max(chosen.values()) <= 1.5 * 61 / 3 + 1
    assert len(chosen) == 3


@pytest.mark.parametrize(
    ("failed", "best"),
    [("a", "c"), ("b", "c"), ("c", "a"), ("d", "a")],
)
def test_after_a_failure_another_cluster_and_image_come_first(failed: str, best: str) -> None:
    router, _ = made("abcd")
    names = [name for name in "abc" if name != failed]
    assert min(names, key=lambda name: router.rank(name, failed, 0)) == best


def test_what_is_unknown_is_not_taken_for_shared() -> None:
    router, _ = made("ad")
    assert router.rank("a", "d", 0)[1] == 0
    assert router.rank("d", "d", 0)[1] == 0


def test_the_beginning_of_every_kind_of_prompt() -> None:
    pictures = [{"type": "image_url", "image_url": {"url": "data:" + "x" * 10_000}}, {"type": "text", "text": "What?"}]
    request = GenerationRequest("r", "chat", "m", [{"role": "system"}, {"role": "user", "content": pictures}])
    assert head(request) == b"What?"
    assert len(head(asked("é" * 5000))) == 2 * HEAD_CHARS
    assert head(GenerationRequest("r", "completion", "m", prompt="Once \ud800")) == b"Once ?"
    assert head(GenerationRequest("r", "completion", "m", prompt=(1, 2, 3))) == b"(1, 2, 3)"
