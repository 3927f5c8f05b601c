"""``outguard replay``: hooks into the command line through the entry point group ``outguard.commands``."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click

from guard.build import build_engine
from guard.config import Config
from guard.constraint.cache import ConstraintCache
from guard.options import as_json, config_option, read_config, reading
from guard.tables import show
from replay.report import facts, table
from replay.run import RunResult, run_matrix
from replay.source import ReplayError, Source, source_of


@click.command(
    epilog="""\b
Examples:
  outguard replay 4bf92f35 --config outguard.yaml
  outguard replay 4bf92f35 --engines primary,second --repeats 5
  outguard replay 4bf92f35 --json | jq '.runs[].first_difference'

Exit codes: 0 every run gave what was delivered, 1 at least one differs or failed, 2 nothing to run."""
)
@click.argument("trace_id")
@config_option
@click.option("--engines", default="", help="Comma-separated names; all engines of the request's route by default.")
@click.option("--repeats", default=1, show_default=True, type=click.IntRange(1, 1000), help="Runs on each engine.")
@click.option("--json", "json_", is_flag=True, help="Print JSON instead of a table.")
def replay(trace_id: str, config_path: Path, engines: str, repeats: int, json_: bool) -> None:
    """Run one stored request again over engines and show outcomes and first differences.

    TRACE_ID may be shortened to a beginning that is unique.
    """
    config = read_config(config_path)
    with reading(config_path) as reader:
        record = reader.get_request(trace_id)
    try:
        if record is None:
            raise ReplayError(f"there is no trace that begins with {trace_id}")
        source = source_of(record)
        names = chosen(config, source, engines)
    except ReplayError as error:
        click.echo(f"outguard replay: {error}", err=True)
        sys.exit(2)
    results = asyncio.run(_run(config, source, names, repeats))
    if json_:
        click.echo(as_json(facts(source, results)))
    else:
        show(table(source, results))
    same = all(not r.error and not r.condemned and r.text == source.output for r in results)
    sys.exit(0 if same else 1)


def chosen(config: Config, source: Source, engines: str) -> list[str]:
    """The engines to run on. Raises ReplayError naming those that do not exist."""
    known = [engine.name for engine in config.engines]
    names = [name.strip() for name in engines.split(",") if name.strip()]
    if missing := [name for name in names if name not in known]:
        raise ReplayError(f"no such engine: {', '.join(missing)} (there are: {', '.join(known)})")
    if names:
        return names
    routed = next((list(route.engines) for route in config.routes if route.model == source.record.model), None)
    return routed or known


async def _run(config: Config, source: Source, names: list[str], repeats: int) -> list[RunResult]:
    engines = {engine.name: build_engine(engine) for engine in config.engines if engine.name in names}
    constraints = ConstraintCache()
    try:
        return await run_matrix(
            source.request,
            {name: engines[name] for name in names},
            constraints,
            repeats=repeats,
            policy=config.policies.get(source.record.policy),
            tool_formats={engine.name: engine.tool_format for engine in config.engines},
        )
    finally:
        await asyncio.gather(*(engine.aclose() for engine in engines.values()))
        constraints.close()
