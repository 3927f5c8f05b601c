"""The sets of axis values that could be to blame. Pure.

A candidate is a conjunction of up to three conditions on different axes: an axis has a value, or, where values are
ordered, one from some value on. What matters of it is which cells it selects: candidates that select the same cells are
one hypothesis under several names, and are counted and tested once.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
from msgspec import Struct

from replay.observation import ORDERED
from replay.results import Condition

DEPTH: Final = 3
MOST: Final = 20_000  # names of candidates; beyond it the deepest conjunctions are left out


class Candidate(Struct, frozen=True):
    """``cells`` is a mask over the cells of the table; ``names`` all conjunctions that select just those, the shortest
    first."""

    cells: np.ndarray
    names: tuple[tuple[Condition, ...], ...]

    @property
    def conditions(self) -> tuple[Condition, ...]:
        return self.names[0]


def candidates(cells: Sequence[Mapping[str, str]]) -> list[Candidate]:
    """Every distinct set of cells that some conjunction selects, neither none nor all of them."""
    singles = {axis: list(_conditions(axis, cells)) for axis in (cells[0] if cells else ())}
    singles = {axis: found for axis, found in singles.items() if found}
    found: dict[bytes, tuple[np.ndarray, list[tuple[Condition, ...]]]] = {}
    named = 0
    for depth in range(1, DEPTH + 1):
        combinations = list(itertools.combinations(singles, depth))
        size = sum(_product(len(singles[axis]) for axis in axes) for axes in combinations)
        if depth > 1 and named + size > MOST:
            break
        named += size
        for axes in combinations:
            for parts in itertools.product(*(singles[axis] for axis in axes)):
                mask = np.logical_and.reduce([cell_mask for _, cell_mask in parts])
                if mask.any() and not mask.all():
                    _, names = found.setdefault(mask.tobytes(), (mask, []))
                    names.append(tuple(condition for condition, _ in parts))
    return [Candidate(mask, _minimal(names)) for mask, names in found.values()]


def confounded(cells: Sequence[Mapping[str, str]]) -> list[tuple[str, ...]]:
    """Groups of axes that vary, but never apart: each value of one goes with one value of the other."""
    groups: dict[tuple[int, ...], list[str]] = {}
    for axis in cells[0] if cells else ():
        numbers: dict[str, int] = {}
        partition = tuple(numbers.setdefault(cell[axis], len(numbers)) for cell in cells)
        if len(numbers) > 1:
            groups.setdefault(partition, []).append(axis)
    return [tuple(axes) for axes in groups.values() if len(axes) > 1]


def ordered_values(axis: str, values: Sequence[str]) -> list[str]:
    """The distinct values, numbers by size where the axis is ordered."""
    distinct = dict.fromkeys(values)
    return sorted(distinct, key=_number) if axis in ORDERED else sorted(distinct)


def selected(conditions: Sequence[Condition], cells: Sequence[Mapping[str, str]]) -> np.ndarray:
    """The mask of the cells that meet all of the conditions."""
    return np.array([all(_meets(cell[each.axis], each) for each in conditions) for cell in cells], dtype=bool)


def _meets(value: str, condition: Condition) -> bool:
    if condition.at_least:
        return _number(value) >= _number(condition.value)
    return value == condition.value


def _conditions(axis: str, cells: Sequence[Mapping[str, str]]) -> Iterator[tuple[Condition, np.ndarray]]:
    values = [cell[axis] for cell in cells]
    ordered = ordered_values(axis, values)
    if len(ordered) < 2:
        return
    found = [Condition(axis, value) for value in ordered]
    if axis in ORDERED:
        found += [Condition(axis, value, at_least=True) for value in ordered[1:-1]]
    for condition in found:
        yield condition, np.array([_meets(value, condition) for value in values])


def _number(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        return -1.0  # not known: below every number


def _minimal(names: Sequence[tuple[Condition, ...]]) -> tuple[tuple[Condition, ...], ...]:
    """Without the names that only add conditions to a shorter one."""
    kept: list[tuple[Condition, ...]] = []
    for name in sorted(names, key=len):
        if not any(set(shorter) <= set(name) for shorter in kept):
            kept.append(name)
    return tuple(kept)


def _product(numbers: Iterator[int]) -> int:
    out = 1
    for number in numbers:
        out *= number
    return out
