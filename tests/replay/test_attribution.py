"""What failures depend on: the smallest set of axis values, and nothing where there is nothing."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence

import pytest

from replay.attribution import attribute
from replay.candidates import candidates, confounded
from replay.counts import Count
from replay.results import Condition
from replay.statistics import ALPHA

Axes = Mapping[str, str]


def grid(**values: Sequence[str]) -> list[Axes]:
    return [dict(zip(values, each, strict=True)) for each in itertools.product(*values.values())]


FLEET = grid(image=("1.0", "1.1", "1.2"), cluster=("a", "b"), precision=("bf16", "fp8"), concurrency=("1", "8", "32"))


def ran(cells: Sequence[Axes], failures: Callable[[Axes, str], int], runs: int = 10, requests: int = 4) -> list[Count]:
    names = [f"r{number}" for number in range(requests)]
    return [Count(cell, name, runs, failures(cell, name)) for cell in cells for name in names]


def blamed(counts: Sequence[Count]) -> list[set[str]]:
    return [{str(condition) for condition in clause.conditions} for clause in attribute(counts).clauses]


def test_the_sentence_of_the_issue() -> None:
    found = attribute(
        [
            Count({"image": "1.1", "cluster": "a"}, "r", 60, 0),
            Count({"image": "1.1", "cluster": "b"}, "r", 40, 0),
            Count({"image": "1.2", "cluster": "a"}, "r", 40, 0),
            Count({"image": "1.2", "cluster": "b"}, "r", 20, 18),
        ]
    )
    (clause,) = found.clauses
    assert str(clause).startswith("image 1.2 on cluster b: 18/20, everywhere else 0/140, p=")
    assert clause.p < 1e-18
    assert clause.p <= clause.p_adjusted < 1e-17
    assert clause.inside.interval.low > 0.5
    assert clause.outside.interval.high < 0.1
    assert clause.difference.low > 0.5
    assert not clause.same_runs
    assert found.unit == "runs"


@pytest.mark.parametrize(
    ("fails", "expected"),
    [
        (lambda c, _: c["image"] == "1.2", [{"image 1.2"}]),
        (lambda c, _: 3 * (c["image"] == "1.2" and c["cluster"] == "b"), [{"image 1.2", "cluster b"}]),
        (lambda c, _: 2 * (c["concurrency"] != "1"), [{"at least 8 at once"}]),
        (lambda c, _: 2 * (c["concurrency"] == "32"), [{"32 at once"}]),
        (lambda c, _: 2 * (c["concurrency"] == "32" and c["image"] == "1.0"), [{"32 at once", "image 1.0"}]),
        (
            lambda c, _: 9 * (c["image"] == "1.2" and c["cluster"] == "b" and c["precision"] == "fp8"),
            [{"image 1.2", "cluster b", "precision fp8"}],
        ),
        (
            lambda c, _: 9 * (c["image"] == "1.2" and c["cluster"] == "b") or 4 * (c["precision"] == "fp8"),
            [{"image 1.2", "cluster b"}, {"precision fp8"}],
        ),
        (lambda c, _: 1, []),
        (lambda c, _: 0, []),
        (lambda c, _: 10, []),
        (lambda c, request: 10 * (request == "r1"), []),  # one request fails everywhere: it is no axis
    ],
)
def test_the_smallest_set_that_explains(fails: Callable[[Axes, str], int], expected: list[set[str]]) -> None:
    assert blamed(ran(FLEET, fails)) == expected


def test_requests_that_fail_more_do_not_blame_the_cell_that_ran_more_of_them() -> None:
    """Pooled, image 1.2 fails four times as often; request by request it does not."""
    ran_where = [("1.1", "easy", 400, 5), ("1.1", "hard", 100, 50), ("1.2", "easy", 100, 5), ("1.2", "hard", 400, 50)]
    counts = [Count({"image": image}, name, runs, runs * share // 100) for image, name, runs, share in ran_where]
    assert blamed(counts) == []
    assert blamed([Count(each.axes, "all", each.runs, each.failures) for each in counts]) == [{"image 1.2"}]


def test_axes_that_never_vary_apart_are_both_named_with_the_cell_that_would_tell() -> None:
    cells = [{"image": "1.1", "cluster": "a", "cache": c} for c in ("cold", "warm")]
    cells += [{"image": "1.2", "cluster": "b", "cache": c} for c in ("cold", "warm")]
    found = attribute(ran(cells, lambda c, _: 4 * (c["image"] == "1.2")))
    assert found.confounded == (("image", "cluster"),) or found.confounded == (("cluster", "image"),)
    (clause,) = found.clauses
    names = {clause.conditions, *clause.same_runs}
    assert names == {(Condition("image", "1.2"),), (Condition("cluster", "b"),)}
    assert "never varied apart" in found.next_steps[0].reason
    assert "image 1.2" in found.next_steps[0].action
    assert "cluster b" in found.next_steps[0].action


def test_sets_that_differ_in_too_few_runs_are_rivals() -> None:
    """Image 1.2 ran on cluster b, and once on a: once is too little to say which of the two it is."""
    found = attribute(
        [
            Count({"image": "1.1", "cluster": "a"}, "r", 40, 0),
            Count({"image": "1.2", "cluster": "b"}, "r", 40, 12),
            Count({"image": "1.2", "cluster": "a"}, "r", 1, 0),
        ]
    )
    (clause,) = found.clauses
    assert {clause.conditions, *clause.same_runs, *clause.rivals} == {
        (Condition("cluster", "b"),),
        (Condition("image", "1.2"),),
    }
    assert any("explains the failures about as well" in step.reason for step in found.next_steps)


def test_repeats_that_always_agree_count_once() -> None:
    """Each request fails in the one cell or the other, 20 of 20: forty runs that say what two do."""
    rng = random.Random(3)
    which = {f"r{number}": rng.choice("ab") for number in range(8)}
    cells = grid(cluster=("a", "b"))
    found = attribute(ran(cells, lambda c, request: 20 * (which[request] == c["cluster"]), runs=20, requests=8))
    assert found.unit == "cells"
    assert found.runs == 16
    assert not found.clauses
    whole = attribute(ran(cells, lambda c, _: 20 * (c["cluster"] == "b"), runs=20, requests=12))
    assert whole.unit == "cells"
    assert [str(clause).split(",")[0] for clause in whole.clauses] == ["cluster b: 12/12"]


def test_what_may_be_chance_comes_with_the_repeats_that_would_tell() -> None:
    found = attribute([Count({"image": "1.1"}, "r", 20, 0), Count({"image": "1.2"}, "r", 20, 2)])
    assert not found.clauses
    (step,) = found.next_steps
    assert step.action == "run more repeats with image 1.2 and without"
    assert "2/20 there and 0/20 elsewhere may be chance" in step.reason
    assert 100 < step.repeats < 250
    enough = attribute(
        [Count({"image": "1.1"}, "r", step.repeats, 0), Count({"image": "1.2"}, "r", step.repeats, step.repeats // 10)]
    )
    assert len(enough.clauses) == 1


def test_one_cell_has_nothing_to_compare() -> None:
    assert "second cell" in attribute([Count({"image": "1.1"}, "r", 9, 3)]).next_steps[0].action
    assert attribute([]).runs == 0


def test_the_axes_are_tested_one_by_one_too() -> None:
    tests = {test.axis: test for test in attribute(ran(FLEET, lambda c, _: 3 * (c["image"] == "1.2"))).axes}
    assert set(tests) == {"image", "cluster", "precision", "concurrency"}
    assert tests["image"].p_adjusted < 1e-9 < ALPHA < tests["cluster"].p_adjusted
    assert [value for value, _ in tests["concurrency"].rates] == ["1", "8", "32"]
    assert str(dict(tests["image"].rates)["1.2"]) == "144/480"


def test_counts_over_other_axes_do_not_mix() -> None:
    with pytest.raises(ValueError, match="cannot be put together"):
        attribute([Count({"image": "1"}, "r", 1, 0), Count({"cluster": "a"}, "r", 1, 0)])


def test_candidates_that_select_the_same_cells_are_one() -> None:
    cells = [{"image": "1.1", "node": "n1"}, {"image": "1.2", "node": "n2"}, {"image": "1.2", "node": "n3"}]
    found = candidates(cells)
    assert len(found) == len({each.cells.tobytes() for each in found}) == 4
    named = next(each for each in found if each.cells.tolist() == [True, False, False])
    assert named.names == ((Condition("image", "1.1"),), (Condition("node", "n1"),))
    assert confounded(cells) == []
    assert candidates([]) == candidates([{"image": "1"}]) == []


@pytest.mark.parametrize("share", [0.0, 0.03, 0.3])
def test_where_nothing_is_wrong_little_is_claimed(share: float) -> None:
    """Sixty fleets without a cause: at a level of 0.01 one claim is expected at most, and three are luck."""
    claims = 0
    for seed in range(60):
        rng = random.Random(seed)
        counts = ran(FLEET, lambda c, _, rng=rng: sum(rng.random() < share for _ in range(5)), runs=5, requests=3)  # type: ignore[misc]
        claims += bool(attribute(counts).clauses)
    assert claims <= 3
