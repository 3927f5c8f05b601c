"""Options that several commands share."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from guard.config import Config, ConfigError, load_config

config_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--config",
    "-c",
    "config_path",
    envvar="OUTGUARD_CONFIG",
    default="outguard.yaml",
    show_default=True,
    type=click.Path(path_type=Path),
    help="The configuration file (or OUTGUARD_CONFIG).",
)


def read_config(path: Path) -> Config:
    """The configuration, or the end of the process with exit code 2 and every mistake on a line of its own."""
    try:
        return load_config(path)
    except ConfigError as error:
        for problem in error.problems:
            click.echo(problem, err=True)
        sys.exit(2)
