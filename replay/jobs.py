"""What ``outguard replay`` does, a function for each way to be asked. Each gives the exit code: 0 all is as it should
be, 1 it is not, 130 it was interrupted. They print, and raise ReplayError or ConfigError where nothing can be done.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import click

from guard.config import Config
from guard.options import as_json
from guard.tables import show
from replay import journal as journals
from replay.acceptance import Accepted, Stopped, accept
from replay.asked import Asked
from replay.campaign import Campaign, conduct, head_of, planned, stopped_by_sigint, with_versions
from replay.forecast import plan_facts, plan_table
from replay.golden import Pairing, pair, verify
from replay.imported import ImportFault, read_folder
from replay.journal import Head, Journal
from replay.lanes import Outcome, Progress
from replay.plan import Plan
from replay.progress import Display
from replay.report import Report, facts, reported, scorecard_table, terminal
from replay.scorecard import Scorecard
from replay.select import Selection
from replay.source import ReplayError
from replay.suite import load_suite
from replay.web.page import page

INTERRUPTED = 130


def run(asked: Asked) -> int:
    if asked.html is not None and not asked.html.parent.is_dir():  # before anything is sent for it
        raise ReplayError(f"--html {asked.html}: cannot be written: there is no directory {asked.html.parent}")
    if asked.import_ is not None:
        return judge_folder(asked, asked.import_)
    if asked.list_:
        return list_runs(asked)
    if asked.suite is not None:
        return run_suite(asked, asked.suite)
    if asked.golden is not None or asked.candidate is not None:
        return hold_against(asked)
    if asked.resume is not None:
        with Journal.resume(journals.find(asked.runs, asked.resume)) as journal:
            return run_journal(asked, journal)
    return run_matrix(asked)


# --- a matrix --------------------------------------------------------------------------------------------------------


def run_matrix(asked: Asked) -> int:
    matrix = asked.matrix()
    campaign = Campaign(asked.config, matrix, asked.selection(matrix))
    if asked.plan_only:
        return show_plan(asked, campaign)
    campaign.name_versions(asyncio.run(with_versions(campaign.engines)))
    with Journal.create(asked.runs, campaign.head(time.time(), asked.command)) as journal:
        return run_journal(asked, journal)


def run_journal(asked: Asked, journal: Journal) -> int:
    """What is left of a run; of one that is over only its report."""

    async def running(display: Display) -> Outcome:
        return await conduct(asked.config, journal, display.told, stop=stopped_by_sigint())

    with Display(planned(journal.head)[0], quiet=asked.json_) as display:
        outcome = asyncio.run(running(display))
    report = _report(journal.head, outcome)
    show_report(asked, report)
    if outcome.left:
        click.echo(f"go on with: outguard replay --resume {journal.head.id}", err=True)
    if outcome.stopped:
        return INTERRUPTED
    return 0 if report.clean else 1


def show_plan(asked: Asked, campaign: Campaign) -> int:
    told = (campaign.plan, campaign.cost, campaign.sources, campaign.engines)
    skipped = campaign.selection.skipped
    if asked.json_:
        click.echo(as_json({**plan_facts(*told), "skipped": skipped}))
        return 0
    show(plan_table(*told))
    for reason, count in skipped.items():
        click.echo(f"skipped: {count} ({reason})")
    return 0


# --- a golden engine -------------------------------------------------------------------------------------------------


def hold_against(asked: Asked) -> int:
    """A candidate against a golden engine, over the chosen requests, else over those of the shipped suite; or what is
    left of such a run."""
    if not (asked.golden and asked.candidate):
        raise ReplayError("--golden and --candidate go together (or --golden with --suite)")
    thresholds = asked.bounds()
    pairing = pair(asked.config, asked.golden, asked.candidate)
    if asked.resume is not None:
        with Journal.resume(journals.find(asked.runs, asked.resume)) as journal:
            return _hold(asked, pairing, journal, thresholds)
    declared = asked.matrix()
    if asked.names_requests:
        selection = asked.selection(declared)
    else:
        check = next(check for check in load_suite("production-ready").checks if check.faithful)
        sources = check.sources(_model(asked.config, asked.candidate))
        selection = Selection(sources, len(sources), {})
    campaign = Campaign(pairing.config, pairing.matrix(declared, selection.sources), selection)
    if asked.plan_only:
        return show_plan(asked, campaign)
    with Journal.create(asked.runs, campaign.head(time.time(), asked.command, "faithful")) as journal:
        return _hold(asked, pairing, journal, thresholds)


def _hold(asked: Asked, pairing: Pairing, journal: Journal, thresholds: dict[str, float]) -> int:
    with Display(planned(journal.head)[0], quiet=asked.json_) as display:
        outcome, card = asyncio.run(_verifying(pairing, journal, thresholds, display))
    report = _report(journal.head, outcome)
    report.scorecard = card
    show_report(asked, report)
    if card is None:
        again = f"--golden {asked.golden} --candidate {asked.candidate} --resume {journal.head.id}"
        click.echo(f"go on with: outguard replay {again}", err=True)
        return INTERRUPTED
    journals.keep_card(journal.path, card)
    return 0 if card.passed else 1


async def _verifying(
    pairing: Pairing, journal: Journal, thresholds: dict[str, float], display: Display
) -> tuple[Outcome, Scorecard | None]:
    return await verify(pairing, journal, thresholds, display.told, stopped_by_sigint())


# --- a suite ---------------------------------------------------------------------------------------------------------


def run_suite(asked: Asked, name: str) -> int:
    suite = load_suite(name)
    names = asked.engine_names()
    now = time.time()
    base = asked.resume or journals.new_id(now)
    try:
        with ExitStack() as displays:

            async def accepting() -> Accepted:
                return await accept(
                    asked.config,
                    suite,
                    names,
                    _model(asked.config, names[0]),
                    asked.runs,
                    base,
                    now,
                    _began(displays, quiet=asked.json_),
                    golden=asked.golden or "",
                    stop=stopped_by_sigint(),
                )

            accepted = asyncio.run(accepting())
    except Stopped:
        click.echo(f"go on with: outguard replay --suite {name} --resume {base}", err=True)
        return INTERRUPTED
    head = Head(
        journals.FORMAT, base, now, {}, accepted.cells, accepted.sources, command=asked.command, kind="acceptance"
    )
    report = reported(head, accepted.observations)
    report.scorecard = accepted.card
    show_report(asked, report)
    return 0 if accepted.card.passed else 1


def _began(displays: ExitStack, *, quiet: bool) -> Callable[[str, Plan], Callable[[Progress], None]]:
    """Each check has a display of its own, behind the last."""

    def began(name: str, plan: Plan) -> Callable[[Progress], None]:
        displays.close()
        if not quiet:
            click.echo(f"{name} ...", err=True)
        return displays.enter_context(Display(plan, quiet=quiet)).told

    return began


# --- what is there already -------------------------------------------------------------------------------------------


def judge_folder(asked: Asked, folder: Path) -> int:
    """Answers that were recorded elsewhere."""
    try:
        imported = read_folder(folder)
    except ImportFault as fault:
        raise ReplayError(str(fault)) from fault
    report = reported(head_of(imported, time.time(), asked.command), imported.observations)
    show_report(asked, report)
    return 0 if report.clean else 1


def list_runs(asked: Asked) -> int:
    rows = []
    for path in journals.stored(asked.runs):
        head, done = journals.read(path)
        answers = sum(map(len, done.values()))
        counts = {"requests": len(head.sources), "cells": len(head.cells), "answers": answers}
        rows.append({"run": head.id, "kind": head.kind, **counts, "planned": planned(head)[1].answers})
    if asked.json_:
        click.echo(as_json(rows))
        return 0
    for row in rows:
        what = f"{row['requests']} requests in {row['cells']} cells"
        click.echo(f"{row['run']}  {row['kind']}  {what}, {row['answers']} of {row['planned']} answers")
    return 0


# --- reports ---------------------------------------------------------------------------------------------------------


def show_report(asked: Asked, report: Report) -> None:
    if asked.html is not None:
        _write(asked.html, page(report))
    if asked.json_:
        click.echo(as_json(facts(report)))
    elif report.head.kind == "acceptance" and report.scorecard is not None:
        show(scorecard_table(report.scorecard))
    else:
        show(terminal(report))


def _report(head: Head, outcome: Outcome) -> Report:
    report = reported(head, outcome.observations)
    report.left, report.given_up, report.unsent = outcome.left, outcome.given_up, outcome.unsent
    return report


def _write(path: Path, text: str) -> None:
    """Readable by its owner alone: it holds what was asked and answered."""
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ReplayError(f"--html {path}: cannot be written: {error.strerror}") from error


def _model(config: Config, engine: str) -> str:
    """The model that the routes serve with this engine."""
    return next((route.model for route in config.routes if engine in route.engines), config.routes[0].model)
