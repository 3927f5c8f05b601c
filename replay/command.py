"""``outguard replay``: hooks into the command line through the entry point group ``outguard.commands``. Heavy imports
happen inside, so that --help answers at once."""

from __future__ import annotations

import shlex
import sys
import textwrap
from pathlib import Path
from typing import Any

import click

from guard.options import age, config_option
from replay.where import FIELDS

FIELDS_TOLD = textwrap.fill(", ".join(sorted(FIELDS)), 110, initial_indent="  ", subsequent_indent="  ")


@click.command(
    epilog=f"""\b
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

\b
Conditions (--where) hold of one attempt and its request, with = != < <= > >= in and or not, and * for any text:
{FIELDS_TOLD}

Exit codes: 0 every answer is sound and the same as all others and as what was delivered, 1 at least one is not, or was
not run, 2 nothing to run, 130 interrupted (go on with --resume)."""
)
@click.argument("trace_id", required=False)
@config_option
@click.option("--trace", "traces", multiple=True, help="A trace to run again; may be given several times.")
@click.option("--where", help="Traces that meet a condition, see below.")
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
    from guard.checked_yaml import ConfigError
    from replay.asked import Asked
    from replay.jobs import run
    from replay.source import ReplayError

    try:
        sys.exit(run(Asked(config_path=config_path, command=shlex.join(sys.argv), **asked)))
    except ReplayError as error:
        click.echo(f"outguard replay: {error}", err=True)
    except ConfigError as error:
        for problem in error.problems:
            click.echo(problem, err=True)
    sys.exit(2)
