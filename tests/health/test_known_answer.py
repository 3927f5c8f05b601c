"""A small question whose answer is known."""

from __future__ import annotations

from guard.engines.contract import Capabilities
from guard.health.known_answer import TOKENS, WORDS, WRONG, KnownAnswer, question
from guard.health.verdict import WELL

RIGHT = " ".join(WORDS)


def test_it_is_small_and_always_the_same() -> None:
    chat = question("m", Capabilities(), number=1)
    assert (chat.kind, chat.sampling.max_tokens, chat.sampling.temperature, chat.n) == ("chat", TOKENS, 0.0, 1)
    assert RIGHT in chat.messages[0]["content"]
    completion = question("m", Capabilities(chat=False), number=2)
    assert (completion.kind, completion.messages) == ("completion", [])
    assert RIGHT in str(completion.prompt)


def test_right_words_are_right_in_any_dress() -> None:
    assert KnownAnswer().judge(f"Sure: {RIGHT.title()}.") == ("", WELL)


def test_an_engine_that_never_could_is_not_blamed() -> None:
    known = KnownAnswer()
    for text in ("lamp lamp lamp", "", "I am thinking about"):
        assert known.judge(text) == ("", WELL)


def test_one_that_could_is_blamed_for_half() -> None:
    known = KnownAnswer()
    known.judge(RIGHT)
    cause, said = known.judge("lamp harbor seven red")
    assert (cause, said.weight, said.of_prompt) == (WRONG, 0.5, False)
    assert known.judge(RIGHT) == ("", WELL)
