"""The command ``outguard``. Heavy imports happen inside the commands, so that --help answers at once.

Exit codes: 0 done, 1 the command ran and the answer is bad news, 2 it could not run (usage, configuration, no such
thing).
"""

from __future__ import annotations

import json
import logging
import sys
import time
from importlib.metadata import entry_points, version
from pathlib import Path
from typing import Any

import click
import msgspec

from guard.options import as_json, config_option, read_config, reading
from guard.store_command import store


class Commands(click.Group):
    """The commands of this module and those that other packages hook in through ``outguard.commands``."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *(hook.name for hook in entry_points(group="outguard.commands"))})

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        found = super().get_command(ctx, name)
        if found is not None:
            return found
        for hook in entry_points(group="outguard.commands"):
            if hook.name == name:
                return hook.load()  # type: ignore[no-any-return]
        return None


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""\b
Examples:
  outguard serve --config outguard.yaml
  outguard check --cases outputs.jsonl
  outguard traces list --limit 20
  outguard replay 4bf92f35 --engines primary,second --repeats 5
  outguard demo""",
)
@click.version_option(version("outguard"), prog_name="outguard")
def main() -> None:
    """A sidecar that checks what language-model engines answer, recovers what collapses, and leaves evidence."""


@main.command(
    epilog="""\b
Examples:
  outguard serve --config deploy/outguard.yaml
  OUTGUARD_CONFIG=/etc/outguard.yaml outguard serve --log-level debug

Exit codes: 0 stopped by a signal, 2 the configuration is wrong or an address is taken."""
)
@config_option
@click.option(
    "--log-level",
    default="info",
    show_default=True,
    type=click.Choice(["debug", "info", "warning", "error"]),
    help="What is logged to standard error. Content never is.",
)
def serve(config_path: Path, log_level: str) -> None:
    """Serve gRPC and the OpenAI HTTP API in front of the configured engines."""
    logging.basicConfig(level=log_level.upper(), format="%(asctime)s %(levelname)s %(name)s %(message)s")
    config = read_config(config_path)
    from guard.config import place_of
    from guard.serve import ServeError, run

    try:
        run(config, lambda line: click.echo(line))
    except ServeError as error:
        click.echo(f"{place_of(config_path, error.key)}: {error}", err=True)
        sys.exit(2)


@main.command(
    epilog="""\b
Examples:
  outguard check --cases outputs.jsonl
  outguard check --cases outputs.jsonl | jq -r 'select(.action == "block") | .id'

Exit codes: 0 every case was judged, 2 the file cannot be read."""
)
@click.option(
    "--cases",
    required=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A JSON-lines file; each line has a request and a response or a stream.",
)
def check(cases: Path) -> None:
    """Judge recorded outputs with the code that guards live traffic; print one JSON line a case."""
    from guard.cases import CaseError, judge, read_cases

    try:
        for case in read_cases(cases):
            click.echo(_line(judge(case)))
    except (CaseError, OSError) as error:
        click.echo(f"outguard check: {error}", err=True)
        sys.exit(2)


