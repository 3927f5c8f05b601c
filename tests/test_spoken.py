"""A raw answer is kept to the token, and an answer that is cut at any of its tokens goes on as if it had not been."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.config import Policy
from guard.constraint.compile import compile_constraint
from guard.delivered import Delivered
from guard.enforce import spoken_parts
from guard.events import (
    Closed,
    Done,
    Fault,
    FinishReason,
    Found,
    GuardEvent,
    Release,
    StreamEvent,
    TextDelta,
    ToolRelease,
)
from guard.normalise import chat_request
from guard.plan import plan_for
from guard.reading import Reading
from guard.spoken import Spoken
from guard.stream import StreamGuard

DELTAS = st.lists(
    st.tuples(st.text(max_size=4), st.none() | st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=3)), max_size=12
)


def spoken_of(deltas: Sequence[tuple[str, Any]]) -> Spoken:
    spoken = Spoken("v")
    for text, ids in deltas:
        spoken.add(text, ids)
    return spoken


@given(DELTAS)
def test_what_is_kept(deltas: list[tuple[str, list[int] | None]]) -> None:
    spoken = spoken_of(deltas)
    assert [(d.text, None if d.token_ids is None else list(d.token_ids)) for d in spoken.deltas()] == deltas
    assert spoken.text == "".join(text for text, _ in deltas)
    assert spoken.tokens == sum(len(ids) if ids else 1 for _, ids in deltas)
    assert bool(spoken) == bool(deltas)
    flat = [part if isinstance(part, str) else list(part) for part in spoken.parts()]
    numbers = [token for part in flat if not isinstance(part, str) for token in part]
    assert numbers == [token for _, ids in deltas for token in ids or ()]
    assert "".join(part for part in flat if isinstance(part, str)) == "".join(t for t, ids in deltas if ids is None)
    assert all(type(a) is not type(b) for a, b in pairwise(flat))


@given(DELTAS, st.integers(0, 40))
def test_its_beginning(deltas: list[tuple[str, list[int] | None]], chars: int) -> None:
    first = spoken_of(deltas).first(chars)
    assert first.text == spoken_of(deltas).text[:chars]
    kept = list(first.deltas())
    whole = list(spoken_of(deltas).deltas())
    if kept and kept[-1] != whole[len(kept) - 1]:
        assert kept[-1].token_ids is None  # a token that was cut: what is left of it is text
        kept.pop()
    assert kept == whole[: len(kept)]


def test_runs_of_ids_and_of_text() -> None:
    pieces = [TextDelta(0, "content", "a", (1,)), TextDelta(0, "content", "b", (2, 3)), TextDelta(0, "content", "c")]
    parts = spoken_parts(pieces, ((7,), "x"))
    assert [part if isinstance(part, str) else list(part) for part in parts] == [[7], "x", [1, 2, 3], "c"]
    assert spoken_parts([TextDelta(0, "content", "y")], ((7,), "x")) == ((7,), "xy")
    assert spoken_parts([], ()) == ()


# --- cut at any token -----------------------------------------------------------------------------------------------

TOOL = {
    "type": "function",
    "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "string"}, "b": {}}}},
}
SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}, "required": ["age"]}
CALLS = (
    "<tool_call>\n"
    '{"name": "f", "arguments": {"a": "Rome", "b": [1, {"c": "}"}]}}\n</tool_call>\n<tool_call>\n{"name": "f", "argum'
    'ents": {"a": "x\\n\\"y"}}\n</tool_call>'
)
ANSWERS: dict[str, tuple[dict[str, Any], str]] = {
    "text": ({}, "The keeper climbed the stairs. No, no, no, no: the lamp 🙂 was out.\n\n\n- one\n- two\n"),
    "reasoning": ({}, "<think>\nWell, 2 < 3, so </thin is no end.\n</think>\n\nThree is more."),
    "json": (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}},
        '{\n  "name": "Al \\u00e9",\n  "age": 30\n}\n',
    ),
    "calls": ({"tools": [TOOL]}, CALLS),
    "reasoning and calls": ({"tools": [TOOL]}, f"<think>I need f.</think>\n\nLet me see.\n{CALLS}"),
    "quoted markup": (
        {"tools": [TOOL]},
        "Write `<tool_call>` and then JSON: <tool_ is no marker.",
    ),
}


def tokens_of(text: str, size: int) -> list[TextDelta]:
    """Of up to ``size`` characters; an id is the token's place."""
    return [TextDelta(0, "content", text[i : i + size], (i,)) for i in range(0, len(text), size)]


