"""Every row of the table decides something, and every situation is decided."""

from __future__ import annotations

import itertools

import pytest

from guard.decision import CODES, TABLE, Action, Situation, decide, error_code, row_for
from guard.errors import ERRORS

CAUSES = [
    "",
    "open.refused",
    "open.connect",
    "open.busy",
    "deadline",
    "stream.cut",
    "stream.stall",
    "stream.no_terminal",
    "repetition.period",
    "repetition.single_token_from_start",
    "schema.required",
    "tool.unknown_name",
    "empty.reasoning_only",
]
ALL = [Situation(c, *flags) for c in CAUSES for flags in itertools.product((False, True), repeat=5)]


@pytest.mark.parametrize("situation", ALL)
def test_every_situation_is_decided_with_a_code_exactly_when_it_fails(situation: Situation) -> None:
    action = decide(situation)
    assert (action.kind == "fail") == (action.code in ERRORS)


def test_no_row_is_dead() -> None:
    assert {row_for(situation) for situation in ALL} == set(TABLE)


@pytest.mark.parametrize(
    ("situation", "action"),
    [
        (Situation(""), Action("finish")),
        (Situation("", delivered=True, attempts_left=False), Action("finish")),
        (Situation("open.refused"), Action("fail", "engine_rejected")),
        (Situation("deadline"), Action("fail", "deadline_exceeded")),
        (Situation("open.connect"), Action("retry")),
        (Situation("open.connect", attempts_left=False), Action("fail", "engine_unavailable")),
        (Situation("open.busy", attempts_left=False), Action("fail", "overloaded")),
        (Situation("stream.cut"), Action("retry")),
        (Situation("stream.cut", delivered=True, resumable=True), Action("resume")),
        (Situation("stream.cut", delivered=True), Action("fail", "stream_cut")),
        (Situation("stream.cut", reachable=False), Action("fail", "stream_cut")),
        (Situation("stream.cut", delivered=True, reachable=False, resumable=True), Action("resume")),
        (Situation("repetition.period", delivered=True, resumable=True), Action("resume")),
        (Situation("repetition.period", attempts_left=False), Action("fail", "collapsed")),
        (Situation("schema.required", delivered=True), Action("fail", "constraint_violated")),
        (Situation("stream.no_terminal", delivered=True), Action("fail", "stream_cut")),
        (Situation("schema.type", enforceable=True), Action("enforce")),
        (Situation("schema.type", delivered=True, attempts_left=False, enforceable=True), Action("enforce")),
        (Situation("schema.type", delivered=True, resumable=True, enforceable=True), Action("enforce")),
        (Situation("json.truncated", attempts_left=False), Action("fail", "constraint_violated")),
        (Situation("deadline", enforceable=True), Action("fail", "deadline_exceeded")),
        (Situation("open.refused", enforceable=True), Action("fail", "engine_rejected")),
    ],
)
def test_decisions(situation: Situation, action: Action) -> None:
    assert decide(situation) == action


def test_every_code_of_a_cause_is_a_known_error() -> None:
    assert {code for _, code in CODES} <= set(ERRORS)
    assert error_code("leak.special_token") == "collapsed"
