"""Options that several commands share."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import msgspec

from guard.checked_yaml import ConfigError, read_text
from guard.config import Config, TraceConfig, parse_config
from guard.trace.store import AmbiguousTrace, StoreError, Target, TraceReader, open_store, parse_dsn

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


def age(_: click.Context, __: click.Parameter, value: str | None) -> float | None:
    """For options such as --since 24h: the Unix seconds so long ago."""
    from guard.trace.overview import age_seconds

    try:
        return None if value is None else time.time() - age_seconds(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def read_config(path: Path) -> Config:
    """The configuration, or the end of the process with exit code 2 and every mistake on a line of its own."""
    return checked(path, config_text(path))


def config_text(path: Path) -> str:
    """What the file says. Ends the process as ``read_config`` does."""
    with _mistakes():
        return read_text(path)


def checked(path: Path, text: str) -> Config:
    """The configuration that the file at ``path`` is, or was. Ends the process as ``read_config`` does."""
    with _mistakes():
        return parse_config(text, str(path))


@contextmanager
def _mistakes() -> Iterator[None]:
    try:
        yield
    except ConfigError as error:
        for problem in error.problems:
            click.echo(problem, err=True)
        sys.exit(2)


def store_of(config_path: Path) -> Target:
    """The trace store of a configuration. Where there is none, the process ends with 2."""
    return parse_dsn(traced(config_path).dsn())


def traced(config_path: Path) -> TraceConfig:
    """The trace section of a configuration. Where it has no store, the process ends with 2."""
    trace = read_config(config_path).trace
    if trace.store == "none":
        click.echo(f"{config_path}: trace.store: is none, so there is no trace store", err=True)
        sys.exit(2)
    return trace


@contextmanager
def reading(config_path: Path) -> Iterator[TraceReader]:
    """The trace store of a configuration, with what was just spooled in it. What goes wrong ends the process with 2."""
    trace = traced(config_path)
    try:
        reader = open_store(trace.dsn(), trace.spool)
        try:
            reader.flush()
            yield reader
        finally:
            reader.close()
    except AmbiguousTrace as error:
        click.echo(f"outguard: {error}", err=True)
        sys.exit(2)
    except (StoreError, ValueError) as error:
        click.echo(f"outguard: the trace store cannot be read: {error}", err=True)
        sys.exit(2)


def as_json(value: Any) -> str:
    return json.dumps(msgspec.to_builtins(value), ensure_ascii=False, indent=2)
