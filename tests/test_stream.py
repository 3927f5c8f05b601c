"""The release rule, as tables of events: what goes in, what may leave, what is held, what condemns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detectors.empty import Facts
from detectors.finding import Finding
from guard.delivered import Delivered
from guard.events import (
    Closed,
    Done,
    Fault,
    FinishReason,
    Found,
    GuardEvent,
    Release,
    Repair,
    StreamEvent,
    TextDelta,
    ToolDelta,
    ToolRelease,
    Usage,
)
from guard.stream import StreamGuard
from guard.watch import Plan


class Suspicious:
    """Doubts everything from the first ``?`` on; ``!`` condemns from that ``?``; ``.`` clears."""

    def __init__(self, _channel: str = "content") -> None:
        self.doubt = 0
        self._fed = 0
        self._from: int | None = None

    def feed(self, text: str, token_ids: object = None, logprobs: object = None) -> Sequence[Finding]:
        found: list[Finding] = []
        for char in text:
            if char == "?" and self._from is None:
                self._from = self._fed
            elif char == "." and self._from is not None:
                self._from = None
            elif char == "!" and self._from is not None:
                found.append(Finding("repetition.test", "error", "it went on", onset=self._from, detected_at=self._fed))
            self._fed += 1
        self.doubt = self._fed if self._from is None else self._from
        return found

    def finish(self) -> Sequence[Finding]:
        self.doubt = self._fed
        return ()

    def facts(self) -> Facts:
        return Facts(self._fed, self._fed)


class Bracketed:
    """Holds a closing bracket until the end, drops ``#``, and refuses ``x``."""

    def __init__(self) -> None:
        self.safe = 0
        self.good = 0
        self.drops: list[tuple[int, int]] = []
        self._text = ""

    def feed(self, text: str) -> Sequence[Finding]:
        start = len(self._text)
        self._text += text
        for i, char in enumerate(text, start):
            if char == "#":
                self.drops.append((i, i + 1))
        bad = self._text.find("x")
        close = self._text.find("]")
        self.good = len(self._text) if bad < 0 else bad
        self.safe = min(self.good, len(self._text) if close < 0 else close)
        return [Finding("json.invalid", "error", "an x", onset=bad, detected_at=bad + 1)] if bad >= start else []

    def finish(self, truncated: bool) -> Sequence[Finding]:
        if not self._text.endswith("]"):
            return [Finding("json.truncated", "error", "no end", onset=len(self._text), detected_at=len(self._text))]
        self.safe = len(self._text)
        return []


class Strict:
    """A stream must have a finish reason and must not be cut."""

    def __init__(self) -> None:
        self._reason = ""

    def finish_reason(self, reason: str) -> Sequence[Finding]:
        self._reason = reason
        return ()

    def usage(self, *_: int) -> Sequence[Finding]:
        return ()

    def end(self, *, kind: str, **_: object) -> Sequence[Finding]:
        if kind not in ("done", "clean"):
            return [Finding(f"stream.{kind}", "error", "it broke off", channel="stream")]
        if not self._reason:
            return [Finding("stream.no_terminal", "error", "no terminal event", channel="stream")]
        return ()


def plan(**more: Any) -> Plan:
    return Plan(new_panel=Suspicious, new_integrity=Strict, **more)


def text(piece: str, channel: str = "content") -> TextDelta:
    return TextDelta(0, channel, piece)


END: list[StreamEvent] = [FinishReason(0, "stop"), Done(), Closed(True)]


def said(out: list[GuardEvent], channel: str = "content") -> str:
    return "".join(event.text for event in out if isinstance(event, Release) and event.channel == channel)


def codes(out: list[GuardEvent]) -> list[str]:
    return [event.finding.code for event in out if isinstance(event, Found)]


@pytest.mark.parametrize(
    ("pieces", "leaves"),
    [
        (["ab", "cd"], ["ab", "cd"]),  # nothing doubted, nothing delayed
        (["ab?", "cd", "."], ["ab", "", "?cd."]),  # held from the doubt on, released when it clears
        (["a?b", "c.d"], ["a", "?bc.d"]),
        (["", "a"], ["", "a"]),
    ],
)
def test_what_leaves_with_each_piece(pieces: list[str], leaves: list[str]) -> None:
    guard = StreamGuard(plan(), Delivered())
    assert [said(guard.feed([text(piece)])) for piece in pieces] == leaves


