"""The decision tables as they are printed, and what one policy leaves of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from guard.cli import main
from guard.config import Policy
from guard.decision import AFTER, WHILE
from guard.explain import as_data, tables

CONFIG = """\
engines: [{name: a, url: "http://127.0.0.1:1"}]
routes: [{model: m, engines: [a]}]
policies: {plain: {resume: false}, once: {max_attempts: 1}}
"""


def kinds(policy: Policy) -> set[str]:
    return {row["then"] for row in as_data(policy)["after_an_attempt"]}


def test_all_of_it_without_a_policy() -> None:
    while_, after, codes = tables()
    assert (len(while_.rows), len(after.rows)) == (len(WHILE), len(AFTER))
    assert all(len(row) == len(table.columns) for table in (while_, after, codes) for row in table.rows)


@pytest.mark.parametrize(
    ("policy", "never"),
    [
        (Policy(), set()),
        (Policy(resume=False), {"resume", "enforce"}),
        (Policy(max_attempts=1), {"retry", "resume", "vary"}),
        (Policy(vary=False), {"vary"}),
        (Policy(max_enforcements=0), {"enforce"}),
        (Policy(constraints="observe"), {"enforce"}),
        (Policy(detectors="observe"), {"vary"}),
    ],
)
def test_a_policy_leaves_out_what_it_never_does(policy: Policy, never: set[str]) -> None:
    assert kinds(policy) == {"finish", "retry", "resume", "vary", "enforce", "fail"} - never


def test_what_is_only_observed_stops_nothing_but_a_broken_stream() -> None:
    policy = Policy(detectors="observe", constraints="observe", repairs=False)
    then = {(row["code"], row["then"]) for row in as_data(policy)["while_streaming"]}
    assert {code for code, what in then if what == "stop"} == {"stream.*"}
    assert not {what for _, what in then} & {"hold", "repair"}


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["policy", "explain", *arguments])
    return done.exit_code, done.output


def test_the_command(tmp_path: Path) -> None:
    code, out = run()
    assert code == 0
    assert "While it streams" in out
    assert "the model's own" in out
    code, out = run("--json")
    assert json.loads(out) == as_data()
    path = tmp_path / "c.yaml"
    path.write_text(CONFIG)
    code, out = run("--config", str(path), "--policy", "once", "--json")
    assert (code, json.loads(out)) == (0, as_data(Policy(max_attempts=1)))
    code, out = run("--config", str(path), "--policy", "none such")
    assert code == 2
    assert "there is no policy called 'none such' (there are: default, once, plain)" in out
    code, out = run("--config", str(tmp_path / "gone.yaml"), "--policy", "once")
    assert (code, "cannot be read" in out) == (2, True)
