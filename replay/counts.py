"""Outcomes counted by cell and request: all that the attribution needs, however many runs there were. Pure.

A million stored outcomes are counted where they lie: ``counts_query`` is the SQL that gives these rows over the
attempts in the trace store, one row for each cell and stratum, and nothing else leaves it. The store gives up to 10,000
rows: name the axes that are in question, not all there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from replay.observation import Observation, Outcome


class Count(Struct, frozen=True):
    """``axes``: axis -> value. ``stratum``: the request, or what else the runs share that could change their rate of
    failure whatever the cell. ``failures`` of ``runs``; ``answers`` is how many different ones there are among the
    failures, 0 where that is not known."""

    axes: Mapping[str, str]
    stratum: str
    runs: int
    failures: int
    answers: int = 0


def _power_of_two(column: str) -> str:
    return f"toString(if({column} < 2, {column}, exp2(floor(log2({column})))))"


COLUMNS: Final[dict[str, str]] = {
    "engine": "engine",
    "version": "engine_version",
    "image": "image",
    "cluster": "cluster",
    "node": "node",
    "precision": "precision",
    "dialect": "dialect",
    "endpoint": "endpoint",
    "tokenizer": "tokenizer_hash",
    "template": "template_hash",
    "concurrency": _power_of_two("concurrency_at_start"),
    "cache": "if(cached_tokens > 0, 'warm', 'cold')",
    "prompt_length": _power_of_two("prompt_tokens"),
}
"""Axis -> its expression over the table of attempts. Concurrency and lengths are cut to the power of two below."""

FAILURES: Final[dict[str, str]] = {
    "wrong": "outcome = 'condemned'",
    "error": "outcome IN ('fault', 'refused')",
    "any": "outcome IN ('condemned', 'fault', 'refused')",
}

STRATA: Final[dict[str, str]] = {
    "": "''",
    "model": "model",
    "prompt_length": COLUMNS["prompt_length"],
    "model and prompt_length": f"concat(model, ' ', {COLUMNS['prompt_length']})",
    "constraint": "constraint_hash",
    "tenant": "tenant",
}


def counts(
    runs: Iterable[Observation], failed: Callable[[Observation], bool | None], axes: Sequence[str] | None = None
) -> list[Count]:
    """Counted by cell and request. ``failed`` says None of a run that is not to be counted."""
    tally: dict[tuple[tuple[tuple[str, str], ...], str], tuple[list[bool], set[object]]] = {}
    for run in runs:
        outcome = failed(run)
        if outcome is None:
            continue
        values = run.cell.axes()
        key = tuple((axis, values[axis]) for axis in (axes or values)), run.request_id
        outcomes, answers = tally.setdefault(key, ([], set()))
        outcomes.append(outcome)
        if outcome:
            answers.add(run.token_ids or tuple(sorted(run.text.items())) or run.fingerprint)
    return [
        Count(dict(cell), stratum, len(outcomes), sum(outcomes), len(answers))
        for (cell, stratum), (outcomes, answers) in tally.items()
    ]


def failing(outcome: Outcome, differs: Callable[[Observation], bool | None]) -> Callable[[Observation], bool | None]:
    """What counts as a failure. ``differs`` says whether a run differs from its request's reference (None: no
    telling)."""
    if outcome == "error":
        return lambda run: bool(run.error)
    if outcome == "differs":
        return lambda run: differs(run) if run.answered else None
    return lambda run: bool(run.wrong()) if run.answered else None


def counts_query(
    axes: Sequence[str], *, failure: str = "wrong", stratum: str = "model and prompt_length", where: str = "1"
) -> str:
    """ClickHouse SQL over ``attempts``: the axes, the stratum, runs and failures, a row for each cell and stratum.

    ``where`` is SQL of the caller's own making, its values as parameters. Raises ValueError naming what there is not.
    """
    for given, known, what in (
        (axes, COLUMNS, "axis"),
        ([failure], FAILURES, "failure"),
        ([stratum], STRATA, "stratum"),
    ):
        if missing := [name for name in given if name not in known]:
            raise ValueError(f"no such {what}: {', '.join(missing)} (there are: {', '.join(filter(None, known))})")
    columns = ", ".join(f"{COLUMNS[axis]} AS axis_{axis}" for axis in axes)
    return (
        f"SELECT {columns}, {STRATA[stratum]} AS stratum, count() AS runs, countIf({FAILURES[failure]}) AS failures "
        f"FROM attempts WHERE outcome != 'cancelled' AND ({where}) "
        f"GROUP BY {', '.join(f'axis_{axis}' for axis in axes)}, stratum"
    )


def counted(axes: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> list[Count]:
    """The rows of ``counts_query``, as the trace store gives them."""
    return [
        Count({axis: str(row[f"axis_{axis}"]) for axis in axes}, str(row["stratum"]), row["runs"], row["failures"])
        for row in rows
    ]
