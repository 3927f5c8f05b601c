"""The command ``outguard``. Heavy imports happen inside the commands, so that --help answers at once.

Exit codes: 0 done, 1 the command ran and the answer is bad news, 2 it could not run (usage, configuration, no such
thing).
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import click

from guard import __version__
from guard.logs import configure
from guard.options import age, as_json, checked, config_option, config_text, read_config, reading
from guard.policy_command import policy
from guard.store_command import store
from guard.traces_command import traces


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
@click.version_option(__version__, prog_name="outguard")
def main() -> None:
    """A sidecar that checks what language-model engines answer, recovers what collapses, and leaves evidence."""


@main.command(
    epilog="""\b
Examples:
  outguard serve --config deploy/outguard.yaml
  OUTGUARD_CONFIG=/etc/outguard.yaml outguard serve --log-level debug
  kill -HUP PID   # with workers above 1: read the configuration again

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
@click.option("--worker", is_flag=True, hidden=True)  # one that a supervisor has started (guard/worker.py)
def serve(config_path: Path, log_level: str, worker: bool) -> None:
    """Serve gRPC and the OpenAI HTTP API in front of the configured engines.

    With workers above 1 in the configuration, so many processes share the addresses under a supervisor, which replaces
    one that dies, and at SIGHUP reads the file again: new workers take over, the old ones end when their answers have,
    and a file with a mistake changes nothing. A single process (workers: 1) does not reload; SIGHUP ends it.
    """
    configure(log_level)
    from guard.checked_yaml import place_of
    from guard.server.listener import ServeError

    try:
        if worker:
            from guard.worker import receive_assignment

            try:
                assignment = receive_assignment()
            except EOFError:
                sys.exit(1)
            config = checked(config_path, assignment.config)
            from guard.serve import run

            run(config, lambda _: None, assignment)  # it is the supervisor that announces
            return
        text = config_text(config_path)
        config = checked(config_path, text)
        if config.workers > 1:
            from guard.supervisor import supervise

            sys.exit(supervise(config, text, config_path, ("--log-level", log_level), click.echo))
        from guard.serve import run

        run(config, click.echo)
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
    except BrokenPipeError:  # whoever read the lines has seen enough: click ends the process without a word
        raise
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


@main.command(
    epilog="""\b
Examples:
  outguard engines --config outguard.yaml
  outguard engines --json
  outguard engines --live
  outguard engines --contradictions --since 7d

Exit codes: 0 all answer, 1 at least one does not, 2 the configuration is wrong, or the running sidecar or the trace
store cannot be asked."""
)
@config_option
@click.option("--live", is_flag=True, help="Ask the running sidecar, which knows more of their health.")
@click.option("--contradictions", is_flag=True, help="Instead: formats that engines were sent and broke, by traces.")
@click.option("--since", callback=age, help="With --contradictions: not older than this: 90s, 15m, 24h, 7d.")
@click.option("--json", "json_", is_flag=True, help="Print JSON instead of a table.")
def engines(config_path: Path, live: bool, contradictions: bool, since: float | None, json_: bool) -> None:
    """Ask every configured engine how it is, or the traces which engines broke what they were asked to enforce."""
    if contradictions and live:
        raise click.UsageError("--contradictions asks the traces and --live the running sidecar: one of them at a time")
    if since is not None and not contradictions:
        raise click.UsageError("--since goes with --contradictions: how engines are now has no age")
    if contradictions:
        _contradictions(config_path, since, json_)
        return
    import asyncio

    from guard.build import engine_statuses
    from guard.running import NotRunning, running_engines
    from guard.tables import engines_table, show

    config = read_config(config_path)
    try:
        statuses = running_engines(config) if live else asyncio.run(engine_statuses(config))
    except NotRunning as error:
        click.echo(f"outguard engines: {error}", err=True)
        sys.exit(2)
    if json_:
        click.echo(as_json(statuses))
    else:
        show(engines_table(statuses))
    sys.exit(0 if all(status.ok for status in statuses) else 1)


@main.command(
    epilog="""\b
Examples:
  outguard drain second
  outguard drain second --resume

Exit codes: 0 done, 2 there is no such engine or no running sidecar."""
)
@click.argument("engine")
@config_option
@click.option("--resume", is_flag=True, help="Instead: give it requests again.")
def drain(engine: str, config_path: Path, resume: bool) -> None:
    """Have the running sidecar give ENGINE nothing new; what is under way on it goes on.

    It lasts as long as the sidecar does; drain: true in the configuration lasts longer.
    """
    from guard.running import NotRunning, drain_engine

    try:
        drain_engine(read_config(config_path), engine, not resume)
    except NotRunning as error:
        click.echo(f"outguard drain: {error}", err=True)
        sys.exit(2)
    click.echo(f"{engine} is given requests again" if resume else f"{engine} is given nothing new")


def _contradictions(config_path: Path, since: float | None, json_: bool) -> None:
    from guard.tables import contradictions_table, show
    from guard.trace.contradictions import contradictions

    with reading(config_path) as reader:
        found = contradictions(reader, since)
    if json_:
        click.echo(as_json(found))
    else:
        show(contradictions_table(found))


main.add_command(traces)
main.add_command(store)


main.add_command(policy)


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
