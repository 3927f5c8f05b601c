"""Who waits for a place, and whose turn it is. Pure.

- Tenants take turns, each in the order in which its own requests came; whoever cannot use what is free is passed over
  and keeps its place.
- An answer that is under way already (a retry, a resume) comes before all that have not begun, and always finds room.
- The queue is bounded. When it is full, the tenant that has most in it gives way with its youngest, so that one tenant
  cannot keep the others out (the longest queue drops: McKenney, stochastic fairness queueing, 1990).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from itertools import chain

from msgspec import Struct


class Waiter(Struct, eq=False):
    """``urgent``: its answer is under way already."""

    tenant: str
    route: str
    urgent: bool


class FairQueue:
    """``length``: of those that have not begun."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._tenants: OrderedDict[str, deque[Waiter]] = OrderedDict()
        self._urgent: deque[Waiter] = deque()
        self._waiting = 0

    def __len__(self) -> int:
        return self._waiting + len(self._urgent)

    def __iter__(self) -> Iterator[Waiter]:
        return chain(self._urgent, *self._tenants.values())

    def add(self, waiter: Waiter) -> Waiter | None:
        """Returns who is turned away for it, which may be itself."""
        if waiter.urgent:
            self._urgent.append(waiter)
            return None
        line = self._tenants.setdefault(waiter.tenant, deque())
        line.append(waiter)
        self._waiting += 1
        if self._waiting <= self._length:
            return None
        longest = max(self._tenants.values(), key=len)
        away = waiter if len(longest) == len(line) else longest[-1]
        self.remove(away)
        return away

    def remove(self, waiter: Waiter) -> None:
        """Does nothing when it is not there."""
        if waiter.urgent:
            if waiter in self._urgent:
                self._urgent.remove(waiter)
            return
        line = self._tenants.get(waiter.tenant)
        if line is None or waiter not in line:
            return
        line.remove(waiter)
        self._waiting -= 1
        if not line:
            del self._tenants[waiter.tenant]

    def turn(self, served: Callable[[Waiter], bool]) -> Waiter | None:
        """The next whom ``served`` takes; it leaves the queue, and its tenant goes behind the others."""
        for waiter in self._urgent:
            if served(waiter):
                self._urgent.remove(waiter)
                return waiter
        for tenant, line in self._tenants.items():
            for waiter in line:
                if served(waiter):
                    self.remove(waiter)
                    if tenant in self._tenants:
                        self._tenants.move_to_end(tenant)
                    return waiter
        return None

    def ahead(self, route: str) -> int:
        """How many wait for this route."""
        urgent = sum(waiter.route == route for waiter in self._urgent)
        return urgent + sum(waiter.route == route for line in self._tenants.values() for waiter in line)

    def of_tenant(self, tenant: str) -> int:
        return len(self._tenants.get(tenant, ()))
