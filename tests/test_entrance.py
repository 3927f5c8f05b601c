"""Places on engines: at once where one is free, a fair and bounded wait where not, an honest no where it is vain."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable

import pytest

from guard.admission import Job
from guard.budget import RetryBudget
from guard.config import Policy
from guard.entrance import UNKNOWN, Entrance
from guard.health.fleet import Fleet, Ticket
from guard.health.settings import HealthSettings
from guard.request import GenerationRequest, RequestError
from guard.routing import Router


class Door:
    """One route over a (two places) and b (one), unless told otherwise."""

    def __init__(self, engines: dict[str, int] | None = None, *, length: int = 4, wait: float = 5.0, tenant: int = 0):
        engines = engines or {"a": 2, "b": 1}
        self.names = tuple(engines)
        self.fleet = Fleet(HealthSettings(failures=1), engines, [self.names])
        router = Router(
            self.names, self.fleet, RetryBudget(0.2, 10), balanced=False, origins=dict.fromkeys(engines, ("", ""))
        )
        self.entrance = Entrance(self.fleet, {"m": router}, time.monotonic, length=length, wait=wait, per_tenant=tenant)

    def job(self, tenant: str = "t", seconds: float = 60.0) -> Job:
        request = GenerationRequest("r", "chat", "m", [], tenant=tenant)
        return Job(request, Policy(), "default", self.names, None, {}, time.monotonic() + seconds)

    async def enter(self, tenant: str = "t", seconds: float = 60.0) -> Ticket:
        return await self.entrance.first(self.job(tenant, seconds))

    def later(self, tenant: str = "t", seconds: float = 60.0) -> asyncio.Task[Ticket]:
        return asyncio.ensure_future(self.enter(tenant, seconds))


async def refused(entering: Awaitable[Ticket]) -> RequestError:
    with pytest.raises(RequestError) as raised:
        await entering
    return raised.value


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_while_there_are_places_nobody_waits() -> None:
    door = Door()
    assert [(await door.enter()).engine for _ in range(3)] == ["a", "a", "b"]


async def test_then_the_next_waits_for_one_to_come_free() -> None:
    door = Door()
    first, *_ = [await door.enter() for _ in range(3)]
    waiting = door.later()
    await settled()
    assert not waiting.done()
    assert door.entrance.waiting == 1
    door.entrance.leave(first)
    assert (await waiting).engine == "a"
    assert (door.fleet.under_way("a"), door.entrance.waiting) == (2, 0)


async def test_an_engine_without_a_limit_takes_any_number() -> None:
    door = Door({"a": 0})
    assert {(await door.enter()).engine for _ in range(100)} == {"a"}


async def test_whoever_comes_later_does_not_pass_by() -> None:
    door = Door({"a": 1})
    held = await door.enter()
    first = door.later()
    await settled()
    door.entrance.leave(held)  # the place is the first one's from this moment on
    second = door.later()
    ticket = await first
    await settled()
    assert not second.done()
    door.entrance.leave(ticket)
    await second


async def test_tenants_take_turns() -> None:
    door = Door({"a": 1}, length=20)
    held = await door.enter()
    order: list[str] = []

    async def passes(tenant: str) -> None:
        ticket = await door.enter(tenant)
        order.append(tenant)
        await asyncio.sleep(0)
        door.entrance.leave(ticket)

    tasks = [asyncio.ensure_future(passes(tenant)) for tenant in "xxxxyz"]
    await settled()
    door.entrance.leave(held)
    await asyncio.gather(*tasks)
    assert "".join(order) == "xyzxxx"


async def test_a_full_queue_turns_the_next_away() -> None:
    door = Door({"a": 1}, length=1)
    held = await door.enter()
    waiting = door.later()
    await settled()
    error = await refused(door.enter())
    assert error.code == "overloaded"
    assert "1 requests wait already" in error.message
    assert error.retry_after == UNKNOWN
    door.entrance.leave(held)
    await waiting


async def test_a_greedy_tenant_gives_way_in_a_full_queue() -> None:
    door = Door({"a": 1}, length=2)
    held = await door.enter()
    greedy = [door.later("greedy") for _ in range(2)]
    await settled()
    modest = door.later("modest")
    assert (await refused(greedy[1])).code == "overloaded"
    door.entrance.leave(held)
    door.entrance.leave(await greedy[0])
    await modest


async def test_nobody_waits_for_longer_than_the_longest_wait() -> None:
    door = Door({"a": 1}, wait=0.05)
    await door.enter()
    began = time.monotonic()
    error = await refused(door.enter())
    assert error.code == "overloaded"
    assert 0.04 < time.monotonic() - began < 1.0
    assert door.entrance.waiting == 0


async def test_a_deadline_that_cannot_be_met_is_refused_at_once_with_when_to_come_again() -> None:
    door = Door({"a": 2})
    ticket = await door.enter()
    ticket.since -= 3.0  # an attempt takes three seconds
    door.entrance.leave(ticket)
    held = [await door.enter(), await door.enter()]
    began = time.monotonic()
    error = await refused(door.enter(seconds=1.0))
    assert time.monotonic() - began < 0.5
    assert error.code == "overloaded"
    assert error.retry_after == pytest.approx(1.5, rel=0.1)  # one ahead of nobody, two places
    assert "which is over its deadline" in error.message
    waiting = door.later(seconds=10.0)
    await settled()
    assert (await refused(door.enter(seconds=2.9))).retry_after == pytest.approx(3.0, rel=0.1)
    door.entrance.leave(held[0])
    await waiting


async def test_nothing_is_waited_for_where_no_engine_takes_requests() -> None:
    door = Door()
    for name in "ab":
        door.fleet.drain(name, True)
    error = await refused(door.enter())
    assert (error.code, error.retry_after) == ("engine_unavailable", None)
    assert error.message.endswith("a is draining, b is draining")


async def test_an_engine_that_comes_back_is_given_to_those_that_wait() -> None:
    door = Door()
    door.fleet.drain("b", True)
    _held = [await door.enter() for _ in range(2)]
    waiting = door.later()
    await settled()
    door.fleet.drain("b", False)
    assert (await waiting).engine == "b"


async def test_a_tenant_has_no_more_than_its_own() -> None:
    door = Door({"a": 0}, tenant=2)
    tickets = [await door.enter("x"), await door.enter("x")]
    await door.enter("y")
    waiting = door.later("x")
    await settled()
    assert not waiting.done()
    door.entrance.leave(tickets[0])
    await settled()
    assert not waiting.done()  # its answer may have another attempt
    door.entrance.gone("x")
    await waiting


async def test_who_is_refused_hears_whether_its_tenant_or_everybody_has_the_places() -> None:
    door = Door({"a": 3}, length=1, wait=0.02, tenant=2)
    for _ in range(2):
        await door.enter("x")
    waiting = door.later("x")
    await settled()
    assert "the tenant has every place that it may" in (await refused(door.enter("x"))).message
    assert "the tenant has every place that it may" in (await refused(waiting)).message
    await door.enter("y")
    assert "every place is taken" in (await refused(door.enter("z"))).message


async def test_when_a_tenants_request_ends_only_one_that_waits_takes_its_place() -> None:
    door = Door({"a": 0}, tenant=1)
    await door.enter("x")
    waiting = [door.later("x") for _ in range(3)]
    await settled()
    for ended in range(1, 4):
        door.entrance.gone("x")
        await settled()
        assert sum(one.done() for one in waiting) == ended
    door.entrance.gone("x")
    await door.enter("x")


@pytest.mark.parametrize("placed", [False, True])
async def test_a_caller_that_leaves_takes_nothing_of_its_tenants(placed: bool) -> None:
    door = Door({"a": 0}, tenant=1)
    await door.enter("x")
    waiting = door.later("x")
    await settled()
    if placed:
        door.entrance.gone("x")  # its place is there, and it does not know yet
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    if not placed:
        door.entrance.gone("x")
    await asyncio.wait_for(door.enter("x"), 0.1)


async def test_a_tenant_that_has_all_that_it_may_is_in_nobodys_way() -> None:
    door = Door({"a": 0}, tenant=1)
    await door.enter("x")
    waiting = door.later("x")
    await settled()
    others = [door.later("y"), door.later("z")]
    await settled()
    assert [one.done() for one in others] == [True, True]
    assert not waiting.done()
    waiting.cancel()


async def test_what_is_under_way_comes_first() -> None:
    door = Door({"a": 1})
    held = await door.enter()
    new = door.later()
    await settled()
    resumed = asyncio.ensure_future(door.entrance.again(door.job(), ["a"]))
    await settled()
    door.entrance.leave(held)
    ticket = await resumed
    await settled()
    assert not new.done()
    door.entrance.leave(ticket)
    await new


@pytest.mark.parametrize("placed", [False, True])
async def test_a_caller_that_leaves_takes_no_place(placed: bool) -> None:
    door = Door({"a": 1})
    held = await door.enter()
    waiting = door.later()
    await settled()
    if placed:
        door.entrance.leave(held)  # its place is there, and it does not know yet
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    door.entrance.leave(held)
    assert (door.fleet.under_way("a"), door.entrance.waiting) == (0, 0)
    await door.enter()


async def test_a_ticket_is_given_back_once() -> None:
    door = Door({"a": 1})
    ticket = await door.enter()
    for _ in range(3):
        door.entrance.leave(ticket)
    assert door.fleet.under_way("a") == 0


async def test_a_crowd() -> None:
    """Never more under way than there are places, everyone gets an end, nobody is left in the queue."""
    before = asyncio.all_tasks()
    door = Door({"a": 3, "b": 2}, length=30, wait=0.4)
    most = 0
    ends: list[str] = []

    async def one(number: int) -> None:
        nonlocal most
        await asyncio.sleep(number % 7 * 0.003)
        try:
            ticket = await door.enter("xyz"[number % 3], seconds=0.05 + number % 5 * 0.1)
        except RequestError as error:
            ends.append(error.code)
            return
        most = max(most, door.fleet.under_way("a") + door.fleet.under_way("b"))
        try:
            await asyncio.sleep(0.01)
        finally:
            door.entrance.leave(ticket)
            door.entrance.gone("xyz"[number % 3])
        ends.append("")

    tasks = [asyncio.ensure_future(one(number)) for number in range(150)]
    await asyncio.sleep(0.05)
    for task in tasks[::9]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert most == 5
    assert set(ends) == {"", "overloaded"}
    assert len(ends) + sum(task.cancelled() for task in tasks) == 150
    assert (door.fleet.under_way("a"), door.fleet.under_way("b"), door.entrance.waiting) == (0, 0, 0)
    assert asyncio.all_tasks() == before
