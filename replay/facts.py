"""What a set of runs shows, counted: the facts that rulings rest on. Pure.

The same facts are gathered of a whole matrix, of one request, and of two cells. Variation and seams are facts of greedy
runs: where tokens were drawn on purpose, answers differ on purpose. Each other answer is held against its request's
commonest once, however many runs gave it.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec
from msgspec import Struct, field

from replay.compare import divergence, same_prompt
from replay.dependence import Dependence, dependence
from replay.echo import harm
from replay.foreign import Foreign, foreign_text
from replay.groups import Group, alone, by_request, by_setup, cold, loaded, quiet, same_setup, setup, setups, warm
from replay.margins import drawn, quantised, tolerance
from replay.observation import Cell, Observation
from replay.results import Divergence, MarginKind

GROSS: Final = 2.0  # nats: four times what bf16 rounding explains
_ALL_PAIRS: Final = 8  # set-ups up to which each is compared with each, else each with the first
BATCH_INVARIANT: Final = "batch_invariant"

PairKind = Literal["engine", "precision", "quantised"]


class Seams(Struct):
    """Of other answers against the commonest: how close the choice was. ``widest`` in nats, of what is known. ``cut``:
    answers that are the same as far as they go, the shorter one ended by its length limit; no choice at all."""

    cut: int = 0
    kinds: Counter[MarginKind] = field(default_factory=Counter)
    gross: int = 0
    widest: float = 0.0
    widest_near: float = 0.0

    def hold(self, left: Observation, right: Observation) -> None:
        found = divergence(left, right)
        if found and any(
            run.finish_reason == "length" and not side.text and side.token_id < 0
            for run, side in ((left, found.left), (right, found.right))
        ):
            self.cut += 1
        else:
            self._add(found)

    def _add(self, found: Divergence | None) -> None:
        kind: MarginKind = found.kind if found else "unknown"
        self.kinds[kind] += 1
        margins = [
            abs(known)
            for side in ((found.left, found.right) if found else ())
            for known in (side.margin, side.list_floor)
            if known is not None
        ]
        if kind == "near":
            self.widest_near = max(self.widest_near, *margins)
        if margins:
            self.widest = max(self.widest, *margins)
            self.gross += max(margins) > GROSS

    @property
    def known(self) -> int:
        return self.kinds.total() - self.kinds["unknown"]

    @property
    def beyond(self) -> int:
        """Beyond rounding."""
        return self.kinds["wide"] + self.kinds["outside"]

    @property
    def all_near(self) -> bool:
        """Every seam whose margins are known is near, and most are known."""
        return self.kinds["near"] > 0 and not self.beyond and self.kinds["near"] >= self.kinds["unknown"]

    @property
    def wide(self) -> bool:
        """Some seams cannot be rounding: one far beyond it, or too many beyond it for a slip of the margins."""
        return self.gross > 0 or self.beyond >= max(2, 0.2 * self.known) or self.beyond == self.known == 1


class Variation(Struct):
    """Runs of one request in one set-up: in how many of ``repeated`` groups (two runs or more) answers differ, and how
    many ``distinct`` ones there are in the ``runs`` of those that do."""

    repeated: int = 0
    varying: int = 0
    distinct: int = 0
    runs: int = 0
    seams: Seams = field(default_factory=Seams)


class Pair(Struct):
    """Set-ups of one kind of difference: of ``compared`` requests with equal prompts, how many have other answers."""

    compared: int = 0
    differing: int = 0
    seams: Seams = field(default_factory=Seams)


class Prompts(Struct):
    """Set-ups against set-ups, request by request: were they asked the same, and do their answers differ? ``proven``:
    token ids or hashes say so, not token counts alone."""

    differ: int = 0
    differ_and_answers_too: int = 0
    same: int = 0
    same_and_answers_differ: int = 0
    proven: bool = False


class Copies(Struct):
    """Known-answer runs. ``mixed``: tasks that were copied right in some runs and wrong in others."""

    tasks: int = 0
    runs: int = 0
    wrong: int = 0
    mixed: int = 0
    wrong_alone: int = 0
    runs_alone: int = 0
    harms: Counter[str] = field(default_factory=Counter)


class Wrong(Struct):
    """Failures. ``blocks`` are requests in cells with two runs or more; of those with a failure, ``mixed`` have sound
    answers too. ``variants``: distinct wrong answers, ``requests`` that fail anywhere, ``setups`` in which any does;
    ``throughout``: requests that fail in every set-up they ran in."""

    runs: int = 0
    blocks: int = 0
    mixed: int = 0
    variants: int = 0
    requests: int = 0
    setups: int = 0
    throughout: int = 0


class Facts(Struct):
    """``drawn``: by set-up, how many of its undisturbed greedy runs hold tokens that were not the likeliest, and of how
    many that can be told. ``invariant`` is the variation under batch-invariant kernels. ``scattered``: set-ups whose
    undisturbed repeats of a request give about as many answers as runs, with the answers and runs."""

    requests: int
    runs: int
    errors: int
    greedy: int
    cells: int
    setups: list[Cell]
    with_margins: int
    within: Variation
    invariant: Variation
    pairs: dict[PairKind, Pair]
    prompts: Prompts
    drawn: dict[Cell, tuple[int, int]]
    scattered: dict[Cell, tuple[int, int]]
    copies: Copies
    foreign: list[tuple[Observation, Foreign]]
    load: Dependence
    cache: Dependence
    cancelled: Dependence
    wrong: Wrong
    varied_on_purpose: int


def gather(runs: Sequence[Observation], prompts: Mapping[str, str] | None = None) -> Facts:
    """``prompts``: the requests' prompts as text, by id, for the search for one in another's answer."""
    every = by_request(runs)
    greedy = [part for group in every if (part := group.part(lambda run: run.sampling.greedy)).runs]
    inside = same_setup(greedy)
    return Facts(
        requests=len(every),
        runs=sum(len(group.runs) for group in every),
        errors=sum(not run.answered for run in runs),
        greedy=sum(len(group.runs) for group in greedy),
        cells=len({run.cell for run in runs}),
        setups=setups(runs),
        with_margins=sum(bool(run.top) for group in greedy for run in group.runs),
        within=_variation(inside),
        invariant=_variation([group for group in inside if group.runs[0].cell.kernels == BATCH_INVARIANT]),
        pairs=_pairs(greedy),
        prompts=_prompts(every),
        drawn=_drawn(inside),
        scattered=_scattered(inside),
        copies=_copies(greedy),
        foreign=_foreign(every, prompts or {}),
        load=dependence(inside, alone, loaded),
        cache=dependence(inside, cold, warm),
        cancelled=dependence(inside, lambda run: run.cell.neighbours != "cancelled", _beside_cancelled),
        wrong=_wrong(every),
        varied_on_purpose=sum(
            group.part(lambda run: not run.sampling.greedy).distinct() > 1 for group in same_setup(every)
        ),
    )


def _beside_cancelled(run: Observation) -> bool:
    return run.cell.neighbours == "cancelled"


def _variation(inside: Iterable[Group]) -> Variation:
    found = Variation()
    for group in inside:
        found.repeated += len(group.runs) > 1
        distinct = group.distinct()
        if distinct > 1:
            found.varying += 1
            found.distinct += distinct
            found.runs += len(group.runs)
            _hold(group, found.seams)
    return found


def _hold(group: Group, seams: Seams) -> None:
    usual = group.mode(quiet)
    against = group.example(usual)
    for key in dict.fromkeys(group.keys):
        if key != usual:
            seams.hold(against, group.example(key))


def _calm(group: Group) -> dict[Cell, Group]:
    """Its undisturbed runs, by set-up; all of a set-up's where none is undisturbed."""
    found = {}
    inside = by_setup(group)
    for cell in setups(group.runs):
        calm = inside[cell].part(quiet)
        found[cell] = calm if calm.runs else inside[cell]
    return found


