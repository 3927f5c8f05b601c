"""A whole matrix judged: the ruling, one for each contrast of two cells, one for each request, and the attribution.
Pure.

The rules:

- The ruling of the matrix rests on all runs together. Contrasts and requests show where it comes from; their p-values
  are corrected for how many of them there are.
- A contrast changes one thing: the load, or the cache, within a set-up; or the set-up, undisturbed, against the most
  trustworthy one.
- What fails is attributed over all axes; so is what differs, for the causes that make answers different and not wrong.
  Differing is counted from one run fixed beforehand (undisturbed, of the most trustworthy set-up), which is then not
  counted itself; where that shows nothing, from the request's commonest answer over all cells. Both leave the labels of
  the counted runs exchangeable where nothing depends on them; p-values are doubled for the second look.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from replay.attribution import attribute
from replay.counts import counts, failing
from replay.facts import gather, replaced
from replay.groups import Group, alone, by_request, cold, fineness, loaded, quiet, setup, setups, warm
from replay.observation import Cell, Observation
from replay.results import Attribution, Ruling, Triage
from replay.ruling import rule
from replay.statistics import ALPHA

MATRIX: Final = "matrix"


class Contrast(Struct, frozen=True):
    """``name`` reads "load on engine=a" or "engine=a against engine=b"."""

    name: str
    runs: tuple[Observation, ...]


def triage(runs: Sequence[Observation], prompts: Mapping[str, str] | None = None) -> Triage:
    """``prompts``: request id -> the prompt as text, for the search for one in another request's answer. Runs that gave
    no answer are counted and left out."""
    wrong, differences = attributions(runs)
    between = contrasts(runs)
    requests = by_request(runs)
    return Triage(
        ruling=rule(MATRIX, gather(runs, prompts), wrong, differences),
        contrasts=tuple(rule(each.name, replaced(gather(each.runs, prompts), len(between))) for each in between),
        requests=tuple(rule(each.request_id, replaced(gather(each.runs, prompts), len(requests))) for each in requests),
        attribution=wrong,
        differences=differences,
    )


def attributions(runs: Sequence[Observation]) -> tuple[Attribution, Attribution | None]:
    """Of what is wrong, and of what differs; None where no request was run greedily."""
    wrong = attribute(counts(runs, failing("wrong", lambda _: None)))
    greedy = [part for group in by_request(runs) if (part := group.part(lambda run: run.sampling.greedy)).runs]
    if not greedy:
        return wrong, None
    ways = (attribute(counts(runs, failing("differs", way(greedy)))) for way in (_from_fixed, _from_commonest))
    first = next(ways)
    best = first if first.clauses else next(ways)
    doubled = (replace(clause, p_adjusted=min(1.0, 2 * clause.p_adjusted)) for clause in best.clauses)
    return wrong, replace(best, clauses=tuple(clause for clause in doubled if clause.p_adjusted <= ALPHA))


Deviation = Callable[[Observation], bool | None]
"""Whether a run deviates; None for one that does not count."""


def _from_commonest(greedy: Sequence[Group]) -> Deviation:
    known: dict[int, bool] = {}
    for group in greedy:
        usual = group.mode()
        known |= {id(run): key != usual for run, key in zip(group.runs, group.keys, strict=True)}
    return lambda run: known.get(id(run))


def _from_fixed(greedy: Sequence[Group]) -> Deviation:
    known: dict[int, bool] = {}
    for group in greedy:
        fixed = min(
            range(len(group.runs)),
            key=lambda index: (
                not quiet(group.runs[index]),
                fineness(group.runs[index].cell.precision),
                group.runs[index].repeat,
                index,
            ),
        )
        known |= {
            id(run): key != group.keys[fixed]
            for index, (run, key) in enumerate(zip(group.runs, group.keys, strict=True))
            if index != fixed
        }
    return lambda run: known.get(id(run))


def contrasts(runs: Sequence[Observation]) -> list[Contrast]:
    found: list[Contrast] = []
    cells = setups(runs)
    by_setup: dict[Cell, list[Observation]] = {cell: [] for cell in cells}
    for run in runs:
        by_setup[setup(run.cell)].append(run)
    for cell, own in by_setup.items():
        for name, one, other in (("load", alone, loaded), ("cache", cold, warm)):
            if any(map(one, own)) and any(map(other, own)):
                arms = tuple(run for run in own if one(run) or other(run))
                found.append(Contrast(f"{name} on {cell.name()}", arms))
    for cell in cells[1:]:
        pair = tuple(run for each in (cells[0], cell) for run in _calm(by_setup[each]))
        found.append(Contrast(f"{_apart(cells[0], cell)} against {_apart(cell, cells[0])}", pair))
    return found


def contrast(name: str, left: Sequence[Observation], right: Sequence[Observation]) -> Ruling:
    """Any two sets of runs against each other."""
    return rule(name, gather([*left, *right]))


def _calm(runs: Sequence[Observation]) -> Sequence[Observation]:
    calm = [run for run in runs if quiet(run)]
    return calm or runs


def _apart(cell: Cell, other: Cell) -> str:
    """What is special about a cell, seen from another one."""
    there = other.axes()
    return " ".join(f"{axis}={value}" for axis, value in cell.axes().items() if value and value != there[axis])
