"""``outguard traces``: reading what was recorded. Heavy imports happen inside the commands."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import click
import msgspec

from guard.compare_command import compare
from guard.options import age, as_json, config_option, reading, traced

Command = Callable[..., Any]

LOOK_SECONDS = 1.0
"""Between two looks of ``tail``."""


@click.group(
    epilog="""\b
Examples:
  outguard traces list --outcome failed --since 2h
  outguard traces show 4bf92f35
  outguard traces compare 4bf92f35 00f067aa
  outguard traces export --finding 'repetition.*' --since 24h > failures.jsonl"""
)
def traces() -> None:
    """Look at what was recorded."""


traces.add_command(compare)


def _family(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    return value and value.removesuffix(".*")


_FILTERS: tuple[Command, ...] = (
    click.option("--outcome", type=click.Choice(["ok", "failed", "cancelled", "invalid"]), help="Only these."),
    click.option("--error", "error_code", help="Only this error code."),
    click.option("--finding", callback=_family, help="Only with such a finding: a code, or a family as json.*"),
    click.option("--recovered/--not-recovered", default=None, help="Only answers that were (not) recovered."),
    click.option("--model", help="Only this model."),
    click.option("--tenant", help="Only this tenant."),
    click.option("--policy", help="Only this policy."),
    click.option("--engine", help="Only with an attempt on this engine. This and what follows hold of one attempt."),
    click.option("--engine-version", help="... of this version."),
    click.option("--image", help="... of this image."),
    click.option("--cluster", help="... on this cluster."),
    click.option("--node", help="... on this node."),
    click.option("--precision", help="... in this precision."),
    click.option("--since", callback=age, help="Not older than this: 90s, 15m, 24h, 7d."),
    click.option("--until", callback=age, help="Older than this."),
)


def filters(command: Command) -> Command:
    """The options by which requests are chosen."""
    for option in reversed(_FILTERS):
        command = option(command)
    return command


def _given(options: dict[str, Any]) -> dict[str, Any]:
    """Without the options that were not set."""
    return {name: value for name, value in options.items() if value is not None and value != ""}


@traces.command(
    "list",
    epilog="""\b
Examples:
  outguard traces list --limit 20
  outguard traces list --outcome failed --since 2h
  outguard traces list --finding 'repetition.*' --image vllm:0.32 --cluster b --json""",
)
@config_option
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 10_000), help="The newest so many.")
@filters
@click.option("--json", "json_", is_flag=True, help="Print JSON instead of a table.")
def list_(config_path: Path, json_: bool, limit: int, **options: Any) -> None:
    """The newest requests."""
    from guard.tables import show, traces_table
    from guard.trace.overview import overview

    with reading(config_path) as reader:
        rows = overview(reader, limit, _given(options))
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
    from guard.trace.surroundings import surroundings

    with reading(config_path) as reader:
        record = reader.get_request(trace_id)
        outcomes = reader.outcomes(record.trace_id) if record else []
        around = surroundings(reader, record.attempts) if record else []
    if record is None:
        click.echo(f"outguard traces: there is no trace that begins with {trace_id}", err=True)
        sys.exit(1)
    if json_:
        click.echo(as_json({**msgspec.to_builtins(record), "outcomes": outcomes, "engines_meanwhile": around}))
    else:
        show(trace_page(record, outcomes, around))


@traces.command(
    epilog="""\b
Examples:
  outguard traces tail
  outguard traces tail --outcome failed --engine primary
  outguard traces tail --json | jq -r 'select(.recovered) | .trace_id'

Ends with Ctrl-C. Exit codes: 0 ended, 2 the store cannot be read at the start. A store that goes away later is waited
for."""
)
@config_option
@click.option("--lines", "-n", default=10, show_default=True, type=click.IntRange(0, 10_000), help="Of what is there.")
@filters
@click.option("--json", "json_", is_flag=True, help="Print a line of JSON for each.")
def tail(config_path: Path, lines: int, json_: bool, **options: Any) -> None:
    """Follow requests as they end: the newest so many, then each as it is stored."""
    from guard.tables import trace_line
    from guard.trace.overview import Overview, overview
    from guard.trace.store import Unavailable
    from guard.trace.tail import Tail

    def told(row: Overview) -> str:
        if not json_:
            return trace_line(row)
        plain = {**msgspec.to_builtins(row.request), "engines": row.engines, "findings": row.findings}
        return json.dumps(plain, ensure_ascii=False)

    wanted = _given(options)
    with reading(config_path) as reader, suppress(KeyboardInterrupt):
        following = Tail(reader, wanted, time.time())
        for row in reversed(overview(reader, lines, wanted) if lines else []):
            click.echo(told(row))
        away = False
        while True:
            time.sleep(LOOK_SECONDS)
            try:
                reader.flush(LOOK_SECONDS)
                for row in following.poll(time.time()):
                    click.echo(told(row))
                away = False
            except Unavailable as error:
                if not away:
                    click.echo(f"outguard traces: {error}; waiting for it", err=True)
                away = True


@traces.command(
    epilog="""\b
