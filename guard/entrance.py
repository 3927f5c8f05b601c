"""The way in to the engines: a place for every attempt, a bounded wait for it, and an honest no.

- A request that finds a free place on an engine that takes requests passes at once; nothing else is done for it.
- Where every place is taken, or its tenant has as many as it may, it waits in a fair queue (fair_queue.py), ``wait``
  seconds at most. A place counts as its tenant's from the moment in which it is given.
- One that would wait longer than that, or than its deadline lets it, is refused at once, with the time after which a
  place is to be expected: those ahead of it, by the time that an attempt has lately taken, over the places.
- Where no engine takes requests at all, there is nothing to wait for.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from guard.admission import Job
from guard.fair_queue import FairQueue, Waiter
from guard.health.fleet import Fleet, Ticket
from guard.request import RequestError
from guard.routing import Router

LOOK_AGAIN: Final = 0.2
"""Seconds between two looks at the queue while somebody waits: an engine can come back without anybody leaving."""

UNKNOWN: Final = 1.0
"""Seconds after which to come again where no attempt has ended yet."""

SMOOTHING: Final = 0.1
"""Weight of the latest attempt in the mean time that one takes."""


class _Guest(Waiter):
    """``pick``: the engine that has a place for it, if any."""

    pick: Callable[[float], str | None]
    place: asyncio.Future[Ticket]


class Entrance:
    """``wait``: seconds; ``per_tenant``: requests of one tenant under way at once, 0 for any number."""

    def __init__(
        self,
        fleet: Fleet,
        routers: Mapping[str, Router],
        clock: Callable[[], float],
        *,
        length: int,
        wait: float,
        per_tenant: int = 0,
    ) -> None:
        self._fleet = fleet
        self._routers = routers
        self._clock = clock
        self._wait = wait
        self._per_tenant = per_tenant
        self._queue = FairQueue(length)
        self._tenants: Counter[str] = Counter()
        self._taken: dict[str, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        return len(self._queue)

    async def first(self, job: Job, choice: int = 0) -> Ticket:
        """A place for an answer's first attempt, on the engine that suits it best. Its tenant's count goes up with the
        request's first choice, until ``gone``. Raises RequestError."""
        request, now = job.request, self._clock()
        router = self._routers[request.model]
        router.budget.request(now)
        if not any(router.takes(name, now) for name in job.engines):
            raise RequestError(
                f"no engine takes requests for {request.model!r} now: {self._why_not(job.engines, now)}",
                code="engine_unavailable",
                retry_after=self._fleet.takes_again_in(job.engines, now),
            )

        def pick(now: float) -> str | None:
            crowded = choice == 0 and self._crowded(request.tenant)
            return None if crowded else router.first(job.engines, request, now)

        engine = pick(now) if not self._queue or not self._queue.ahead(request.model) else None
        if engine is not None:
            if choice == 0:
                self._tenants[request.tenant] += 1
            return self._fleet.begin(engine, now)
        if choice == 0:
            return await self._queued(job, pick)
        # the request has begun: its other choices take the time that they need
        return await self._queued(job, pick, urgent=True, patience=job.deadline - now)

    async def again(self, job: Job, engine: str) -> Ticket:
        """A place on this engine for an answer that is under way. Raises RequestError when none comes free in time."""
        if not self._fleet.full(engine):
            return self._fleet.begin(engine, self._clock())
        return await self._queued(job, lambda _: None if self._fleet.full(engine) else engine, urgent=True)

    def at_once(self, engine: str) -> Ticket:
        """A place on an engine that has one free, without any waiting."""
        return self._fleet.begin(engine, self._clock())

    def leave(self, ticket: Ticket) -> None:
        """The attempt is over: its place is free. Does nothing the second time."""
        if ticket.left:
            return
        took = self._clock() - ticket.since
        mean = self._taken.get(ticket.engine)
        self._taken[ticket.engine] = took if mean is None else mean + SMOOTHING * (took - mean)
        self._fleet.leave(ticket)
        if self._queue:
            self._serve()

    def gone(self, tenant: str) -> None:
        """A request that had its first place is over."""
        self._tenants[tenant] -= 1
        if not self._tenants[tenant]:
            del self._tenants[tenant]
        if self._queue:
            self._serve()

    # --- waiting -----------------------------------------------------------------------------------------------------

    async def _queued(
        self, job: Job, pick: Callable[[float], str | None], *, urgent: bool = False, patience: float | None = None
    ) -> Ticket:
        """``patience``: seconds; the longest wait that is configured, unless given."""
        request, now = job.request, self._clock()
        expected = self._expected(job, now)
        left = job.deadline - now
        longest = min(self._wait if patience is None else patience, left)
        if not urgent and expected > longest:
            short = "its deadline" if longest == left else f"the longest wait of {self._wait:g} s"
            raise _overloaded(f"a place is to be expected in {expected:.3g} s, which is over {short}", expected)
        place: asyncio.Future[Ticket] = asyncio.get_running_loop().create_future()
        guest = _Guest(request.tenant, request.model, urgent, pick, place)
        away = self._queue.add(guest)
        if away is guest:
            raise _overloaded(f"every place is taken, and {self.waiting} requests wait already", expected)
        if isinstance(away, _Guest) and not away.place.done():
            away.place.set_exception(_overloaded("the queue is full, and its tenant has most in it", expected))
        if pick(now) is not None:  # those ahead cannot use what is free, or it is their turn
            self._serve()
        self._look_again()
        try:
            async with asyncio.timeout(max(longest, 0.0)):
                return await place
        except TimeoutError:
            if place.done() and not place.cancelled():
                return place.result()  # in the very moment
            raise _overloaded(f"no place came free within {longest:.3g} s", self._expected(job, now)) from None
        except asyncio.CancelledError:
            if place.done() and not place.cancelled() and place.exception() is None:
                self.leave(place.result())
                if not guest.urgent:
                    self.gone(guest.tenant)
            raise
        finally:
            self._queue.remove(guest)

    def _serve(self) -> None:
        """Give what is free to those whose turn it is."""
        now = self._clock()
        picked = ""

        def served(waiter: Waiter) -> bool:
            nonlocal picked
            assert isinstance(waiter, _Guest)
            picked = waiter.pick(now) or ""
            return bool(picked)

        while self._queue and (guest := self._queue.turn(served)) is not None:
            assert isinstance(guest, _Guest)
            if not guest.place.done():
                if not guest.urgent:
                    self._tenants[guest.tenant] += 1
                guest.place.set_result(self._fleet.begin(picked, now))

    def _look_again(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_AGAIN, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if self._queue:
            self._serve()
        if self._queue:
            self._look_again()

    def _expected(self, job: Job, now: float) -> float:
        """Seconds until a place is to be expected; 0 where nothing is known yet."""
        names = [name for name in job.engines if self._fleet.takes(name, now)]
        known = [self._taken[name] for name in names if name in self._taken]
        if not known:
            return 0.0
        places = sum(self._fleet.places(name) for name in names)
        ahead = self._queue.ahead(job.request.model)
        if self._crowded(job.request.tenant):
            places, ahead = self._per_tenant, self._queue.of_tenant(job.request.tenant)
        return (ahead + 1) * sum(known) / len(known) / max(1, places)

    def _crowded(self, tenant: str) -> bool:
        return bool(self._per_tenant) and self._tenants[tenant] >= self._per_tenant

    def _why_not(self, names: Iterable[str], now: float) -> str:
        states = (self._fleet.state(name, now) for name in names)
        return ", ".join(f"{one.name} is {'draining' if one.draining else f'out ({one.cause})'}" for one in states)


def _overloaded(why: str, retry_after: float) -> RequestError:
    """``retry_after``: 0 where it is not known."""
    return RequestError(why, code="overloaded", retry_after=retry_after or UNKNOWN)
