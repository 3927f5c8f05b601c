"""The ruling: one table from evidence to cause. Pure.

The rows are tried in order; the first whose required evidence is there, and whose excluding evidence is not, is the
ruling. The order goes from causes that are proved by a single sight (another prompt's text) to those that are left when
no stronger one is seen. RELEVANCE says for every piece of evidence which causes it speaks for and against; all that was
seen is listed with the ruling, the inconvenient too.

- Near tie needs margins: without log probabilities at the divergence it is refused, however likely it looks.
- Confidence is strong with decisive evidence, or two strong pieces, and nothing strong against; moderate with one
  strong piece; weak otherwise. Where only hints call for the cause (one run an arm), it is moderate at most.
- Undetermined is a ruling. It says what would decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from replay.evidence import clause_of, statements
from replay.facts import Facts
from replay.results import Attribution, Cause, Condition, Confidence, Evidence, Ruling
from replay.settle import next_steps


class Row(Struct, frozen=True):
    """``any_of``: evidence of which one piece is needed. ``unless``: evidence that excludes the cause."""

    cause: Cause
    any_of: frozenset[str]
    unless: frozenset[str] = frozenset()
    mechanism: str = ""


def _row(cause: Cause, any_of: str, unless: str = "", mechanism: str = "") -> Row:
    return Row(cause, frozenset(any_of.split()), frozenset(unless.split()), mechanism)


TABLE: Final = (
    _row("corruption.cross_request", "foreign_text bystander"),
    _row("template", "prompts_differ"),
    _row("sampling", "drawn", "load_dependent"),
    _row("sampling", "scattered", "load_dependent near_seams copies_right"),
    _row("corruption", "copies_wrong_at_times varies_under_invariant_kernels wide_seams wrong_at_times"),
    _row("batch_dependent", "load_dependent load_differs"),
    _row("cache_dependent", "cache_dependent cache_differs"),
    _row("near_tie", "near_seams"),
    _row("quantisation_drift", "precision_separates", "unknown_seams"),
    _row("engine_diff.systematic", "wrong_by_setup setups_wide", "unknown_seams"),
    _row("near_tie", "setups_near", "setups_unknown"),
    _row("sampling", "cut_short", "unknown_seams setups_unknown", mechanism="length limit"),
    _row("model", "wrong_everywhere", "unknown_seams setups_unknown"),
    _row("sampling", "sampled_as_asked", mechanism="as asked"),
    _row("agreement", "all_agree"),
)

_ROUNDING: Final = "near_tie batch_dependent cache_dependent quantisation_drift"
_CORRUPT: Final = "corruption corruption.cross_request"

RELEVANCE: Final[dict[str, tuple[frozenset[str], frozenset[str]]]] = {
    name: (frozenset(supports.split()), frozenset(opposes.split()))
    for name, supports, opposes in (
        ("foreign_text", "corruption.cross_request corruption", f"{_ROUNDING} sampling model"),
        ("bystander", "corruption.cross_request corruption", f"{_ROUNDING} sampling model"),
        ("prompts_differ", "template", "engine_diff.systematic quantisation_drift near_tie agreement"),
        ("same_prompts_agree", "template agreement", "engine_diff.systematic quantisation_drift"),
        ("same_prompts_differ", "engine_diff.systematic quantisation_drift near_tie", "template"),
        ("drawn", "sampling", f"{_ROUNDING} {_CORRUPT}"),
        ("never_drawn", f"{_ROUNDING} agreement", "sampling"),
        ("scattered", "sampling", "near_tie batch_dependent"),
        ("copies_wrong_at_times", _CORRUPT, f"{_ROUNDING} model agreement"),
        ("copies_right", f"{_ROUNDING} engine_diff.systematic", _CORRUPT),
        ("copies_never_right", "model", _CORRUPT),
        ("varies_under_invariant_kernels", _CORRUPT, "near_tie batch_dependent"),
        ("stable_under_invariant_kernels", "near_tie batch_dependent", _CORRUPT),
        ("wide_seams", f"{_CORRUPT} sampling", _ROUNDING),
        ("near_seams", "near_tie batch_dependent cache_dependent", f"{_CORRUPT} sampling"),
        ("unknown_seams", "", f"{_ROUNDING} {_CORRUPT}"),
        ("load_dependent", f"batch_dependent {_CORRUPT}", "sampling model"),
        ("load_differs", "batch_dependent", "agreement"),
        ("load_independent", "sampling near_tie", "batch_dependent"),
        ("cache_dependent", f"cache_dependent {_CORRUPT}", "sampling model"),
        ("cache_differs", "cache_dependent", "agreement"),
        ("few_variants", _ROUNDING, "sampling"),
        ("many_variants", f"{_CORRUPT} sampling", "near_tie"),
        ("precision_separates", "quantisation_drift", "agreement"),
        ("equal_precision_agrees", "quantisation_drift", "engine_diff.systematic"),
        ("setups_near", "near_tie", "engine_diff.systematic"),
        ("setups_wide", "engine_diff.systematic", "near_tie"),
        ("setups_unknown", "", "near_tie engine_diff.systematic"),
        ("wrong_at_times", _CORRUPT, "model near_tie"),
        ("wrong_by_setup", "engine_diff.systematic quantisation_drift template", "model near_tie"),
        ("wrong_everywhere", "model", _CORRUPT),
        ("wrong_unexplained", "", "agreement"),
        ("cut_short", "sampling", "agreement"),
        ("sampled_as_asked", "sampling", ""),
        ("all_agree", "agreement", ""),
    )
}
"""Evidence -> the causes it speaks for, and those it speaks against."""

_BY_ROUNDING: Final = frozenset({"near_seams", "setups_near"})
_ABOUT: Final[dict[str, frozenset[str]]] = {
    "quantisation_drift": frozenset({"precision"}),
    "near_tie": frozenset({"precision"}),
    "batch_dependent": frozenset({"concurrency"}),
    "cache_dependent": frozenset({"cache"}),
}
_FAILING: Final = frozenset({"corruption", "corruption.cross_request", "engine_diff.systematic", "model"})


def rule(scope: str, facts: Facts, wrong: Attribution | None = None, differences: Attribution | None = None) -> Ruling:
    """``wrong`` and ``differences`` attribute the same runs' failures and deviations, where that was asked."""
    seen = statements(facts, wrong)
    names = {each.name for each in seen}
    row = next((row for row in TABLE if names & row.any_of and not names & row.unless), None)
    cause: Cause = row.cause if row else "undetermined"
    leaning = "" if row else _leaning(names, facts)
    judged = leaning or cause
    supports = tuple(each for each in seen if judged in RELEVANCE[each.name][0])
    opposes = tuple(each for each in seen if judged in RELEVANCE[each.name][1])
    if row is None:
        opposes += tuple(each for each in seen if each not in supports and each not in opposes)
    mechanism = row.mechanism if row else ""
    if cause in ("batch_dependent", "cache_dependent") and names & _BY_ROUNDING:
        mechanism = "near_tie"
    elif cause == "corruption" and "load_dependent" in names:
        mechanism = "under load"
    return Ruling(
        scope=scope,
        cause=cause,
        confidence=_confidence(supports, opposes, row.any_of) if row else "weak",
        mechanism=mechanism,
        leaning=leaning,
        evidence_for=supports,
        evidence_against=opposes,
        axes=_axes(cause, wrong, differences),
        next_steps=tuple(next_steps(cause, names, facts, wrong)),
    )


