"""``outguard replay``: hooks into the command line through the entry point group ``outguard.commands``."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from guard.config import Config, ConfigError, parse_yaml, read_text
from guard.options import age, as_json, config_option, read_config, reading
from guard.tables import show
from replay import journal as journals
from replay.acceptance import Accepted, Stopped, accept
from replay.campaign import Campaign, conduct, head_of, planned, stopped_by_sigint, with_versions
from replay.forecast import plan_facts, plan_table
from replay.golden import Pairing, pair, verify
from replay.imported import ImportFault, read_folder
from replay.journal import Head, Journal
from replay.lanes import Outcome, Progress
from replay.matrix import Matrix, chosen
from replay.plan import Plan
from replay.progress import Display
from replay.report import Report, facts, reported, scorecard_table, terminal
from replay.scorecard import THRESHOLDS, Scorecard
from replay.select import Selection, add_neighbours, by_condition, by_id, from_file
from replay.source import ReplayError
from replay.suite import load_suite
from replay.web.page import page
from replay.where import WhereError, parse

INTERRUPTED = 130


@click.command(
    epilog="""\b
Examples:
  outguard replay 4bf92f35 --config outguard.yaml
  outguard replay 4bf92f35 --engines primary,second --repeats 5
  outguard replay --where "finding='repetition.*' and cluster='b'" --since 24h --sample 200 --plan
  outguard replay --file export.jsonl --matrix matrix.yaml --html report.html
  outguard replay 4bf92f35 --concurrency alone,copies:8 --cache cold,warm --repeats 10 --echo 5
  outguard replay --golden torch --candidate b
  outguard replay --suite production-ready --engines b --golden torch:///models/small
  outguard replay --resume 20261130-180512
  outguard replay 4bf92f35 --json | jq '.runs[].first_difference'

\b
Loads (--concurrency):
  alone        nothing else on the engine
  copies:8     eight copies of the request at once
  others:8     eight requests of the selection at once
  recorded:8   with the requests that ran beside it when it was recorded
  cancelled:8  with others that are cancelled in the middle and sent again

