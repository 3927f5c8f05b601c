"""Where requests go: the health of the engines, the routes over them and the way in, as one configuration has them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from guard.admission import Job
from guard.answer import Answer
from guard.budget import RetryBudget
from guard.config import Config
from guard.entrance import Entrance
from guard.evidence import AttemptEvidence
from guard.health.attempt import verdict_of
from guard.health.fleet import Fleet, Ticket
from guard.routing import Router
from guard.stream import StreamGuard
from guard.watch import Condemned

_log: Final = logging.getLogger("outguard.traffic")


class Traffic:
    """``clock``: seconds, monotonic."""

    def __init__(self, config: Config, clock: Callable[[], float]) -> None:
        self._clock = clock
        limits = config.limits
        self.fleet = Fleet(
            config.health,
            {engine.name: engine.max_concurrency for engine in config.engines},
            [route.engines for route in config.routes],
            [engine.name for engine in config.engines if engine.drain],
        )
        origins = {engine.name: (engine.cluster, engine.image) for engine in config.engines}
        self.routers = {
            route.model: Router(
                route.engines,
                self.fleet,
                RetryBudget(limits.retry_ratio, limits.retry_floor),
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
        )

    def judge(
        self,
        job: Job,
        answer: Answer,
        guard: StreamGuard,
        trail: AttemptEvidence,
        ticket: Ticket,
        why: Condemned | None,
        before: int,
    ) -> None:
        """What an attempt says of its engine. ``before``: the characters that were delivered when it began."""
        if answer.alone:
            return
        now, fleet = self._clock(), self.fleet
        if answer.retry_after is not None:
            fleet.leave_alone(ticket.engine, answer.retry_after, now)
        contradicted = bool(trail.record.contradictions)
        cause, said = verdict_of(guard, answer.delivered, why, before=before, contradicted=contradicted)
        if said is None:
            return
        if not said.weight and answer.number > 1 and not answer.varied:
            fleet.answered(ticket, job.prompt_hash, now)
        prompt = job.prompt_hash if said.of_prompt else None
        if fleet.judge(ticket, said, now, cause=cause, prompt=prompt):
            told = f"{ticket.engine} is given no requests for {fleet.state(ticket.engine, now).reopens_in:.3g} s"
            trail.noted("guard.engine_out", told)
            _log.warning("%s: %s", told, cause)

    def ready(self) -> bool:
        """Whether an engine of any route takes requests."""
        now = self._clock()
        return any(self.fleet.takes(name, now) for name in self.fleet.routed)
