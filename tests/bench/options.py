"""The options that the benches of the sidecar share: --json, --rounds, --scenario and --packages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

Command = Callable[..., Any]


def bench_options(scenarios: Sequence[str]) -> Callable[[Command], Command]:
    """Given to the command as ``as_json``, ``rounds``, ``names`` and ``packages``."""
    options = (
        click.option("--json", "as_json", is_flag=True, help="Print everything that was measured as JSON."),
        click.option("--rounds", default=3, show_default=True, type=click.IntRange(1, 50)),
        click.option(
            "--scenario",
            "names",
            multiple=True,
            type=click.Choice(scenarios),
            help="Only this one; can be repeated.",
        ),
        click.option(
            "--packages",
            type=click.Path(exists=True, file_okay=False, path_type=Path),
            help="A folder of compiled packages (make compiled) that the sidecar runs from, not the Python sources.",
        ),
    )

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add
