"""The way in to the engines: a place for every attempt, a bounded wait for it, and an honest no.

- A request that finds a free place on an engine that takes requests passes at once; nothing else is done for it.
- Where every place is taken, or its tenant has as many as it may, it waits in a fair queue (fair_queue.py), ``wait``
  seconds at most. A place counts as its tenant's from the moment in which it is given.
- One that would wait longer than that, or than its deadline lets it, is refused at once, with the time after which a
  place is to be expected: those ahead of it, by the time that an attempt has lately taken, over the places.
- Where no engine takes requests at all, there is nothing to wait for.
- An answer that is under way waits for its next attempt before all that have not begun, for as long as its deadline
  lets it: on the engine that was chosen, or on another that can do the same.
- Places are counted over all workers (guard/health/others.py). Who has waited longest comes first there as well: a
  place that comes free is left to the worker where that is, which is told, and for ``DEFERRED`` seconds at most.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from guard.admission import Job
from guard.fair_queue import FairQueue, Waiter
from guard.health.fleet import Fleet, Ticket
from guard.health.others import NOBODY, Others
from guard.request import RequestError
from guard.routing import Router

LOOK_AGAIN: Final = 0.2
"""Seconds between two looks at the queue while somebody waits: an engine can come back without anybody leaving."""

DEFERRED: Final = 0.05
"""The same where there are other workers, whose places come free without a word; what nobody has taken until then is
anybody's."""

AHEAD: Final = 1e6
"""Seconds by which an answer that is under way has waited longer than any that has not begun."""

UNKNOWN: Final = 1.0
"""Seconds after which to come again where no attempt has ended yet."""

SMOOTHING: Final = 0.1
"""Weight of the latest attempt in the mean time that one takes."""