Exit codes: 0 every answer is sound and the same as all others and as what was delivered, 1 at least one is not, or was
not run, 2 nothing to run, 130 interrupted (go on with --resume)."""
)
@click.argument("trace_id", required=False)
@config_option
@click.option("--trace", "traces", multiple=True, help="A trace to run again; may be given several times.")
@click.option("--where", help="Traces that meet a condition; see the README for its language.")
@click.option("--since", callback=age, help="Traces not older than this: 90s, 15m, 24h, 7d.")
@click.option("--file", "file", type=click.Path(path_type=Path), help="The lines of an export.")
@click.option("--import", "import_", type=click.Path(path_type=Path), help="Judge a folder of recorded answers.")
@click.option(
    "--golden", help="The engine that a candidate is held against: a name, torch, or torch:///path/of/a/model."
)
@click.option("--candidate", help="With --golden: the engine that is held against it.")
@click.option("--threshold", "thresholds", multiple=True, help="With --golden: NAME=VALUE instead of the default.")
@click.option("--suite", help="An acceptance suite: can-run, production-ready (or acceptance), or a file.")
@click.option("--sample", default=0, type=click.IntRange(0, 10_000), help="So many of them, drawn by the seed.")
@click.option("--matrix", "matrix_file", type=click.Path(path_type=Path), help="A YAML file that declares the matrix.")
@click.option("--engines", help="Comma-separated names; all engines of the requests' routes by default.")
@click.option("--concurrency", help="Comma-separated loads, see below; alone by default.")
@click.option("--cache", help="Comma-separated: as_is, cold, warm; as_is by default.")
@click.option("--repeats", type=click.IntRange(1, 10_000), help="Runs of each request in each cell.")
@click.option("--echo", type=click.IntRange(0, 1000), help="Add so many known-answer tasks, which expose corruption.")
@click.option("--temperature", type=click.FloatRange(0, 2), help="Instead of the recorded one.")
@click.option("--max-tokens", type=click.IntRange(1), help="Instead of the recorded limit.")
@click.option("--per-second", type=click.FloatRange(0), help="Requests started on one engine in a second at most.")
@click.option("--seed", type=int, help="Of what is drawn: samples and known-answer tasks.")
@click.option("--plan", "plan_only", is_flag=True, help="Only say what would be sent and what it would cost.")
@click.option("--resume", help="Go on with a run that was cut short (an id, the beginning of one, or a file).")
@click.option("--list", "list_", is_flag=True, help="List the stored runs.")
@click.option("--runs", "folder", type=click.Path(path_type=Path), help="Where runs are kept; beside the trace store.")
@click.option("--html", type=click.Path(path_type=Path), help="Write the report as one self-contained page.")
@click.option("--json", "json_", is_flag=True, help="Print JSON instead of tables.")
def replay(config_path: Path, **asked: Any) -> None:
    """Run stored requests again over engines, loads and caches, and say what their failures depend on.

    TRACE_ID may be shortened to a beginning that is unique.
    """
    try:
        sys.exit(_Command(config_path, asked).run())
    except ReplayError as error:
        click.echo(f"outguard replay: {error}", err=True)
    except ConfigError as error:
        for problem in error.problems:
            click.echo(problem, err=True)
    sys.exit(2)


class _Command:
    def __init__(self, config_path: Path, asked: dict[str, Any]) -> None:
        self._path = config_path
        self._asked = asked
        self._config: Config = read_config(config_path)
        self._folder: Path = asked["folder"] or journals.folder_of(self._config)

    def run(self) -> int:
        """The exit code."""
        if self._asked["import_"] is not None:
            return self._import()
        if self._asked["list_"]:
            return self._list()
        if self._asked["resume"] and self._asked["suite"] is None:
            with Journal.resume(journals.find(self._folder, self._asked["resume"])) as journal:
                return self._conduct(journal)
        if self._asked["suite"] is not None:
            return self._accept()
        if self._asked["golden"] is not None or self._asked["candidate"] is not None:
            return self._verify()
        matrix = self._matrix()
        campaign = Campaign(self._config, matrix, self._selection(matrix))
        if self._asked["plan_only"]:
            self._show_plan(campaign)
            return 0
        engines = asyncio.run(with_versions(campaign.engines))
        campaign.name_versions(engines)
        with Journal.create(
            self._folder, campaign.head(time.time(), shlex.join(["outguard", *sys.argv[1:]]))
        ) as journal:
            return self._conduct(journal)

    # --- what was asked for ------------------------------------------------------------------------------------------

    def _matrix(self) -> Matrix:
        """The file's, with the flags over it."""
        path = self._asked["matrix_file"]
        declared = Matrix()
        if path is not None:
            declared = parse_yaml(read_text(path), str(path), Matrix, "a matrix (engines, concurrency, repeats, ...)")
        flags: dict[str, Any] = {}
        for name in ("engines", "concurrency", "cache"):
            if self._asked[name] is not None:
                flags[name] = tuple(part.strip() for part in self._asked[name].split(",") if part.strip())
        flags |= {name: self._asked[name] for name in ("repeats", "echo", "seed") if self._asked[name] is not None}
        whole = {**declared.model_dump(), **flags}
        for section, names in (("sampling", ("temperature", "max_tokens")), ("limits", ("per_second",))):
            whole[section] |= {name: self._asked[name] for name in names if self._asked[name] is not None}
        try:
            return Matrix.model_validate(whole)
        except ValidationError as error:
            told = [f"{'.'.join(map(str, one['loc'])) or 'matrix'}: {one['msg']}" for one in error.errors()]
            raise ReplayError("; ".join(told).replace("Value error, ", "")) from error

    def _selection(self, matrix: Matrix) -> Selection:
        asked = self._asked
        ids = [*([asked["trace_id"]] if asked["trace_id"] else []), *asked["traces"]]
        ways = [bool(ids), asked["where"] is not None or asked["since"] is not None, asked["file"] is not None]
        if sum(ways) != 1:
            said = "only one of them" if sum(ways) else "what to run again"
            raise ReplayError(f"say {said}: TRACE_ID (or --trace), --where and --since, or --file")
        if asked["file"] is not None:
            return from_file(asked["file"], sample=asked["sample"])
        with reading(self._path) as reader:
            if ids:
                found = by_id(reader, ids)
            else:
                try:
                    condition = parse(asked["where"]) if asked["where"] else None
                except WhereError as error:
                    raise ReplayError(f"--where: {error}") from error
                found = by_condition(reader, condition, since=asked["since"], sample=asked["sample"], seed=matrix.seed)
            together = [load.at_once for load in matrix.loads if load.kind == "recorded"]
            if together:
                add_neighbours(reader, found, max(together))
            return found

    # --- what is done ------------------------------------------------------------------------------------------------

    def _conduct(self, journal: Journal) -> int:
        found, _ = planned(journal.head)
        with Display(found, quiet=self._asked["json_"]) as display:
            outcome = asyncio.run(self._run(journal, display))
        report = reported(journal.head, outcome.observations)
        report.left, report.given_up, report.unsent = outcome.left, outcome.given_up, outcome.unsent
        self._show(report)
        if outcome.left:
            click.echo(f"go on with: outguard replay --resume {journal.head.id}", err=True)
        if outcome.stopped:
            return INTERRUPTED
        return 0 if report.clean else 1

    def _verify(self) -> int:
        """A candidate against a golden engine, over the chosen requests, else over those of the shipped suite."""
        golden, candidate = self._asked["golden"], self._asked["candidate"]
        if not (golden and candidate):
            raise ReplayError("--golden and --candidate go together (or --golden with --suite)")
        thresholds = _thresholds(self._asked["thresholds"])
        pairing = pair(self._config, golden, candidate)
        named = any(self._asked[way] for way in ("trace_id", "traces", "where", "since", "file"))
        declared = self._matrix()
        if named:
            selection = self._selection(declared)
        else:
            check = next(check for check in load_suite("production-ready").checks if check.faithful)
            sources = check.sources(_model(self._config, candidate))
            selection = Selection(sources, len(sources), {})
        campaign = Campaign(pairing.config, pairing.matrix(declared, selection.sources), selection)
        if self._asked["plan_only"]:
            self._show_plan(campaign)
            return 0
        head = campaign.head(time.time(), shlex.join(["outguard", *sys.argv[1:]]), "faithful")
        with (
            Journal.create(self._folder, head) as journal,
            Display(campaign.plan, quiet=self._asked["json_"]) as display,
        ):
            outcome, card = asyncio.run(self._against(pairing, journal, thresholds, display))
        report = reported(head, outcome.observations)
        report.left, report.given_up, report.unsent = outcome.left, outcome.given_up, outcome.unsent
        report.scorecard = card
        self._show(report)
        return INTERRUPTED if card is None else 0 if card.passed else 1

    async def _against(
        self, pairing: Pairing, journal: Journal, thresholds: dict[str, float], display: Display
    ) -> tuple[Outcome, Scorecard | None]:
        return await verify(pairing, journal, thresholds, display.told, stopped_by_sigint())

    def _accept(self) -> int:
        suite = load_suite(self._asked["suite"])
        try:
            names = tuple(engine.name for engine in chosen(self._matrix(), self._config.engines, ()))
        except ValueError as error:
            raise ReplayError(str(error)) from error
        model = _model(self._config, names[0])
        now = time.time()
        base = self._asked["resume"] or journals.new_id(now)
        quiet = self._asked["json_"]
        displays = ExitStack()

        def began(name: str, plan: Plan) -> Callable[[Progress], None]:
            displays.close()
            if not quiet:
                click.echo(f"{name} ...", err=True)
            return displays.enter_context(Display(plan, quiet=quiet)).told

        async def run() -> Accepted:
            return await accept(
                self._config,
                suite,
                names,
                model,
                self._folder,
                base,
                now,
                began,
                golden=self._asked["golden"] or "",
                stop=stopped_by_sigint(),
            )

        try:
            with displays:
                accepted = asyncio.run(run())
        except Stopped:
            click.echo(f"go on with: outguard replay --suite {self._asked['suite']} --resume {base}", err=True)
            return INTERRUPTED
        command = shlex.join(["outguard", *sys.argv[1:]])
        head = Head(
            journals.FORMAT, base, now, {}, accepted.cells, accepted.sources, command=command, kind="acceptance"
        )
        report = reported(head, accepted.observations)
        report.scorecard = accepted.card
        if self._asked["html"] is not None or quiet:
            self._show(report)
        if not quiet:
            show(scorecard_table(accepted.card))
        return 0 if accepted.card.passed else 1

    def _import(self) -> int:
        try:
            imported = read_folder(self._asked["import_"])
        except ImportFault as fault:
            raise ReplayError(str(fault)) from fault
        command = shlex.join(["outguard", *sys.argv[1:]])
        report = reported(head_of(imported, time.time(), command), imported.observations)
        self._show(report)
        return 0 if report.clean else 1

    def _show(self, report: Report) -> None:
        if self._asked["html"] is not None:
            _write(self._asked["html"], page(report))
        if self._asked["json_"]:
            click.echo(as_json(facts(report)))
        elif report.head.kind != "acceptance":
            show(terminal(report))

    async def _run(self, journal: Journal, display: Display) -> Outcome:
        return await conduct(self._config, journal, display.told, stop=stopped_by_sigint())

    def _show_plan(self, campaign: Campaign) -> None:
        told = (campaign.plan, campaign.cost, campaign.sources, campaign.engines)
        if self._asked["json_"]:
            click.echo(as_json({**plan_facts(*told), "skipped": campaign.selection.skipped}))
            return
        show(plan_table(*told))
        for reason, count in campaign.selection.skipped.items():
            click.echo(f"skipped: {count} ({reason})")

    def _list(self) -> int:
        heads = [journals.read(path) for path in journals.stored(self._folder)]
        rows = [
            {
                "run": head.id,
                "kind": head.kind,
                "requests": len(head.sources),
                "cells": len(head.cells),
                "answers": sum(map(len, done.values())),
                "planned": planned(head)[1].answers,
            }
            for head, done in heads
        ]
        if self._asked["json_"]:
            click.echo(as_json(rows))
            return 0
        for row in rows:
            click.echo(
                f"{row['run']}  {row['kind']}  {row['requests']} requests in {row['cells']} cells, "
                f"{row['answers']} of {row['planned']} answers"
            )
        return 0


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


def _thresholds(given: Sequence[str]) -> dict[str, float]:
    found = dict(THRESHOLDS)
    for one in given:
        name, _, value = one.partition("=")
        if name not in THRESHOLDS:
            raise ReplayError(f"--threshold {one}: there is none called {name!r} (there are: {', '.join(THRESHOLDS)})")
        try:
            found[name] = float(value)
        except ValueError:
            raise ReplayError(f"--threshold {one}: {value!r} is no number") from None
    return found
