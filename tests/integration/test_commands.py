"""The commands: what they print, and the exit code that says how it went. One of each kind as a process, the rest in
this one, which is the same code and a second quicker."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from replay_server import Reply, chunk, sse
from sidecar_process import Played, Sidecar, outguard

from guard.cli import main

Stage = tuple[Sidecar, Played, Played]
CASE = {
    "id": "good",
    "request": {"messages": [{"role": "user", "content": "Hello"}]},
    "response": {
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Good day."}, "finish_reason": "stop"}]
    },
}


def run(*arguments: str, sidecar: Sidecar | None = None) -> Result:
    config = ("--config", str(sidecar.config_path)) if sidecar is not None else ()
    done = CliRunner().invoke(main, [*arguments, *config])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


# --- outguard check --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def judged(shared: Path) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """What was expected of each recorded failure, and what was said of it."""
    path = shared / "cases" / "outputs.jsonl"
    done = outguard("check", "--cases", str(path))
    assert done.returncode == 0, done.stderr
    cases = [json.loads(line) for line in path.read_text().splitlines()]
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["id"] for one in said] == [case["id"] for case in cases]
    return {case["id"]: (case["expect"], one) for case, one in zip(cases, said, strict=True)}


def _wrong(expect: dict[str, Any], said: dict[str, Any]) -> list[str]:
    found = {finding["code"].partition(".")[0] for finding in said["findings"]}
    problems = []
    if said["action"] not in expect["actions"]:
        problems.append(f"{said['action']} instead of {' or '.join(expect['actions'])}")
    if expect["families"] and not found & set(expect["families"]):
        problems.append(f"found {sorted(found)} instead of {expect['families']}")
    return problems


def test_the_recorded_failures(judged: dict[str, tuple[dict[str, Any], dict[str, Any]]]) -> None:
    wrong = {id_: problems for id_, pair in judged.items() if (problems := _wrong(*pair))}
    assert not wrong


def test_what_is_printed_of_a_case(judged: dict[str, tuple[dict[str, Any], dict[str, Any]]]) -> None:
    for _, said in judged.values():
        assert said.keys() == {"id", "action", "findings", "verdicts", "repaired"}
        assert said["action"] in ("pass", "warn", "repair", "block")
        assert said["verdicts"].keys() == {"format", "tool_choice"}
        assert (said["repaired"] is not None) == (said["action"] == "repair")
        for finding in said["findings"]:
            assert finding.keys() == {"code", "severity", "channel", "onset", "detected_at", "message"}
            assert 0 <= finding["onset"] <= finding["detected_at"]


GARBAGE = {
    "no JSON": (b'{"id": 1}\nhello\n', ":2: is not JSON"),
    "a list": (b"[1]\n", ":1: must be a JSON object"),
    "no text": (bytes(range(256)), ":1: "),
    "half a line": (json.dumps(CASE).encode()[:-30], ":1: is not JSON"),
    "nested without end": (b'{"a": ' + b"[" * 100_000, ":1: "),
}


@pytest.mark.parametrize("what", GARBAGE)
def test_garbage_is_exit_code_2(tmp_path: Path, what: str) -> None:
    data, says = GARBAGE[what]
    path = tmp_path / "cases.jsonl"
    path.write_bytes(json.dumps(CASE).encode() + b"\n" + data)
    done = run("check", "--cases", str(path))
    assert done.exit_code == 2
    line = int(says.split(":")[1]) + 1
    assert f"{path}:{line}: " in done.stderr
    assert json.loads(done.stdout.splitlines()[0])["action"] == "pass"  # what came before it was judged


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    done = run("check", "--cases", str(tmp_path / "none.jsonl"))
    assert done.exit_code == 2
    assert "none.jsonl" in done.stderr


def test_a_reader_that_has_seen_enough(tmp_path: Path) -> None:
    """As with ``| head -1``: no word about it."""
    path = tmp_path / "cases.jsonl"
    path.write_text((json.dumps(CASE) + "\n") * 2_000)
    command = [sys.executable, "-m", "guard", "check", "--cases", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["action"] == "pass"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(30) == 1


def test_odd_cases_are_judged_and_never_crash(tmp_path: Path) -> None:
    """Lines that are objects and no good case: each is answered, blocked, with a reason; the run ends with 0."""
    message = {"role": "assistant", "content": "x"}
    odd: list[Any] = [
        {},
        {"id": None, "request": None},
        {**CASE, "request": []},
        {**CASE, "request": {"messages": []}},
        {"id": "neither", "request": CASE["request"]},
        {**CASE, "response": {}},
        {**CASE, "response": {"choices": []}},
        {**CASE, "response": {"choices": [{}]}},
        {**CASE, "response": {"choices": [{"index": "a", "message": None}]}},
        {**CASE, "response": {"choices": [{"message": {"content": 5, "tool_calls": "x"}, "finish_reason": 1}]}},
        {**CASE, "response": {"error": {"message": "CUDA"}}},
        {**CASE, "response": None, "stream": ""},
        {**CASE, "stream": "data: {\n\n"},
        {**CASE, "stream": "\u2028data: x\n\n", "close": "never"},
        {**CASE, "stream": 5, "response": None},
        {**CASE, "token_ids": ["a", -1]},
        {**CASE, "id": "\ud800", "request": {"messages": [{"role": "\udc00", "content": "\ud800"}]}},
        {"id": "half", "request": CASE["request"], "response": {"choices": [{"message": {"content": "a\ud83d"}}]}},
        {"id": {"a": 1}, "request": {"messages": 5}, "response": {"choices": [{"message": message}]}},
        {**CASE, "request": {**CASE["request"], "response_format": {"type": "json_schema", "json_schema": {}}}},
        {**CASE, "request": {**CASE["request"], "tools": [{"type": "function", "function": {"name": 5}}]}},
    ]
    path = tmp_path / "cases.jsonl"
    path.write_text("\n\n".join(json.dumps(one) for one in [*odd, CASE]) + "\n")
    done = outguard("check", "--cases", str(path))
    assert done.returncode == 0, done.stderr
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(said) == len(odd) + 1
    assert said[-1]["action"] == "pass"
    for one, case in zip(said, odd, strict=False):
        if case.get("token_ids") is None:
            assert one["action"] == "block", case
            assert one["findings"][0]["message"]


# --- outguard traces and replay --------------------------------------------------------------------------------------


@pytest.fixture
def kept(stage: Stage) -> tuple[Sidecar, Played, Played, str]:
    """A request that was answered well, and its trace."""
    sidecar, one, two = stage
    answer = sidecar.post({"temperature": 0})
    return sidecar, one, two, sidecar.trace(answer.headers["x-outguard-trace-id"]).trace_id


def test_a_replay_as_a_process(kept: tuple[Sidecar, Played, Played, str]) -> None:
    sidecar, one, two, trace_id = kept
    done = sidecar.outguard("replay", trace_id[:12], "--engines", "one,two", "--repeats", "2", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    runs = json.loads(done.stdout)["runs"]
    assert [(run["engine"], run["text"]) for run in runs] == [("one", "All is well.")] * 2 + [
        ("two", "All is well.")
    ] * 2
    assert len(one.asked) == 3  # and the first request
    assert len(two.asked) == 2
    assert one.asked[0]["messages"] == one.asked[1]["messages"]


def test_a_replay_that_differs(kept: tuple[Sidecar, Played, Played, str]) -> None:
    sidecar, _, two, trace_id = kept
    two.play(Reply(sse(chunk("All is"), chunk(" lost."), chunk(finish="stop"))))
    done = run("replay", trace_id, "--json", sidecar=sidecar)
    assert done.exit_code == 1, done.stderr
    differences = {one["engine"]: one["first_difference"] for one in json.loads(done.stdout)["runs"]}
    assert differences["one"] is None
    assert differences["two"]["offset"] == len("All is ")
    table = run("replay", trace_id, sidecar=sidecar)
    assert table.exit_code == 1
    assert "lost" in table.stdout


def test_a_replay_on_engines_that_fail(kept: tuple[Sidecar, Played, Played, str]) -> None:
    sidecar, one, two, trace_id = kept
    one.play(Reply(b"oops", 500, {}, framing="length"))
    two.play(Reply(sse(*[chunk("!")] * 100, chunk(finish="length"))))
    done = run("replay", trace_id, "--json", sidecar=sidecar)
    assert done.exit_code == 1
    runs = {one["engine"]: one for one in json.loads(done.stdout)["runs"]}
    assert runs["one"]["error"]
    assert runs["two"]["condemned"].startswith("repetition.")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("ffffffffffff",), "no trace"),
        (("{trace}", "--engines", "one,nine"), "nine"),
        (("{trace}", "--repeats", "0"), "repeats"),
        (("{none}",), "not kept"),
        ((), "TRACE_ID"),
    ],
)
def test_nothing_to_replay(kept: tuple[Sidecar, Played, Played, str], arguments: tuple[str, ...], says: str) -> None:
    sidecar, _, _, trace_id = kept
    none = sidecar.post(**{"x-outguard-retention": "none"}).headers["x-outguard-trace-id"]
    sidecar.trace(none)
    done = run("replay", *(a.format(trace=trace_id, none=none) for a in arguments), sidecar=sidecar)
    assert done.exit_code == 2
    assert says in done.stderr


def test_listing_and_showing(kept: tuple[Sidecar, Played, Played, str]) -> None:
    sidecar, _, _, trace_id = kept
    listed = run("traces", "list", "--limit", "1", "--outcome", "ok", "--since", "1h", "--json", sidecar=sidecar)
    assert listed.exit_code == 0, listed.stderr
    assert [row["trace_id"] for row in json.loads(listed.stdout)] == [trace_id]
    shown = run("traces", "show", trace_id[:12], sidecar=sidecar)
    assert shown.exit_code == 0, shown.stderr
    assert "All is well." in shown.stdout
    assert run("traces", "show", "ffffffffffff", sidecar=sidecar).exit_code == 1
    assert run("traces", "list", "--since", "soon", sidecar=sidecar).exit_code == 2
    assert run("engines", sidecar=sidecar).exit_code in (0, 1)


def test_help_and_version() -> None:
    version = outguard("--version")
    assert version.returncode == 0
    assert version.stdout.startswith("outguard")
    for command in ("serve", "check", "engines", "traces", "replay", "demo"):
        help_ = run(command, "--help")
        assert help_.exit_code == 0
        assert "Examples:" in help_.stdout or command == "traces"
    assert run("nothing").exit_code == 2
