"""A plan counts its days and says of each how much: honest, unlike a loop of which only the counter goes on."""

from __future__ import annotations

import random

import pytest

from detectors import Finding, Repetition

PROSE = (
    "The old harbour engine carries every letter while the narrow bridge opens, and nobody in the village knows why. "
)
PLANS = {
    "days": "Day {i}: run {a} km, then rest.\n",
    "days in a row": "Day {i}: run {a} km, then rest. ",
    "weeks": "Week {i}: walk {a} minutes and do {b} squats.\n",
    "weeks, rich": "Week {i}: walk for {a} minutes in the morning, then do {b} squats before your dinner.\n\n",
    "bold weeks": "**Week {i}:** Swim {a} lengths, stretch for {b} minutes, and sleep well.\n",
    "steps": "Step {i}: add {a} grams of flour and stir.\n",
    "numbered steps": "{i}. Pour {a} ml of water and wait {b} seconds.\n",
    "rounds": "Round {i}: {a} push-ups and {b} seconds of rest\n",
    "rounds of crochet": "Round {i}: increase {a} times, then crochet evenly ({b} stitches in all).\n",
    "chapters": "Chapter {i}\n\nRead {a} pages and answer {b} questions.\n\n",
    "the counter last": "Save {a} euros and spend {b} in month {i}.\n",
    "what stays beside": "Day {i}: drink 2 litres, run {a} km, and sleep 8 hours.\n",
    "a second counter": "Lesson {i} of unit {i}: learn {a} new words and repeat them.\n",
    "German days": "Tag {i}: {a} km laufen, danach Pause machen.\n",
    "German weeks": "Woche {i}: Gehen Sie {a} Minuten spazieren und üben Sie {b} Kniebeugen vor dem Essen.\n",
    "French days": "Jour {i} : courir {a} km, puis se reposer.\n",
    "French weeks": "Semaine {i} : marchez {a} minutes et faites {b} flexions après le déjeuner.\n",
    "in a fence": "Day {i}: run {a} km, then rest.\n",
}


def data(name: str, units: int) -> list[tuple[int, int]]:
    """Two numbers of every unit that grow unevenly, stay, and fall back."""
    rng = random.Random(f"{name} {units}")
    numbers = []
    first, second = 5, 20
    for _ in range(units):
        first = max(2, first + rng.choice((-2, 0, 0, 1, 2, 3)))
        second = max(5, second + rng.choice((-5, 0, 5, 5, 10)))
        numbers.append((first, second))
    return numbers


def plan(name: str, units: int, *, collapsed: bool = False) -> str:
    numbers = [(5, 20)] * units if collapsed else data(name, units)
    lines = "".join(PLANS[name].format(i=i, a=a, b=b) for i, (a, b) in enumerate(numbers, 1))
    return f"```text\n{lines}```\n" if name == "in a fence" else lines


def run(text: str, size: int = 0) -> list[Finding]:
    watch = Repetition()
    size = size or len(text)
    return [f for at in range(0, len(text), size) for f in watch.feed(text[at : at + size])] + list(watch.finish())


@pytest.mark.parametrize("units", [12, 14, 21, 28, 30])
@pytest.mark.parametrize("name", PLANS)
def test_a_plan_is_let_through(name: str, units: int) -> None:
    assert run(f"{PROSE}\n\n{plan(name, units)}\n\n{PROSE}") == []
    assert run(plan(name, units), 5) == []


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_of_which_only_the_counter_goes_on_is_a_loop(name: str) -> None:
    found = run(f"{PROSE}\n\n{plan(name, 60, collapsed=True)}")
    assert [f.code for f in found] == ["repetition.near_loop"]
    assert found[0].evidence["copies"] <= (26 if name == "in a fence" else 12)


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_that_falls_into_a_loop_is_found(name: str) -> None:
    numbers = data(name, 8) + [(5, 20)] * 60
    text = "".join(PLANS[name].format(i=i, a=a, b=b) for i, (a, b) in enumerate(numbers, 1))
    assert [f.code for f in run(text)] == ["repetition.near_loop"]


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_without_end_is_a_loop(name: str) -> None:
    found = run(plan(name, 60))
    assert [f.code for f in found] == ["repetition.near_loop"]
    assert found[0].evidence["raised_by"] == "plan"
    assert 31 <= found[0].evidence["copies"] <= 36


@pytest.mark.parametrize(
    "shape", ["Try {a} of {b}: wait, let me check.\n", "Step {i} of 40, {i} done: let me check.\n"]
)
def test_numbers_that_are_no_plan_raise_nothing(shape: str) -> None:
    """Data without a counter, and counters without data."""
    text = "".join(shape.format(i=i, a=a, b=b) for i, (a, b) in enumerate(data(shape, 40), 1))
    assert run(text)[0].evidence["copies"] <= 12
