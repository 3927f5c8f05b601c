"""Every row of both tables decides something, and every situation is decided; the README says what the code says."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from guard.decision import (
    AFTER,
    CODES,
    WHILE,
    Kind,
    Reaction,
    Row,
    Sight,
    Situation,
    Watch,
    decide,
    error_code,
    row_for,
    watch_for,
    while_streaming,
)
from guard.errors import ERRORS
from guard.explain import markdown

CAUSES = ["", "open.refused", "open.connect", "deadline", "stream.cut", "repetition.period", "schema.required"]
ALL = [Situation(c, *flags) for c in CAUSES for flags in itertools.product((False, True), repeat=8)]
CODES_SEEN = ["", "stream.cut", "repetition.period", "schema.required", "json.truncated", "tool.unknown_name"]
SIGHTS = [
    Sight(what, code, acts, at_limit)
    for what in ("doubt", "repairable", "warn", "error")
    for code in CODES_SEEN
    for acts in (False, True)
    for at_limit in (False, True)
]


def test_every_situation_is_decided_with_a_code_exactly_when_it_fails() -> None:
    for situation in ALL:
        action = decide(situation)
        assert (action.kind == "fail") == (action.code in ERRORS), situation


def test_no_row_is_dead() -> None:
    assert {row_for(situation) for situation in ALL} == set(AFTER)
    assert {watch_for(sight) for sight in SIGHTS} == set(WHILE)


ENDS: list[tuple[Situation, Kind, str]] = [
    # every row of AFTER, in its order, and what the error is called where it is one
    (Situation(""), "finish", ""),
    (Situation("", delivered=True, attempts_left=False, budget_left=False, reachable=False), "finish", ""),
    (Situation("open.refused"), "fail", "engine_rejected"),
    (Situation("open.refused", enforceable=True), "fail", "engine_rejected"),
    (Situation("deadline"), "fail", "deadline_exceeded"),
    (Situation("deadline", enforceable=True), "fail", "deadline_exceeded"),
    (Situation("schema.type", enforceable=True), "enforce", ""),
    (Situation("schema.type", delivered=True, attempts_left=False, enforceable=True), "enforce", ""),
    (Situation("schema.type", delivered=True, resumable=True, enforceable=True), "enforce", ""),
    (Situation("schema.type", budget_left=False, enforceable=True), "enforce", ""),
    (Situation("open.connect", attempts_left=False), "fail", "engine_unavailable"),
    (Situation("open.busy", attempts_left=False), "fail", "overloaded"),
    (Situation("repetition.period", attempts_left=False), "fail", "collapsed"),
    (Situation("json.truncated", attempts_left=False), "fail", "constraint_violated"),
    (Situation("stream.cut", budget_left=False), "fail", "stream_cut"),
    (Situation("stream.stall", delivered=True, resumable=True, budget_left=False), "fail", "engine_timeout"),
    (Situation("repetition.period", again=True), "fail", "collapsed"),
    (Situation("repetition.period", again=True, variable=True), "vary", ""),
    (Situation("repetition.period", delivered=True, resumable=True, again=True, variable=True), "vary", ""),
    (Situation("repetition.period", delivered=True, again=True, variable=True), "fail", "collapsed"),
    (Situation("repetition.period", again=True, variable=True, reachable=False), "fail", "collapsed"),
    (Situation("repetition.period", variable=True), "retry", ""),
    (Situation("open.connect"), "retry", ""),
    (Situation("stream.cut"), "retry", ""),
    (Situation("stream.cut", reachable=False), "fail", "stream_cut"),
    (Situation("stream.cut", delivered=True, resumable=True), "resume", ""),
    (Situation("repetition.period", delivered=True, resumable=True), "resume", ""),
    (Situation("stream.cut", delivered=True), "fail", "stream_cut"),
    (Situation("stream.no_terminal", delivered=True), "fail", "stream_cut"),
    (Situation("schema.required", delivered=True), "fail", "constraint_violated"),
]


@pytest.mark.parametrize(("situation", "kind", "code"), ENDS)
def test_what_comes_after_an_attempt(situation: Situation, kind: Kind, code: str) -> None:
    action = decide(situation)
    assert (action.kind, action.code) == (kind, code)
    assert action.why


SEEN: list[tuple[Sight, Reaction]] = [
    (Sight("doubt"), "hold"),
    (Sight("doubt", acts=False), "continue"),
    (Sight("repairable"), "repair"),
    (Sight("repairable", acts=False), "continue"),
    (Sight("warn", "stream.after_finish"), "continue"),
    (Sight("error", "stream.no_terminal", acts=False), "stop"),
    (Sight("error", "json.truncated", at_limit=True), "continue"),
    (Sight("error", "json.truncated"), "stop"),
    (Sight("error", "schema.type"), "stop"),
    (Sight("error", "schema.type", at_limit=True), "stop"),
    (Sight("error", "schema.type", acts=False), "continue"),
    (Sight("error", "repetition.period"), "stop"),
    (Sight("error", "repetition.period", acts=False), "continue"),
]


@pytest.mark.parametrize(("sight", "reaction"), SEEN)
def test_what_is_done_while_it_streams(sight: Sight, reaction: Reaction) -> None:
    assert while_streaming(sight) == reaction


def test_every_row_has_a_case_above() -> None:
    assert {row_for(situation) for situation, *_ in ENDS} == set(AFTER)
    assert {watch_for(sight) for sight, _ in SEEN} == set(WHILE)


def test_the_columns_of_rows_and_situations_are_the_same() -> None:
    assert Row._fields[3:] == Situation._fields[1:]
    assert Watch._fields[-2:] == Sight._fields[2:]


def test_every_code_of_a_cause_is_a_known_error() -> None:
    assert {code for _, code in CODES} <= set(ERRORS)
    assert error_code("leak.special_token") == "collapsed"


def test_the_readme_has_the_tables_as_they_are() -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    block = readme.partition("<!-- decision table -->\n")[2].partition("\n<!-- end -->")[0]
    assert block.strip() == markdown(), "outguard policy explain --markdown prints what should stand there"
