"""Runs a plan: the lanes side by side, each one volley after the other, every volley in the journal as it ends.

An engine that answers none of ``GIVE_UP`` volleys in a row is given up: what was planned for it stays to be run by a
resume, and so do those volleys. A cancelled run closes its streams; what was under way is run again by a resume.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from replay.journal import Journal
from replay.observation import Observation
from replay.plan import Plan, Volley
from replay.run import Runner
from replay.source import ReplayError, Source

GIVE_UP = 5


class Progress(Struct):
    """What has become of one volley. ``lane``: its engine's address."""

    lane: str
    engine: str
    volley: Volley
    observations: list[Observation]


class Outcome(Struct):
    """``given_up``: why, by lane. ``unsent``: requests that could not be sent, with the reason. ``left``: volleys that
    were not run; ``stopped``: because the run was told to end."""

    observations: list[Observation]
    given_up: dict[str, str]
    unsent: dict[str, str]
    left: int
    stopped: bool = False


async def run_plan(
    plan: Plan,
    sources: Sequence[Source],
    beside: Mapping[str, Source],
    runner: Runner,
    journal: Journal,
    *,
    per_second: float = 0.0,
    stop: asyncio.Event | None = None,
    told: Callable[[Progress], None] = lambda _: None,
) -> Outcome:
    """``stop`` ends it early: the outcome is of what was done until then. ``told`` hears of every volley that ends, and
    of those that the journal already had."""
    run = _Run(plan, sources, beside, runner, journal, per_second, told)
    working = asyncio.ensure_future(run.all())
    stopping = asyncio.ensure_future(stop.wait()) if stop is not None else None
    try:
        await asyncio.wait([working, *([stopping] if stopping else [])], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (working, stopping):
            if task is not None and not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
    if working.done() and not working.cancelled():
        working.result()
    outcome = run.outcome()
    outcome.stopped = stop is not None and stop.is_set()
    return outcome


def settled(observations: Sequence[Observation]) -> bool:
    """Whether a volley is over: it was answered, or refused for good. One that found nobody is tried again."""
    return not observations or any(not one.error or one.error.startswith("HTTP 4") for one in observations)


class _Run:
    def __init__(
        self,
        plan: Plan,
        sources: Sequence[Source],
        beside: Mapping[str, Source],
        runner: Runner,
        journal: Journal,
        per_second: float,
        told: Callable[[Progress], None],
    ) -> None:
        self._plan = plan
        self._sources = sources
        self._known = {source.id: source for source in (*beside.values(), *sources)}
        self._runner = runner
        self._journal = journal
        self._per_second = per_second
        self._told = told
        self._seen: dict[str, list[Observation]] = {}
        self._given_up: dict[str, str] = {}
        self._unsent: dict[str, str] = {}

    async def all(self) -> None:
        async with asyncio.TaskGroup() as group:
            for lane, volleys in self._plan.lanes.items():
                group.create_task(self._lane(lane, volleys))

    async def _lane(self, lane: str, volleys: Sequence[Volley]) -> None:
        refused = 0
        free_at = time.monotonic()
        for volley in volleys:
            known = self._journal.done.get(volley.key)
            if known is not None and settled(known):
                self._end(lane, volley, known)
                continue
            if self._per_second:
                await asyncio.sleep(max(0.0, free_at - time.monotonic()))
                free_at = max(free_at, time.monotonic()) + volley.requests / self._per_second
            observations = await self._fire(volley)
            if observations is None:
                continue
            self._journal.add(volley.key, observations)
            self._end(lane, volley, observations)
            refused = refused + 1 if observations and all(one.error for one in observations) else 0
            if refused >= GIVE_UP:
                self._given_up[lane] = f"{refused} in a row got no answer: {observations[-1].error}"
                return

    async def _fire(self, volley: Volley) -> list[Observation] | None:
        """None where a request of it cannot be sent at all."""
        try:
            ready = [await self._runner.prepare(self._sources[index]) for index in volley.observed]
            beside = [await self._runner.prepare(self._known[id_]) for id_ in volley.beside if id_ in self._known]
        except ReplayError as error:
            for index in volley.observed:
                self._unsent[self._sources[index].id] = str(error)
            return None
        return await self._runner.volley(volley, self._plan.cells[volley.cell], ready, beside)

    def _end(self, lane: str, volley: Volley, observations: list[Observation]) -> None:
        self._seen[volley.key] = observations
        self._told(Progress(lane, self._plan.cells[volley.cell].engine, volley, observations))

    def outcome(self) -> Outcome:
        """In the order of the plan."""
        volleys = self._plan.volleys()
        observations = [one for volley in volleys for one in self._seen.get(volley.key, ())]
        return Outcome(observations, self._given_up, self._unsent, sum(v.key not in self._seen for v in volleys))
