"""The table from evidence to cause, and what every ruling keeps to."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from replay.evidence import statements
from replay.facts import gather
from replay.observation import Cell, Counts, Found, Observation, Sampling
from replay.results import MEANING
from replay.ruling import RELEVANCE, TABLE, rule
from replay.triage import contrast, contrasts, triage
from tests.replay.answers import spoken

TIE = {1: [("home", -0.7), ("away", -0.75)]}
ALONE = Cell("a", precision="bf16", concurrency=1)
LOADED = Cell("a", precision="bf16", concurrency=8, neighbours="copies")


def flips(cell: Cell, home: int, away: int, request: str = "r", **fields: Any) -> list[Observation]:
    texts = ["go home now"] * home + ["go away then"] * away
    steps = fields.pop("steps", TIE)
    return [spoken(text, cell, request=request, repeat=n, steps=steps, **fields) for n, text in enumerate(texts)]


def test_the_table_speaks_of_known_evidence_and_causes_only() -> None:
    named = {name for row in TABLE for name in (*row.any_of, *row.unless)}
    assert named <= set(RELEVANCE)
    assert {row.cause for row in TABLE} | {"undetermined"} == set(MEANING)
    assert {cause for supports, opposes in RELEVANCE.values() for cause in (*supports, *opposes)} <= set(MEANING)


def test_evidence_that_decides_for_a_cause_speaks_for_it() -> None:
    for row in TABLE:
        for name in row.any_of:
            assert row.cause in RELEVANCE[name][0], (row.cause, name)


def test_no_evidence_speaks_for_and_against_one_cause() -> None:
    for name, (supports, opposes) in RELEVANCE.items():
        assert not supports & opposes, name


def test_a_near_tie_needs_margins_on_both_sides() -> None:
    assert rule("r", gather(flips(ALONE, 5, 5))).cause == "near_tie"
    blind = rule("r", gather(flips(ALONE, 5, 5, logprobs=False)))
    assert (blind.cause, blind.leaning, blind.confidence) == ("undetermined", "near_tie", "weak")
    assert "unknown_seams" in {each.name for each in blind.evidence_against}
    half = flips(ALONE, 5, 0) + flips(ALONE, 0, 5, logprobs=False)
    assert rule("r", gather(half)).cause == "undetermined"


def test_one_run_an_arm_gives_no_more_than_moderate_confidence() -> None:
    runs = [run for q in "abcdef" for run in flips(ALONE, 1, 0, q) + flips(LOADED, 0, 1, q)]
    once = rule("pair", gather(runs))
    assert (once.cause, once.mechanism, once.confidence) == ("batch_dependent", "near_tie", "moderate")
    runs = [run for q in "abcdef" for run in flips(ALONE, 5, 0, q) + flips(LOADED, 0, 5, q)]
    assert rule("pair", gather(runs)).confidence == "strong"


def test_load_that_makes_no_difference_speaks_against_batch_dependence() -> None:
    runs = [run for q in "abcd" for run in flips(ALONE, 5, 5, q) + flips(LOADED, 5, 5, q)]
    found = rule("matrix", gather(runs))
    assert found.cause == "near_tie"
    assert "load_independent" in {each.name for each in found.evidence_for}


def test_a_dependence_that_may_be_chance_says_how_many_repeats_would_tell() -> None:
    found = rule("r", gather(flips(ALONE, 5, 0) + flips(LOADED, 3, 2)))
    assert found.cause == "near_tie"
    step = next(step for step in found.next_steps if "may be chance" in step.reason)
    assert 10 < step.repeats < 100


def test_wide_margins_within_a_set_up_are_no_rounding() -> None:
    sure = {1: [("home", -0.01), ("away", -5.0)]}
    found = rule("r", gather(flips(ALONE, 8, 0, steps=sure) + flips(LOADED, 8, 2, steps=sure)))
    assert found.cause == "corruption"
    assert "wide_seams" in {each.name for each in found.evidence_for}


def test_equal_failures_everywhere_are_the_models_own_only_when_seen_in_two_set_ups() -> None:
    failing = {"condemned": "repetition.token", "findings": (Found("repetition.token"),)}
    one = flips(ALONE, 5, 0, **failing)
    two = flips(Cell("b", precision="f32", concurrency=1), 5, 0, **failing)
    assert triage(one + two).ruling.cause == "model"
    alone = triage(one).ruling
    assert alone.cause == "undetermined"
    assert any("second engine" in step.action for step in alone.next_steps)


def test_a_failure_that_only_one_engine_has_each_time_is_that_engines() -> None:
    failing = {"condemned": "leak.template"}
    runs = []
    for q in (f"q{n}" for n in range(12)):
        runs += flips(ALONE, 2, 0, q) + flips(Cell("b", precision="bf16", concurrency=1), 2, 0, q, **failing)
    found = triage(runs).ruling
    assert found.cause == "engine_diff.systematic"
    assert {str(each) for each in found.axes} == {"engine b"}


def test_contrasts_change_one_thing() -> None:
    other = Cell("b", precision="f32", concurrency=1)
    runs = flips(ALONE, 2, 0) + flips(LOADED, 2, 0) + flips(other, 2, 0)
    assert [each.name for each in contrasts(runs)] == [
        "load on engine=a precision=bf16",
        "engine=b precision=f32 against engine=a precision=bf16",
    ]


def test_many_looks_are_corrected_for() -> None:
    """A dependence that is significant once is not so as one of fifty requests."""
    one = flips(ALONE, 7, 0) + flips(LOADED, 1, 6)
    assert contrast("pair", one, []).cause == "batch_dependent"
    many = one + [run for n in range(49) for run in flips(ALONE, 2, 0, f"q{n}")]
    ruled = {each.scope: each.cause for each in triage(many).requests}
    assert ruled["r"] == "near_tie"


def test_prompt_counts_alone_are_weaker_proof_than_ids() -> None:
    def asked(**fields: Any) -> str:
        runs = flips(ALONE, 2, 0, **fields) + flips(
            Cell("b", precision="bf16", concurrency=1), 0, 2, **{k: v for k, v in OTHER.items() if k in fields}
        )
        found = rule("r", gather(runs))
        assert found.cause == "template"
        return found.confidence

    OTHER: dict[str, Any] = {"prompt_ids": (1, 3), "counts": Counts(9)}
    assert asked(prompt_ids=(1, 2)) == "strong"
    assert asked(counts=Counts(8)) == "moderate"


RUN = st.builds(
    lambda engine, at_once, text, request, steps, wrong, temperature, blind: spoken(
        text,
        Cell(engine, precision="bf16", concurrency=at_once),
        request=request,
        steps=steps,
        logprobs=not blind,
        condemned=wrong,
        sampling=Sampling(temperature=temperature),
    ),
    st.sampled_from("ab"),
    st.sampled_from([1, 8]),
    st.sampled_from(["go home now", "go away then", "go", ""]),
    st.sampled_from(["r", "s"]),
    st.sampled_from([TIE, {}]),
    st.sampled_from(["", "", "", "repetition.token"]),
    st.sampled_from([0.0, 0.0, 0.7]),
    st.booleans(),
)


@settings(max_examples=25, deadline=None)
@given(st.lists(RUN, max_size=14), st.randoms(use_true_random=False))
def test_any_runs_get_a_ruling_that_does_not_depend_on_their_order(runs: list[Observation], rng: Any) -> None:
    numbered = [msgspec.structs.replace(run, repeat=number) for number, run in enumerate(runs)]
    found = triage(numbered)
    mixed = list(numbered)
    rng.shuffle(mixed)
    again = triage(mixed)
    assert found.ruling.cause == again.ruling.cause
    for ruling in (found.ruling, *found.contrasts, *found.requests):
        assert ruling.cause in MEANING
        if ruling.cause == "near_tie":  # never without margins
            assert {"near_seams", "setups_near"} & {each.name for each in ruling.evidence_for}
        if ruling.cause not in ("undetermined", "agreement"):
            assert ruling.evidence_for


@settings(max_examples=20, deadline=None)
@given(st.lists(RUN, max_size=14))
def test_every_statement_is_in_the_table(runs: list[Observation]) -> None:
    assert {each.name for each in statements(gather(runs))} <= set(RELEVANCE)
