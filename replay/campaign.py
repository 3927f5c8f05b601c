"""From what was asked for to a finished run: choose, plan, run, and say what came of it.

Nothing here decides: the selection, the plan, the comparison and the ruling are modules of their own.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence

import msgspec

from guard.build import build_engine
from guard.config import Config, EngineConfig
from guard.constraint.cache import ConstraintCache
from guard.engines.contract import Engine
from replay.echo import echo_tasks
from replay.imported import Imported
from replay.journal import FORMAT, Head, Journal, new_id
from replay.lanes import Outcome, Progress, run_plan
from replay.matrix import Matrix, cells, chosen
from replay.plan import Cost, Plan, cost, plan
from replay.run import Runner
from replay.select import Selection
from replay.source import ReplayError, Source


class Campaign:
    """One matrix over one selection. Raises ReplayError where nothing can be run as asked."""

    def __init__(self, config: Config, matrix: Matrix, selection: Selection) -> None:
        models = dict.fromkeys(source.model for source in selection.sources)
        routed = [name for route in config.routes if route.model in models for name in route.engines]
        try:
            self.engines = chosen(matrix, config.engines, routed)
        except ValueError as error:
            raise ReplayError(str(error)) from error
        self.config = config
        self.matrix = matrix
        self.selection = selection
        model = next(iter(models))
        tasks = echo_tasks(str(matrix.seed), matrix.echo)
        known = [Source(task.request_id, "chat", task.body(model), expected=task.expected) for task in tasks]
        self.sources = [*selection.sources, *known]
        self.cells, impossible = cells(matrix, self.engines)
        self.plan = plan(self.cells, self.sources, matrix.repeats, impossible)
        self.cost = cost(self.plan, self.sources, selection.beside, matrix.limits.per_second)
        if not self.cost.answers:
            reasons = "; ".join(f"{one.what} on {one.engine}: {one.why}" for one in self.plan.left_out)
            raise ReplayError(f"nothing of this matrix can be run ({reasons})")
        most = matrix.limits.requests
        if most and self.cost.requests > most:
            raise ReplayError(f"the matrix would send {self.cost.requests} requests, and limits.requests is {most}")

    def name_versions(self, engines: Sequence[EngineConfig]) -> None:
        """Put the versions that the engines tell themselves into the cells."""
        versions = {engine.name: engine.version for engine in engines}
        self.cells = [
            msgspec.structs.replace(one, cell=msgspec.structs.replace(one.cell, version=versions[one.engine]))
            for one in self.cells
        ]

    def head(self, now: float, command: str, kind: str = "matrix") -> Head:
        return Head(
            format=FORMAT,
            id=new_id(now),
            created_at=now,
            matrix=self.matrix.model_dump(mode="json"),
            cells=self.cells,
            sources=self.sources,
            beside=list(self.selection.beside.values()),
            left_out=self.plan.left_out,
            skipped=self.selection.skipped,
            command=command,
            kind=kind,
        )


def head_of(imported: Imported, now: float, command: str) -> Head:
    """Answers that were recorded elsewhere, as a run that is over."""
    sources = []
    for id_ in dict.fromkeys(one.request_id for one in imported.observations):
        text = imported.prompts.get(id_)
        sources.append(Source(id_, "chat", {"messages": [{"role": "user", "content": text}]} if text else {}))
    return Head(FORMAT, new_id(now), now, {}, [], sources, command=command, kind="imported")


def planned(head: Head) -> tuple[Plan, Cost]:
    """The plan of a stored run, again."""
    matrix = Matrix.model_validate(head.matrix)
    found = plan(head.cells, head.sources, matrix.repeats)
    return found, cost(found, head.sources, {one.id: one for one in head.beside}, matrix.limits.per_second)


async def with_versions(engines: Sequence[EngineConfig]) -> list[EngineConfig]:
    """The engines with the versions that they tell themselves, where the configuration names none."""
    opened = [build_engine(engine) for engine in engines]
    try:
        healths = await asyncio.gather(*(one.health() for one in opened))
    finally:
        await asyncio.gather(*(one.aclose() for one in opened))
    return [
        engine.model_copy(update={"version": engine.version or health.version})
        for engine, health in zip(engines, healths, strict=True)
    ]


async def conduct(
    config: Config,
    journal: Journal,
    told: Callable[[Progress], None],
    *,
    engines: dict[str, Engine] | None = None,
    stop: asyncio.Event | None = None,
) -> Outcome:
    """Run what is left of a run. ``engines`` are built from the configuration when they are not given, and closed.
    ``stop`` ends it in order."""
    head = journal.head
    matrix = Matrix.model_validate(head.matrix)
    names = list(dict.fromkeys(cell.engine for cell in head.cells))
    by_name = {engine.name: engine for engine in config.engines}
    if missing := [name for name in names if name not in by_name]:
        raise ReplayError(f"the run has cells on {', '.join(missing)}, which the configuration does not know")
    own = engines is None
    built = engines if engines is not None else {name: build_engine(by_name[name]) for name in names}
    constraints = ConstraintCache()
    found, _ = planned(head)
    runner = Runner(
        config,
        built,
        constraints,
        asked=matrix.sampling,
        top_logprobs=matrix.top_logprobs,
        salt=head.id,
    )
    try:
        return await run_plan(
            found,
            head.sources,
            {one.id: one for one in head.beside},
            runner,
            journal,
            per_second=matrix.limits.per_second,
            stop=stop,
            told=told,
        )
    finally:
        if own:
            await asyncio.gather(*(engine.aclose() for engine in built.values()))
        constraints.close()


def stopped_by_sigint() -> asyncio.Event:
    """Set by the first SIGINT; the second ends the process as it always does."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        stop.set()
        loop.remove_signal_handler(signal.SIGINT)

    loop.add_signal_handler(signal.SIGINT, on_signal)
    return stop
