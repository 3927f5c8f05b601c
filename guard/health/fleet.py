"""The health of all engines: which of them can take a request now, and what each attempt adds to what is known.

The pipeline calls ``begin`` and ``leave`` around every attempt and ``judge`` once it knows what came of it; an attempt
that is never judged (its caller left) says nothing. Pure; times are seconds on a clock that is passed in.

Other workers behind the same address (others.py) count as well: what they have under way on an engine fills it, and a
breaker that opens or closes in one of them does so here within ``LOOK`` seconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from guard.health.breaker import Breaker, State
from guard.health.origin import Mark, Origins
from guard.health.others import NOBODY, Others
from guard.health.outlier import most_ejected, stands_out
from guard.health.settings import HealthSettings
from guard.health.verdict import Verdict

LONGEST_BUSY: Final = 60.0
"""Seconds for which an engine that said ``Retry-After`` is left alone at most, whatever it said."""


LOOK: Final = 0.25
"""Seconds between two looks at what other workers know."""


class Ticket(Struct):
    """One attempt under way on an engine, since when. ``trial``: it is to show whether the engine is well again."""

    engine: str
    trial: bool
    since: float
    left: bool = False


class EngineState(Struct):
    """``cause``: what opened the breaker last. ``reopens_in``: seconds until it is tried again. ``failure_rate``: the
    share of failures lately, of ``asked`` attempts (both decay). ``elsewhere``: what other workers have under way."""

    name: str
    state: State
    draining: bool = False
    under_way: int = 0
    cause: str = ""
    reopens_in: float = 0.0
    failure_rate: float = 0.0
    asked: float = 0.0
    openings: int = 0
    elsewhere: int = 0


class _Engine:
    __slots__ = (
        "breaker",
        "busy_until",
        "cause",
        "credit",
        "draining",
        "last_asked",
        "openings",
        "places",
        "told",
        "under_way",
    )

    def __init__(self, rules: HealthSettings, places: int, draining: bool) -> None:
        self.breaker = Breaker(rules)
        self.places = places
        self.draining = draining
        self.under_way = 0
        self.busy_until = 0.0
        self.credit = 0.0
        self.cause = ""
        self.openings = 0
        self.last_asked = -math.inf
        self.told = (0.0, 0.0)


class Fleet:
    """``engines``: the names, and how many attempts each may have under way at once (0: any number). ``draining``:
    those that take nothing new from the start. ``routes``: the engines that stand in for each other."""

    def __init__(
        self,
        rules: HealthSettings,
        engines: Mapping[str, int],
        routes: Iterable[Sequence[str]] = (),
        draining: Iterable[str] = (),
        others: Others = NOBODY,
    ) -> None:
        self._others = others
        self._looked = -math.inf
        self._enforces = rules.mode == "enforce"
        self._probed = rules.probe_interval > 0
        gone = set(draining)
        self._engines = {name: _Engine(rules, places, name in gone) for name, places in engines.items()}
        self._routes = [tuple(route) for route in routes]
        self._origins = Origins()

    # --- may it be asked ---------------------------------------------------------------------------------------------

    def takes(self, name: str, now: float) -> bool:
        """Whether a new attempt of a caller's may go to this engine. Where engines are probed, those that are being
        tried are left to the probes."""
        engine = self._engines[name]
        if engine.draining:
            return False
        if not self._enforces:
            return True
        self._look(now)
        return engine.breaker.closed if self._probed else self._admits(name, now)

    def last_resort(self, name: str) -> bool:
        """Whether it may be asked although it is out, where there is no other."""
        engine = self._engines[name]
        return not engine.draining and engine.breaker.last_resort

    def due(self, name: str, now: float, interval: float) -> bool:
        """Whether the engine is to be probed: it is being tried, or was asked nothing for ``interval`` seconds."""
        engine = self._engines[name]
        if engine.draining or self.full(name):
            return False
        if engine.breaker.closed:
            return not self.under_way(name) and now - engine.last_asked >= interval
        self._look(now)
        return self._admits(name, now)

    def _admits(self, name: str, now: float) -> bool:
        breaker = self._engines[name].breaker
        return breaker.admits(now) if breaker.closed else breaker.admits(now, self._others.trials(name))

    def busy(self, name: str, now: float) -> bool:
        """Whether it asked to be left alone for a while: then another is better, if there is one."""
        return self._enforces and now < self._engines[name].busy_until

    def warm(self, name: str, now: float) -> bool:
        """Whether it is this engine's turn, as far as its slow start goes: every time, unless it has just recovered.
        Looking changes nothing: ``turn`` is what counts."""
        share = self.share(name, now)
        return share >= 1.0 or self._engines[name].credit + share >= 1.0

    def turn(self, name: str, now: float, *, taken: bool) -> None:
        """A request has come that the engine could have had; ``taken``: and was given."""
        share = self.share(name, now)
        if share >= 1.0:
            return
        engine = self._engines[name]
        engine.credit += share
        if taken and engine.credit >= 1.0:
            engine.credit -= 1.0

    def takes_again_in(self, names: Iterable[str], now: float) -> float | None:
        """Seconds until one of these engines may take a request; None where all of them are draining."""
        engines = (self._engines[name] for name in names)
        waits = [engine.breaker.reopens_in(now) for engine in engines if not engine.draining]
        return min(waits, default=None)

    def share(self, name: str, now: float) -> float:
        """The share of its requests that an engine is given: less than 1 after it has recovered."""
        return self._engines[name].breaker.share(now) if self._enforces else 1.0

    @property
    def enforces(self) -> bool:
        """Whether engines are kept from requests, instead of only showing that they would be."""
        return self._enforces

    def full(self, name: str) -> bool:
        """Whether it has as much to do as it may."""
        engine = self._engines[name]
        return 0 < engine.places <= engine.under_way + self._others.under_way(name)

    def places(self, name: str) -> int:
        """How many attempts it may have under way at once; 0: any number."""
        return self._engines[name].places

    def under_way(self, name: str) -> int:
        """By all workers."""
        return self._engines[name].under_way + self._others.under_way(name)

    def draining(self, name: str) -> bool:
        return self._engines[name].draining

    # --- what came of it ---------------------------------------------------------------------------------------------

    def begin(self, name: str, now: float) -> Ticket:
        engine = self._engines[name]
        engine.under_way += 1
        engine.last_asked = now
        ticket = Ticket(name, engine.breaker.begin(), now)
        self._others.has(name, engine.under_way, engine.breaker.trials)
        return ticket

    def leave(self, ticket: Ticket) -> None:
        """The attempt is over. Does nothing the second time."""
        if ticket.left:
            return
        ticket.left = True
        engine = self._engines[ticket.engine]
        engine.under_way -= 1
        engine.breaker.leave(ticket.trial)
        self._others.has(ticket.engine, engine.under_way, engine.breaker.trials)

    def judge(
        self, ticket: Ticket, verdict: Verdict, now: float, *, cause: str = "", prompt: int | None = None
    ) -> bool:
        """Whether that opened the engine's breaker. ``prompt``: a hash of what was asked, for causes that may be the
        prompt's."""
        engine = self._engines[ticket.engine]
        breaker = engine.breaker
        if verdict.weight and verdict.of_prompt and prompt is not None:
            mark = Mark(ticket.engine, verdict.weight, now, breaker.turns, cause)
            counts, back = self._origins.collapsed(prompt, mark)
            for one in back:
                self._engines[one.engine].breaker.take_back(one.weight, one.at, one.turn, now)
            if not counts:
                self._tell()
                return False
        opened = breaker.judge(verdict.weight, now, trial=ticket.trial)
        if not opened and verdict.weight and breaker.state(now) == "closed" and self._stands_out(ticket.engine, now):
            breaker.open(now)
            opened = True
        if opened:
            engine.cause = cause
            engine.openings += 1
        self._tell()
        return opened

    def answered(self, ticket: Ticket, prompt: int, now: float) -> None:
        """This engine answered a prompt on which another may have collapsed before."""
        for mark in self._origins.answered(prompt, ticket.engine):
            engine = self._engines[mark.engine]
            if engine.breaker.turns == mark.turn and engine.breaker.judge(mark.weight, now, trial=False):
                engine.cause = mark.cause
                engine.openings += 1
        self._tell()

    def leave_alone(self, name: str, seconds: float, now: float) -> None:
        """The engine asked for so many seconds without requests."""
        self._engines[name].busy_until = now + min(seconds, LONGEST_BUSY)
        self._tell()

    def drain(self, name: str, draining: bool) -> None:
        """No new attempts, or again some; those under way go on. Raises KeyError."""
        self._engines[name].draining = draining

    # --- the other workers -------------------------------------------------------------------------------------------

    def _look(self, now: float) -> None:
        """What the others have seen of the engines since the last look."""
        if not self._others.any or now < self._looked + LOOK:
            return
        self._looked = now
        for name, engine in self._engines.items():
            known = self._others.news(name)
            engine.busy_until = max(engine.busy_until, known.busy_until)
            if engine.breaker.hear(known):
                engine.cause = known.cause
        self._tell()  # who comes later may hear it from here, when those that saw it have gone

    def _tell(self) -> None:
        if not self._others.any:
            return
        for name, engine in self._engines.items():
            now_known = (engine.breaker.changed, engine.busy_until)
            if now_known != engine.told:
                engine.told = now_known
                known = engine.breaker.known()._replace(busy_until=engine.busy_until, cause=engine.cause)
                self._others.knows(name, known)

    def _stands_out(self, name: str, now: float) -> bool:
        """In every route that the engine serves, and leaving each at least half of its engines."""
        routes = [route for route in self._routes if name in route]
        for engine in self._engines.values():
            engine.breaker.rate.age(now)
        own = self._engines[name].breaker.rate
        for route in routes:
            others = [self._engines[other] for other in route if other != name]
            out = sum(other.breaker.state(now) != "closed" or other.draining for other in others)
            if out + 1 > most_ejected(len(route)):
                return False
            if not stands_out(own, [other.breaker.rate for other in others]):
                return False
        return bool(routes)

    # --- to be seen --------------------------------------------------------------------------------------------------

    def states(self, now: float) -> list[EngineState]:
        return [self.state(name, now) for name in self._engines]

    def state(self, name: str, now: float) -> EngineState:
        self._look(now)
        engine = self._engines[name]
        breaker = engine.breaker
        breaker.rate.age(now)
        state = breaker.state(now)
        return EngineState(
            name,
            state,
            draining=engine.draining,
            under_way=engine.under_way,
            cause=engine.cause if state != "closed" else "",
            reopens_in=breaker.reopens_in(now),
            failure_rate=breaker.rate.share,
            asked=breaker.rate.asked,
            openings=engine.openings,
            elsewhere=self._others.under_way(name),
        )
