"""A whole matrix judged: the ruling, one for each contrast of two cells, one for each request, and the attribution.
Pure.

The rules:

- The ruling of the matrix rests on all runs together. Contrasts and requests show where it comes from; their p-values
  are corrected for how many of them there are.
- A contrast changes one thing: the load, or the cache, within a set-up; or the set-up, undisturbed, against the most
  trustworthy one.
- What fails is attributed over all axes; so is what differs from the request's commonest answer, for the causes that
  make answers different and not wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from replay.attribution import attribute
from replay.counts import counts, failing
from replay.facts import gather, replaced
from replay.groups import alone, by_request, cold, loaded, quiet, setup, setups, warm
from replay.observation import Cell, Observation
from replay.results import Attribution, Ruling, Triage
from replay.ruling import rule

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
    if not any(run.sampling.greedy for run in runs):
        return wrong, None
    return wrong, attribute(counts(runs, failing("differs", deviation(runs))))


def deviation(runs: Sequence[Observation]) -> Callable[[Observation], bool | None]:
    """Whether a run is not its request's commonest greedy answer; None for what was not run greedily."""
    known: dict[int, bool] = {}
    for whole in by_request(runs):
        group = whole.part(lambda run: run.sampling.greedy)
        if group.runs:
            usual: Hashable = group.mode()
            known |= {id(run): key != usual for run, key in zip(group.runs, group.keys, strict=True)}
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
