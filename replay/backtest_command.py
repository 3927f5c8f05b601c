"""``outguard backtest``: hooks into the command line through the entry point group ``outguard.commands``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from detectors.token_loop import TokenLoop, TokenRun
from guard.checked_yaml import ConfigError, parse_yaml, read_text
from guard.config import Policy, load_config
from guard.options import age, as_json, config_option, reading
from guard.tables import show
from replay.answers import MOST, Answers, from_file, from_store, stop
from replay.backtest import Backtest, Example, Stop, Tally, backtest
from replay.source import ReplayError

BATCH = 64


@click.command(
    name="backtest",
    epilog="""\b
The policy file holds what would stand under policies.NAME of the configuration, for example:
  thresholds:
    phrase_copies: 6
    patience: 1.5

\b
A line of --file is an exported trace (outguard traces export) or a plain answer:
  {"text": "...", "prompt": "...", "finish_reason": "stop", "collapsed": false}

\b
Examples:
  outguard backtest --policy new.yaml --since 7d
  outguard backtest --policy new.yaml --file answers.jsonl --examples 10
  outguard backtest --policy new.yaml --since 24h --json | jq .changes

Exit codes: 0 the new policy misses nothing more and stops nothing more wrongly, 1 it does, 2 there is nothing to try it
on, or a file is wrong.""",
)
@config_option
@click.option(
    "--policy",
    "policy_file",
    required=True,
    type=click.Path(path_type=Path),
    help="A YAML file with the policy that is to be tried.",
)
@click.option("--since", callback=age, help="Stored answers not older than this: 90s, 15m, 24h, 7d.")
@click.option("--file", "file", type=click.Path(path_type=Path), help="Answers of a file instead of the trace store.")
@click.option("--limit", default=MOST, show_default=True, type=click.IntRange(1, MOST), help="The newest so many.")
@click.option("--examples", default=3, show_default=True, type=click.IntRange(0, 1000), help="Shown of each change.")
@click.option("--json", "json_", is_flag=True, help="Print JSON instead of tables.")
def command(
    config_path: Path,
    policy_file: Path,
    since: float | None,
    file: Path | None,
    limit: int,
    examples: int,
    json_: bool,
) -> None:
    """Say what a changed policy would have caught, missed and wrongly stopped, before it goes live.

    Answers whose content was kept are judged again by the detectors that guard live traffic, under the policy that each
    was given under and under the new one.
    """
    try:
        new = parse_yaml(read_text(policy_file), str(policy_file), Policy, "a policy (thresholds, ...)")
        old = _policies(config_path, file)
        answers = _answers(config_path, since, file, limit)
    except ConfigError as error:
        for problem in error.problems:
            click.echo(problem, err=True)
        sys.exit(2)
    except ReplayError as error:
        click.echo(f"outguard backtest: {error}", err=True)
        sys.exit(2)
    found = backtest(
        answers.found,
        lambda answer: stop(answer, new),
        lambda answer: stop(answer, old.get(answer.policy) or old["default"]),
        token_loops([answer.token_ids for answer in answers.found]),
        most_examples=examples,
    )
    if json_:
        click.echo(as_json({**msgspec.to_builtins(found), "skipped": answers.skipped}))
    else:
        show(view(found, answers.skipped))
    sys.exit(0 if found.safe else 1)


def token_loops(sequences: Sequence[Sequence[int]]) -> Sequence[TokenRun | None]:
    """The first loop in each sequence of token ids: with torch many at once, else one by one with the same result."""
    try:
        import torch

        from detectors.tensor import runs, scan
    except ImportError:
        return [TokenLoop().feed(ids) for ids in sequences]
    found: list[TokenRun | None] = []
    for start in range(0, len(sequences), BATCH):
        part = sequences[start : start + BATCH]
        longest = max(map(len, part))
        ids = torch.zeros((len(part), longest), dtype=torch.int64)
        for row, one in zip(ids, part, strict=True):
            row[: len(one)] = torch.tensor(one, dtype=torch.int64)
        found += runs(scan(ids, torch.tensor([len(one) for one in part])))
    return found


def _policies(config_path: Path, file: Path | None) -> dict[str, Policy]:
    """Those of the configuration; where a file is judged and there is none, the default."""
    if file is not None and not config_path.exists():
        return {"default": Policy()}
    return dict(load_config(config_path).policies)


def _answers(config_path: Path, since: float | None, file: Path | None, limit: int) -> Answers:
    if (file is None) == (since is None):
        raise ReplayError("say either --since, for the trace store, or --file")
    if file is not None:
        answers = from_file(file, limit)
    else:
        with reading(config_path) as reader:
            answers = from_store(reader, since, limit)
    if not answers.found:
        why = "; ".join(f"{count}: {reason}" for reason, count in answers.skipped.items())
        raise ReplayError(f"there is no answer to try the policy on{f' ({why})' if why else ''}")
    return answers


# --- what is shown ---------------------------------------------------------------------------------------------------


def view(found: Backtest, skipped: dict[str, int]) -> RenderableType:
    parts: list[RenderableType] = [
        Text(f"{found.answers} answers, judged under the policy in force and under the new one")
    ]
    parts += [Text(f"  left out: {count}, {reason}", style="dim") for reason, count in skipped.items()]
    parts.append(_tallies(found.before, found.after))
    if found.presumed:
        said = f"{found.presumed} of {found.answers} are presumed collapsed or fine from how they ended"
        parts.append(Text(f"{said}; label them to know.", style="dim"))
    if found.sooner:
        when = "sooner" if found.sooner > 0 else "later"
        parts.append(Text(f"What both stop is stopped {abs(found.sooner)} characters {when} (median)."))
    if not found.changes:
        parts.append(Text("No answer would have been treated otherwise."))
    for change, count in sorted(found.changes.items()):
        shown = [example for example in found.examples if example.change == change]
        parts.append(Text(f"\n{change}: {count}", style="bold red" if change in _BAD else "bold"))
        parts += [_example(example) for example in shown]
    return Group(*parts)


_BAD = ("newly missed", "newly wrong")


def _tallies(before: Tally, after: Tally) -> Table:
    table = Table("", "in force", "new", "change", box=box.SIMPLE)
    for name, label in (
        ("caught", "collapsed and stopped"),
        ("missed", "collapsed and let through (missed)"),
        ("wrongly_stopped", "fine and stopped (wrongly)"),
        ("let_through", "fine and let through"),
        ("open_stopped", "stopped, nobody knows whether rightly"),
        ("open_passed", "let through, nobody knows whether rightly"),
    ):
        then, now = getattr(before, name), getattr(after, name)
        table.add_row(label, str(then), str(now), f"{now - then:+d}" if now != then else "")
    return table


def _example(example: Example) -> Text:
    return Text(
        f"  {example.id[:32]}  {_stop(example.before)} -> {_stop(example.after)}\n"
        f"    {example.because}\n    {example.excerpt!r}"
    )


def _stop(stop: Stop | None) -> str:
    return "passes" if stop is None else f"{stop.code} at {stop.onset}, seen at {stop.detected_at}"
