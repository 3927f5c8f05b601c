"""From facts to statements: what speaks for a cause or against one, each under a stable name. Pure.

A statement is made only where the facts carry it; where something was not measured nothing is said of it. Which causes
a statement speaks for or against is not decided here but in the table of ruling.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from replay.facts import Facts, Seams
from replay.results import Attribution, Clause, Evidence
from replay.statistics import ALPHA, clopper_pearson

LOAD_AXES: Final = frozenset({"concurrency", "neighbours", "cache"})
_INDEPENDENT: Final = 20  # runs under load from which on "no dependence" is worth saying
_OFTEN: Final = 10  # failures from which on an even spread is worth saying
_FEW: Final = 0.5  # distinct answers a run: below it they are few


def statements(facts: Facts, wrong: Attribution | None = None) -> list[Evidence]:
    """``wrong`` is the attribution of the same runs' failures, where there is one."""
    return [
        *_foreign(facts),
        *_prompts(facts),
        *_sampling(facts),
        *_copies(facts),
        *_kernels(facts),
        *_seams(facts),
        *_load(facts),
        *_cache(facts),
        *_variants(facts),
        *_setups(facts),
        *_failures(facts, wrong),
        *_nothing(facts),
    ]


def _foreign(facts: Facts) -> Iterator[Evidence]:
    if facts.foreign:
        _, hit = max(facts.foreign, key=lambda each: (each[1].certain, len(each[1].words)))
        certain = hit.certain or len(facts.foreign) > 2
        count = len(facts.foreign)
        yield Evidence(
            "foreign_text",
            f"{count} answer{'s' * (count != 1)} with words of the prompt of a request that ran beside: "
            f"{', '.join(map(repr, hit.words[:4]))} of {hit.owner}",
            "decisive" if certain else "strong",
        )
    beside = facts.cancelled
    if beside.p <= ALPHA and (facts.invariant.varying or facts.within.seams.wide or facts.load.base.failures == 0):
        yield Evidence(
            "bystander",
            f"{beside.other} answers change while other requests are cancelled and tried again, {beside.base} without",
            "decisive",
            beside.p,
        )


def _prompts(facts: Facts) -> Iterator[Evidence]:
    found = facts.prompts
    if found.differ_and_answers_too:
        how = "token ids or hashes" if found.proven else "template hashes or token counts"
        yield Evidence(
            "prompts_differ",
            f"in {found.differ} comparisons of set-ups the engines were not asked the same ({how} of the prompts "
            f"differ), and in {found.differ_and_answers_too} of these the answers differ",
            "decisive" if found.proven else "strong",
        )
    if found.same:
        differ = found.same_and_answers_differ
        name = "same_prompts_differ" if differ else "same_prompts_agree"
        yield Evidence(name, f"with equal prompts, answers differ in {differ} of {found.same} comparisons")


def _sampling(facts: Facts) -> Iterator[Evidence]:
    for cell, (runs, told) in facts.drawn.items():
        if told >= 3 and runs * 2 >= told:
            yield Evidence(
                "drawn",
                f"{cell.name()}: in {runs} of {told} undisturbed runs at temperature 0 tokens were not the likeliest "
                "of their step, by more than rounding",
                "decisive",
            )
    cut = facts.within.seams.cut + sum(pair.seams.cut for pair in facts.pairs.values())
    if cut:
        yield Evidence("cut_short", f"{cut} answers are the same as far as they go, and were cut by a length limit")
    told = sum(of for _, of in facts.drawn.values())
    if told and not any(runs for runs, _ in facts.drawn.values()):
        yield Evidence("never_drawn", f"in all {told} undisturbed runs every token was the likeliest of its step")
    for cell, (distinct, runs) in facts.scattered.items():
        yield Evidence("scattered", f"{cell.name()}: {distinct} different answers in {runs} undisturbed runs")


def _copies(facts: Facts) -> Iterator[Evidence]:
    found = facts.copies
    if found.mixed:
        how = ", ".join(f"{count} {name}" for name, count in found.harms.most_common())
        yield Evidence(
            "copies_wrong_at_times",
            f"known answers copied wrong in {found.wrong} of {found.runs} runs ({how}), right in the others; "
            f"{found.wrong_alone} of {found.runs_alone} wrong alone",
            "decisive",
        )
    elif found.runs and not found.wrong:
        high = clopper_pearson(0, found.runs).high
        yield Evidence(
            "copies_right", f"known answers copied right in all {found.runs} runs (at most {high:.1%} wrong)"
        )
    elif found.wrong:
        yield Evidence("copies_never_right", f"{found.wrong} known answers copied wrong in every run: the model cannot")


def _kernels(facts: Facts) -> Iterator[Evidence]:
    found = facts.invariant
    if found.varying:
        yield Evidence(
            "varies_under_invariant_kernels",
            f"{found.varying} of {found.repeated} requests vary with batch-invariant kernels, which rules rounding out",
            "decisive",
        )
    elif found.repeated and facts.within.varying:
        yield Evidence("stable_under_invariant_kernels", "the variation goes away with batch-invariant kernels")


def _seams(facts: Facts) -> Iterator[Evidence]:
    seams = facts.within.seams
    if seams.wide:
        yield Evidence(
            "wide_seams",
            f"{seams.beyond} of {seams.known} divergences within a set-up are beyond rounding (up to "
            f"{seams.widest:.2f} nats{', the other token not among the best' if seams.kinds['outside'] else ''})",
        )
    elif seams.all_near:
        yield Evidence(
            "near_seams",
            f"{seams.known} of {seams.known} divergences within a set-up are near ties: each run holds the other's "
            f"token within rounding (at most {seams.widest_near:.3f} nats)",
        )
    if seams.kinds["unknown"] and not seams.known:
        yield Evidence(
            "unknown_seams",
            f"no log probabilities at {seams.kinds['unknown']} divergences: rounding can be neither shown nor excluded",
        )


