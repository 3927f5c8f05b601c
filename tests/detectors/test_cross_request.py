"""Text of another request's prompt is told from text that everybody has."""

from __future__ import annotations

import pytest

from detectors.cross_request import CrossRequest, Prompts
from tests.detectors.footprint import footprint

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
    [(code, onset)] = alarm(answer, SYSTEM + ANNA, size=size)
    assert code == "leak.cross_request"
    assert 13 <= onset < 40
    chinese = "我们在河边的小镇上住了很久每天早晨都能听见火车经过山谷"
    [(code, onset)] = alarm("Dear guests! " + chinese, chinese, size=size)
    assert code == "leak.cross_request"
    assert 13 <= onset < 20


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
    assert prompts._owners.keys() == set(prompts._rows[prompts._ids["own"]])
    prompts.remove("own")
    assert prompts.rows == 0
    assert not prompts._owners


def test_rows_of_several_requests_are_forgotten_with_the_last() -> None:
    prompts = Prompts(b"secret")
    for name in ("a", "b", "c"):
        assert prompts.add(name, SYSTEM + ANNA)
    for name in ("b", "a", "c"):
        prompts.remove(name)
    assert prompts.rows == 0
    assert not prompts._owners


def test_memory_is_bounded() -> None:
    words = [f"word{i:05}" for i in range(4_000)]
    prompts = Prompts(b"secret", most_rows=1_000)
    assert prompts.add("small", " ".join(words[:1_500]))
    assert not prompts.add("large", " ".join(words[1_500:]))
    assert prompts.unwatched == 1
    assert prompts.rows <= 1_000
    assert CrossRequest(prompts, "own").feed(" ".join(words[2_000:2_100])) == ()
    assert CrossRequest(prompts, "own").feed(" ".join(words[100:200]))
    prompts.remove("large")
    assert footprint(prompts) < 400 * 1_000


def test_observed_only_nothing_is_doubted() -> None:
    prompts = Prompts(b"secret")
    prompts.add("other", ANNA)
    watch = CrossRequest(prompts, "own", severity="warn")
    assert [f.severity for f in watch.feed(ANNA)] == ["warn"]
    watch.feed("and on")
    assert watch.doubt == len(ANNA) + 6


def test_no_text_is_kept() -> None:
    prompts = Prompts(b"secret")
    prompts.add("other", ANNA)
    assert all(isinstance(row, int) for row in prompts._owners)
    assert Prompts(b"another").hash(ANNA.lower().split()[:8]) != prompts.hash(ANNA.lower().split()[:8])
    with pytest.raises(ValueError, match="key"):
        Prompts(b"")
