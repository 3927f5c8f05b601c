"""An attempt whose first token is late, and a second beside it on another engine: which goes on, and what is kept
of the other (hedge.py has the race itself)."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import aclosing
from typing import Any

from guard.answer import Answer
from guard.attempt import Attempt, Attempts
from guard.engines.contract import EngineStream
from guard.evidence import AttemptEvidence, Evidence
from guard.hedge import Lead, lead, race
from guard.traffic import Traffic
from guard.watch import Condemned, Plan

Open = Callable[[Answer, AttemptEvidence], Coroutine[Any, Any, EngineStream | None]]


class Racing:
    """``open_`` asks the answer's engine, ``judge`` says why an attempt must not stand and counts it."""

    def __init__(
        self,
        traffic: Traffic,
        attempts: Attempts,
        open_: Open,
        judge: Callable[[Attempt], Condemned | None],
        clock: Callable[[], float],
    ) -> None:
        self._traffic = traffic
        self._attempts = attempts
        self._open = open_
        self._judge = judge
        self._clock = clock

    async def run(
        self, first: Attempt, plan: Plan, evidence: Evidence, after: float
    ) -> tuple[Attempt, EngineStream | None]:
        """The attempt that goes on, and its stream if it opened one: ``first``, or the one that was asked for when no
        token had come after so many seconds. Whichever it is not has been cancelled and is on record."""
        second: Attempt | None = None
        winner = first
        leads: list[Lead | None] = []

        def other() -> Coroutine[Any, Any, Lead] | None:
            nonlocal second
            ticket = self._traffic.hedge(first.answer)
            if ticket is None:
                return None
            first.trail.noted("guard.hedged", f"no token after {after:.3g} s: {ticket.engine} was asked as well")
            second = self._attempts.begin(first.answer.twin(ticket.engine), plan, evidence, ticket)
            return lead(self._open(second.answer, second.trail))

        try:
            leads = await race(lead(self._open(first.answer, first.trail)), after, other)
            if second is None:
                return first, leads[0].stream if leads[0] is not None else None
            both = (first, second)
            best = next((i for i, came in enumerate(leads) if came is not None and came.spoke), 1)
            winner, came = both[best], leads[best]
            await self._outrun(both[1 - best], leads[1 - best])
            winner.answer.goes_on(both[1 - best].answer)
            return winner, came.stream if came is not None else None
        except BaseException:
            winner = first  # whose end is the caller's to see to
            for came in leads:
                if came is not None and came.stream is not None:
                    await came.stream.aclose()
            raise
        finally:
            for one in (first, second):
                if one is not None and one is not winner:
                    self._end(one)

    async def _outrun(self, loser: Attempt, came: Lead | None) -> None:
        """What it says of its engine: nothing, where it was cancelled."""
        if came is not None and came.stream is not None:
            loser.hears(came.stream)
            async with aclosing(came.stream):
                async for events in came.stream:
                    loser.guard.feed(events)
            loser.trail.why = loser.guard.condemned
        self._end(loser)
        loser.trail.outrun()
        if came is not None:
            self._judge(loser)

    def _end(self, one: Attempt) -> None:
        if not one.ticket.left:
            self._traffic.entrance.leave(one.ticket)
            one.trail.close(one.guard, self._clock())
