"""Where requests go: the health of the engines, the routes over them and the way in, as one configuration has them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from guard.answer import Answer
from guard.attempt import Attempt
from guard.budget import RetryBudget
from guard.config import Config
from guard.entrance import Entrance
from guard.health.attempt import verdict_of
from guard.health.fleet import Fleet, Ticket
from guard.health.others import NOBODY, Others
from guard.routing import Router
from guard.watch import Condemned

_log: Final = logging.getLogger("outguard.traffic")


def out_message(fleet: Fleet, engine: str, now: float) -> str:
    """Said of an engine whose breaker has just opened."""
    seconds = fleet.state(engine, now).reopens_in
    if fleet.enforces:
        return f"{engine} is given no requests for {seconds:.3g} s"
    return f"{engine} would be given no requests for {seconds:.3g} s (health.mode is observe, so it is)"


class Traffic:
    """``clock``: seconds, monotonic. ``others``: the workers that ask the same engines."""

    def __init__(self, config: Config, clock: Callable[[], float], others: Others = NOBODY) -> None:
        self._clock = clock
        self._others = others
        limits = config.limits
        self.fleet = Fleet(
            config.health,
            {engine.name: engine.max_concurrency for engine in config.engines},
            [route.engines for route in config.routes],
            [engine.name for engine in config.engines if engine.drain],
            others,
        )
        origins = {engine.name: (engine.cluster, engine.image) for engine in config.engines}
        self.routers = {
            route.model: Router(
                route.engines,
                self.fleet,
                RetryBudget(limits.retry_ratio, limits.retry_floor, route.model, others),
                balanced=route.balance == "least_loaded",
                origins=origins,
            )
            for route in config.routes
        }
        self.entrance = Entrance(
            self.fleet,
            self.routers,
            clock,
            length=limits.queue_length,
            wait=limits.queue_seconds,
            per_tenant=limits.max_per_tenant,
            others=others,
        )

    def judge(self, one: Attempt, why: Condemned | None) -> None:
        """What an attempt says of its engine."""
        if one.alone:
            return
        now, fleet, answer, trail, ticket = self._clock(), self.fleet, one.answer, one.trail, one.ticket
        job = answer.job
        if answer.retry_after is not None:
            fleet.leave_alone(ticket.engine, answer.retry_after, now)
        contradicted = bool(trail.record.contradictions)
        cause, said = verdict_of(one.guard, answer.delivered, why, before=one.before, contradicted=contradicted)
        if said is None:
            return
        if not said.weight:
            if trail.first_out:
                self.routers[job.request.model].spoke_after(trail.first_out - trail.started)
            if answer.number > 1 and not answer.varied:
                fleet.answered(ticket, job.prompt_hash, now)
        prompt = job.prompt_hash if said.of_prompt else None
        if fleet.judge(ticket, said, now, cause=cause, prompt=prompt):
            told = out_message(fleet, ticket.engine, now)
            trail.noted("guard.engine_out", told)
            _log.warning("%s: %s", told, cause)

    def hedge_after(self, answer: Answer) -> float | None:
        """Seconds after which a second engine is to be asked for this attempt's first token; None: it is not."""
        after = answer.job.policy.hedge_after
        if after is None or answer.number > 1:
            return None
        return self.routers[answer.job.request.model].late() if after == "p95" else after

    def hedge(self, answer: Answer) -> Ticket | None:
        """A place for a second engine, if one is free and the budget allows it."""
        now = self._clock()
        budget = self.routers[answer.job.request.model].budget
        with self._others.alone():
            engine = answer.beside(now) if budget.left(now) else None
            if engine is None:
                return None
            budget.spend(now)
            return self.entrance.at_once(engine)

    def ready(self) -> bool:
        """Whether an engine of any route takes requests."""
        now = self._clock()
        return any(router.takes(name, now) for router in self.routers.values() for name in router.engines)