def test_a_whole_answer_ends_with_everything_released() -> None:
    guard = StreamGuard(plan(), Delivered())
    out = guard.feed([text("never?"), Usage(3, 2, 5), *END])
    assert said(out) == "never?"
    assert guard.ended
    assert guard.condemned is None
    assert guard.reason == "stop"
    assert guard.usage == Usage(3, 2, 5)


def test_a_condemned_answer_leaves_only_its_clean_part() -> None:
    delivered = Delivered()
    guard = StreamGuard(plan(), delivered)
    out = guard.feed([text("good?bad"), text("bad!"), text("more"), *END])
    assert said(out + guard.cut()) == "good"
    assert guard.condemned is not None
    assert (guard.condemned.cause, guard.condemned.onset) == ("repetition.test", 4)
    assert guard.feed([text("later")]) == []
    assert delivered.text() == "good"


def test_observing_records_and_lets_everything_go_on() -> None:
    guard = StreamGuard(plan(act_on_detectors=False), Delivered())
    out = guard.feed([text("a?b!"), *END])
    assert said(out) == "a?b!"
    assert codes(out) == ["repetition.test"]
    assert guard.condemned is None


@pytest.mark.parametrize(
    ("events", "said_so"),
    [
        ([text("a"), FinishReason(0, "stop"), text("b"), Done()], True),
        ([text("a"), FinishReason(0, "stop"), text("b", "reasoning"), text("c"), Done()], True),
        ([text("a"), FinishReason(0, "stop"), text(""), Usage(1, 1, 2), Done()], False),
        ([text("a?"), FinishReason(0, "stop"), FinishReason(0, "stop"), Done()], False),
    ],
)
def test_an_answer_that_goes_on_after_its_finish_reason_is_said_to(events: list[StreamEvent], said_so: bool) -> None:
    guard = StreamGuard(plan(), Delivered())
    out = guard.feed(events)
    assert codes(out) == ["stream.after_finish"] * said_so
    assert guard.condemned is None


def test_order_holds_across_channels() -> None:
    guard = StreamGuard(plan(), Delivered())
    out = guard.feed([text("why?", "reasoning"), text("because")])
    assert out == [Release(0, "reasoning", "why")]
    out = guard.feed([text(".", "reasoning")])
    assert [(e.channel, e.text) for e in out if isinstance(e, Release)] == [
        ("reasoning", "?"),
        ("content", "because"),
        ("reasoning", "."),
    ]


@pytest.mark.parametrize(
    ("events", "cause"),
    [
        ([text("a"), Closed(True)], "stream.no_terminal"),
        ([text("a"), Done(), Closed(True)], "stream.no_terminal"),
        ([text("a"), Closed(False)], "stream.cut"),
        ([text("a"), Fault("stall", "nothing came")], "stream.stall"),
        ([text("a"), Fault("error_event", "broken", 500)], "stream.error_event"),
        ([ToolDelta(0, 0, "c", "f", "{}"), *END], "tool.not_offered"),
    ],
)
def test_what_is_no_end_is_never_called_one(events: list[StreamEvent], cause: str) -> None:
    guard = StreamGuard(plan(), Delivered())
    guard.feed(events)
    assert guard.condemned is not None
    assert guard.condemned.cause == cause


def test_the_closing_bytes_wait_for_the_judge() -> None:
    guard = StreamGuard(plan(new_checker=Bracketed), Delivered())
    assert said(guard.feed([text("[1")])) == "[1"
    assert said(guard.feed([text("]")])) == ""
    assert said(guard.feed(END)) == "]"
    assert guard.verdicts().format == "ok"


def test_a_dropped_range_never_leaves() -> None:
    guard = StreamGuard(plan(new_checker=Bracketed), Delivered())
    assert said(guard.feed([text("#[1"), text("#]"), *END])) == "[1]"


def test_a_broken_constraint_condemns_and_a_dead_end_is_told_from_a_live_one() -> None:
    live = StreamGuard(plan(new_checker=Bracketed), Delivered())
    out = live.feed([text("[1"), text(",x")])
    assert said(out + live.cut()) == "[1,"
    assert live.condemned is not None
    assert not live.dead_end
    assert live.verdicts().format == "failed"


