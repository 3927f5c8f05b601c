"""What to run next, when the evidence does not settle a question or leaves half of it open. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from replay.facts import Facts
from replay.results import Attribution, Cause, Step
from replay.statistics import ALPHA, repeats_to_tell, runs_to_see

_REPEATS: Final = 10
_ARM: Final = 3  # repeats in each arm from which on Fisher's combination over a few requests can tell


def next_steps(cause: Cause, names: Collection[str], facts: Facts, wrong: Attribution | None) -> Iterator[Step]:
    """``names`` of the evidence seen. The most telling step first."""
    open_ = cause in ("undetermined", "batch_dependent", "cache_dependent")
    if not facts.runs:
        yield Step("see why the engines gave no answer", f"all {facts.errors} runs ended in an error")
        return
    if {"unknown_seams", "setups_unknown"} & set(names):
        yield Step(
            "ask for log probabilities (the best 5) and run it again",
            "without the margins at the divergence rounding and corruption cannot be told apart",
        )
    if cause == "batch_dependent" and "near_seams" not in names:
        yield Step("run it with batch-invariant kernels", "rounding goes away with them; corruption and races stay")
    if open_ and not facts.copies.runs and (facts.within.varying or facts.wrong.mixed):
        yield Step(
            "add known-answer tasks",
            f"a copy is never wrong by rounding; {runs_to_see(0.02)} runs show a corruption of 2 % with 95 % certainty",
            runs_to_see(0.02),
        )
    yield from _arms(cause, names, facts)
    if cause == "undetermined":
        yield from _undetermined(facts, wrong)


def _arms(cause: Cause, names: Collection[str], facts: Facts) -> Iterator[Step]:
    for name, arm, found in (("load", "alone and under load", facts.load), ("cache", "cold and warm", facts.cache)):
        if f"{name}_differs" in names and cause in ("batch_dependent", "cache_dependent", "near_tie"):
            yield Step(
                f"repeat each request {arm}, {_ARM} times or more",
                "one run an arm cannot tell a dependence from variation between runs",
                _ARM,
            )
        elif cause == "undetermined" and facts.within.varying and not found.compared:
            yield Step(f"run it {arm}", f"nothing is known of a dependence on the {name}", _REPEATS)
        elif cause in ("undetermined", "near_tie") and found.p > ALPHA and found.base.value != found.other.value:
            repeats = repeats_to_tell(found.base.value, found.other.value)
            yield Step(
                f"repeat {arm}",
                f"{found.base} and {found.other} may be chance; if these are the rates, {repeats} runs an arm tell",
                repeats,
            )


def _undetermined(facts: Facts, wrong: Attribution | None) -> Iterator[Step]:
    if facts.greedy < facts.runs and not facts.wrong.runs:
        yield Step("run it at temperature 0", "answers that are drawn differ anyway")
    if not facts.within.repeated:
        yield Step(f"repeat each cell {_REPEATS} times", "one run a cell shows no variation", _REPEATS)
    if len(facts.setups) == 1:
        yield Step(
            "run it on a second engine, in f32 where there is one",
            "one set-up cannot tell the model's fault from the engine's",
        )
    if wrong is not None:
        yield from wrong.next_steps
