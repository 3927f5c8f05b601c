"""What a run came to, as every report shows it: the heat map, the seams, the facts of each answer. Pure.

An answer is held against the commonest sound answer to the same request, over all cells: not against what was once
delivered, which may have been the failure that is looked for. How a delivered answer compares is told beside it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec
from msgspec import Struct

from replay.compare import Difference, answer_keys, compare, first_difference
from replay.observation import Cell, Observation
from replay.results import Comparison
from replay.source import Source

SEAMS_A_REQUEST: Final = 4
SEAMS: Final = 60

Mark = Literal["same", "differs", "wrong", "error", "none"]


class Square(Struct, frozen=True):
    """One request in one cell. ``differs``: sound answers other than the commonest; ``wrong``: answers that a guard, a
    grader or a known answer condemns; ``errors``: no answer. ``distinct`` answers of ``runs``."""

    row: int
    column: int
    runs: int
    differs: int
    wrong: int
    errors: int
    distinct: int

    @property
    def mark(self) -> Mark:
        """The worst of it."""
        if not self.runs:
            return "none"
        if self.wrong:
            return "wrong"
        if self.errors:
            return "error"
        return "differs" if self.differs else "same"


class Seam(Struct, frozen=True):
    """Where an answer parts from the commonest one, ``left``."""

    request_id: str
    left: Observation
    right: Observation
    comparison: Comparison


class Reproduced(Struct, frozen=True):
    """A failure that was recorded, and how many of the runs show it again. ``found``: its code."""

    request_id: str
    found: str
    again: int
    runs: int


class Summary(Struct):
    """``rows`` and ``columns`` are the heat map's cells and request ids; squares that were never run are missing."""

    rows: list[Cell]
    columns: list[str]
    squares: list[Square]
    seams: list[Seam]
    reproduced: list[Reproduced]
    common: dict[str, str]

    @property
    def marks(self) -> Counter[Mark]:
        return Counter(square.mark for square in self.squares)

    def row_of(self, row: int) -> Square:
        """A cell over all requests. ``column`` is -1."""
        mine = [square for square in self.squares if square.row == row]
        return Square(
            row,
            -1,
            sum(s.runs for s in mine),
            sum(s.differs for s in mine),
            sum(s.wrong for s in mine),
            sum(s.errors for s in mine),
            sum(s.distinct for s in mine),
        )


def summarise(observations: Sequence[Observation], sources: Sequence[Source]) -> Summary:
    rows = list(dict.fromkeys(one.cell for one in observations))
    columns = [source.id for source in sources] or list(dict.fromkeys(one.request_id for one in observations))
    row_index = {cell: index for index, cell in enumerate(rows)}
    by_request: dict[str, list[Observation]] = defaultdict(list)
    for one in observations:
        by_request[one.request_id].append(one)
    squares: list[Square] = []
    seams: list[Seam] = []
    common: dict[str, str] = {}
    for column, request_id in enumerate(columns):
        runs = by_request.get(request_id, [])
        answered = [one for one in runs if one.answered]
        keys = dict(zip(map(id, answered), answer_keys(answered), strict=True))
        usual = _commonest(answered, keys)
        if usual is not None:
            common[request_id] = usual.content
        usual_key = keys[id(usual)] if usual is not None else None
        for row in dict.fromkeys(row_index[one.cell] for one in runs):
            mine = [one for one in runs if row_index[one.cell] == row]
            squares.append(_square(row, column, mine, keys, usual_key))
        if usual is not None:
            seams += _seams(usual, answered, keys)
    return Summary(rows, columns, squares, _worst(seams), _reproduced(sources, by_request), common)


def _commonest(answered: Sequence[Observation], keys: Mapping[int, Hashable]) -> Observation | None:
    """One run with the commonest answer among the sound ones, the earliest of equals; of all where none is sound."""
    pool = [one for one in answered if not one.wrong()] or list(answered)
    if not pool:
        return None
    counts = Counter(keys[id(one)] for one in pool)
    return max(pool, key=lambda one: counts[keys[id(one)]])


def _square(
    row: int, column: int, runs: Sequence[Observation], keys: Mapping[int, Hashable], usual: Hashable
) -> Square:
    answered = [one for one in runs if one.answered]
    wrong = [one for one in answered if one.wrong()]
    differs = [one for one in answered if not one.wrong() and keys[id(one)] != usual]
    distinct = len({keys[id(one)] for one in answered})
    return Square(row, column, len(runs), len(differs), len(wrong), len(runs) - len(answered), distinct)


def _seams(usual: Observation, answered: Iterable[Observation], keys: Mapping[int, Hashable]) -> list[Seam]:
    """One for each other answer: those of the most runs first."""
    others: dict[Hashable, list[Observation]] = defaultdict(list)
    for one in answered:
        if keys[id(one)] != keys[id(usual)]:
            others[keys[id(one)]].append(one)
    most = sorted(others.values(), key=len, reverse=True)[:SEAMS_A_REQUEST]
    return [Seam(usual.request_id, usual, runs[0], compare(usual, runs[0])) for runs in most]


def _worst(seams: list[Seam]) -> list[Seam]:
    """At most SEAMS of them, wrong answers first, then the widest margins."""
    order = {"outside": 0, "wide": 1, "near": 2, "unknown": 3}

    def rank(seam: Seam) -> tuple[bool, int]:
        divergence = seam.comparison.divergence
        return not seam.right.wrong(), order[divergence.kind] if divergence else 3

    return sorted(seams, key=rank)[:SEAMS]


def _reproduced(sources: Sequence[Source], by_request: Mapping[str, Sequence[Observation]]) -> list[Reproduced]:
    found = []
    for source in sources:
        codes = dict.fromkeys(
            finding.code for attempt in source.attempts for finding in attempt.findings if finding.severity == "error"
        )
        runs = [one for one in by_request.get(source.id, ()) if one.answered]
        for code in codes:
            family = code.partition(".")[0]
            again = sum(any(f.code.partition(".")[0] == family for f in one.findings) for one in runs)
            found.append(Reproduced(source.id, code, again, len(runs)))
    return found


def whole(one: Observation) -> str:
    """An answer as a trace keeps it: its content, behind it its calls as JSON."""
    calls = []
    for channel, text in one.text.items():
        if channel.startswith("tool:"):
            name, _, rest = text.partition("(")
            calls.append({"name": name, "arguments": rest.removesuffix(")")})
    return one.content + (msgspec.json.encode(calls).decode() if calls else "")


def from_delivered(source: Source, one: Observation) -> Difference | None:
    """Where an answer first differs from what the caller got then; None where it does not, or none is known."""
    if not source.answered or one.error:
        return None
    return first_difference(source.output, whole(one))
