"""The hint about a prefix cache: by what an engine was lately sent."""

from __future__ import annotations

from typing import Any

import pytest

from guard.prefixes import MOST_MARKS, REMEMBERED, SECONDS, Prefixes, marks
from guard.request import GenerationRequest

SYSTEM = {"role": "system", "content": "You are brief. " * 20}
TURN = {"role": "user", "content": "What is the capital of France? " * 20}


def chat(*messages: dict[str, Any], model: str = "m") -> GenerationRequest:
    return GenerationRequest("r", "chat", model, messages=list(messages))


def text(prompt: str | tuple[int, ...]) -> GenerationRequest:
    return GenerationRequest("r", "completion", "m", prompt=prompt)


@pytest.mark.parametrize(
    ("before", "now", "hint"),
    [
        ([], chat(SYSTEM, TURN), "cold"),
        ([chat(SYSTEM, TURN)], chat(SYSTEM, TURN), "warm"),
        ([chat(SYSTEM, TURN)], chat(SYSTEM, TURN, {"role": "assistant", "content": "Paris."}), "warm"),
        ([chat(SYSTEM)], chat(SYSTEM, TURN), "partly"),
        ([chat(TURN)], chat(SYSTEM, TURN), "cold"),  # the same words elsewhere
        ([chat(SYSTEM, model="other")], chat(SYSTEM, TURN), "cold"),
        ([chat({"role": "user", "content": SYSTEM["content"]})], chat(SYSTEM), "cold"),  # another role
        ([chat({"role": "user", "content": [{"type": "text", "text": "a"}]})], chat(SYSTEM), "cold"),
        ([text("a" * 4096)], text("a" * 4096 + "b" * 4096), "warm"),
        ([text("a" * 1024)], text("a" * 1024 + "b" * 4096), "partly"),
        ([text("b" * 1024)], text("a" * 1024), "cold"),
        ([text(tuple(range(512)))], text(tuple(range(700))), "warm"),
        ([text("short")], text("short"), ""),
        ([], chat(), ""),
        ([chat({"role": "user", "content": ""})], chat({"role": "user", "content": ""}), "warm"),
    ],
)
def test_a_hint(before: list[GenerationRequest], now: GenerationRequest, hint: str) -> None:
    prefixes = Prefixes()
    for request in before:
        prefixes.hint("one", request, 10.0)
    assert prefixes.hint("two", now, 11.0) in ("cold", "")  # each engine has a cache of its own
    assert prefixes.hint("one", now, 11.0) == hint


def test_what_is_long_ago_is_forgotten() -> None:
    prefixes = Prefixes()
    assert prefixes.hint("one", chat(SYSTEM), 0.0) == "cold"
    assert prefixes.hint("one", chat(SYSTEM), SECONDS) == "warm"
    assert prefixes.hint("one", chat(SYSTEM), 2 * SECONDS + 1) == "cold"
    for number in range(REMEMBERED):
        prefixes.hint("one", chat({"role": "user", "content": str(number)}), 2 * SECONDS + 2)
    assert prefixes.hint("one", chat(SYSTEM), 2 * SECONDS + 3) == "cold"


def test_a_long_prompt_costs_no_more_than_so_many_marks() -> None:
    assert len(marks(text("a" * 1_000_000))) == MOST_MARKS
    assert len(marks(chat(*[SYSTEM] * 1_000))) == MOST_MARKS