def _line(verdict: dict[str, Any]) -> str:
    text = json.dumps(verdict, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # half a surrogate pair, which only an escape can carry
        return json.dumps(verdict)
    return text


def _since(_: click.Context, __: click.Parameter, value: str | None) -> float | None:
    from guard.trace.overview import age_seconds

    try:
        return None if value is None else time.time() - age_seconds(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@main.command(
    epilog="""\b
Examples:
  outguard engines --config outguard.yaml
  outguard engines --json
  outguard engines --contradictions --since 7d

Exit codes: 0 all answer, 1 at least one does not, 2 the configuration is wrong or the trace store cannot be read."""
)
@config_option
@click.option("--contradictions", is_flag=True, help="Instead: formats that engines were sent and broke, by traces.")
@click.option("--since", callback=_since, help="With --contradictions: not older than this: 90s, 15m, 24h, 7d.")
@click.option("--json", "json_", is_flag=True, help="Print JSON instead of a table.")
def engines(config_path: Path, contradictions: bool, since: float | None, json_: bool) -> None:
    """Ask every configured engine how it is, or the traces which engines broke what they were asked to enforce."""
    if contradictions:
        _contradictions(config_path, since, json_)
        return
    import asyncio

    from guard.build import engine_statuses
    from guard.tables import engines_table, show

    statuses = asyncio.run(engine_statuses(read_config(config_path)))
    if json_:
        click.echo(as_json(statuses))
    else:
        show(engines_table(statuses))
    sys.exit(0 if all(status.ok for status in statuses) else 1)


def _contradictions(config_path: Path, since: float | None, json_: bool) -> None:
    from guard.tables import contradictions_table, show
    from guard.trace.contradictions import contradictions

    with reading(config_path) as reader:
        found = contradictions(reader, since)
    if json_:
        click.echo(as_json(found))
    else:
        show(contradictions_table(found))


def _family(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    return value and value.removesuffix(".*")


@main.group()
def traces() -> None:
    """Look at what was recorded."""


@traces.command(
    "list",
    epilog="""\b
Examples:
  outguard traces list --limit 20
  outguard traces list --outcome failed --since 2h
  outguard traces list --finding 'repetition.*' --json""",
)
@config_option
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 10_000), help="The newest so many.")
@click.option("--outcome", type=click.Choice(["ok", "failed", "cancelled", "invalid"]), help="Only these.")
@click.option("--model", help="Only this model.")
@click.option("--engine", help="Only requests with an attempt on this engine.")
@click.option("--finding", callback=_family, help="Only requests with such a finding: a code, or a family as json.*")
@click.option("--since", callback=_since, help="Not older than this: 90s, 15m, 24h, 7d.")
@click.option("--json", "json_", is_flag=True, help="Print JSON instead of a table.")
def list_(config_path: Path, json_: bool, limit: int, **filters: Any) -> None:
    """The newest requests."""
    from guard.tables import show, traces_table
    from guard.trace.overview import overview

    with reading(config_path) as reader:
        rows = overview(reader, limit, {name: value for name, value in filters.items() if value})
    if json_:
        click.echo(
            as_json([{**msgspec.to_builtins(r.request), "engines": r.engines, "findings": r.findings} for r in rows])
        )
    else:
        show(traces_table(rows))


@traces.command(
    "show",
    epilog="""\b
Examples:
  outguard traces show 4bf92f35
  outguard traces show 4bf92f35 --json

Exit codes: 0 shown, 1 there is no such trace, 2 the store cannot be read.""",
)
@click.argument("trace_id")
@config_option
@click.option("--json", "json_", is_flag=True, help="Print JSON instead of a page.")
def show_trace(trace_id: str, config_path: Path, json_: bool) -> None:
    """One request: its attempts, findings, seams and verdicts. TRACE_ID may be shortened."""
    from guard.tables import show, trace_page

    with reading(config_path) as reader:
        record = reader.get_request(trace_id)
        outcomes = reader.outcomes(record.trace_id) if record else []
    if record is None:
        click.echo(f"outguard traces: there is no trace that begins with {trace_id}", err=True)
        sys.exit(1)
    if json_:
        click.echo(as_json({**msgspec.to_builtins(record), "outcomes": msgspec.to_builtins(outcomes)}))
    else:
        show(trace_page(record, outcomes))


main.add_command(store)


@main.command(
    epilog="""\b
Examples:
  outguard demo
  outguard demo --keep

Exit codes: 0 every step went as it should, 1 one did not."""
)
@click.option("--keep", is_flag=True, help="Leave it serving at the end and print curl and grpcurl lines.")
def demo(keep: bool) -> None:
    """Two real llama.cpp engines, one of them faulty, behind the sidecar: see it work, and why."""
    from guard.demo import run

    sys.exit(run(keep=keep))