Examples:
  outguard traces export 4bf92f35 > trace.jsonl
  outguard traces export --outcome failed --since 24h --limit 200 -o failures.jsonl
  outguard replay --file failures.jsonl

Exit codes: 0 written, 1 no request fits, 2 the store cannot be read or the file not be written."""
)
@click.argument("trace_ids", nargs=-1)
@config_option
@click.option("--limit", default=1_000, show_default=True, type=click.IntRange(1, 10_000), help="The newest so many.")
@filters
@click.option("--output", "-o", type=click.Path(path_type=Path), help="The file; standard output without.")
def export(trace_ids: tuple[str, ...], config_path: Path, limit: int, output: Path | None, **options: Any) -> None:
    """Write requests to a self-contained replay file.

    One JSON line each: the request's body, its attempts with every axis, findings, the answer, token ids and logprobs,
    as far as they were kept.

    The TRACE_IDS, which may be shortened, or what the filters choose.
    """
    from guard.trace.export import Exported, line

    wanted = _given(options)
    if trace_ids and wanted:
        raise click.UsageError("trace ids and filters do not go together")
    count = bare = 0
    with reading(config_path) as reader:
        if trace_ids:
            records = [record for record in map(reader.get_request, trace_ids) if record is not None]
        else:
            records = reader.list_requests(limit, wanted)[::-1]
        try:
            with open(output, "wb") if output else nullcontext(sys.stdout.buffer) as file:
                for start in range(0, len(records), 100):
                    some = records[start : start + 100]
                    for record in some if trace_ids else reader.get_requests(some):
                        file.write(line(Exported(record, tuple(reader.outcomes(record.trace_id)))))
                        count += 1
                        bare += not record.request_body
        except OSError as error:
            click.echo(f"outguard traces: {output or 'standard output'}: cannot be written: {error.strerror}", err=True)
            sys.exit(2)
    told = f"{count} request{'s' * (count != 1)} written"
    click.echo(f"{told}, {bare} of them without content, which cannot be run again" if bare else told, err=True)
    if count < max(1, len(trace_ids)):
        click.echo("outguard traces: there is no such trace" if trace_ids else "outguard traces: none fits", err=True)
        sys.exit(1)


@traces.command(
    epilog="""\b
Examples:
  outguard traces erase --tenant acme --dry-run
  outguard traces erase --tenant acme --older-than 30d
  outguard traces erase --trace 4bf92f35
  outguard traces erase --older-than 90d

Exit codes: 0 erased (or counted), 1 nothing fits, 2 it cannot be done: the store is away, or its user may not. Several
sidecars with one store: run it where each of them spools."""
)
@config_option
@click.option("--trace", help="This trace, which may be shortened.")
@click.option("--tenant", help="All of this tenant.")
@click.option("--older-than", "before", callback=age, help="All that began longer ago than this: 24h, 30d.")
@click.option("--dry-run", is_flag=True, help="Only count.")
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def erase(
    config_path: Path, trace: str | None, tenant: str | None, before: float | None, dry_run: bool, json_: bool
) -> None:
    """Remove requests for good: their rows, spans and verdicts from the store, and what of them lies in the spool.

    Counts by the minute stay: they hold no trace, no tenant and no word of a caller's, only how many requests a model
    and an engine had, and how they ended. Done when the command returns.
    """
    from guard.trace.erase import Selection
    from guard.trace.removal import remove
    from guard.trace.store import StoreError

    try:
        for name, given in (("trace", trace), ("tenant", tenant)):
            if given is not None and not given.strip():  # a variable of a script that is not set
                raise ValueError(f"--{name} is empty")
        selection = Selection((trace or "").lower(), tenant, before or 0.0)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if trace:
        with reading(config_path) as reader:
            if found := reader.get_request(trace):
                selection = Selection(found.trace_id)
    try:
        erased = remove(traced(config_path), selection, dry_run=dry_run)
    except (StoreError, OSError) as error:
        click.echo(f"outguard traces: {error}", err=True)
        sys.exit(2)
    if json_:
        click.echo(as_json(erased))
    else:
        verb = "would be erased" if dry_run else "erased"
        for table, count in erased.rows.items():
            click.echo(f"{count:>10,} rows of {table} {verb}")
        click.echo(f"{erased.spooled:>10,} records of the spool, {erased.aside:,} set aside {verb}")
        if not erased.gone:
            click.echo("the store's old files are deleted within the next minutes", err=True)
    sys.exit(0 if any(erased.rows.values()) or erased.spooled or erased.aside else 1)
