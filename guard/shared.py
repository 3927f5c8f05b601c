"""The table in memory through which workers know of each other (guard/health/others.py): counts, breakers, who waits.

- The supervisor makes it and gives every worker a seat of its own in it. A worker writes in its own seat only, so what
  it had is given back by clearing its seat, however it ended.
- A value is eight bytes and aligned, so it is read as it was written. What belongs together is read and written under a
  lock on the file, which the kernel takes from a process that ends.
- The memory is sparse: what no worker has written costs nothing.
- Engines are known by name and address, so that one that a reload has moved begins anew; tenants by a hash.
"""

from __future__ import annotations

import fcntl
import hashlib
import math
import mmap
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Final

from guard.config import Config
from guard.health.others import Known

SEATS: Final = 600
"""Two sets of as many workers as there may be, and some that end slowly."""

ENGINES: Final = 1024
ROUTES: Final = 1024
TENANTS: Final = 4096
PROBES: Final = 64
"""Places in a seat that are looked at for a tenant. One that finds none there is counted by its worker alone."""

_ENGINE, _ROUTE, _TENANT = 16, 4, 2  # words
_UNDER_WAY, _TRIALS, _CHANGED, _OPENED, _LEVEL, _CLOSED, _BUSY, _CAUSE = range(8)
_RANK, _REQUESTS, _RETRIES, _TOLD = range(4)
_CAUSE_BYTES: Final = (_ENGINE - _CAUSE) * 8
_HEADER: Final = 8
_ROUTES_AT: Final = ENGINES * _ENGINE
_TENANTS_AT: Final = _ROUTES_AT + ROUTES * _ROUTE
_SEAT: Final = _TENANTS_AT + TENANTS * _TENANT
_BYTES: Final = (_HEADER + SEATS * _SEAT) * 8


class Table:
    """What the supervisor holds. ``fd`` is for the workers to inherit."""

    def __init__(self) -> None:
        self.fd = os.memfd_create("outguard")
        os.ftruncate(self.fd, _BYTES)
        self._memory = mmap.mmap(self.fd, _BYTES)
        self._words = memoryview(self._memory).cast("d")
        self._taken: set[int] = set()
        self._engines: dict[str, int] = {}
        self._routes: dict[str, int] = {}

    def seat(self) -> int:
        """One that is free, and empty."""
        free = next(number for number in range(SEATS) if number not in self._taken)
        self._taken.add(free)
        self._words[0] = max(self._taken) + 1
        return free

    def clear(self, seat: int) -> None:
        """The worker that sat there has ended: it has nothing under way any more."""
        start = (_HEADER + seat * _SEAT) * 8
        self._memory[start : start + _SEAT * 8] = bytes(_SEAT * 8)
        self._taken.discard(seat)
        self._words[0] = max(self._taken, default=-1) + 1

    def places(self, config: Config) -> tuple[dict[str, int], dict[str, int]]:
        """Where the engines and the routes of a configuration stand in every seat. What finds no place any more is
        each worker's own."""
        engines = {one.name: _place(self._engines, f"{one.name} {one.url}", ENGINES) for one in config.engines}
        routes = {one.model: _place(self._routes, one.model, ROUTES) for one in config.routes}
        return (
            {name: place for name, place in engines.items() if place is not None},
            {name: place for name, place in routes.items() if place is not None},
        )


def _place(known: dict[str, int], name: str, most: int) -> int | None:
    if name not in known and len(known) < most:
        known[name] = len(known)
    return known.get(name)


