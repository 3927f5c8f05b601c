"""Whose fault a collapse is."""

from __future__ import annotations

from guard.health.origin import FRESH, REMEMBERED, Mark, Origins


def mark(engine: str, at: float = 0.0) -> Mark:
    return Mark(engine, 1.0, at, 0)


def test_one_collapse_is_the_engines() -> None:
    assert Origins().collapsed(1, mark("a")) == (True, [])


def test_on_a_second_engine_it_is_the_models_own() -> None:
    origins = Origins()
    first = mark("a")
    origins.collapsed(1, first)
    assert origins.collapsed(1, mark("b")) == (False, [first])
    assert origins.collapsed(1, mark("c")) == (False, [])  # a has its mark back already


def test_another_prompt_is_another_matter() -> None:
    origins = Origins()
    origins.collapsed(1, mark("a"))
    assert origins.collapsed(2, mark("b")) == (True, [])


def test_the_same_prompt_again_on_the_same_engine_says_nothing_new() -> None:
    origins = Origins()
    origins.collapsed(1, mark("a"))
    assert origins.collapsed(1, mark("a")) == (False, [])


def test_where_another_engine_answered_the_engine_is_to_blame_every_time() -> None:
    origins = Origins()
    origins.collapsed(1, mark("a"))
    assert origins.answered(1, "b") == []
    assert origins.collapsed(1, mark("a")) == (True, [])
    assert origins.collapsed(1, mark("a")) == (True, [])


def test_two_sick_engines_are_found_out_by_a_third_that_is_well() -> None:
    origins = Origins()
    a, b = mark("a"), mark("b")
    origins.collapsed(1, a)
    assert origins.collapsed(1, b) == (False, [a])
    assert origins.answered(1, "c") == [a, b]
    assert origins.collapsed(1, mark("b")) == (True, [])


def test_an_engine_that_did_both_is_a_matter_of_chance() -> None:
    origins = Origins()
    origins.collapsed(1, mark("a"))
    origins.answered(1, "a")
    assert origins.collapsed(1, mark("b")) == (True, [])


def test_it_forgets() -> None:
    origins = Origins()
    origins.collapsed(1, mark("a"))
    assert origins.collapsed(1, mark("b", FRESH + 1)) == (True, [])
    for prompt in range(REMEMBERED + 5):
        origins.collapsed(prompt + 10, mark("a"))
    assert origins.answered(1, "c") == []
    assert origins.collapsed(1, mark("c")) == (True, [])