def _load(facts: Facts) -> Iterator[Evidence]:
    found = facts.load
    if found.p <= ALPHA:
        yield Evidence(
            "load_dependent",
            f"{found.base} answers other than the commonest alone, {found.other} under load",
            p=found.p,
        )
    elif found.unrepeated and facts.within.seams.all_near:
        yield Evidence(
            "load_differs",
            f"{found.differing} of {found.compared} requests answer otherwise under load than alone, one run each",
            "hint",
        )
    elif found.repeated and found.other.runs >= _INDEPENDENT and found.base.failures:
        yield Evidence(
            "load_independent",
            f"{found.base} answers other than the commonest alone, {found.other} under load: no dependence seen",
            p=found.p,
        )


def _cache(facts: Facts) -> Iterator[Evidence]:
    found = facts.cache
    if found.p <= ALPHA:
        yield Evidence(
            "cache_dependent", f"{found.base} answers other than the commonest cold, {found.other} warm", p=found.p
        )
    elif found.unrepeated and facts.within.seams.all_near:
        yield Evidence(
            "cache_differs", f"{found.differing} of {found.compared} requests answer otherwise warm than cold", "hint"
        )


def _variants(facts: Facts) -> Iterator[Evidence]:
    found = facts.within
    if found.varying and found.runs >= 5:
        few = found.distinct <= _FEW * found.runs
        yield Evidence(
            "few_variants" if few else "many_variants",
            f"{found.distinct} different answers in {found.runs} runs of the requests that vary",
            "hint",
        )


def _setups(facts: Facts) -> Iterator[Evidence]:
    engine, precision, rounded = facts.pairs["engine"], facts.pairs["precision"], facts.pairs["quantised"]
    if rounded.differing and rounded.seams.gross * 2 <= rounded.seams.known:
        said = f"{rounded.differing} of {rounded.compared} comparisons with quantised weights differ"
        yield Evidence("precision_separates", said + _close(rounded.seams))
        if engine.compared and engine.differing * 4 <= engine.compared:
            yield Evidence(
                "equal_precision_agrees", f"{engine.differing} of {engine.compared} with equal precision differ"
            )
    for name, pair in (("engines", engine), ("precisions", precision), ("weights", rounded)):
        if not pair.differing or (pair is rounded and pair.seams.gross * 2 <= pair.seams.known):
            continue
        said = f"{pair.differing} of {pair.compared} comparisons of {name} differ{_close(pair.seams)}"
        if pair.seams.all_near:
            yield Evidence("setups_near", said)
        elif pair.seams.wide and not facts.within.varying:
            yield Evidence("setups_wide", f"{said}, each stable in itself")
        elif not pair.seams.known and pair.seams.kinds["unknown"]:
            yield Evidence("setups_unknown", said)


def _failures(facts: Facts, wrong: Attribution | None) -> Iterator[Evidence]:
    found = facts.wrong
    if not found.runs:
        return
    clause = wrong.clauses[0] if wrong and wrong.clauses else None
    stable = not found.mixed
    if clause is not None:
        under_load = any(condition.axis in LOAD_AXES for condition in clause.conditions)
        greedy = facts.greedy == facts.runs
        if under_load or (greedy and not stable and _no_rounding(facts)):
            yield Evidence("wrong_at_times", f"wrong at times, and not everywhere: {clause}", p=clause.p_adjusted)
        elif stable or not greedy:
            yield Evidence("wrong_by_setup", f"wrong as a rule, and not everywhere: {clause}", p=clause.p_adjusted)
        return
    if found.setups > 1 and (found.throughout == found.requests or _even(facts, wrong)):
        yield Evidence(
            "wrong_everywhere",
            f"{found.requests} requests fail, in {found.setups} set-ups alike ({found.runs} wrong answers)",
        )
    else:
        yield Evidence("wrong_unexplained", f"{found.runs} wrong answers to {found.requests} requests", "hint")


def _no_rounding(facts: Facts) -> bool:
    """Failures that rounding would hardly make: many different ones, or in most requests."""
    if facts.within.seams.all_near:
        return False
    found = facts.wrong
    many = found.runs >= 3 and found.variants >= _FEW * found.runs
    return facts.within.seams.wide or many or (found.requests >= 3 and found.requests * 2 >= facts.requests)


def _even(facts: Facts, wrong: Attribution | None) -> bool:
    """Sampled answers fail now and then: in most set-ups, often enough to see it, and no axis makes a difference."""
    if wrong is None or facts.greedy == facts.runs or facts.wrong.runs < _OFTEN:
        return False
    return facts.wrong.setups * 2 > len(facts.setups) and all(test.p_adjusted > 0.05 for test in wrong.axes)


def _nothing(facts: Facts) -> Iterator[Evidence]:
    if facts.wrong.runs or not facts.runs:
        return
    high = clopper_pearson(0, facts.runs).high
    if not facts.greedy and facts.varied_on_purpose:
        yield Evidence(
            "sampled_as_asked",
            f"the temperature is above 0, so answers vary; none of {facts.runs} is wrong (at most {high:.1%} are)",
        )
    elif not facts.within.varying and not any(pair.differing for pair in facts.pairs.values()):
        yield Evidence("all_agree", f"no answer differs and none of {facts.runs} is wrong (at most {high:.1%} are)")


def _close(seams: Seams) -> str:
    if not seams.known:
        return ", by margins that are not known"
    return f", {seams.kinds['near']} of {seams.known} by near ties (at most {seams.widest:.2f} nats)"


def clause_of(attribution: Attribution | None) -> Clause | None:
    return attribution.clauses[0] if attribution and attribution.clauses else None
