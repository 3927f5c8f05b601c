"""From a matrix and the requests to what is sent, in which order, and what it will cost. Pure.

A volley is what is launched together on one engine: one request alone, its copies, or it and its neighbours. Volleys of
one lane (one engine's address) run one after the other, so that a request that is to be alone is alone; lanes run side
by side. The repeats are the outermost loop and the cells the innermost, begun at another cell each time: what changes
over the hours of a run changes for all cells alike.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from msgspec import Struct

from replay.load import Impossible, Load, MatrixCell
from replay.source import Source


class Volley(Struct, frozen=True):
    """``observed`` are indices of sources, one each for an answer that counts; ``beside`` the ids of requests that only
    make company. ``primed``: the first of ``observed`` is sent once before, for the cache alone."""

    key: str
    cell: int
    repeat: int
    observed: tuple[int, ...]
    beside: tuple[str, ...] = ()
    primed: bool = False

    @property
    def requests(self) -> int:
        return len(self.observed) + len(self.beside) + self.primed


class Cost(Struct, frozen=True):
    """``answers`` counts what is observed, ``requests`` also what only makes company. ``tokens``: prompts and answers,
    as far as recorded; ``unknown``: requests of which nothing was recorded. ``seconds`` from the recorded latencies,
    None where there is none: lanes side by side, so that of the slowest."""

    answers: int
    requests: int
    tokens: int
    unknown: int
    seconds: float | None
    by_lane: dict[str, float]


class Plan(Struct):
    """``lanes``: the volleys of each engine's address, in order. ``left_out``: what of the matrix cannot be run."""

    cells: list[MatrixCell]
    lanes: dict[str, list[Volley]]
    left_out: list[Impossible]

    def volleys(self) -> list[Volley]:
        return [volley for lane in self.lanes.values() for volley in lane]


def plan(
    cells: Sequence[MatrixCell], sources: Sequence[Source], repeats: int, left_out: Sequence[Impossible] = ()
) -> Plan:
    found = Plan(list(cells), {cell.lane: [] for cell in cells}, list(left_out))
    for lane, volleys in found.lanes.items():
        own = [index for index, cell in enumerate(cells) if cell.lane == lane]
        for repeat in range(repeats):
            turn = repeat % len(own)
            order = own[turn:] + own[:turn]
            groups = {index: list(_groups(cells[index].load, sources)) for index in order}
            for position in range(max(map(len, groups.values()))):
                for index in order:
                    if position < len(groups[index]):
                        observed, beside = groups[index][position]
                        key = f"{index}.{repeat}.{position}"
                        primed = cells[index].cache == "warm"
                        volleys.append(Volley(key, index, repeat, observed, beside, primed))
    found.left_out += _without_company(cells, sources)
    return found


def _groups(load: Load, sources: Sequence[Source]) -> list[tuple[tuple[int, ...], tuple[str, ...]]]:
    """Who is observed together, and beside whom."""
    every = range(len(sources))
    count = load.at_once
    match load.kind:
        case "alone":
            return [((index,), ()) for index in every]
        case "copies":
            return [((index,) * count, ()) for index in every]
        case "recorded":
            return [((i,), sources[i].beside[: count - 1]) for i in every if sources[i].beside]
        case "cancelled":
            return [((i,), _others(sources, i + 1, count - 1)) for i in every] if len(sources) > 1 else []
    if len(sources) < 2:
        return []
    found = []
    for start in range(0, len(sources), count):
        together = tuple(every[start : start + count])
        found.append((together, _others(sources, start + len(together), count - len(together))))
    return found


def _others(sources: Sequence[Source], start: int, count: int) -> tuple[str, ...]:
    """``count`` requests of the selection from ``start`` on, over and over."""
    return tuple(sources[(start + i) % len(sources)].id for i in range(count))


def _without_company(cells: Sequence[MatrixCell], sources: Sequence[Source]) -> list[Impossible]:
    found = []
    for load, engine in dict.fromkeys((cell.load, cell.engine) for cell in cells):
        if load.kind in ("others", "cancelled") and len(sources) < 2:
            found.append(Impossible(engine, load.name, "there is only one request"))
        if load.kind == "recorded":
            lone = sum(not source.beside for source in sources)
            if lone:
                why = f"{lone} of {len(sources)} requests have no recorded neighbour"
                found.append(Impossible(engine, load.name, why))
    return found


def cost(found: Plan, sources: Sequence[Source], beside: Mapping[str, Source], per_second: float = 0.0) -> Cost:
    """What is still to be run of a plan."""
    known = {source.id: source for source in (*beside.values(), *sources)}
    sizes = {id_: _tokens(source) for id_, source in known.items()}
    durations = {id_: _seconds(source) for id_, source in known.items()}
    everywhere = [value for one in durations.values() for value in one.values()]
    usual = statistics.median(everywhere) if everywhere else None
    answers = requests = tokens = unknown = 0
    by_lane: dict[str, float] = {}
    for lane, volleys in found.lanes.items():
        total = 0.0
        for volley in volleys:
            engine = found.cells[volley.cell].engine
            ids = [sources[index].id for index in volley.observed] + list(volley.beside)
            answers += len(volley.observed)
            requests += volley.requests
            tokens += sum(max(0, sizes[id_]) for id_ in ids)
            unknown += sum(sizes[id_] < 0 for id_ in ids)
            takes = max(durations[id_].get(engine, usual or 0.0) for id_ in ids)
            total += max(takes, volley.requests / per_second if per_second else 0.0)
        by_lane[lane] = round(total, 3)
    seconds = max(by_lane.values(), default=0.0) if usual is not None else None
    return Cost(answers, requests, tokens, unknown, seconds, by_lane)


def _tokens(source: Source) -> int:
    """Prompt and answer; -1 where neither was recorded."""
    counts = [attempt.counts for attempt in source.attempts if attempt.counts.completion > 0]
    return max((max(0, count.prompt) + count.completion for count in counts), default=-1)


def _seconds(source: Source) -> dict[str, float]:
    """The recorded duration by engine."""
    timed = [(attempt.cell.engine, attempt.timing.duration_ms / 1e3) for attempt in source.attempts]
    return {engine: seconds for engine, seconds in timed if seconds > 0}
