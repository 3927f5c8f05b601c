"""Text that comes joined is judged, released and counted as it would be in the pieces that were joined."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from guard.config import Policy
from guard.delivered import Delivered
from guard.events import CONTENT, Done, FinishReason, Release, StreamEvent, TextDelta, ToolRelease
from guard.normalise import chat_request
from guard.plan import plan_for
from guard.reading import Reading
from guard.stream import StreamGuard

WORDS = [
    "keeper",
    "climbed",
    "narrow",
    "stairs",
    "each",
    "evening",
    "light",
    "lamp",
    "quiet",
    "water",
    "rocks",
    "below",
]
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
CALL = '<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>'


def pieces(text: str) -> list[str]:
    return [text[at : at + 4] for at in range(0, len(text), 4)]


def prose(seed: int, words: int) -> str:
    rng = Random(seed)
    return " ".join(rng.choice(WORDS) for _ in range(words)) + "."


ANSWERS = {
    "prose": (prose(1, 120), {}),
    "reasoning left in the text": (f"<think>\n{prose(2, 40)}\n</think>\n\n{prose(3, 60)}", {}),
    "prose beside tools": (prose(4, 90), {"tools": [TOOL]}),
    "a call left in the text": (f"{prose(5, 20)}\n{CALL}", {"tools": [TOOL]}),
    "a loop": (prose(6, 40) + " and so on and so on" * 80, {}),
}


def judge(events: list[StreamEvent], fields: dict[str, Any]) -> tuple[StreamGuard, Delivered, list[Any]]:
    body = {"model": "qwen3", "messages": [{"role": "user", "content": "A story."}], **fields}
    request = chat_request(body, request_id="r", now=0.0)
    plan, delivered = plan_for(request, Policy(), None), Delivered()
    guard = StreamGuard(plan, delivered, reading=Reading(plan, delivered, tool_format="auto", model="qwen3"))
    out = guard.feed([*events, FinishReason(0, "stop"), Done()])
    return guard, delivered, [*out, *guard.cut()]


def said(out: list[Any]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for event in out:
        if isinstance(event, Release):
            texts[event.channel] = texts.get(event.channel, "") + event.text
        elif isinstance(event, ToolRelease):
            texts["tool"] = texts.get("tool", "") + event.arguments
    return texts


@pytest.mark.parametrize("size", [2, 7, 40, 1000])
@pytest.mark.parametrize("name", ANSWERS)
def test_joined_text_is_judged_and_counted_like_its_pieces(name: str, size: int) -> None:
    text, fields = ANSWERS[name]
    apart = pieces(text)
    joined: list[StreamEvent] = [
        TextDelta(0, CONTENT, "".join(some), count=len(some))
        for some in (apart[at : at + size] for at in range(0, len(apart), size))
    ]
    one, kept, out = judge([TextDelta(0, CONTENT, piece) for piece in apart], fields)
    other, kept_too, out_too = judge(joined, fields)
    assert [finding.code for finding in one.findings] == [finding.code for finding in other.findings]
    assert (one.condemned is None) == (other.condemned is None) == (name != "a loop")
    if one.condemned is None:
        assert said(out) == said(out_too)
        near = 1 if "call" in name else 0  # of markup, what is counted is what was made of it
        assert abs(other.tokens - one.tokens) <= near
        assert abs(kept_too.tokens - kept.tokens) <= near
    else:
        assert one.condemned == other.condemned
        # of a loop that comes at once less has left before it is suspected
        content = said(out_too)[CONTENT]
        assert said(out)[CONTENT].startswith(content)
        assert kept_too.tokens == pytest.approx(len(content) / 4, abs=1)


def test_a_piece_that_is_cut_shares_its_tokens_out() -> None:
    from guard.holding import split

    for count in (1, 2, 7, 40):
        delta = TextDelta(0, CONTENT, "x" * 41, count=count)
        for at in range(42):
            first, rest = split(delta, at)
            assert first.text + rest.text == delta.text
            assert first.count + rest.count == count
            assert bool(first.count) == bool(at)
