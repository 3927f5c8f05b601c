"""``outguard store``: the trace store itself, as its operator sees it. Heavy imports happen inside the commands."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import msgspec

from guard.custody import drain, status, verify
from guard.options import as_json, config_option, store_of


@click.group(
    epilog="""\b
Examples:
  outguard store migrate --dry-run
  outguard store migrate --config outguard.yaml
  outguard store status
  outguard store drain --timeout 600
  outguard store verify --json"""
)
def store() -> None:
    """Look after the trace store, and the spool before it."""


for _command in (status, drain, verify):
    store.add_command(_command)


@store.command(
    epilog="""\b
Examples:
  outguard store migrate --dry-run
  outguard store migrate --config outguard.yaml
  outguard store migrate --cluster main --sql > tables.sql

Exit codes: 0 the tables are up to date (with --dry-run: it is told what they lack), 2 they cannot be brought there: the
store is away, or a newer Outguard has made it."""
)
@config_option
@click.option("--cluster", help="The tables of a cluster of this name, whatever the store's address says.")
@click.option("--dry-run", is_flag=True, help="Only say which migrations would be applied.")
@click.option("--sql", is_flag=True, help="Only print the statements, all of them, for applying them by hand.")
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def migrate(config_path: Path, cluster: str | None, dry_run: bool, sql: bool, json_: bool) -> None:
    """Bring the store's tables to this version's form. A sidecar that starts does the same."""
    from guard.trace import schema
    from guard.trace.migrate import migrate as run
    from guard.trace.store import StoreError

    target = store_of(config_path)
    if cluster and target.embedded:
        raise click.UsageError("an embedded store is no cluster")
    if cluster:
        target = msgspec.structs.replace(target, cluster=cluster)
    if sql:
        for statement in schema.forms(target):
            click.echo(f"{statement};\n")
        return
    try:
        done = run(target, dry_run=dry_run)
    except StoreError as error:
        click.echo(f"outguard store: {error}", err=True)
        sys.exit(2)
    if json_:
        click.echo(as_json(done))
        return
    for name in done.names:
        click.echo(f"{'would apply' if dry_run else 'applied'} {name}")
    click.echo(f"{done.store} has schema {done.version}" + ("" if done.names else ", which is this version's"))
