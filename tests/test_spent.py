"""What an answer costs, over its attempts."""

from __future__ import annotations

import pytest

from guard.events import Usage
from guard.request import GenerationRequest
from guard.spent import Spent, estimated_prompt


def asked(content: object = "x" * 40) -> GenerationRequest:
    return GenerationRequest(id="r", kind="chat", model="m", messages=[{"role": "user", "content": content}])


def test_the_prompt_is_counted_once() -> None:
    spent = Spent()
    spent.begin(delivered=0, seeded=0)
    spent.end(None, 7)  # cut before its usage
    spent.begin(delivered=7, seeded=0)
    spent.end(Usage(17, 3, 20), 3)  # the engine counts what it was given to go on from
    spent.close(asked())
    assert spent.usage == Usage(10, 10, 20, estimated=True)  # it may have cut the seven into other tokens
    spent.throw_all_away()
    spent.begin(delivered=0, seeded=0)
    spent.end(Usage(11, 3, 14), 3)
    assert spent.usage == Usage(11, 3, 14)


def test_no_engine_came_to_count_the_prompt() -> None:
    spent = Spent()
    for delivered in (0, 5):
        spent.begin(delivered=delivered, seeded=0)
        spent.end(None, 5)
    spent.close(asked())
    assert spent.usage == Usage(10, 10, 20, estimated=True)


def test_ids_that_were_sent_are_no_estimate() -> None:
    spent = Spent()
    spent.begin(delivered=0, seeded=0)
    spent.sent(37)
    spent.end(None, 5)
    spent.close(asked())
    assert spent.usage == Usage(37, 5, 42)


def test_what_no_engine_took_costs_nothing() -> None:
    spent = Spent()
    spent.begin(delivered=0, seeded=0)
    spent.end(None, 0)
    spent.close(asked())
    assert spent.usage == Usage()


def test_what_was_thrown_away_is_shown_apart() -> None:
    spent = Spent()
    spent.begin(delivered=0, seeded=0)
    spent.end(Usage(10, 9, 19), 9)
    spent.throw_away(9, kept=4)
    spent.begin(delivered=4, seeded=0)
    spent.end(Usage(14, 6, 20), 6)
    assert (spent.wasted, spent.usage) == (5, Usage(10, 10, 20))
    spent.throw_all_away()
    assert spent.wasted == 15


@pytest.mark.parametrize(
    ("request_", "tokens"),
    [
        (asked(), 10),
        (asked("é" * 2), 1),
        (asked(None), 1),
        (asked([{"type": "text", "text": "abcdefgh"}, "abcd", {"type": "image_url"}]), 3),
        (GenerationRequest(id="r", kind="completion", model="m", prompt=(1, 2, 3)), 3),
        (GenerationRequest(id="r", kind="completion", model="m", prompt="abcdefghi"), 3),
    ],
)
def test_estimates(request_: GenerationRequest, tokens: int) -> None:
    assert estimated_prompt(request_) == tokens
