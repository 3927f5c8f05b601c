"""Whose turn it is: tenants take turns, nobody is passed over for good, the queue stays bounded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from guard.fair_queue import FairQueue, Waiter


def waits(queue: FairQueue, tenants: str, route: str = "m") -> list[Waiter]:
    made = [Waiter(tenant, route, urgent=False) for tenant in tenants]
    for one in made:
        assert queue.add(one) is None
    return made


def order(queue: FairQueue) -> str:
    served = ""
    while (one := queue.turn(lambda _: True)) is not None:
        served += one.tenant.upper() if one.urgent else one.tenant
    return served


def test_tenants_take_turns() -> None:
    queue = FairQueue(20)
    waits(queue, "aaaaabbc")
    assert order(queue) == "abcabaaa"


def test_one_tenants_requests_go_in_their_order() -> None:
    queue = FairQueue(20)
    made = waits(queue, "aaaa")
    assert [queue.turn(lambda _: True) for _ in range(4)] == made


def test_who_cannot_use_what_is_free_keeps_the_place() -> None:
    queue = FairQueue(20)
    first, *_ = waits(queue, "a", route="x")
    waits(queue, "ab")
    served = queue.turn(lambda one: one.route == "m")
    assert served is not None
    assert served.tenant == "a"
    assert queue.turn(lambda one: one.route == "x") is first
    assert queue.turn(lambda one: one.route == "x") is None
    assert order(queue) == "b"


def test_what_is_under_way_comes_first_and_always_finds_room() -> None:
    queue = FairQueue(2)
    waits(queue, "ab")
    for _ in range(3):
        assert queue.add(Waiter("a", "m", urgent=True)) is None
    assert len(queue) == 5
    assert order(queue) == "AAAab"


def test_the_tenant_with_most_gives_way_with_its_youngest() -> None:
    queue = FairQueue(4)
    made = waits(queue, "aaaa")
    assert queue.add(Waiter("b", "m", urgent=False)) is made[-1]
    assert queue.add(late := Waiter("a", "m", urgent=False)) is late
    assert queue.add(Waiter("b", "m", urgent=False)) is made[-2]
    assert order(queue) == "abab"


def test_no_queue_at_all() -> None:
    queue = FairQueue(0)
    one = Waiter("a", "m", urgent=False)
    assert queue.add(one) is one
    assert len(queue) == 0


def test_who_leaves_is_gone_and_may_leave_twice() -> None:
    queue = FairQueue(4)
    made = waits(queue, "ab")
    urgent = Waiter("a", "m", urgent=True)
    queue.add(urgent)
    for one in (*made, urgent, *made, urgent):
        queue.remove(one)
    assert len(queue) == 0
    assert order(queue) == ""


def test_how_many_are_ahead() -> None:
    queue = FairQueue(9)
    waits(queue, "aab")
    waits(queue, "a", route="x")
    queue.add(Waiter("c", "m", urgent=True))
    assert (queue.ahead("m"), queue.ahead("x"), queue.ahead("y")) == (4, 1, 0)
    assert (queue.of_tenant("a"), queue.of_tenant("z")) == (3, 0)


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(["add", "urgent", "turn", "remove"])), max_size=120))
def test_it_is_bounded_and_loses_nobody(steps: list[tuple[str, str]]) -> None:
    queue = FairQueue(8)
    inside: list[Waiter] = []
    for tenant, what in steps:
        if what in ("add", "urgent"):
            one = Waiter(tenant, "m", urgent=what == "urgent")
            inside.append(one)
            away = queue.add(one)
            if away is not None:
                assert not away.urgent
                inside.remove(away)
        elif what == "turn":
            served = queue.turn(lambda _: True)
            assert (served is None) == (not inside)
            if served is not None:
                inside.remove(served)
        elif inside:
            queue.remove(inside.pop())
        assert len(queue) == len(inside)
        assert sum(not one.urgent for one in inside) <= 8
    while (served := queue.turn(lambda _: True)) is not None:
        inside.remove(served)
    assert inside == []


@given(st.lists(st.sampled_from("aaaaaabc"), min_size=1, max_size=40))
def test_a_tenant_with_one_request_never_waits_for_more_than_one_of_each_other(tenants: list[str]) -> None:
    queue = FairQueue(100)
    waits(queue, "".join(tenants))
    waits(queue, "z")
    assert order(queue).index("z") <= len(set(tenants))
