"""Is the planted cause found? A hundred seeds of every simulated fleet, with exact intervals; and how long an analysis
takes.

    make bench-triage
    make bench-triage ARGS="--seeds 20 --only race,batch"
    make bench-triage ARGS="--seeds 0"                          only the timing of a million stored outcomes

A fleet counts as found out when the ruling names its cause, and its axes are exactly those planted. Where nothing is
wrong, everything counts as a claim that blames the serving: the ruling, any set of axis values, any contrast, any
single request. Exit code 1 when a planted cause is missed in more than 5 of 100 seeds, or an innocent fleet blamed in
more than 5.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from guard.trace.clickhouse import ClickHouseStore
from guard.trace.store import parse_dsn
from replay.attribution import attribute
from replay.counts import counted, counts_query
from replay.results import Condition, Rate
from replay.statistics import rate
from replay.triage import triage
from tests.replay.fleets import INNOCENT, PLANTED, Fleet


@dataclass
class Verdict:
    """``axes_right`` is None where a fleet has no axes to be found."""

    cause: str
    cause_right: bool
    axes: str
    axes_right: bool | None
    claims: list[str]


def judge(fleet: Fleet) -> Verdict:
    found = triage(fleet.runs, fleet.prompts)
    named = [found.ruling.axes]
    for attribution in (found.attribution, found.differences):
        for clause in attribution.clauses if attribution else ():
            if clause.conditions in named or found.ruling.axes in clause.same_runs:
                named += [clause.conditions, *clause.same_runs]
    seen = {frozenset(map(str, axes)) for axes in named}
    claims = [ruling.scope for ruling in (found.ruling, *found.contrasts, *found.requests) if ruling.claim]
    claims += [str(clause) for clause in found.attribution.clauses]
    return Verdict(
        cause=found.ruling.cause,
        cause_right=found.ruling.cause == fleet.cause,
        axes=_said(found.ruling.axes),
        axes_right=None if fleet.axes is None else all(axes in seen for axes in fleet.axes),
        claims=claims,
    )


def _said(axes: tuple[Condition, ...]) -> str:
    return " and ".join(map(str, axes)) or "-"


def planted(name: str, make: Callable[[int], Fleet], seeds: int) -> bool:
    verdicts = [judge(make(seed)) for seed in range(seeds)]
    right = rate(sum(v.cause_right for v in verdicts), seeds)
    axes = rate(sum(v.axes_right is not False for v in verdicts), seeds)
    print(f"{name:26} {_shown(right)}  {_shown(axes)}  {_others(verdicts)}", flush=True)
    return min(right.value, axes.value) >= 0.95


def innocent(name: str, make: Callable[[int], Fleet], seeds: int) -> bool:
    verdicts = [judge(make(seed)) for seed in range(seeds)]
    claims = rate(sum(bool(v.claims) for v in verdicts), seeds)
    causes = Counter(v.cause for v in verdicts)
    print(f"{name:26} {_shown(claims)}  {', '.join(f'{c} {n}' for c, n in causes.most_common())}", flush=True)
    return claims.value <= 0.05


def _shown(found: Rate) -> str:
    return f"{found!s:>7} ({found.interval.low:5.1%} to {found.interval.high:6.1%})"


def _others(verdicts: list[Verdict]) -> str:
    """What was said instead."""
    wrong = Counter(f"{v.cause}: {v.axes}" for v in verdicts if not v.cause_right or v.axes_right is False)
    return ", ".join(f"{said} ({count})" for said, count in wrong.most_common(3))


PART = 50_000  # rows of one insert, as much as the embedded store's memory takes
AXES = ("engine", "image", "cluster", "precision", "concurrency", "cache")
STORED = """
INSERT INTO attempts (trace_id, started_at, model, engine, image, cluster, precision, concurrency_at_start,
    cached_tokens, prompt_tokens, outcome)
SELECT toString(number), now(), 'm', ['vllm', 'sglang'][number % 2 + 1],
    concat('1.', toString(intDiv(number, 2) % 4)) AS image, ['a', 'b', 'c', 'd'][intDiv(number, 8) % 4 + 1] AS cluster,
    ['bf16', 'fp8'][intDiv(number, 32) % 2 + 1], cityHash64(number, 1) % 40, cityHash64(number, 2) % 2,
    cityHash64(number, 3) % 4000,
    if(cityHash64(number, 4) % 1000 < if(image = '1.2' AND cluster = 'b', 30, 5), 'condemned', 'ok')
FROM numbers({}, {})
"""
"""Attempts of which one in two hundred is condemned, of image 1.2 on cluster b one in 33."""


def stored(outcomes: int) -> str:
    """Attempts in an embedded store of its own: counted there, in SQL, attributed here."""
    with tempfile.TemporaryDirectory() as folder:
        store = ClickHouseStore(parse_dsn(f"chdb://{folder}/store"))
        try:
            store.migrate()
            for start in range(0, outcomes, PART):
                store._client.command(STORED.format(start, min(PART, outcomes - start)))
            before = time.process_time()
            rows = store.query(counts_query(AXES, stratum="prompt_length"))
            between = time.process_time()
            found = attribute(counted(AXES, rows))
            after = time.process_time()
        finally:
            store.close()
    clauses = "".join(f"\n   {clause}" for clause in found.clauses)
    return (
        f"{found.runs:,} stored outcomes: {between - before:.2f} s of CPU to count them in the store "
        f"({len(rows):,} rows), {after - between:.2f} s to attribute them{clauses}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--only", default="", help="comma-separated names of fleets")
    parser.add_argument("--stored", type=int, default=1_000_000, help="outcomes in the store of the timing")
    asked = parser.parse_args()
    if not asked.seeds:
        print(stored(asked.stored))
        return 0
    only = set(filter(None, asked.only.split(",")))
    good = True
    print(f"{'planted':26} {'cause right':>27}  {'axes right':>27}  said instead")
    for name, make in PLANTED.items():
        if not only or name in only:
            good &= planted(name, make, asked.seeds)
    print(f"\n{'nothing to blame':26} {'claims':>27}  rulings")
    for name, make in INNOCENT.items():
        if not only or name in only:
            good &= innocent(name, make, asked.seeds)
    if not only:
        print()
        print(stored(asked.stored))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
