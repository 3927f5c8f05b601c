"""The commands ``outguard policy``: what a policy does about what is found."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from guard.options import config_option, read_config


@click.group()
def policy() -> None:
    """Look at what a policy does."""


@policy.command(
    epilog="""\b
Examples:
  outguard policy explain
  outguard policy explain --config outguard.yaml --policy careful
  outguard policy explain --json | jq '.after_an_attempt[] | select(.then == "vary")'

Exit codes: 0 printed, 2 the configuration is wrong or has no such policy."""
)
@config_option
@click.option("--policy", "name", help="Only the rows that this policy of the configuration can reach.")
@click.option("--json", "json_", is_flag=True, help="Print JSON instead of tables.")
@click.option("--markdown", "markdown_", is_flag=True, help="Print Markdown instead of tables.")
def explain(config_path: Path, name: str | None, json_: bool, markdown_: bool) -> None:
    """Print the decision tables: what is done about a finding while an answer streams, and when an attempt has ended.
    The first row that fits decides. Without --policy no configuration is read."""
    from guard.explain import as_data, markdown, tables
    from guard.tables import decision_tables, show

    if json_ and markdown_:
        raise click.UsageError("--json and --markdown: one of them at a time")
    chosen = None
    if name is not None:
        policies = read_config(config_path).policies
        chosen = policies.get(name)
        if chosen is None:
            known = ", ".join(sorted(policies))
            click.echo(f"{config_path}: policies: there is no policy called {name!r} (there are: {known})", err=True)
            sys.exit(2)
    if json_:
        click.echo(json.dumps(as_data(chosen), ensure_ascii=False, indent=2))
    elif markdown_:
        click.echo(markdown(chosen))
    else:
        show(decision_tables(tables(chosen)))
