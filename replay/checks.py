"""What an acceptance check measures of the answers that it got. Pure.

Every measure is a share, told with its counts, and None where there is nothing to measure. Of several engines the worst
counts. Answers are compared within an engine, save by ``same_across`` and ``even``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from replay.compare import answer_keys
from replay.observation import Observation
from replay.scorecard import Row, State
from replay.triage import triage


class Measured(Struct, frozen=True):
    """``good`` of ``of``. ``example``: the first that is not good, and why; or why there is nothing to measure."""

    good: int
    of: int
    example: str = ""

    @property
    def share(self) -> float | None:
        return self.good / self.of if self.of else None


Measure = Callable[[Sequence[Observation]], Measured]


def rows(check: str, needs: Mapping[str, float], observations: Sequence[Observation], why_none: str = "") -> list[Row]:
    """A row for each thing that a check needs. ``why_none``: why nothing was observed."""
    found = []
    for name, bound in needs.items():
        measure = MEASURES[name]
        told = f"at least {bound:g}"
        parts = [list(observations)] if name in TOGETHER else _by_engine(observations)
        measured = [(measure(part), part[0].cell.engine) for part in parts if part]
        known = [(one, engine) for one, engine in measured if one.share is not None]
        if not known:
            reasons = [one.example for one, _ in measured if one.example]
            why = why_none or next(iter(reasons), "no answer to measure")
            found.append(Row(f"{check}: {name}", "not measured", why, told))
            continue
        worst, engine = min(known, key=lambda pair: pair[0].share or 0.0)
        fine = (worst.share or 0.0) >= bound
        where = f"{engine}: " if len(parts) > 1 else ""
        counts = f"{where}{worst.good} of {worst.of}"
        state: State = "pass" if fine else "fail"
        found.append(Row(f"{check}: {name}", state, counts, told, "" if fine else worst.example, worst.share))
    return found


def _by_engine(observations: Sequence[Observation]) -> list[list[Observation]]:
    found: dict[str, list[Observation]] = defaultdict(list)
    for one in observations:
        found[one.cell.engine].append(one)
    return list(found.values())


# --- of each answer --------------------------------------------------------------------------------------------------


def _each(good: Callable[[Observation], bool], among: Callable[[Observation], bool] = lambda _: True) -> Measure:
    def measure(observations: Sequence[Observation]) -> Measured:
        looked_at = [one for one in observations if among(one)]
        bad = [one for one in looked_at if not good(one)]
        return Measured(len(looked_at) - len(bad), len(looked_at), _why(bad[0]) if bad else "")

    return measure


def _why(one: Observation) -> str:
    said = one.error or one.wrong() or f"finish reason {one.finish_reason or 'none'}, {one.content[:40]!r}"
    return f"{one.request_id}: {said}"


def _refused(one: Observation) -> bool:
    return one.error.startswith("HTTP 4")


def _triageable(one: Observation) -> bool:
    return bool(one.logprobs)


# --- of answers to one request ---------------------------------------------------------------------------------------


def _groups(observations: Sequence[Observation], key: Callable[[Observation], object]) -> list[list[Observation]]:
    found: dict[object, list[Observation]] = defaultdict(list)
    for one in observations:
        if one.answered:
            found[key(one)].append(one)
    return list(found.values())


def deterministic(observations: Sequence[Observation]) -> Measured:
    """Of the requests of a cell that were answered several times: all answers are one."""
    groups = [g for g in _groups(observations, lambda one: (one.request_id, one.cell)) if len(g) > 1]
    return _agreeing(groups)


def same_under_load(observations: Sequence[Observation]) -> Measured:
    """Of the requests that were answered alone and under load: all answers are one."""
    groups = _groups(observations, lambda one: one.request_id)
    both = [g for g in groups if {one.cell.concurrency == 1 for one in g} == {True, False}]
    return _agreeing(both)


def same_across(observations: Sequence[Observation]) -> Measured:
    """Of the requests that several engines answered alone: all answers are one."""
    groups = _groups([one for one in observations if one.cell.concurrency == 1], lambda one: one.request_id)
    return _agreeing([g for g in groups if len({one.cell.engine for one in g}) > 1])


def _agreeing(groups: Sequence[Sequence[Observation]]) -> Measured:
    apart = [group for group in groups if len(set(answer_keys(group))) > 1]
    example = f"{apart[0][0].request_id}: {len(set(answer_keys(apart[0])))} answers" if apart else ""
    return Measured(len(groups) - len(apart), len(groups), example)


# --- of all together -------------------------------------------------------------------------------------------------


def no_corruption(observations: Sequence[Observation]) -> Measured:
    """No ruling says that an engine computed something else than the model."""
    if not any(one.answered for one in observations):
        return Measured(0, 0)
    ruling = triage(observations).ruling
    corrupt = ruling.cause.startswith("corruption")
    return Measured(int(not corrupt), 1, "; ".join(one.statement for one in ruling.evidence_for))


def even(observations: Sequence[Observation]) -> Measured:
    """Failures depend on no engine, image, cluster or load. Not measured on one cell."""
    if len({one.cell for one in observations}) < 2 or not any(one.answered for one in observations):
        return Measured(0, 0, "there is only one cell")
    clauses = triage(observations).attribution.clauses
    return Measured(int(not clauses), 1, "; ".join(map(str, clauses)))


MEASURES: Final[Mapping[str, Measure]] = {
    "answered": _each(lambda one: not one.error),
    "sound": _each(lambda one: not one.error and not one.wrong()),
    "finished": _each(lambda one: bool(one.finish_reason)),
    "known_answer": _each(lambda one: not one.error and not one.wrong(), lambda one: one.expected is not None),
    "counted": _each(lambda one: one.counts.prompt > 0 and one.counts.completion > 0),
    "triageable": _each(_triageable, lambda one: not one.error),
    "format": _each(lambda one: one.verdict_format == "ok"),
    "tool_choice": _each(lambda one: one.verdict_tool_choice == "ok"),
    "called": _each(lambda one: "tool:0" in one.text),
    "refused": _each(_refused),
    "deterministic": deterministic,
    "same_under_load": same_under_load,
    "same_across": same_across,
    "no_corruption": no_corruption,
    "even": even,
}

TOGETHER: Final = frozenset({"same_across", "no_corruption", "even"})
