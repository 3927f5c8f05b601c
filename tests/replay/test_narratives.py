"""Stories of nondeterminism and corruption, their figures turned into observations, and the ruling each should get.

The first are the shared cases; where a case leaves a figure open the most ordinary one is taken, and said so. The
others tell of what those do not.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from replay.observation import Cell, Counts, Found, Observation, Sampling
from replay.results import Triage
from replay.triage import triage
from tests.replay.answers import GREEDY, spoken

CASES = Path(__file__).parents[3] / "shared" / "cases" / "triage.jsonl"
SHARED = {case["id"]: case for case in map(json.loads, CASES.read_text().splitlines())} if CASES.exists() else {}

PLAIN = "the little harbour sleeps while snow falls over every roof and lantern until somebody rings a bell"


def said(words: str, cell: Cell, number: int = 1, request: str = "r", **fields: Any) -> list[Observation]:
    """``number`` runs that answer so, without log probabilities and token ids."""
    one = Observation(
        **(
            {
                "request_id": request,
                "cell": cell,
                "sampling": GREEDY,
                "text": {"content": words},
                "finish_reason": "stop",
            }
            | fields
        )
    )
    return [msgspec.structs.replace(one, repeat=repeat) for repeat in range(number)]


def parting(token: int, variant: int) -> str:
    """PLAIN, over and over, up to a token, then words of its own."""
    words = (PLAIN.split() * 10)[:token]
    return " ".join([*words, *(f"way{variant}" for _ in range(20))])


# --- the shared cases ------------------------------------------------------------------------------------------------


def br082(figures: dict[str, Any]) -> Triage:
    cell = Cell("mixtral", precision="q4_k", concurrency=1)
    runs = said(parting(100, 0), cell, figures["runs"] - figures["runs_unique"] + 1)
    for variant, token in enumerate(figures["first_divergence_tokens"], 1):
        runs += said(parting(token, variant), cell)
    return triage(runs)


def br083(figures: dict[str, Any]) -> Triage:
    """The four answers under load are taken as equally common."""
    runs = []
    for arm in figures["runs"]:
        cell = Cell("a", concurrency=arm["concurrency"])
        for run in range(arm["n"]):
            runs += said(parting(30, run % arm["unique"]), cell)
    return triage(runs)


def br085(figures: dict[str, Any]) -> Triage:
    """A hundred copies alone, and under load as many wrong ones in 500 as the rate says."""
    alone, loaded = figures["runs"]
    expected = figures["expected"]
    runs = said(alone["text"], Cell("a", concurrency=alone["concurrency"]), 100, expected=expected)
    bad = round(500 * figures["error_rate"])
    cell = Cell("a", concurrency=loaded["concurrency"])
    runs += said(loaded["text"], cell, bad, expected=expected) + said(expected, cell, 500 - bad, expected=expected)
    return triage(runs)


def br086(figures: dict[str, Any]) -> Triage:
    runs = []
    kernels = "batch_invariant" if figures["batch_invariant"] else ""
    for arm in figures["runs"]:
        neighbours = "none" if "sequential" in arm["case"] else "others" if "256" in arm["case"] else "copies"
        cell = Cell("a", concurrency=1 if neighbours == "none" else 2, neighbours=neighbours, kernels=kernels)
        for run in range(arm["n"]):
            runs += said(parting(20 + run, run) if run < arm["diverged"] else PLAIN, cell)
    return triage(runs)


def br089(figures: dict[str, Any]) -> Triage:
    """As many undisturbed runs as disturbed ones."""
    again, of = map(int, figures["reproduced"].split("/"))
    (bystander,) = figures["runs"]
    kernels = "batch_invariant" if figures["deterministic_mode"] else ""
    calm = Cell("a", concurrency=1, neighbours="none", kernels=kernels)
    beside = Cell("a", concurrency=3, neighbours="cancelled", kernels=kernels)
    runs = said(bystander["baseline"], calm, of) + said(bystander["text"], beside, again)
    return triage(runs + said(bystander["baseline"], beside, of - again))


def br091(figures: dict[str, Any]) -> Triage:
    prompts = {"asked": figures["request"]["prompt"]}
    prompts |= {f"beside-{number}": prompt for number, prompt in enumerate(figures["concurrent_prompts"])}
    cell = Cell("a", concurrency=2, neighbours="others", cache="warm")
    return triage(said(figures["text"], cell, request="asked", in_flight=tuple(prompts)), prompts)


def br093(figures: dict[str, Any]) -> Triage:
    """Which questions each engine gets right is not told: taken as independent of each other."""
    runs = []
    for step, (engine, arm) in zip((7, 11), figures["engines"].items(), strict=True):
        right = {number * step % arm["n"] for number in range(arm["correct"])}
        for number in range(arm["n"]):
            ok = number in right
            runs += said("yes" if ok else "no", Cell(engine), request=f"q{number}", correct=ok)
    return triage(runs)


BUILT: dict[str, tuple[Callable[[dict[str, Any]], Triage], str, str]] = {
    "br082": (br082, "undetermined", "near_tie"),
    "br083": (br083, "batch_dependent", ""),
    "br085": (br085, "corruption", ""),
    "br086": (br086, "corruption", ""),
    "br089": (br089, "corruption.cross_request", ""),
    "br091": (br091, "corruption.cross_request", ""),
    "br093": (br093, "engine_diff.systematic", ""),
}


@pytest.mark.skipif(not SHARED, reason=f"the shared cases are not there ({CASES})")
def test_every_shared_case_is_told() -> None:
    assert set(SHARED) == set(BUILT)


@pytest.mark.skipif(not SHARED, reason=f"the shared cases are not there ({CASES})")
@pytest.mark.parametrize("name", BUILT)
def test_shared_cases_are_ruled_as_expected(name: str) -> None:
    build, cause, leaning = BUILT[name]
    case = SHARED[name]
    found = build(case["sample_output"]).ruling
    assert (found.cause, found.leaning) == (cause, leaning)
    expected = case["expected_verdict"].removeprefix("triage:")
    assert expected.startswith(leaning or cause)
    assert found.evidence_for or leaning
    if "ask for logprobs" in expected or "if margins small" in expected:
        assert any("log probabilities" in step.action for step in found.next_steps)
    if "p<<0.01" in expected:
        assert any(each.p is not None and each.p < 0.01 for each in found.evidence_for)


# --- further stories -------------------------------------------------------------------------------------------------


@dataclass
class Story:
    """``next_step``: words of a step that must be proposed; ``evidence`` that must be listed, for or against; ``axes``
    that the ruling must go with."""

    told: str
    runs: Callable[[], list[Observation]]
    cause: str
    leaning: str = ""
    mechanism: str | None = None
    evidence: tuple[str, ...] = ()
    next_step: str = ""
    axes: set[str] | None = None


A, B, C = (Cell(name, precision="bf16", concurrency=1) for name in "abc")
QUESTIONS = [f"q{number}" for number in range(12)]
TIE = {3: [("sleeps", -0.7), ("wakes", -0.8)]}
TURNED = {3: [("wakes", -0.7), ("sleeps", -0.8)]}


def tie(cell: Cell, number: int, request: str, turned: bool = False) -> list[Observation]:
    text = PLAIN.replace("sleeps while", "wakes before") if turned else PLAIN
    return [spoken(text, cell, request=request, steps=TURNED if turned else TIE, repeat=n) for n in range(number)]


def with_(cell: Cell, **axes: Any) -> Cell:
    return msgspec.structs.replace(cell, **axes)


def _warm_cache() -> list[Observation]:
    cold, warm = with_(A, cache="cold"), with_(A, cache="warm")
    return [run for q in QUESTIONS for run in tie(cold, 3, q) + tie(warm, 3, q, turned=True)]


def _temperature_unset() -> list[Observation]:
    runs = []
    for q in QUESTIONS[:3]:
        runs += said(PLAIN, A, 6, q)
        for n in range(6):
            runs += said(parting(2 + n, n), B, 1, q)
    return runs


def _doubled_start() -> list[Observation]:
    """Engine b writes the start token twice: the prompt is one token longer, and the answers are others."""
    runs = []
    for q in QUESTIONS:
        runs += said(PLAIN, A, 2, q, prompt_ids=(1, 7, 8)) + said(PLAIN, C, 2, q, prompt_ids=(1, 7, 8))
        runs += said(parting(5, 1), B, 2, q, prompt_ids=(1, 1, 7, 8))
    return runs


def _template_by_count() -> list[Observation]:
    """Only the token counts tell that the templates differ."""
    return [
        run
        for q in QUESTIONS
        for run in said(PLAIN, A, 2, q, counts=Counts(40, 17)) + said(parting(5, 1), B, 2, q, counts=Counts(47, 25))
    ]


def _fp8() -> list[Observation]:
    exact, other, rounded = (with_(A, engine=n, precision=p) for n, p in (("x", "bf16"), ("y", "bf16"), ("z", "fp8")))
    return [run for q in QUESTIONS for run in tie(exact, 2, q) + tie(other, 2, q) + tie(rounded, 2, q, turned=True)]


def _loops_everywhere() -> list[Observation]:
    looping = {"condemned": "repetition.period", "findings": (Found("repetition.period"),)}
    golden = with_(A, engine="golden", precision="f32")
    return [
        run
        for cell in (golden, A, B)
        for run in said("la " * 40, cell, 5, "song", **looping) + said(PLAIN, cell, 5, "q")
    ]


def _invariant_kernels_help() -> list[Observation]:
    runs = []
    invariant = with_(A, kernels="batch_invariant")
    for q in QUESTIONS:
        for cell, flips in ((A, True), (invariant, False)):
            loaded = with_(cell, concurrency=8, neighbours="others")
            runs += tie(cell, 4, q) + tie(loaded, 2, q) + tie(loaded, 2, q, turned=flips)
    return runs


def _speculative() -> list[Observation]:
    """A new version with speculative decoding answers otherwise, each time the same, with wide margins."""
    old, new = with_(A, version="1"), with_(A, version="2")
    steps = {4: [("while", -0.01), ("when", -6.0)]}
    other = {4: [("when", -0.02), ("while", -5.0)]}
    return [
        run
        for q in QUESTIONS
        for n in range(2)
        for run in (
            spoken(PLAIN, old, request=q, repeat=n, steps=steps),
            spoken(PLAIN.replace("while", "when"), new, request=q, repeat=n, steps=other),
        )
    ]


def _one_node() -> list[Observation]:
    """One replica of four garbles an answer in three, a different one each time."""
    runs = []
    for node in ("n1", "n2", "n3", "n4"):
        cell = with_(A, node=node)
        for number, q in enumerate(QUESTIONS):
            for n in range(6):
                if node == "n3" and (n + number) % 3 == 0:
                    garbled = {"condemned": "encoding.mojibake", "findings": (Found("encoding.mojibake"),)}
                    runs += said(parting(3 + n, n + 100), cell, 1, q, **garbled)
                else:
                    runs += said(PLAIN, cell, 1, q)
    return runs


def _too_few() -> list[Observation]:
    bad = {"condemned": "repetition.token", "findings": (Found("repetition.token"),)}
    old, new = with_(A, image="1.1"), with_(A, image="1.2")
    return said(PLAIN, old, 3) + said(PLAIN, new, 2) + said("no no no no", new, 1, **bad)


def _rolled_out_together() -> list[Observation]:
    runs = []
    for image, cluster in (("1.1", "a"), ("1.2", "b")):
        cell = with_(A, image=image, cluster=cluster)
        for number, q in enumerate(QUESTIONS):
            bad = 4 if image == "1.2" else 0
            for n in range(bad):
                runs += said(parting(n + number, n), cell, 1, q, condemned="leak.template")
            runs += said(PLAIN, cell, 12 - bad, q)
    return runs


def _fingerprints_only() -> list[Observation]:
    loaded = with_(A, concurrency=16, neighbours="others")
    kept = [("aa", A)] * 20 + [(f"b{n % 5}", loaded) for n in range(20)]
    return [run for mark, cell in kept for run in said("", cell, text={}, fingerprint=mark)]


def _sampled_as_asked() -> list[Observation]:
    warm = Sampling(temperature=0.8)
    return [run for cell in (A, B) for n in range(10) for run in said(parting(n, n), cell, sampling=warm)]


def _cannot_copy() -> list[Observation]:
    return [run for cell in (A, B) for run in said("c_pw4nz8tq", cell, 6, "echo-0", expected="c_pw4nz8tqm6")]


def _engines_down() -> list[Observation]:
    return said("", A, 5, error="connect: refused", text={})


def _length_limit() -> list[Observation]:
    """Engine b cuts answers at its own default of sixteen tokens."""
    short = " ".join(PLAIN.split()[:9])
    return [
        spoken(text, cell, request=q, repeat=n, finish_reason=reason)
        for q in QUESTIONS
        for n in range(2)
        for cell, text, reason in ((A, PLAIN, "stop"), (B, short, "length"))
    ]


def _race_with_margins() -> list[Observation]:
    """Under load a word that the model would never say stands in a few answers; none is condemned."""
    loaded = with_(A, concurrency=32, neighbours="others")
    runs = []
    for number, q in enumerate(QUESTIONS):
        runs += [spoken(PLAIN, A, request=q, repeat=n) for n in range(10)]
        for n in range(10):
            struck = n == number
            text = PLAIN.replace("roof", f"rxxf{number}") if struck else PLAIN
            runs.append(spoken(text, loaded, request=q, repeat=n))
    return runs


def _one_of_each() -> list[Observation]:
    """One run in each of two bf16 engines, no log probabilities: they differ, and no more can be said."""
    return [run for q in QUESTIONS for run in said(PLAIN, A, 1, q) + said(parting(6, 1), B, 1, q)]


STORIES = [
    Story("a warm prefix cache turns close choices", _warm_cache, "cache_dependent", mechanism="near_tie"),
    Story("temperature 0 is read as unset", _temperature_unset, "sampling", axes={"engine b"}, evidence=("scattered",)),
    Story("a doubled start token", _doubled_start, "template", axes={"engine b"}, evidence=("same_prompts_agree",)),
    Story("a template that only token counts betray", _template_by_count, "template"),
    Story(
        "fp8 weights against bf16",
        _fp8,
        "quantisation_drift",
        axes={"precision fp8"},
        evidence=("equal_precision_agrees",),
    ),
    Story("the model loops in the golden engine too", _loops_everywhere, "model", evidence=("wrong_everywhere",)),
    Story(
        "batch-invariant kernels make it go away",
        _invariant_kernels_help,
        "batch_dependent",
        mechanism="near_tie",
        evidence=("stable_under_invariant_kernels", "load_dependent", "near_seams"),
    ),
    Story("speculative decoding changes the text", _speculative, "engine_diff.systematic", axes={"version 2"}),
    Story("one replica garbles", _one_node, "corruption", axes={"node n3"}),
    Story("one failure in three runs", _too_few, "undetermined", leaning="corruption", next_step="image 1.2"),
    Story("image and cluster rolled out together", _rolled_out_together, "corruption"),
    Story(
        "only fingerprints were kept",
        _fingerprints_only,
        "batch_dependent",
        mechanism="",
        next_step="log probabilities",
    ),
    Story("answers vary as the temperature says", _sampled_as_asked, "sampling", mechanism="as asked"),
    Story("a small model cannot copy", _cannot_copy, "model", evidence=("copies_never_right",)),
    Story("nothing answered", _engines_down, "undetermined", next_step="why the engines gave no answer"),
    Story(
        "another default of the length limit", _length_limit, "sampling", mechanism="length limit", axes={"engine b"}
    ),
    Story(
        "a race that no detector sees", _race_with_margins, "corruption", mechanism="under load", axes={"32 at once"}
    ),
    Story(
        "two engines differ, one run each",
        _one_of_each,
        "undetermined",
        leaning="near_tie",
        next_step="log probabilities",
    ),
]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.told)
def test_a_story_is_ruled(story: Story) -> None:
    found = triage(story.runs()).ruling
    assert (found.cause, found.leaning) == (story.cause, story.leaning), found
    if story.mechanism is not None:
        assert found.mechanism == story.mechanism
    listed = {each.name for each in (*found.evidence_for, *found.evidence_against)}
    assert set(story.evidence) <= listed
    assert not story.next_step or any(story.next_step in step.action for step in found.next_steps), found.next_steps
    if story.axes is not None:
        assert {str(condition) for condition in found.axes} == story.axes


def test_image_and_cluster_that_were_rolled_out_together_are_both_named() -> None:
    (clause,) = triage(_rolled_out_together()).attribution.clauses
    named = {str(condition) for name in (clause.conditions, *clause.same_runs) for condition in name}
    assert named == {"image 1.2", "cluster b"}


def test_a_sample_as_asked_is_no_claim() -> None:
    assert not triage(_sampled_as_asked()).ruling.claim
