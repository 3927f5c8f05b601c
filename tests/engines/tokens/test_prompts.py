"""Prompts that are kept for another attempt: the same request's only, and never more than is allowed."""

from __future__ import annotations

import gc
import weakref
from array import array

from hypothesis import given
from hypothesis import strategies as st

from guard.engines.tokens.prompts import MOST, MOST_IDS, KeptPrompts
from guard.request import GenerationRequest


def request(name: str) -> GenerationRequest:
    return GenerationRequest(name, "chat", "m", [{"role": "user", "content": name}])


def test_it_is_known_again_by_its_request() -> None:
    kept, one = KeptPrompts(), request("r")
    assert kept.of(one) is None
    kept.keep(one, array("I", [1, 2]))
    assert kept.of(one) == array("I", [1, 2])
    assert kept.of(request("r")) is None  # of the same name, and yet another


def test_empty_prompts_are_counted_too() -> None:
    kept = KeptPrompts()
    for number in range(2 * MOST):
        kept.keep(request(str(number)), array("I"))
    assert len(kept) == MOST


def test_nothing_but_what_was_rendered_is_held() -> None:
    class Body(dict[str, object]):
        """Whose end can be seen."""

    kept, body = KeptPrompts(), Body(schema="x" * 1000)
    one = request("r")
    one.extra = body
    kept.keep(one, array("I", [1]))
    gone = weakref.ref(body)
    del one, body
    gc.collect()
    assert gone() is None


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, MOST_IDS)), max_size=30))
def test_never_more_ids_than_are_allowed_and_the_last_one_first(said: list[tuple[int, int]]) -> None:
    kept = KeptPrompts()
    for name, size in said:
        one = request(str(name))
        kept.keep(one, array("I", bytes(4 * size)))
        assert kept.of(one) is not None
        assert sum(len(ids) for *_, ids in kept._kept.values()) == kept._ids <= MOST_IDS