class _Guest(Waiter):
    """``pick``: the engine that has a place for it, if any. ``vain``: why there is nothing to wait for any more."""

    pick: Callable[[float], str | None]
    place: asyncio.Future[Ticket]
    since: float
    engines: Sequence[str]
    vain: Callable[[float], RequestError | None] | None = None

    @property
    def rank(self) -> float:
        return self.since - AHEAD if self.urgent else self.since


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
        others: Others = NOBODY,
    ) -> None:
        self._others = others
        self._look_every = DEFERRED if others.any else LOOK_AGAIN
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

        waited_for = (self._queue and self._queue.ahead(request.model)) or self._others.waiting((request.model,))
        with self._others.alone():
            engine = pick(now) if not waited_for else None
            if engine is not None:
                return self._given(request.model, job.engines, engine, now, tenant=None if choice else request.tenant)
        if choice == 0:
            return await self._queued(job, pick)
        # the request has begun: its other choices take the time that they need
        return await self._queued(job, pick, urgent=True, patience=job.deadline - now)

    async def again(self, job: Job, engines: Sequence[str]) -> Ticket:
        """A place for an answer that is under way, on the first of these engines that has one. Raises RequestError:
        none came free before the deadline, or they take nothing new any more."""
        router, since = self._routers[job.request.model], self._clock()

        def pick(now: float) -> str | None:
            return next((name for name in engines if router.free(name, now)), None)

        def vain(now: float) -> RequestError | None:
            drained = all(map(self._fleet.draining, engines))
            out = now > since + self._wait and not any(router.takes(name, now) for name in engines)
            if not drained and not out:
                return None
            why = f"no engine that can go on with the answer takes requests now: {self._why_not(engines, now)}"
            again_in = self._fleet.takes_again_in(engines, now)
            return RequestError(why, code="engine_unavailable", retry_after=again_in)

        if (error := vain(since)) is not None:
            raise error
        with self._others.alone():
            engine = pick(since)
            if engine is not None:
                return self._fleet.begin(engine, since)
        return await self._queued(job, pick, urgent=True, patience=job.deadline - since, engines=engines, vain=vain)

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
        self._free(ticket.engine)

    def gone(self, tenant: str) -> None:
        """A request that had its first place is over."""
        self._count(tenant, -1)
        if self._per_tenant:
            self._free()

    def look(self) -> None:
        """It is the turn of who waits here, another worker says."""
        if self._queue:
            self._serve(their_turn=True)

    # --- waiting -----------------------------------------------------------------------------------------------------

    async def _queued(
        self,
        job: Job,
        pick: Callable[[float], str | None],
        *,
        urgent: bool = False,
        patience: float | None = None,
        engines: Sequence[str] | None = None,
        vain: Callable[[float], RequestError | None] | None = None,
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
        guest = _Guest(request.tenant, request.model, urgent, pick, place, now, engines or job.engines, vain)
        away = self._queue.add(guest)
        if away is guest:
            raise _overloaded(f"{self._taken_by(request.tenant)}, and {self.waiting} requests wait already", expected)
        if isinstance(away, _Guest) and not away.place.done():
            away.place.set_exception(_overloaded("the queue is full, and its tenant has most in it", expected))
        self._tell(request.model)
        if pick(now) is not None:  # those ahead cannot use what is free, or it is their turn
            self._serve()
        self._look_again()
        try:
            async with asyncio.timeout(max(longest, 0.0)):
                return await place
        except TimeoutError:
            if place.done() and not place.cancelled():
                return place.result()  # in the very moment
            if urgent:
                why = "the deadline passed while the answer waited for a place to go on"
                raise RequestError(why, code="deadline_exceeded") from None
            why = f"{self._taken_by(request.tenant)}, and none came free within {longest:.3g} s"
            raise _overloaded(why, self._expected(job, now)) from None
        except asyncio.CancelledError:
            if place.done() and not place.cancelled() and place.exception() is None:
                self.leave(place.result())
                if not guest.urgent:
                    self.gone(guest.tenant)
            raise
        finally:
            self._queue.remove(guest)
            self._tell(request.model)

    def _given(self, route: str, names: Sequence[str], engine: str, now: float, *, tenant: str | None = None) -> Ticket:
        """``tenant``: of a request that begins."""
        if tenant is not None:
            self._count(tenant, 1)
        self._routers[route].placed(names, engine, now)
        return self._fleet.begin(engine, now)

    def _count(self, tenant: str, more: int) -> None:
        self._tenants[tenant] += more
        if self._per_tenant:
            self._others.tenant_has(tenant, self._tenants[tenant])
        if not self._tenants[tenant]:
            del self._tenants[tenant]

    def _free(self, engine: str | None = None) -> None:
        """Something has come free: for those here, or first for who has waited longer elsewhere."""
        if self._others.any:
            routes = [name for name, router in self._routers.items() if engine is None or engine in router.engines]
            longest = self._others.waiting(routes)
            if longest is not None and all(longest[0] < guest.rank for guest in self._guests()):
                self._others.turn(longest[1])
                return  # what is not taken there is looked at again here
        if self._queue:
            self._serve()

    def _guests(self) -> Iterable[_Guest]:
        return (guest for guest in self._queue if isinstance(guest, _Guest))

    def _tell(self, route: str) -> None:
        """The other workers, who has waited longest here."""
        if self._others.any:
            self._others.waits(route, min((one.rank for one in self._guests() if one.route == route), default=None))

    def _serve(self, *, their_turn: bool = False) -> None:
        """Give what is free to those whose turn it is; ``their_turn``: whoever may have waited longer elsewhere."""
        with self._others.alone():
            self._serve_here(their_turn)

    def _serve_here(self, their_turn: bool) -> None:
        now = self._clock()
        picked = ""

        def served(waiter: Waiter) -> bool:
            nonlocal picked
            assert isinstance(waiter, _Guest)
            longest = None if their_turn else self._others.waiting((waiter.route,))
            picked = "" if longest is not None and longest[0] < waiter.rank else waiter.pick(now) or ""
            return bool(picked)

        while self._queue and (guest := self._queue.turn(served)) is not None:
            assert isinstance(guest, _Guest)
            self._tell(guest.route)
            if not guest.place.done():
                tenant = None if guest.urgent else guest.tenant
                guest.place.set_result(self._given(guest.route, guest.engines, picked, now, tenant=tenant))

    def _look_again(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._look_every, self._tick)

    def _tick(self) -> None:
        self._timer = None
        now = self._clock()
        for guest in list(self._guests()):
            if guest.vain is not None and not guest.place.done() and (error := guest.vain(now)) is not None:
                guest.place.set_exception(error)
        if self._queue:
            self._serve(their_turn=True)
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
        if not self._per_tenant:
            return False
        return self._tenants[tenant] + self._others.of_tenant(tenant) >= self._per_tenant

    def _taken_by(self, tenant: str) -> str:
        """What keeps a request of this tenant's out."""
        return "the tenant has every place that it may" if self._crowded(tenant) else "every place is taken"

    def _why_not(self, names: Iterable[str], now: float) -> str:
        states = (self._fleet.state(name, now) for name in names)
        return ", ".join(f"{one.name} is {'draining' if one.draining else f'out ({one.cause})'}" for one in states)


def _overloaded(why: str, retry_after: float) -> RequestError:
    """``retry_after``: 0 where it is not known."""
    return RequestError(why, code="overloaded", retry_after=retry_after or UNKNOWN)
