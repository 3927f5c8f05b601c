"""What would be sent, before anything is: the cells, their cost, and what cannot be told apart by them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from guard.config import EngineConfig
from replay.matrix import confounded
from replay.plan import Cost, Plan
from replay.source import Source


def plan_table(found: Plan, cost: Cost, sources: Sequence[Source], engines: Sequence[EngineConfig]) -> RenderableType:
    """What would be sent: cells, requests, cost, and what cannot be told apart by it."""
    answers: dict[int, int] = {}
    for volley in found.volleys():
        answers[volley.cell] = answers.get(volley.cell, 0) + len(volley.observed)
    view = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    view.add_column("cell", overflow="fold")
    view.add_column("answers", justify="right")
    for index, cell in enumerate(found.cells):
        view.add_row(cell.cell.name(), str(answers.get(index, 0)))
    lines = [
        Text(
            f"{len(sources)} requests in {len(found.cells)} cells: {cost.answers} answers, {cost.requests} to be sent"
        ),
        Text(f"about {cost.tokens:,} tokens{_unknown(cost)}; {_time(cost)}"),
    ]
    lines += [Text(f"left out: {one.what} on {one.engine}: {one.why}", style="yellow") for one in found.left_out]
    lines += [
        Text(f"{' and '.join(axes)} never vary apart over these engines: no run can tell between them", style="yellow")
        for axes in confounded(engines)
    ]
    return Group(view, *lines)


def plan_facts(found: Plan, cost: Cost, sources: Sequence[Source], engines: Sequence[EngineConfig]) -> dict[str, Any]:
    return {
        "requests": [source.id for source in sources],
        "cells": [cell.cell.axes() for cell in found.cells],
        "left_out": msgspec.to_builtins(found.left_out),
        "confounded": [list(axes) for axes in confounded(engines)],
        "cost": msgspec.to_builtins(cost),
    }


def _unknown(cost: Cost) -> str:
    return f", and those of {cost.unknown} requests whose length was not recorded" if cost.unknown else ""


def _time(cost: Cost) -> str:
    if cost.seconds is None:
        return "no latency was recorded, so the time is not known"
    return f"{duration(cost.seconds)} by the recorded latencies"


def duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s" if seconds >= 1 else "under a second"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"