def test_cut_by_the_callers_own_limit_is_delivered_as_such() -> None:
    guard = StreamGuard(plan(new_checker=Bracketed), Delivered())
    guard.feed([text("[1"), FinishReason(0, "length"), Done()])
    assert guard.condemned is None
    assert guard.reason == "length"
    assert guard.verdicts().format == "failed"
    assert guard.unsound


def test_nothing_at_all_owes_a_document_too() -> None:
    guard = StreamGuard(plan(new_checker=Bracketed), Delivered())
    guard.feed(END)
    assert guard.condemned is not None
    assert guard.condemned.cause == "json.truncated"


class Calls:
    """Releases each piece as it comes; a name that is not f is an error."""

    def __init__(self) -> None:
        self.calls = 0

    def feed(self, delta: ToolDelta) -> Sequence[ToolRelease | Finding | Repair]:
        if delta.name:
            self.calls += 1
            if delta.name != "f":
                return [Finding("tool.unknown_name", "error", "no such tool")]
        return [ToolRelease(0, delta.index or 0, delta.arguments, delta.id, delta.name)]

    def finish(self, truncated: bool, *, answered: bool) -> Sequence[ToolRelease | Finding | Repair]:
        return ()

    def verdict(self) -> str:
        return "ok"


def test_arguments_are_watched_like_any_text() -> None:
    guard = StreamGuard(plan(new_tools=Calls), Delivered())
    out = guard.feed(
        [ToolDelta(0, 0, "c1", "f", '{"a'), ToolDelta(0, 0, arguments="?b"), ToolDelta(0, 0, arguments="!")]
    )
    assert [e.arguments for e in out if isinstance(e, ToolRelease)] == ['{"a']
    assert guard.condemned is not None
    assert guard.condemned.cause == "repetition.test"


def test_an_unknown_tool_condemns_before_its_name_leaves() -> None:
    guard = StreamGuard(plan(new_tools=Calls), Delivered())
    out = guard.feed([ToolDelta(0, 0, "c1", "g", "{}"), *END])
    assert not [e for e in out if isinstance(e, ToolRelease)]
    assert guard.condemned is not None


class Twice(Calls):
    """Of one delta: a piece, a condemnation, and another piece behind it."""

    def feed(self, delta: ToolDelta) -> Sequence[ToolRelease | Finding | Repair]:
        self.calls = 1
        broken = Finding("tool.invalid_json", "error", "two documents in one", channel="stream")
        return [ToolRelease(0, 0, "{}", "c1", "f"), broken, ToolRelease(0, 1, "{}", "c2", "f")]


def test_nothing_behind_a_condemnation_leaves_even_in_the_same_delta() -> None:
    guard = StreamGuard(plan(new_tools=Twice), Delivered())
    out = guard.feed([ToolDelta(0, 0, "c1", "f", "{}{}"), *END])
    assert [e.id for e in [*out, *guard.cut()] if isinstance(e, ToolRelease)] == ["c1"]


def test_what_was_delivered_before_is_part_of_the_answer() -> None:
    delivered = Delivered()
    delivered.add(Release(0, "content", "[1"))
    guard = StreamGuard(plan(new_checker=Bracketed), delivered, attempt=2)
    out = guard.feed([text(",2]"), *END])
    assert said(out) == ",2]"
    assert guard.condemned is None
    assert delivered.text() == "[1,2]"


@given(
    answer=st.text(alphabet="ab?.![]#x", max_size=30),
    cuts=st.lists(st.integers(0, 30), max_size=8),
    with_checker=st.booleans(),
)
def test_any_split_gives_the_same(answer: str, cuts: list[int], with_checker: bool) -> None:
    def run(pieces: list[str]) -> tuple[str, list[str], object, str]:
        guard = StreamGuard(plan(new_checker=Bracketed if with_checker else None), Delivered())
        out: list[GuardEvent] = []
        for piece in pieces:
            out += guard.feed([text(piece)])
        out += guard.feed(END)
        if guard.condemned is not None:
            out += guard.cut()
        cause = guard.condemned.cause if guard.condemned else ""
        return said(out), codes(out)[:1], cause, guard.verdicts().format

    places = sorted({min(cut, len(answer)) for cut in cuts})
    pieces = [answer[a:b] for a, b in zip([0, *places], [*places, len(answer)], strict=True)]
    whole, split = run([answer]), run(pieces)
    assert whole == split
