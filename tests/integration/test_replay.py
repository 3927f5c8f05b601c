"""``outguard replay`` as an operator runs it: traces of a real store, chosen, planned, run, killed and gone on with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from replay_server import Reply, chunk, sse
from sidecar_process import Played, Sidecar, until

from guard.cli import main
from guard.trace.store import open_store
from replay.select import add_neighbours, by_condition
from replay.where import parse

GOOD = Reply(sse(chunk(role="assistant"), chunk("All"), chunk(" is"), chunk(" well."), chunk(finish="stop")))
LOOP = Reply(sse(*[chunk("!")] * 100, chunk(finish="length")))


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Sidecar, Played, Played]]:
    """Twelve traces: every third collapsed on ``one`` (cluster a) and was answered by ``two`` (cluster b); two were not
    kept."""
    one, two = Played(GOOD), Played(GOOD)
    engines = {
        "one": {"url": one.url, "cluster": "a", "image": "1.1"},
        "two": {"url": two.url, "cluster": "b", "image": "1.2"},
    }
    with Sidecar(tmp_path_factory.mktemp("replay"), engines, dialect="vllm") as sidecar:
        for number in range(12):
            one.play(LOOP if number % 3 == 0 else GOOD)
            ask = {"messages": [{"role": "user", "content": f"How is number {number}?"}], "temperature": 0}
            headers = {"x-outguard-retention": "none" if number in (4, 5) else "full"}
            last = sidecar.post(ask, **headers).headers["x-outguard-trace-id"]
        sidecar.trace(last)
        yield sidecar, one, two
    one.close()
    two.close()


@pytest.fixture
def fresh(stage: tuple[Sidecar, Played, Played]) -> tuple[Sidecar, Played, Played]:
    stage[1].play(GOOD)
    stage[2].play(GOOD)
    return stage


def run(sidecar: Sidecar, *arguments: str) -> Result:
    done = CliRunner().invoke(main, ["replay", *arguments, "--config", str(sidecar.config_path)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def facts(done: Result) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    ("where", "requests"),
    [
        ("finding='repetition.*'", 4),
        ("finding='repetition' and cluster='a'", 4),
        ("finding='repetition' and image='1.*' and recovered=true", 4),
        ("not finding='*' and completion_tokens >= 0", 10),  # an attempt of each that is kept was sound
        ("engine='two'", 4),
        ("engine in ('one', 'two') and temperature = 0 and seed = null", 10),
        ("model='m'", 10),
        ("attempts_made > 1", 4),
        ("prefix_hint in ('cold', 'partly', 'warm', '') and tokenizer_hash='' and not template_hash='x'", 10),
        ("attempt_outcome='condemned' and stream=false", 4),
    ],
)
def test_traces_are_chosen_by_what_one_attempt_met(
    fresh: tuple[Sidecar, Played, Played], where: str, requests: int
) -> None:
    done = run(fresh[0], "--where", where, "--since", "1h", "--plan", "--json")
    assert done.exit_code == 0, done.stderr
    assert len(facts(done)["requests"]) == requests


def test_what_was_not_kept_is_counted(fresh: tuple[Sidecar, Played, Played]) -> None:
    done = run(fresh[0], "--where", "model='m'", "--plan", "--json")
    assert facts(done)["skipped"] == {"the content was not kept (retention none)": 2}
    assert not fresh[1].asked  # a plan sends nothing


def test_a_sample_is_drawn_by_its_seed(fresh: tuple[Sidecar, Played, Played]) -> None:
    def drawn(seed: str) -> list[str]:
        return list(
            facts(run(fresh[0], "--where", "model='m'", "--sample", "3", "--seed", seed, "--plan", "--json"))[
                "requests"
            ]
        )

    assert len(drawn("1")) == 3
    assert drawn("1") == drawn("1")
    assert len({tuple(drawn(str(seed))) for seed in range(5)}) > 1


def test_the_plan_names_cells_cost_and_what_cannot_be_told_apart(fresh: tuple[Sidecar, Played, Played]) -> None:
    done = run(
        fresh[0], "--where", "finding='repetition'", "--concurrency", "alone,copies:4", "--repeats", "3", "--plan"
    )
    assert done.exit_code == 0, done.stderr
    for expected in ("engine=one image=1.1 cluster=a concurrency=4", "4 requests in 4 cells: 120 answers"):
        assert expected in done.stdout
    assert "image and cluster never vary apart" in done.stdout


def test_a_matrix_of_a_file_with_flags_over_it(fresh: tuple[Sidecar, Played, Played], tmp_path: Path) -> None:
    path = tmp_path / "matrix.yaml"
    path.write_text("engines: [two]\nconcurrency: ['copies:3']\nrepeats: 2\necho: 1\n")
    done = run(fresh[0], "--where", "finding='repetition'", "--matrix", str(path), "--repeats", "1", "--json")
    assert done.exit_code == 1, done.stderr  # the engine does not repeat the identifier
    told = facts(done)
    assert len(told["runs"]) == 15
    assert [one["wrong"] for one in told["runs"]].count("known_answer") == 3
    assert not fresh[1].asked
    path.write_text("repeats: 0\n")
    done = run(fresh[0], "--where", "finding='repetition'", "--matrix", str(path))
    assert (done.exit_code, done.stderr) == (2, f"{path}:1: repeats: input should be greater than or equal to 1\n")


def test_an_exported_file_is_run_without_the_store(fresh: tuple[Sidecar, Played, Played], tmp_path: Path) -> None:
    path = tmp_path / "export.jsonl"
    exported = CliRunner().invoke(
        main, ["traces", "export", "--finding", "repetition", "-o", str(path), "--config", str(fresh[0].config_path)]
    )
    assert exported.exit_code == 0, exported.stderr
    done = run(fresh[0], "--file", str(path), "--json")
    assert done.exit_code == 0, done.stderr
    assert len(facts(done)["runs"]) == 8
    path.write_text("{}\n")
    assert f"{path}:1: is no exported trace" in run(fresh[0], "--file", str(path)).stderr


def test_a_failure_that_comes_back_and_depends_on_the_engine(fresh: tuple[Sidecar, Played, Played]) -> None:
    fresh[1].play(LOOP)
    done = run(fresh[0], "--where", "finding='repetition'", "--repeats", "2")
    assert done.exit_code == 1, done.stderr
    assert "4 same, 4 wrong" in done.stdout
    assert "is seen again in 2 of 4 runs" in done.stdout


def test_a_page_of_it(fresh: tuple[Sidecar, Played, Played], tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    assert run(fresh[0], "--where", "finding='repetition'", "--html", str(path)).exit_code == 0
    assert "All is well." in path.read_text()
    assert path.stat().st_mode & 0o077 == 0
    done = run(fresh[0], "--where", "finding='repetition'", "--html", str(tmp_path / "none" / "x.html"))
    assert (done.exit_code, "cannot be written" in done.stderr) == (2, True)


def test_recorded_neighbours(fresh: tuple[Sidecar, Played, Played], tmp_path: Path) -> None:
    """The traces were asked one after the other, so none has a neighbour, and that is said."""
    done = run(fresh[0], "--where", "finding='repetition'", "--concurrency", "alone,recorded:4", "--plan")
    assert "left out: recorded:4 on one: 4 of 4 requests have no recorded neighbour" in done.stdout
    sidecar = fresh[0]
    with open_store(sidecar.store) as reader:
        found = by_condition(reader, parse("model='m'"))
        for source in found.sources:
            for n, attempt in enumerate(source.attempts):  # as if each had taken an hour
                timing = type(attempt.timing)(attempt.timing.started_at, 0.0, 3.6e6)
                source.attempts[n] = type(attempt)(**{**_fields(attempt), "timing": timing})
        add_neighbours(reader, found, 4)
    oldest = min(found.sources, key=lambda source: source.started_at)
    assert len(oldest.beside) == 3
    assert oldest.id not in oldest.beside


def _fields(attempt: Any) -> dict[str, Any]:
    return {name: getattr(attempt, name) for name in attempt.__struct_fields__}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "say what to run again"),
        (("ffff", "--where", "model='m'"), "say only one of them"),
        (("--where", "clutser='b'"), "there is no field 'clutser' (did you mean 'cluster'?)\n  clutser='b'\n  ^"),
        (("--where", "model='none'"), "no trace meets that condition"),
        (("--where", "model='m'", "--concurrency", "crowd"), "'crowd' is no load"),
        (("--where", "model='m'", "--cache", "hot"), "cache.0: Input should be 'as_is', 'cold' or 'warm'\n"),
        (("--where", "model='m'", "--engines", ""), "--engines: names nothing"),
        (("--where", "model='m'", "--concurrency", " , "), "--concurrency: names nothing"),
        (("--where", "model='m'", "--html", "none/x.html"), "there is no directory none"),
        (("--where", "model='m'", "--engines", "nine"), "no such engine: nine (there are: one, two)"),
        (("--file", "nothing.jsonl"), "nothing.jsonl: cannot be read"),
        (("--resume", "1999"), "there is no run that begins with '1999'"),
    ],
)
def test_mistakes(fresh: tuple[Sidecar, Played, Played], arguments: tuple[str, ...], says: str) -> None:
    done = run(fresh[0], *arguments)
    assert done.exit_code == 2
    assert says in done.stderr
    assert not fresh[1].asked


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_was_ended_goes_on(
    fresh: tuple[Sidecar, Played, Played], tmp_path: Path, how: signal.Signals
) -> None:
    sidecar, one, two = fresh
    runs = tmp_path / "runs"
    options = ["--where", "model='m'", "--repeats", "8", "--per-second", "50", "--runs", str(runs)]
    command = [sys.executable, "-m", "guard", "replay", *options, "--config", str(sidecar.config_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ)
    assert until(lambda: len(one.asked) > 10, 40)
    process.send_signal(how)
    out, err = process.communicate(timeout=40)
    if how == signal.SIGINT:
        assert process.returncode == 130, err
        assert "go on with: outguard replay --resume" in err
        assert "volleys not run" in out  # the report of what there is
    (path,) = runs.iterdir()
    before = sum(
        len(json.loads(line)["observations"]) for line in path.read_bytes().splitlines()[1:] if line.endswith(b"}")
    )
    assert 10 <= before < 160
    listed = run(sidecar, "--list", "--runs", str(runs))
    assert "of 160 answers" in listed.stdout
    one.play(GOOD)
    two.play(GOOD)
    started = time.monotonic()
    done = run(sidecar, "--resume", path.name[:12], "--runs", str(runs), "--json")
    assert done.exit_code == 0, done.stderr
    assert len(facts(done)["runs"]) == 160
    assert len(one.asked) + len(two.asked) == 160 - before
    assert time.monotonic() - started < 60


def test_recorded_answers_are_judged_from_a_folder(shared: Path, fresh: tuple[Sidecar, Played, Played]) -> None:
    done = run(fresh[0], "--import", str(shared / "recordings" / "nondeterminism"), "--json")
    assert done.exit_code == 1, done.stderr
    told = facts(done)
    assert len(told["runs"]) == 240
    assert told["triage"]["ruling"]["cause"] == "batch_dependent"
    text = run(fresh[0], "--import", str(shared / "recordings" / "nondeterminism")).stdout
    assert "quantisation_drift" in text
    assert "corruption" not in text.replace("show a corruption of", "")
    assert run(fresh[0], "--import", "nothing").exit_code == 2


def test_a_folder_of_recorded_answers_needs_no_configuration(shared: Path, tmp_path: Path) -> None:
    folder = shared / "recordings" / "nondeterminism"
    none = ["--config", str(tmp_path / "none.yaml")]
    done = CliRunner().invoke(main, ["replay", "--import", str(folder), "--json", *none])
    assert done.exit_code == 1, done.stderr
    assert len(json.loads(done.stdout)["runs"]) == 240
    missing = CliRunner().invoke(main, ["replay", "--import", str(tmp_path / "gone"), *none])
    assert (missing.exit_code, "no such folder" in missing.stderr) == (2, True)
    assert "none.yaml" in CliRunner().invoke(main, ["replay", "--list", *none]).stderr
    assert CliRunner().invoke(main, ["replay", "--list", "--runs", str(tmp_path), *none]).exit_code == 0


# --- golden engines and suites ---------------------------------------------------------------------------------------


def test_a_candidate_against_a_golden_engine(fresh: tuple[Sidecar, Played, Played]) -> None:
    """Neither names its token ids, so what could not be measured is said, and does not fail."""
    done = run(fresh[0], "--golden", "one", "--candidate", "two", "--where", "finding='repetition'", "--json")
    assert done.exit_code == 0, done.stderr
    card = facts(done)["scorecard"]
    states = {row["name"]: row["state"] for row in card["rows"]}
    assert states["sound"] == "pass"
    assert states["token_match"] == "not measured"
    assert "did not name the token ids" in next(row["measured"] for row in card["rows"] if row["name"] == "token_match")
    shown = fresh[0].get("/triage/" + facts(done)["run"] + ".json").json
    assert shown["scorecard"] == card
    again = run(fresh[0], "--golden", "one", "--candidate", "two", "--resume", facts(done)["run"], "--json")
    assert facts(again)["scorecard"] == card
    fresh[2].play(LOOP)
    done = run(fresh[0], "--golden", "one", "--candidate", "two", "--where", "finding='repetition'")
    assert done.exit_code == 1
    assert "NOT PASSED" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--golden", "one"), "go together"),
        (("--golden", "nine", "--candidate", "two"), "--golden: no such engine: nine"),
        (("--golden", "one", "--candidate", "one"), "cannot be its own golden engine"),
        (("--golden", "torch", "--candidate", "one"), "no engines of the configuration have the dialect torch"),
        (("--golden", "torch:///x?dtype=f8", "--candidate", "one"), "there is no dtype called 'f8'"),
        (("--golden", "one", "--candidate", "two", "--threshold", "nice=1"), "there is none called 'nice'"),
        (("--golden", "one", "--candidate", "two", "--threshold", "sound=x"), "'x' is no number"),
        (("--suite", "other"), "there is no suite called 'other'"),
        (("--suite", "can-run", "--engines", "nine"), "no such engine: nine"),
    ],
)
def test_mistakes_about_golden_engines_and_suites(
    fresh: tuple[Sidecar, Played, Played], arguments: tuple[str, ...], says: str
) -> None:
    done = run(fresh[0], *arguments)
    assert done.exit_code == 2, done.stdout
    assert says in done.stderr


def test_a_suite_over_two_engines(fresh: tuple[Sidecar, Played, Played], tmp_path: Path) -> None:
    path = tmp_path / "card.html"
    done = run(fresh[0], "--suite", "can-run", "--html", str(path), "--runs", str(tmp_path / "runs"))
    assert done.exit_code == 1, done.stderr  # "All is well." is no JSON
    assert "can run: one, two: NOT PASSED" in done.stdout
    assert "answers: answered" in done.stdout
    assert "not passed" in path.read_text() or "scorecard" in path.read_text()
    assert len(list((tmp_path / "runs").iterdir())) == 3
