"""How a run goes, while it goes: a bar for each engine on the terminal, nothing where nobody looks."""

from __future__ import annotations

import sys
from collections import Counter
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from replay import lanes
from replay.plan import Plan


class Display:
    """A context manager; ``told`` takes what a run tells of its volleys."""

    def __init__(self, plan: Plan, *, quiet: bool = False) -> None:
        self._plan = plan
        self._wrong: Counter[str] = Counter()
        self._silent: Counter[str] = Counter()
        self._tasks: dict[str, TaskID] = {}
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[told]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True, highlight=False),
            disable=quiet or not sys.stderr.isatty(),
        )

    def __enter__(self) -> Self:
        self._bars.start()
        for lane, volleys in self._plan.lanes.items():
            engines = dict.fromkeys(cell.engine for cell in self._plan.cells if cell.lane == lane)
            total = sum(len(volley.observed) for volley in volleys)
            self._tasks[lane] = self._bars.add_task(", ".join(engines), total=total, told="")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._bars.stop()

    def told(self, progress: lanes.Progress) -> None:
        self._wrong[progress.lane] += sum(bool(one.wrong()) for one in progress.observations)
        self._silent[progress.lane] += sum(bool(one.error) for one in progress.observations)
        counts = ((self._wrong[progress.lane], "wrong"), (self._silent[progress.lane], "without an answer"))
        told = ", ".join(f"{count} {name}" for count, name in counts if count)
        self._bars.update(self._tasks[progress.lane], advance=len(progress.observations), told=told)
