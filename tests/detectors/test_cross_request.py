"""Text of another request's prompt is told from text that everybody has."""

from __future__ import annotations

import pytest

from detectors.cross_request import CrossRequest, Prompts

SYSTEM = "You are a helpful assistant of the harbour office and you answer every question briefly and politely. "
ANNA = (
    "My name is Anna Lindqvist, I live behind the old bakery in Norrtälje and my account number ends in four nine two. "
)
BORIS = "Please write a short speech for the opening of the new railway bridge between the two villages on Sunday. "


def alarm(answer: str, *others: str, own: str = SYSTEM + BORIS, size: int = 1_000) -> list[tuple[str, int]]:
    prompts = Prompts(b"secret")
    prompts.add("own", own)
    for i, text in enumerate(others):
        prompts.add(f"other {i}", text)
    watch = CrossRequest(prompts, "own")
    found = [f for start in range(0, len(answer), size) for f in watch.feed(answer[start : start + size])]
    return [(f.code, f.onset) for f in (*found, *watch.finish())]


@pytest.mark.parametrize("size", [1, 5, 1_000])
def test_another_prompt_in_the_answer_is_an_alarm(size: int) -> None:
    answer = "Dear guests! " + ANNA
    assert alarm(answer, SYSTEM + ANNA, size=size) == [("privacy.other_prompt", 13)]
    chinese = "我们在河边的小镇上住了很久每天早晨都能听见火车经过山谷"
    assert alarm("Dear guests! " + chinese, chinese, size=size) == [("privacy.other_prompt", 13)]


def test_what_everybody_has_is_none() -> None:
    assert alarm(SYSTEM + SYSTEM, SYSTEM + ANNA) == []
    assert alarm(ANNA, ANNA, ANNA) == []
    assert alarm(BORIS, ANNA) == []
    assert alarm("I live behind the old bakery in Norrtälje too.", ANNA) == []


def test_a_request_that_ended_is_forgotten() -> None:
    prompts = Prompts(b"secret")
    prompts.add("own", BORIS)
    prompts.add("other", ANNA)
    prompts.remove("other")
    prompts.remove("never seen")
    assert CrossRequest(prompts, "own").feed(ANNA) == ()
    assert prompts._owners.keys() == prompts._rows["own"]


def test_no_text_is_kept() -> None:
    prompts = Prompts(b"secret")
    prompts.add("other", ANNA)
    assert all(isinstance(row, bytes) and len(row) == 10 for row in prompts._owners)
    with pytest.raises(ValueError, match="key"):
        Prompts(b"")
