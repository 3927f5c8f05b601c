"""Runs put together: by request, by set-up, and what the reference answer of each is. Pure.

A set-up is a cell without what changes from moment to moment: load, neighbours and cache. Two runs of one request in
one set-up should agree; a difference between them is the engine's own doing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cache
from typing import Final

import msgspec
from msgspec import Struct

from replay.compare import answer_keys
from replay.margins import quantised
from replay.observation import Cell, Observation

_FINENESS: Final = {"f32": 0, "fp32": 0, "float32": 0, "f16": 1, "fp16": 1, "float16": 1, "bf16": 2, "bfloat16": 2}


class Group(Struct, frozen=True):
    """The answered runs of one request that are to be compared, and a number for each: equal numbers, equal answers.
    Numbers are in an order of the answers themselves, whoever gave them."""

    request_id: str
    runs: tuple[Observation, ...]
    keys: tuple[int, ...]

    def mode(self, among: Callable[[Observation], bool] = lambda _: True) -> int:
        """The commonest answer of the runs asked for, of all where there are none such. Among equally common ones the
        choice depends on the answers alone, never on where they were given: so the tests that count from here stay
        exact."""
        chosen = [key for run, key in zip(self.runs, self.keys, strict=True) if among(run)] or list(self.keys)
        counts = Counter(chosen)
        return min(counts, key=lambda key: (-counts[key], key))

    def example(self, key: int) -> Observation:
        """A run that gave this answer, the one most is known about."""
        given = [run for run, each in zip(self.runs, self.keys, strict=True) if each == key]
        return max(given, key=lambda run: (bool(run.top), bool(run.token_ids), bool(run.text)))

    def distinct(self) -> int:
        return len(set(self.keys))

    def part(self, keep: Callable[[Observation], bool]) -> Group:
        """Some of the runs, with the keys that they had among all."""
        kept = [(run, key) for run, key in zip(self.runs, self.keys, strict=True) if keep(run)]
        return Group(self.request_id, tuple(run for run, _ in kept), tuple(key for _, key in kept))


def by_request(runs: Iterable[Observation]) -> list[Group]:
    """In the order in which the requests appear. Runs without an answer are left out."""
    found: dict[str, list[Observation]] = {}
    for run in runs:
        if run.answered:
            found.setdefault(run.request_id, []).append(run)
    return [Group(name, tuple(each), _numbers(answer_keys(each))) for name, each in found.items()]


def _numbers(keys: Sequence[Hashable]) -> tuple[int, ...]:
    numbers = {key: number for number, key in enumerate(sorted(set(keys), key=repr))}
    return tuple(numbers[key] for key in keys)


@cache
def setup(cell: Cell) -> Cell:
    return msgspec.structs.replace(cell, concurrency=0, neighbours="", cache="")


def setups(runs: Iterable[Observation]) -> list[Cell]:
    """The distinct ones, the most trustworthy first: finest precision, then the order in which they appear."""
    return sorted(dict.fromkeys(setup(run.cell) for run in runs), key=lambda cell: fineness(cell.precision))


def fineness(precision: str) -> int:
    """0 for f32, 9 for quantised ones, unknown ones before those."""
    return 9 if quantised(precision) else _FINENESS.get(precision.lower(), 3)


def alone(run: Observation) -> bool:
    return run.cell.concurrency == 1 and run.cell.neighbours in ("", "none")


def loaded(run: Observation) -> bool:
    return run.cell.concurrency > 1 or run.cell.neighbours not in ("", "none")


def cold(run: Observation) -> bool:
    return run.cell.cache == "cold"


def warm(run: Observation) -> bool:
    return run.cell.cache == "warm"


def quiet(run: Observation) -> bool:
    """As undisturbed as its cell allows to say: not under load, not on a warm cache."""
    return not loaded(run) and not warm(run)


def same_setup(groups: Sequence[Group]) -> list[Group]:
    """Each request's runs, set-up by set-up."""
    return [each for group in groups for each in by_setup(group).values()]


def by_setup(group: Group) -> dict[Cell, Group]:
    found: dict[Cell, tuple[list[Observation], list[int]]] = {}
    for run, key in zip(group.runs, group.keys, strict=True):
        runs, keys = found.setdefault(setup(run.cell), ([], []))
        runs.append(run)
        keys.append(key)
    return {cell: Group(group.request_id, tuple(runs), tuple(keys)) for cell, (runs, keys) in found.items()}
