"""The protocol of a stream, and answers that hold nothing."""

from __future__ import annotations

from typing import Any

import pytest

from detectors import Facts, Finding, StreamIntegrity, judge_empty

TEXT = {"content": Facts(40, 40)}


def run(
    *, reasons: tuple[str, ...] = ("stop",), usage: tuple[int, int, int] | None = None, **end: Any
) -> list[Finding]:
    watch = StreamIntegrity(json=end.pop("json", False))
    found = [f for reason in reasons for f in watch.finish_reason(reason)]
    if usage is not None:
        found += watch.usage(*usage)
    end = {"kind": "done", "done": True, "text_chars": 40, "tool_calls": 0, "channels": TEXT, **end}
    return [*found, *watch.end(**end)]


def codes(found: list[Finding]) -> list[tuple[str, str]]:
    return [(f.code, f.severity) for f in found]


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        ({}, []),
        ({"kind": "clean", "done": False}, [("stream.missing_done", "info")]),
        ({"reasons": (), "kind": "clean", "done": False}, [("stream.no_terminal", "error")]),
        ({"reasons": ()}, [("stream.no_terminal", "error")]),
        ({"reasons": (), "kind": "cut"}, [("stream.cut", "error"), ("stream.no_terminal", "error")]),
        ({"kind": "cut"}, [("stream.cut", "warn")]),
        ({"reasons": (), "kind": "stall"}, [("stream.stall", "error")]),
        ({"reasons": (), "kind": "total_timeout"}, [("stream.stall", "error")]),
        ({"reasons": (), "kind": "error_event"}, [("stream.error_event", "error")]),
        ({"reasons": (), "kind": "protocol"}, [("stream.protocol", "error")]),
        ({"reasons": ("stop", "stop")}, [("stream.double_finish", "warn")]),
        ({"reasons": ("stop", "length")}, [("stream.finish_contradiction", "error")]),
        ({"reasons": ("stop", "tool_calls")}, [("stream.finish_contradiction", "warn")]),
        ({"reasons": ("abort",)}, [("stream.aborted", "error")]),
        ({"reasons": ("eos",)}, [("stream.finish_unknown", "warn")]),
        ({"reasons": ("tool_calls",)}, [("stream.finish_mismatch", "error")]),
        ({"reasons": ("tool_calls",), "tool_calls": 1}, []),
        ({"tool_calls": 1}, [("stream.finish_mismatch", "warn")]),
        ({"reasons": ("length",), "tool_calls": 1}, []),
        ({"usage": (10, 12, 22)}, []),
        ({"usage": (10, 12, 0)}, []),
        ({"usage": (61_000, 4_096, 4_106)}, [("stream.usage_mismatch", "warn")]),
        ({"usage": (10, -1, 9)}, [("stream.usage_mismatch", "warn")]),
        ({"usage": (10, 0, 10)}, [("stream.usage_mismatch", "warn")]),
        ({"usage": (10, 2, 12), "text_chars": 900}, [("stream.usage_mismatch", "warn")]),
        ({"usage": (10, 900, 910), "text_chars": 2}, [("stream.usage_mismatch", "warn")]),
        ({"usage": (10, 900, 910), "text_chars": 2, "reasons": ("length",)}, [("stream.usage_mismatch", "error")]),
    ],
)
def test_streams(stream: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    assert codes(run(**stream)) == expected


@pytest.mark.parametrize(
    ("channels", "more", "expected"),
    [
        ({"content": Facts(3, 3)}, {}, []),
        ({"content": Facts(10, 0)}, {}, [("empty.whitespace_only", "error")]),
        ({}, {"completion_tokens": 57}, [("empty.tokens_spent", "error")]),
        ({}, {"completion_tokens": 8, "finish_reason": "length"}, [("empty.tokens_spent", "warn")]),
        ({}, {"completion_tokens": 80, "finish_reason": "length"}, [("empty.tokens_spent", "error")]),
        ({}, {}, [("empty.nothing", "error")]),
        ({}, {"tool_calls": 1}, []),
        ({}, {"stopped_at_once": True}, []),
        ({"refusal": Facts(9, 9)}, {}, []),
        ({"reasoning": Facts(90, 90)}, {}, [("empty.reasoning_only", "error")]),
        ({"reasoning": Facts(90, 90), "content": Facts(2, 0)}, {}, [("empty.reasoning_only", "error")]),
        ({"reasoning": Facts(90, 90)}, {"finish_reason": "length"}, [("empty.budget_in_reasoning", "error")]),
        ({"reasoning": Facts(14, 14, True)}, {"json": True}, [("empty.answer_in_reasoning", "error")]),
        ({"reasoning": Facts(14, 14, True)}, {"json": False}, [("empty.reasoning_only", "error")]),
    ],
)
def test_empty_answers(channels: dict[str, Facts], more: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    facts = {"finish_reason": "stop", "completion_tokens": 0, "tool_calls": 0, **more}
    assert codes(list(judge_empty(channels, **facts))) == expected


def test_an_empty_answer_is_judged_at_the_end_of_its_stream() -> None:
    found = run(channels={"content": Facts(), "reasoning": Facts(30, 30)}, text_chars=30)
    assert codes(found) == [("empty.reasoning_only", "error")]
    assert codes(run(channels={}, text_chars=0, reasons=("content_filter",))) == []


def test_what_the_engine_says_is_not_said_twice() -> None:
    watch = StreamIntegrity()
    said = "the connection ended in the middle of the answer"
    assert watch.end(kind="cut", done=False, message=said)[0].message == said
    more = f"{said}: ConnectionResetError"
    assert StreamIntegrity().end(kind="cut", done=False, message=more)[0].message == more
    assert StreamIntegrity().end(kind="cut", done=False)[0].message == said
    assert StreamIntegrity().end(kind="cut", done=False, message="reset by peer")[0].message == f"{said}: reset by peer"