def _compared(found: Mapping[Cell, Group]) -> Iterable[tuple[Group, Group]]:
    if len(found) <= _ALL_PAIRS:
        return itertools.combinations(found.values(), 2)
    first, *others = found.values()
    return ((first, other) for other in others)


def _pairs(greedy: Iterable[Group]) -> dict[PairKind, Pair]:
    found: dict[PairKind, Pair] = {"engine": Pair(), "precision": Pair(), "quantised": Pair()}
    for group in greedy:
        for one, other in _compared(_calm(group)):
            left, right = one.example(one.mode()), other.example(other.mode())
            if same_prompt(left, right) is False:
                continue
            pair = found[_kind(left.cell, right.cell)]
            pair.compared += 1
            if one.mode() != other.mode():
                pair.differing += 1
                pair.seams.hold(left, right)
    return found


def _kind(left: Cell, right: Cell) -> PairKind:
    if left.precision == right.precision:
        return "engine"
    return "quantised" if quantised(left.precision) or quantised(right.precision) else "precision"


def _prompts(every: Iterable[Group]) -> Prompts:
    found = Prompts()
    for group in every:
        for one, other in _compared(_calm(group)):
            left, right = one.runs[0], other.runs[0]
            same = same_prompt(left, right)
            answers = left.sampling.greedy and right.sampling.greedy and one.mode() != other.mode()
            if same is False:
                found.differ += 1
                found.differ_and_answers_too += answers
                found.proven |= bool(left.prompt_ids and right.prompt_ids) or bool(
                    left.prompt_hash and right.prompt_hash
                )
            elif same:
                found.same += 1
                found.same_and_answers_differ += answers
    return found