class Seat:
    """One worker's view of the table; an Others. ``on_turn`` tells another worker that it is its turn."""

    any = True

    def __init__(self, fd: int, seat: int, engines: Mapping[str, int], routes: Mapping[str, int]) -> None:
        self._memory = mmap.mmap(fd, _BYTES)
        self._words = memoryview(self._memory).cast("d")
        self._hashes = memoryview(self._memory).cast("q")
        self._lock = _Lock(fd)
        self._seat = seat
        self._engines = {name: place * _ENGINE for name, place in engines.items()}
        self._routes = {name: _ROUTES_AT + place * _ROUTE for name, place in routes.items()}
        self.on_turn: Callable[[int], None] = lambda seat: None

    def alone(self) -> AbstractContextManager[object]:
        return self._lock

    # --- engines -----------------------------------------------------------------------------------------------------

    def has(self, engine: str, under_way: int, trials: int) -> None:
        place = self._engines.get(engine)
        if place is not None:
            at = self._own(place)
            self._words[at + _UNDER_WAY] = under_way
            self._words[at + _TRIALS] = trials

    def under_way(self, engine: str) -> int:
        return self._sum(self._engines.get(engine), _UNDER_WAY)

    def trials(self, engine: str) -> int:
        return self._sum(self._engines.get(engine), _TRIALS)

    def knows(self, engine: str, known: Known) -> None:
        place = self._engines.get(engine)
        if place is None:
            return
        at, words = self._own(place), self._words
        with self._lock:
            for word, value in (
                (_CHANGED, known.changed),
                (_OPENED, known.opened_at),
                (_LEVEL, known.level),
                (_CLOSED, known.closed_at),
                (_BUSY, known.busy_until),
            ):
                words[at + word] = value
            start = (at + _CAUSE) * 8
            self._memory[start : start + _CAUSE_BYTES] = known.cause.encode()[:_CAUSE_BYTES].ljust(_CAUSE_BYTES, b"\0")

    def news(self, engine: str) -> Known:
        place = self._engines.get(engine)
        latest, busy = Known(), 0.0
        if place is None:
            return latest
        words = self._words
        with self._lock:
            for at in self._elsewhere(place):
                busy = max(busy, words[at + _BUSY])
                if words[at + _CHANGED] > latest.changed:
                    start = (at + _CAUSE) * 8
                    cause = self._memory[start : start + _CAUSE_BYTES].rstrip(b"\0").decode(errors="replace")
                    latest = Known(
                        words[at + _CHANGED],
                        words[at + _OPENED],
                        int(words[at + _LEVEL]),
                        words[at + _CLOSED],
                        cause=cause,
                    )
        return latest._replace(busy_until=busy)

    # --- tenants -----------------------------------------------------------------------------------------------------

    def tenant_has(self, tenant: str, requests: int) -> None:
        key = _hash(tenant)
        free = None
        for at in self._probed(self._seat, key):
            if self._hashes[at] == key:
                free = at
                break
            if free is None and not self._words[at + 1]:
                free = at
            if not self._hashes[at]:
                break
        if free is not None:
            self._hashes[free] = key
            self._words[free + 1] = requests

    def of_tenant(self, tenant: str) -> int:
        key = _hash(tenant)
        found = 0.0
        for seat in range(int(self._words[0])):
            if seat == self._seat:
                continue
            for at in self._probed(seat, key):
                if self._hashes[at] == key:
                    found += self._words[at + 1]
                    break
                if not self._hashes[at]:
                    break
        return int(found)

    def _probed(self, seat: int, key: int) -> Iterable[int]:
        start = _HEADER + seat * _SEAT + _TENANTS_AT
        return (start + (key + step) % TENANTS * _TENANT for step in range(PROBES))

    # --- who waits ---------------------------------------------------------------------------------------------------

    def waits(self, route: str, rank: float | None) -> None:
        place = self._routes.get(route)
        if place is not None:
            self._words[self._own(place) + _RANK] = 0.0 if rank is None else rank

    def waiting(self, routes: Iterable[str]) -> tuple[float, int] | None:
        longest: tuple[float, int] | None = None
        for place in map(self._routes.get, routes):
            if place is None:
                continue
            for seat in range(int(self._words[0])):
                rank = self._words[_HEADER + seat * _SEAT + place + _RANK]
                if rank and seat != self._seat and (longest is None or rank < longest[0]):
                    longest = rank, seat
        return longest

    def turn(self, where: int) -> None:
        self.on_turn(where)

    # --- retries -----------------------------------------------------------------------------------------------------

    def spent(self, route: str, requests: int, retries: int, now: float) -> None:
        place = self._routes.get(route)
        if place is not None:
            at = self._own(place)
            self._words[at + _REQUESTS] = requests
            self._words[at + _RETRIES] = retries
            self._words[at + _TOLD] = now

    def spent_elsewhere(self, route: str, now: float, window: float) -> tuple[int, int]:
        place = self._routes.get(route)
        if place is None:
            return 0, 0
        fresh = [at for at in self._elsewhere(place) if now - self._words[at + _TOLD] <= window]
        return (
            int(sum(self._words[at + _REQUESTS] for at in fresh)),
            int(sum(self._words[at + _RETRIES] for at in fresh)),
        )

    # --- inside ------------------------------------------------------------------------------------------------------

    def _own(self, place: int) -> int:
        return _HEADER + self._seat * _SEAT + place

    def _elsewhere(self, place: int) -> list[int]:
        """Where the others have what this worker has at ``place`` of its seat."""
        return [_HEADER + seat * _SEAT + place for seat in range(int(self._words[0])) if seat != self._seat]

    def _sum(self, place: int | None, word: int) -> int:
        if place is None:
            return 0
        found = math.fsum(self._words[at + word] for at in self._elsewhere(place))
        return int(found)


class _Lock:
    """On the table's file, by this process; within itself it may be taken again."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._depth = 0

    def __enter__(self) -> None:
        if not self._depth:
            fcntl.lockf(self._fd, fcntl.LOCK_EX)
        self._depth += 1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._depth -= 1
        if not self._depth:
            fcntl.lockf(self._fd, fcntl.LOCK_UN)


def _hash(tenant: str) -> int:
    """Never 0, which stands for nobody."""
    digest = hashlib.blake2b(tenant.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True) or 1