def _confidence(supports: Sequence[Evidence], opposes: Sequence[Evidence], calling: frozenset[str]) -> Confidence:
    weights = [each.weight for each in supports]
    against = [each.weight for each in opposes]
    if "decisive" in weights:
        return "moderate" if "decisive" in against else "strong"
    if "strong" not in weights:
        return "weak"
    called = any(each.weight == "strong" for each in supports if each.name in calling)
    return "strong" if called and weights.count("strong") > 1 and "strong" not in against else "moderate"


def _leaning(names: set[str], facts: Facts) -> str:
    """What it would be if what is missing bore it out."""
    if "unknown_seams" in names:
        return "corruption" if facts.wrong.mixed else "near_tie"
    if "setups_unknown" in names:
        # rounding turns one good answer into another, and seldom into one that must not stand
        return "engine_diff.systematic" if "wrong_unexplained" in names else "near_tie"
    if "wrong_unexplained" in names and facts.wrong.mixed and facts.greedy == facts.runs:
        return "corruption"
    return ""


def _axes(cause: Cause, wrong: Attribution | None, differences: Attribution | None) -> tuple[Condition, ...]:
    """Of the failures where the cause makes some, else of the differences. Of several names for the same runs, the one
    that the cause is about."""
    if cause in ("agreement", "undetermined", "model"):
        return ()
    order = (wrong, differences) if cause in _FAILING else (differences, wrong)
    clause = next((found for each in order if (found := clause_of(each))), None)
    names = (clause.conditions, *clause.same_runs) if clause else ((),)
    about = _ABOUT.get(cause, frozenset())
    return next((name for name in names if about & {condition.axis for condition in name}), names[0])
