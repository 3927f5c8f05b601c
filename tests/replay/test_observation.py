"""What one replayed answer holds, and what counts as a failure."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from replay.observation import AXES, Alternative, Cell, Counts, Found, Observation, Sampling, Timing
from replay.results import CLAIMS, MEANING, Condition, Ruling, phrase

CELL = Cell("a", image="1.2", cluster="b", concurrency=8)


def observation(**fields: Any) -> Observation:
    return Observation(**({"request_id": "r", "cell": CELL, "text": {"content": "yes"}} | fields))


def test_an_observation_survives_storage() -> None:
    whole = observation(
        repeat=3,
        sampling=Sampling(temperature=0.0, seed=7),
        prompt_ids=(1, 2),
        token_ids=(5,),
        pieces=(b"\xf0\x9f",),
        logprobs=(-0.25,),
        top=((Alternative(5, b"\xf0\x9f", -0.25), Alternative(-1, b"no", -1.5)),),
        findings=(Found("repetition.token", onset=4),),
        counts=Counts(2, 1, 0),
        timing=Timing(1.0, 2.0, 3.0),
    )
    assert msgspec.json.decode(msgspec.json.encode(whole), type=Observation) == whole


def test_a_cell_names_every_axis_and_says_what_was_set() -> None:
    assert tuple(CELL.axes()) == AXES
    assert CELL.name() == "engine=a image=1.2 cluster=b concurrency=8"
    assert Cell("a").axes()["concurrency"] == ""
    assert len({CELL, Cell("a", image="1.2", cluster="b", concurrency=8)}) == 1


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({}, ""),
        ({"expected": "yes"}, ""),
        ({"expected": "yes "}, ""),
        ({"expected": "yet"}, "known_answer"),
        ({"condemned": "repetition.token"}, "repetition.token"),
        ({"verdict_format": "failed"}, "format"),
        ({"verdict_tool_choice": "failed"}, "tool_choice"),
        ({"correct": False}, "graded_wrong"),
        ({"correct": True}, ""),
        ({"findings": (Found("leak.token"),)}, "leak.token"),
        ({"findings": (Found("leak.token", "warn"),)}, ""),
        ({"expected": "yes", "text": {}, "fingerprint": "ab"}, ""),
        ({"error": "connection refused", "expected": "yet"}, ""),
    ],
)
def test_what_counts_as_a_failure(fields: dict[str, Any], why: str) -> None:
    assert observation(**fields).wrong() == why


def test_only_what_blames_the_serving_is_a_claim() -> None:
    assert {"agreement", "model", "undetermined"} | CLAIMS == set(MEANING)
    assert Ruling("r", "corruption", "strong").claim
    assert not Ruling("r", "model", "strong").claim
    assert not Ruling("r", "sampling", "strong", mechanism="as asked").claim


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ((Condition("cluster", "b"), Condition("image", "1.2")), "image 1.2 on cluster b"),
        ((Condition("concurrency", "8", at_least=True),), "at least 8 at once"),
        ((Condition("node", "n1"),), "node n1"),
        ((Condition("cache", "warm"), Condition("image", "")), "cache warm, image (not set)"),
    ],
)
def test_conditions_read_as_a_phrase(conditions: tuple[Condition, ...], expected: str) -> None:
    assert phrase(conditions) == expected