def _drawn(inside: Iterable[Group]) -> dict[Cell, tuple[int, int]]:
    found: dict[Cell, tuple[int, int]] = {}
    for group in inside:
        for run in group.part(quiet).runs:
            below, told = drawn(run, tolerance(run.cell.precision))
            if told:
                cell = setup(run.cell)
                runs, of = found.get(cell, (0, 0))
                found[cell] = runs + (below > 0), of + 1
    return found


def _scattered(inside: Iterable[Group]) -> dict[Cell, tuple[int, int]]:
    """Over groups of five undisturbed runs or more that are no known-answer tasks (those have one likely answer)."""
    found: dict[Cell, tuple[int, int]] = {}
    for group in inside:
        calm = group.part(lambda run: quiet(run) and run.expected is None)
        if len(calm.runs) >= 5:
            distinct, runs = found.get(setup(calm.runs[0].cell), (0, 0))
            found[setup(calm.runs[0].cell)] = distinct + calm.distinct(), runs + len(calm.runs)
    return {cell: (distinct, runs) for cell, (distinct, runs) in found.items() if distinct >= 0.8 * runs}


def _copies(greedy: Iterable[Group]) -> Copies:
    found = Copies()
    for group in greedy:
        tasks = [run for run in group.runs if run.expected is not None]
        wrong = [run for run in tasks if run.wrong() == "known_answer"]
        found.tasks += bool(tasks)
        found.runs += len(tasks)
        found.wrong += len(wrong)
        found.mixed += 0 < len(wrong) < len(tasks)
        found.runs_alone += sum(map(alone, tasks))
        found.wrong_alone += sum(map(alone, wrong))
        found.harms.update(harm(run.expected or "", run.content) for run in wrong)
    return found


def _foreign(every: Iterable[Group], prompts: Mapping[str, str]) -> list[tuple[Observation, Foreign]]:
    """In answers that are not their request's commonest, or the only one there is."""
    found: list[tuple[Observation, Foreign]] = []
    for group in every if prompts else ():
        usual = group.mode(quiet) if len(group.runs) > 1 else None
        said = "\n".join(group.example(usual).text.values()) if usual is not None else ""
        seen: set[object] = set()
        for run, key in zip(group.runs, group.keys, strict=True):
            if key == usual or (key, run.in_flight) in seen:
                continue
            seen.add((key, run.in_flight))
            if (hit := foreign_text(run, said, prompts)) is not None:
                found.append((run, hit))
    return found


def _wrong(every: Iterable[Group]) -> Wrong:
    found = Wrong()
    places: set[Cell] = set()
    for group in every:
        failed = [bool(run.wrong()) for run in group.runs]
        if not any(failed):
            continue
        found.requests += 1
        found.runs += sum(failed)
        found.variants += len({key for key, bad in zip(group.keys, failed, strict=True) if bad})
        blocks: dict[Cell, list[bool]] = {}
        anywhere: dict[Cell, bool] = {}
        for run, bad in zip(group.runs, failed, strict=True):
            blocks.setdefault(run.cell, []).append(bad)
            anywhere[setup(run.cell)] = anywhere.get(setup(run.cell), False) or bad
        repeated = [block for block in blocks.values() if len(block) > 1 and any(block)]
        found.blocks += len(repeated)
        found.mixed += sum(not all(block) for block in repeated)
        found.throughout += all(anywhere.values())
        places |= {cell for cell, bad in anywhere.items() if bad}
    found.setups = len(places)
    return found


def replaced(facts: Facts, looks: int) -> Facts:
    """The same facts, one of ``looks`` that are ruled on: p-values are multiplied by them (Bonferroni)."""

    def corrected(found: Dependence) -> Dependence:
        return msgspec.structs.replace(found, p=min(1.0, found.p * looks))

    return msgspec.structs.replace(
        facts, load=corrected(facts.load), cache=corrected(facts.cache), cancelled=corrected(facts.cancelled)
    )