class Speaker:
    """Attempts at one answer, whose events add up."""

    def __init__(self, body: dict[str, Any]) -> None:
        request = chat_request(
            {"model": "qwen3", "messages": [{"role": "user", "content": "x"}], **body}, request_id="r"
        )
        compiled = compile_constraint(request.constraint) if request.constraint is not None else None
        self._plan = plan_for(request, Policy(), compiled)
        self.delivered = Delivered()
        self.out: list[GuardEvent] = []
        self.guard = self._attempt()

    def _attempt(self) -> StreamGuard:
        guard = StreamGuard(self._plan, self.delivered)
        guard.reads_raw("v", Reading(self._plan, self.delivered, raw=True))
        return guard

    def says(self, *events: StreamEvent) -> None:
        for event in events:
            self.out += self.guard.feed([event])
        self.out += self.guard.cut()

    def again(self) -> int:
        """Another attempt: how many tokens it goes on from."""
        if self.delivered.nothing:
            self.delivered = Delivered()
            self.out = [event for event in self.out if isinstance(event, Found)]
        self.guard = self._attempt()
        return self.delivered.tokens

    @property
    def what(self) -> tuple[Any, ...]:
        texts: dict[str, str] = {}
        calls: dict[int, list[str]] = {}
        for event in self.out:
            if isinstance(event, Release):
                texts[event.channel] = texts.get(event.channel, "") + event.text
            elif isinstance(event, ToolRelease):
                said = calls.setdefault(event.index, ["", "", ""])
                calls[event.index] = [
                    a + (b or "") for a, b in zip(said, (event.id, event.name, event.arguments), strict=True)
                ]
        return {name: text for name, text in texts.items() if text}, calls, self.guard.reason, self.guard.condemned


END = (FinishReason(0, "stop"), Done(), Closed(True))


BREAKS: dict[str, tuple[StreamEvent, ...]] = {
    "fault": (Fault("cut", "gone"),),
    "cut": (Closed(False),),
    "closed without a finish reason": (Closed(True),),
    "done without a finish reason": (Done(), Closed(True)),
}


@pytest.mark.parametrize("broken", BREAKS)
@pytest.mark.parametrize("size", [1, 3, 7])
@pytest.mark.parametrize("kind", ANSWERS)
def test_cut_after_any_token(kind: str, size: int, broken: str) -> None:
    body, text = ANSWERS[kind]
    tokens = tokens_of(text, size)
    whole = Speaker(body)
    whole.says(*tokens, *END)
    assert whole.guard.condemned is None, whole.guard.condemned
    assert ("calls" in kind) == bool(whole.what[1])
    assert ("reasoning" in kind) == ("reasoning" in whole.what[0])
    for cut in range(1, len(tokens) + 1, 4 if size == 1 else 1):
        one = Speaker(body)
        one.says(*tokens[:cut], *BREAKS[broken])
        kept = one.again()
        assert kept <= cut
        one.says(*tokens[kept:], *END)
        assert one.what == whole.what, (cut, kept)
        assert one.guard.tokens == len(tokens) - kept


@given(st.sampled_from(sorted(ANSWERS)), st.lists(st.integers(0, 200), max_size=5), st.integers(1, 5))
def test_cut_again_and_again(kind: str, cuts: list[int], size: int) -> None:
    body, text = ANSWERS[kind]
    tokens = tokens_of(text, size)
    whole, one = Speaker(body), Speaker(body)
    whole.says(*tokens, *END)
    kept = 0
    for cut in cuts:
        one.says(*tokens[kept : kept + cut], Fault("stall", "nothing came"))
        kept = one.again()
    one.says(*tokens[kept:], *END)
    assert one.what == whole.what


def test_a_loop_is_not_gone_on_from() -> None:
    """What was condemned is no part of what the answer goes on from, to the token in which it began."""
    text = "Once there was a lamp. " + "!" * 400
    one = Speaker({})
    one.says(*tokens_of(text, 3), FinishReason(0, "length"), Done(), Closed(True))
    assert one.guard.condemned is not None
    spoken = one.delivered.spoken
    assert spoken is not None
    assert spoken.text == one.delivered.text()
    assert text.startswith(spoken.text)
    onset = one.guard.condemned.onset
    assert onset - 3 < len(spoken.text) <= onset


def test_broken_json_ends_before_the_token_that_broke_it() -> None:
    body, _ = ANSWERS["json"]
    one = Speaker(body)
    one.says(*tokens_of('{"name": "A", "age": "', 4), Fault("cut", "x"))
    assert one.guard.condemned is not None
    assert one.delivered.spoken is not None
    assert '{"name": "A", "age": "'.startswith(one.delivered.spoken.text)
    assert len(one.delivered.spoken.text) % 4 == 0


def test_what_an_engine_read_itself_is_no_raw_answer() -> None:
    delivered = Delivered()
    assert delivered.reads_raw("v") is not None
    delivered.add(Release(0, "content", "a", (1,)))
    assert delivered.spoken is not None
    delivered.reads_channels()
    assert delivered.spoken is not None  # nothing has come of it yet
    delivered.add(Release(0, "content", "b"))
    assert delivered.spoken is None
    assert delivered.reads_raw("v") is None
    assert delivered.tokens == 2


def test_ids_of_another_vocabulary_are_not_gone_on_with() -> None:
    delivered = Delivered()
    delivered.reads_raw("v")
    delivered.add(Release(0, "content", "a", (1,)))
    assert delivered.reads_raw("w") is None
