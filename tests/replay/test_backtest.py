"""What a changed policy would have done: the table of truths and changes, the files it reads, the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from detectors.token_loop import TokenLoop, TokenRun
from guard.config import Policy
from guard.normalise import chat_request
from guard.thresholds import Thresholds
from guard.trace.export import Exported, line
from guard.trace.record import AttemptRecord, OutcomeRecord, RequestRecord
from replay.answers import from_file, stop
from replay.backtest import Answer, Stop, backtest, truth_of
from replay.backtest_command import command, token_loops
from replay.source import ReplayError

SIX = "So it goes, as they say here. " * 6 + "Then they all went home by the sea."
CALM = "It began to rain, and the keeper closed the windows of the tower before he went to bed."
STRICT, LAX = Policy(thresholds=Thresholds(phrase_copies=3)), Policy(thresholds=Thresholds(phrase_copies=12))
LOOP = TokenRun(10, 120, 4)
STOPPED = Stop("repetition.period", 0, 150)


def answer(text: str = CALM, **more: Any) -> Answer:
    body = {"model": "m", "messages": [{"role": "user", "content": "Tell me."}]}
    return Answer("a", chat_request(body, request_id="a", protocol="replay"), text, **more)


@pytest.mark.parametrize(
    ("more", "then", "loop", "truth", "because"),
    [
        ({"collapsed": True, "said_by": "the file"}, None, None, "collapsed", "the file"),
        ({"collapsed": False, "said_by": "its caller"}, STOPPED, LOOP, "fine", "its caller"),
        (
            {"finish_reason": "length"},
            None,
            LOOP,
            "collapsed",
            "presumed: it ran to its limit, with a loop of 4 tokens",
        ),
        ({"finish_reason": "stop"}, None, LOOP, "fine", "presumed: it ended by itself (stop)"),
        ({"finish_reason": "stop"}, STOPPED, None, "collapsed", "presumed: the policy in force stops it"),
        ({"finish_reason": "length"}, None, None, "open", "it ran to its limit"),
        ({}, None, None, "open", "how it ended is not known"),
    ],
)
def test_what_an_answer_was(
    more: dict[str, Any], then: Stop | None, loop: TokenRun | None, truth: str, because: str
) -> None:
    found = truth_of(answer(**more), then, loop)
    assert found[0] == truth
    assert found[1].startswith(because)


@pytest.mark.parametrize(
    ("more", "before", "after", "change"),
    [
        ({"collapsed": True}, LAX, STRICT, "newly caught"),
        ({"collapsed": True}, STRICT, LAX, "newly missed"),
        ({"collapsed": False}, LAX, STRICT, "newly wrong"),
        ({"collapsed": False}, STRICT, LAX, "no longer wrong"),
        ({"finish_reason": "stop"}, LAX, STRICT, "newly wrong"),
        ({"finish_reason": "length"}, LAX, STRICT, "newly stopped"),
        ({"finish_reason": "stop"}, STRICT, LAX, "newly missed"),
        ({"collapsed": True}, STRICT, STRICT, ""),
        ({"collapsed": True}, LAX, LAX, ""),
    ],
)
def test_each_change_has_its_name(more: dict[str, Any], before: Policy, after: Policy, change: str) -> None:
    found = backtest([answer(SIX, **more)], lambda a: stop(a, after), lambda a: stop(a, before), [None])
    assert found.changes == ({change: 1} if change else {})  # type: ignore[comparison-overlap]
    assert [example.change for example in found.examples] == ([change] if change else [])
    assert found.safe is (change not in ("newly missed", "newly wrong"))
    for tally in (found.before, found.after):
        assert sum(getattr(tally, name) for name in tally.__struct_fields__) == 1


def test_what_both_stop_may_be_stopped_sooner() -> None:
    loop = answer("So it goes, as they say here. " * 30, collapsed=True)
    found = backtest([loop], lambda a: stop(a, STRICT), lambda a: stop(a, LAX), [None])
    assert found.changes == {}
    assert found.sooner > 100


def test_examples_are_some_and_counts_are_all() -> None:
    many = [answer(SIX, collapsed=False) for _ in range(9)]
    found = backtest(many, lambda a: stop(a, STRICT), lambda a: stop(a, LAX), [None] * 9, most_examples=2)
    assert (found.changes["newly wrong"], len(found.examples)) == (9, 2)
    assert found.examples[0].excerpt.startswith("So it goes")


def test_a_policy_that_only_observes_is_judged_all_the_same() -> None:
    for mode in ("observe", "off"):
        assert stop(answer(SIX), Policy(detectors=mode, thresholds=STRICT.thresholds))  # type: ignore[arg-type]


def test_loops_in_token_ids_are_those_of_the_streaming_rule() -> None:
    sequences = [[1, 2, 3] * 60, list(range(200)), [], [7] * 100, [9, 8] * 5]
    assert list(token_loops(sequences)) == [TokenLoop().feed(ids) for ids in sequences]


# --- files -----------------------------------------------------------------------------------------------------------


def record(number: int, text: str, **more: Any) -> RequestRecord:
    body = {"model": "m", "messages": [{"role": "user", "content": "Tell me."}]}
    fields: dict[str, Any] = {
        "retention": "full",
        "request_body": json.dumps(body),
        "output_text": text,
        "finish_reason": "stop",
        "attempts": [AttemptRecord(0, 1, "a", output_token_ids=[1, 2, 3])],
    }
    return RequestRecord(f"{number:032x}", f"r{number}", 1.0, **{**fields, **more})


def test_exported_and_plain_answers_are_read(tmp_path: Path) -> None:
    worked = OutcomeRecord(f"{2:032x}", "call", 1.0, True)
    failed = OutcomeRecord(f"{1:032x}", "call", 1.0, False)
    path = tmp_path / "answers.jsonl"
    path.write_bytes(
        line(Exported(record(1, CALM), (failed,)))
        + line(Exported(record(2, SIX), (worked,)))
        + line(Exported(record(3, "", output_text="")))
        + line(Exported(record(4, CALM, request_body="")))
        + line(Exported(record(5, '[{"name": "f"}]', finish_reason="tool_calls")))
        + line(Exported(record(6, json.dumps(["one", "two"]), choices=2, finish_reason="stop,length")))
        + b'{"text": "{}", "json": true, "collapsed": true, "prompt": "Give me JSON"}\n\n'
    )
    found = from_file(path)
    told = {one.id: (one.text, one.collapsed, one.finish_reason) for one in found.found}
    assert told == {
        "line 7": ("{}", True, ""),
        f"{1:032x}": (CALM, None, "stop"),
        f"{2:032x}": (SIX, False, "stop"),
        f"{6:032x}:0": ("one", None, "stop"),
        f"{6:032x}:1": ("two", None, "length"),
    }
    assert found.skipped == {
        "nothing was delivered": 1,
        "the content was not kept (retention full)": 1,
        "it was tool calls": 1,
    }
    by_id = {one.id: one for one in found.found}
    assert by_id[f"{1:032x}"].token_ids == (1, 2, 3)
    assert by_id["line 7"].request.constraint is not None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"texts": "a"}', "answers.jsonl:2: is no answer"),
        ("[]", "answers.jsonl:2: is no answer"),
        ("{", "answers.jsonl:2: is no answer"),
        ('{"outguard_trace": 9, "record": {}}', "answers.jsonl, line 2:1: is no exported trace"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text(f'{{"text": "a"}}\n{text}\n')
    with pytest.raises(ReplayError, match=says.replace(".", r"\.")):
        from_file(path)
    with pytest.raises(ReplayError, match="cannot be read"):
        from_file(tmp_path / "nothing")


# --- the command -----------------------------------------------------------------------------------------------------


def run(tmp_path: Path, *more: str, policy: str = "thresholds: {phrase_copies: 3}\n", answers: str = "") -> Result:
    (tmp_path / "new.yaml").write_text(policy)
    (tmp_path / "answers.jsonl").write_text(answers)
    config = ("--config", str(tmp_path / "no.yaml"))
    arguments = ["--policy", str(tmp_path / "new.yaml"), "--file", str(tmp_path / "answers.jsonl"), *config, *more]
    return CliRunner().invoke(command, arguments)


FOUR = "So it goes, as they say here. " * 4 + "Then they all went home by the sea."


def test_the_command_says_what_would_change(tmp_path: Path) -> None:
    answers = "".join(
        json.dumps(one) + "\n"
        for one in (
            {"id": "good", "text": FOUR, "finish_reason": "stop"},
            {"id": "bad", "text": FOUR, "collapsed": True},
            {"id": "cut", "text": FOUR, "finish_reason": "length"},
            {"id": "calm", "text": CALM, "finish_reason": "stop"},
        )
    )
    done = run(tmp_path, answers=answers)
    assert done.exit_code == 1, done.output
    for said in ("4 answers", "newly caught: 1", "newly wrong: 1", "newly stopped: 1", "presumed: it ended by itself"):
        assert said in done.output
    told = json.loads(run(tmp_path, "--json", answers=answers).output)
    assert told["changes"] == {"newly wrong": 1, "newly caught": 1, "newly stopped": 1}
    assert told["after"]["wrongly_stopped"] == 1
    calm = run(tmp_path, policy="detectors: observe\n", answers=answers)
    assert (calm.exit_code, "No answer would have been treated otherwise." in calm.output) == (0, True)


@pytest.mark.parametrize(
    ("policy", "answers", "says"),
    [
        ("thresholds: {phrase_copies: 0}\n", '{"text": "a"}\n', "new.yaml:1: thresholds.phrase_copies: "),
        ("tresholds: {}\n", '{"text": "a"}\n', "new.yaml:1: tresholds: is not a known key"),
        ("- a\n", '{"text": "a"}\n', "must be a mapping of a policy"),
        ("vary: true\n", "", "there is no answer to try the policy on"),
        ("vary: true\n", "{}\n", "answers.jsonl:1: is no answer"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, policy: str, answers: str, says: str) -> None:
    done = run(tmp_path, policy=policy, answers=answers)
    assert done.exit_code == 2
    assert says in done.output


def test_since_or_file() -> None:
    done = CliRunner().invoke(command, ["--policy", "x.yaml", "--help"])
    assert done.exit_code == 0
    assert "outguard backtest --policy new.yaml --since 7d" in done.output
