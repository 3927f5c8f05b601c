"""Loops that a real model fell into, each seen however it is split, with its prompt and without."""

from __future__ import annotations

import pytest

from detectors import Finding, Leak, Panel
from detectors.tail import Tail
from tests.corpus.collapse import Collapse, real_loops
from tests.corpus.record_loops import loop_of

LOOPS = real_loops()


def run(text: str, prompt: str | None, size: int) -> tuple[list[Finding], int]:
    """What is found first, and how much of the text had been let go by then."""
    watch = Panel(prompt_text=prompt, extra=(Tail(), Leak("content", prompt_text=prompt)))
    for start in range(0, len(text), size):
        found = [f for f in watch.feed(text[start : start + size]) if f.severity == "error"]
        if found:
            return found, watch.doubt
    return [f for f in watch.finish() if f.severity == "error"], watch.doubt


def test_there_are_some_of_several_kinds() -> None:
    assert len(LOOPS) >= 10
    assert {loop.exact for _, loop in LOOPS} == {True, False}
    assert max(loop.period for _, loop in LOOPS) > 100


@pytest.mark.parametrize(("prompt", "loop"), LOOPS, ids=[prompt[:40] for prompt, _ in LOOPS])
def test_a_real_loop_is_found(prompt: str, loop: Collapse) -> None:
    assert loop_of(loop.text) == (loop.onset, loop.period, loop.exact)
    found, _ = run(loop.text, None, len(loop.text))
    assert found
    assert found[0].family == "repetition"
    assert found[0].onset <= loop.onset + loop.period + 40
    live, released = run(loop.text, None, 4)
    assert live == found
    assert released <= max(loop.onset, found[0].onset) + max(2 * loop.period, 200)
    # that it asked for a story or a list explains nothing
    assert run(loop.text, prompt, 4)[0]
