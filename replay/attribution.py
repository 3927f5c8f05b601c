"""What failures depend on: the smallest set of axis values that explains them, or that nothing does. Pure.

The rules:

- The null hypothesis is that within a request it makes no difference in which cell a run stood. Runs count as
  independent, unless repeats always agree: where several requests fail, each of their cells as a whole and with one
  answer, a repeat is no new evidence, and one request in one cell counts once.
- Candidates are searched over the same counts that test them. That is paid for: the p-value of the chosen set is
  multiplied by the number of all distinct sets looked at (the first step of Holm's procedure), and its intervals are as
  much wider.
- A condition stays only if it is needed: runs that it leaves out must fail significantly less than those it lets in. A
  set is widened over runs that fail as it does, and more than what would still be left out.
- Where axes do not vary apart, no test can tell them apart: all names of a set are given, and the cell that would.
- What is left after a set is explained is looked at in the same way, up to three sets.
- Not significant is not "no": it comes with the number of repeats that would tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import numpy as np
from msgspec import Struct

from replay.candidates import Candidate, candidates, confounded, ordered_values, selected
from replay.counts import Count
from replay.results import Attribution, AxisTest, Clause, Condition, Rate, Step, phrase
from replay.statistics import (
    ALPHA,
    Stratum,
    Tested,
    clopper_pearson,
    holm,
    moments,
    newcombe,
    rate,
    repeats_to_tell,
    stratified_exact,
)

CLAUSES: Final = 3
_SCREENED: Final = 400  # candidates whose stratified score is computed, the best by their totals
_LOOKED_AT: Final = 40  # candidates that may turn out to be wider, or rivals
_RIVAL: Final = 0.05  # sets that are not told apart even at this level are rivals
_COLLAPSED: Final = 6  # failing requests from which on agreeing repeats are counted once


class _Table(Struct):
    """``runs`` and ``failures`` are matrices, a row a cell and a column a stratum."""

    cells: list[dict[str, str]]
    runs: np.ndarray
    failures: np.ndarray
    answers: np.ndarray


def attribute(counts: Sequence[Count]) -> Attribution:
    """Every Count must name the same axes; raises ValueError when they do not."""
    table = _table(counts)
    unit: Literal["runs", "cells"] = "runs"
    if _repeats_agree(table):
        unit, table = "cells", _collapsed(table)
    every = candidates(table.cells)
    clauses: list[Clause] = []
    rest = table
    while len(clauses) < CLAUSES:
        found = _strongest(rest, every)
        if found is None:
            break
        clause, chosen = found
        if clause.p_adjusted > ALPHA:
            break
        clauses.append(clause)
        keep = ~chosen.cells
        rest = _Table(rest.cells, rest.runs * keep[:, None], rest.failures * keep[:, None], rest.answers)
    together = confounded(table.cells)
    return Attribution(
        runs=int(table.runs.sum()),
        failures=int(table.failures.sum()),
        strata=table.runs.shape[1],
        unit=unit,
        axes=_axis_tests(table),
        clauses=tuple(clauses),
        confounded=tuple(together),
        candidates=len(every),
        next_steps=tuple(_next_steps(table, every, clauses, unit)),
    )


def _table(counts: Sequence[Count]) -> _Table:
    cells: dict[tuple[tuple[str, str], ...], int] = {}
    strata: dict[str, int] = {}
    axes = set(counts[0].axes) if counts else set()
    for count in counts:
        if set(count.axes) != axes:
            raise ValueError(f"counts over {sorted(axes)} and over {sorted(count.axes)} cannot be put together")
        cells.setdefault(tuple(sorted(count.axes.items())), len(cells))
        strata.setdefault(count.stratum, len(strata))
    runs = np.zeros((len(cells), len(strata)), dtype=np.int64)
    failures, answers = np.zeros_like(runs), np.zeros_like(runs)
    for count in counts:
        place = cells[tuple(sorted(count.axes.items()))], strata[count.stratum]
        runs[place] += count.runs
        failures[place] += count.failures
        answers[place] += count.answers
    return _Table([dict(cell) for cell in cells], runs, failures, answers)


def _repeats_agree(table: _Table) -> bool:
    repeated = table.runs >= 2
    failing = repeated & (table.failures > 0)
    if not failing.any() or (failing.any(axis=0)).sum() < _COLLAPSED:
        return False
    return bool((table.failures[failing] == table.runs[failing]).all() and (table.answers[failing] <= 1).all())


def _collapsed(table: _Table) -> _Table:
    return _Table(table.cells, np.minimum(table.runs, 1), np.minimum(table.failures, 1), table.answers)


def _strata(table: _Table, inside: np.ndarray, outside: np.ndarray) -> list[Stratum]:
    failed_in, run_in = table.failures[inside].sum(axis=0), table.runs[inside].sum(axis=0)
    failed_out, run_out = table.failures[outside].sum(axis=0), table.runs[outside].sum(axis=0)
    return [Stratum(*map(int, each)) for each in zip(failed_in, run_in, failed_out, run_out, strict=True)]


def _test(table: _Table, inside: np.ndarray, outside: np.ndarray) -> Tested:
    return stratified_exact(_strata(table, inside, outside))


def _more(table: _Table, inside: np.ndarray, outside: np.ndarray, level: float) -> bool:
    """Inside fails significantly more often than outside."""
    strata = _strata(table, inside, outside)
    excess = sum(
        each.failures_in - each.runs_in * (each.failures_in + each.failures_out) / (each.runs_in + each.runs_out)
        for each in strata
        if each.runs_in and each.runs_out
    )
    return excess > 0 and stratified_exact(strata).p <= level


def _scores(table: _Table, every: Sequence[Candidate]) -> np.ndarray:
    """How far the failures inside exceed what they would be by chance, in standard deviations; within strata for the
    best by totals, minus infinity for all others."""
    masks = np.array([each.cells for each in every], dtype=np.float64)
    runs, failures = table.runs.sum(axis=1), table.failures.sum(axis=1)
    all_runs, all_failures = runs.sum(), failures.sum()
    scores = np.full(len(every), -np.inf)
    inside = masks @ runs
    expected, variance = moments(np.full(len(every), all_failures), inside, np.full(len(every), all_runs))
    rough = (masks @ failures - expected) / np.sqrt(np.maximum(variance, 1e-12))
    best = np.argsort(-rough, kind="stable")[:_SCREENED]
    mixed = (table.failures.sum(axis=0) > 0) & (table.failures.sum(axis=0) < table.runs.sum(axis=0))
    run_in, failed_in = masks[best] @ table.runs[:, mixed], masks[best] @ table.failures[:, mixed]
    total, failed = table.runs[:, mixed].sum(axis=0), table.failures[:, mixed].sum(axis=0)
    expected, variance = moments(failed[None, :], run_in, total[None, :])
    spread = variance.sum(axis=1)
    scores[best] = np.where(
        spread > 0, (failed_in - expected).sum(axis=1) / np.sqrt(np.maximum(spread, 1e-12)), -np.inf
    )
    return scores


def _strongest(table: _Table, every: Sequence[Candidate]) -> tuple[Clause, Candidate] | None:
    """The set that explains most, as small as it can be; None when nothing failed, or nothing varies."""
    if not every or not table.failures.any():
        return None
    scores = _scores(table, every)
    chosen = every[int(np.argmax(scores))]
    if not np.isfinite(scores.max()) or scores.max() <= 0:
        return None
    ranked = [every[index] for index in np.argsort(-scores, kind="stable")[:_LOOKED_AT] if np.isfinite(scores[index])]
    chosen = _widest(table, _simplest(table, chosen, {each.cells.tobytes(): each for each in every}), ranked)
    tested = _test(table, chosen.cells, ~chosen.cells)
    inside, outside = _sums(table, chosen.cells), _sums(table, ~chosen.cells)
    level = 1 - 0.05 / len(every)
    rivals = [each for each in ranked if each is not chosen and _rival(table, chosen, each)]
    clause = Clause(
        conditions=chosen.conditions,
        inside=_rate(inside, level),
        outside=_rate(outside, level),
        difference=newcombe(*inside, *outside, level=level),
        p=tested.p,
        p_adjusted=min(1.0, tested.p * len(every)),
        method=tested.method,
        same_runs=chosen.names[1:],
        rivals=tuple(each.conditions for each in rivals),
    )
    return clause, chosen


def _simplest(table: _Table, chosen: Candidate, by_mask: dict[bytes, Candidate]) -> Candidate:
    """Conditions that are not needed taken off one by one, the least needed first."""
    while len(chosen.conditions) > 1:
        wider = []
        for dropped in chosen.conditions:
            kept = [condition for condition in chosen.conditions if condition is not dropped]
            candidate = by_mask.get(selected(kept, table.cells).tobytes())
            added = candidate.cells & ~chosen.cells if candidate else chosen.cells
            if candidate is not None and not _more(table, chosen.cells, added, ALPHA):
                wider.append((_test(table, chosen.cells, added).p, candidate))
        if not wider:
            break
        chosen = max(wider, key=lambda each: each[0])[1]
    return chosen


def _widest(table: _Table, chosen: Candidate, ranked: Sequence[Candidate]) -> Candidate:
    """The best set around the chosen one whose further runs fail as it does, and more than all others."""
    for wider in ranked:
        added = wider.cells & ~chosen.cells
        if (
            len(wider.conditions) <= len(chosen.conditions)
            and added.any()
            and not (chosen.cells & ~wider.cells).any()
            and not _more(table, chosen.cells, added, ALPHA)
            and _more(table, added, ~wider.cells, _RIVAL)
        ):
            return _widest(table, wider, ranked)
    return chosen


def _rival(table: _Table, chosen: Candidate, other: Candidate) -> bool:
    """The runs that only one of the two selects do not say which of them it is."""
    if len(other.conditions) > len(chosen.conditions):
        return False
    only_chosen, only_other = chosen.cells & ~other.cells, other.cells & ~chosen.cells
    neither = ~(chosen.cells | other.cells)
    if only_chosen.any() and _more(table, only_chosen, neither, _RIVAL):
        return False
    return not (only_other.any() and _more(table, chosen.cells, only_other, _RIVAL))


def _sums(table: _Table, cells: np.ndarray) -> tuple[int, int]:
    return int(table.failures[cells].sum()), int(table.runs[cells].sum())


def _rate(counted: tuple[int, int], level: float = 0.95) -> Rate:
    return Rate(*counted, clopper_pearson(*counted, level))


def _axis_tests(table: _Table) -> tuple[AxisTest, ...]:
    """Each value against all others of its axis, the smallest p-value times the number of values; then Holm over the
    axes."""
    rows: list[tuple[str, tuple[tuple[str, Rate], ...], Tested]] = []
    for axis in table.cells[0] if table.cells else ():
        column = np.array([cell[axis] for cell in table.cells])
        values = ordered_values(axis, [cell[axis] for cell in table.cells])
        if len(values) < 2:
            continue
        rates = tuple((value, rate(*_sums(table, column == value))) for value in values)
        tests = [_test(table, column == value, column != value) for value in values[: None if len(values) > 2 else 1]]
        best = min(tests, key=lambda each: each.p)
        rows.append((axis, rates, Tested(min(1.0, best.p * len(tests)), best.method)))
    adjusted = holm([tested.p for _, _, tested in rows])
    return tuple(
        AxisTest(axis, rates, tested.p, corrected, tested.method)
        for (axis, rates, tested), corrected in zip(rows, adjusted, strict=True)
    )


def _next_steps(table: _Table, every: Sequence[Candidate], clauses: Sequence[Clause], unit: str) -> list[Step]:
    steps: list[Step] = []
    for clause in clauses:
        names = (clause.conditions, *clause.same_runs)
        if len(names) > 1:
            steps.append(_apart(names))
        steps += [_between(clause, rival) for rival in clause.rivals[:2]]
    if clauses or not table.failures.any():
        return steps
    if not every:
        return [Step("run the requests in a second cell", "everything ran in one cell: there is nothing to compare")]
    scores = _scores(table, every)
    best = every[int(np.argmax(scores))]
    inside, outside = _rate(_sums(table, best.cells)), _rate(_sums(table, ~best.cells))
    repeats = repeats_to_tell(inside.value, outside.value, ALPHA / len(every))
    if inside.value > outside.value and repeats:
        reason = (
            f"{inside} there and {outside} elsewhere may be chance; if these are the rates, {repeats} runs there and "
            "as many elsewhere tell in 80 of 100 cases"
        )
        what = "more requests" if unit == "cells" else "more repeats"
        steps.append(Step(f"run {what} with {phrase(best.conditions)} and without", reason, repeats))
    return steps


def _apart(names: Sequence[tuple[Condition, ...]]) -> Step:
    said = " or ".join(phrase(name) for name in names)
    one, other = names[0], names[1]
    without = phrase(tuple(each for each in other if each not in one) or other)
    reason = f"{said}: they never varied apart, and no run so far can tell them apart"
    return Step(f"run {phrase(one)} without {without}, and the other way round", reason)


def _between(clause: Clause, rival: tuple[Condition, ...]) -> Step:
    runs = repeats_to_tell(clause.inside.value, clause.outside.value)
    reason = f"{phrase(rival)} explains the failures about as well: the runs that would tell are too few"
    return Step(f"run more cells in which {phrase(clause.conditions)} and {phrase(rival)} differ", reason, runs)
