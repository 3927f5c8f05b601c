"""A suite over engines: each check a run of its own, so that a suite that was cut short goes on where it was. Edge."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from guard.config import Config
from replay.campaign import Campaign, conduct
from replay.checks import rows
from replay.golden import pair, verify
from replay.journal import SUFFIX, Journal
from replay.lanes import Progress
from replay.load import MatrixCell
from replay.matrix import Matrix
from replay.observation import Observation
from replay.plan import Plan
from replay.scorecard import THRESHOLDS, Row, Scorecard
from replay.select import Selection
from replay.source import ReplayError, Source
from replay.suite import Check, Suite

Told = Callable[[Progress], None]
Began = Callable[[str, Plan], Told]
"""Given a check's name and plan, what hears of its volleys."""


class Accepted(Struct):
    """The scorecard, and everything that was seen for it."""

    card: Scorecard
    observations: list[Observation]
    cells: list[MatrixCell]
    sources: list[Source]


class Stopped(Exception):
    """The suite was told to end; what was run of it is kept."""


async def accept(
    config: Config,
    suite: Suite,
    engines: Sequence[str],
    model: str,
    folder: Path,
    base: str,
    now: float,
    began: Began,
    *,
    golden: str = "",
    stop: asyncio.Event | None = None,
) -> Accepted:
    """``base`` names the runs: one of that name and a check's goes
    on. Raises Stopped."""
    card: list[Row] = []
    seen: list[Observation] = []
    cells: list[MatrixCell] = []
    asked: list[Source] = []
    for check in suite.checks:
        sources = check.sources(model)
        place = folder / f"{base}.{check.name}{SUFFIX}"
        if check.faithful:
            card += await _faithful(config, check, sources, engines, golden, place, now, began, stop)
            continue
        try:
            campaign = Campaign(config, check.matrix(engines), Selection(sources, len(sources), {}))
        except ReplayError as error:
            card += rows(check.name, check.needs, (), str(error))
            continue
        with _journal(place, campaign, f"{base}.{check.name}", now) as journal:
            outcome = await conduct(config, journal, began(check.name, campaign.plan), stop=stop)
        if outcome.stopped:
            raise Stopped
        why = "; ".join({*outcome.given_up.values(), *outcome.unsent.values()})
        card += rows(check.name, check.needs, outcome.observations, why)
        seen += outcome.observations
        cells += campaign.cells
        asked += sources
    return Accepted(Scorecard(f"{suite.title}: {', '.join(engines)}", tuple(card)), seen, cells, asked)


def _journal(place: Path, campaign: Campaign, name: str, now: float) -> Journal:
    if place.exists():
        return Journal.resume(place)
    head = campaign.head(now, "", "acceptance")
    head.id = name
    return Journal.create(place.parent, head)


async def _faithful(
    config: Config,
    check: Check,
    sources: Sequence[Source],
    engines: Sequence[str],
    golden: str,
    place: Path,
    now: float,
    began: Began,
    stop: asyncio.Event | None,
) -> list[Row]:
    """Each engine against the golden one, in turn."""
    if not golden:
        return [Row(f"{check.name}: {name}", "not measured", "no --golden was given", "") for name in check.needs]
    found: list[Row] = []
    for engine in engines:
        pairing = pair(config, golden, engine)
        matrix = pairing.matrix(Matrix(), sources)
        campaign = Campaign(pairing.config, matrix, Selection(list(sources), len(sources), {}))
        own = place.with_name(place.name.replace(SUFFIX, f".{engine}{SUFFIX}"))
        thresholds = {**THRESHOLDS, **check.needs}
        with _journal(own, campaign, own.name.removesuffix(SUFFIX), now) as journal:
            _, card = await verify(pairing, journal, thresholds, began(check.name, campaign.plan), stop)
        if card is None:
            raise Stopped
        several = f" ({engine})" if len(engines) > 1 else ""
        for row in card.rows:
            if row.name in check.needs:
                name = f"{check.name}: {row.name}{several}"
                found.append(msgspec.structs.replace(row, name=name))
    return found
