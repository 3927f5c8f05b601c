"""``outguard store status | drain | verify``: what they say, and the exit code that says how it is."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from guard.cli import main
from guard.trace.record import AttemptRecord, RequestRecord
from guard.trace.spool import Spool
from guard.trace.store import open_store

Command = Callable[..., Result]


def record(number: int) -> RequestRecord:
    return RequestRecord(f"{number + 1:032x}", f"r{number}", time.time(), attempts=[AttemptRecord(0, 1, "primary")])


@pytest.fixture
def run(tmp_path: Path) -> Command:
    """A command on a configuration whose store and spool lie in tmp_path; ``store`` may name another."""

    def call(*arguments: str, store: str = f"chdb://{tmp_path}/store") -> Result:
        path = tmp_path / "outguard.yaml"
        engine = {"name": "primary", "url": "http://127.0.0.1:1"}
        trace = {"store": store, "spool": str(tmp_path / "spool")}
        routes = [{"model": "m", "engines": ["primary"]}]
        path.write_text(yaml.safe_dump({"engines": [engine], "routes": routes, "trace": trace}))
        done = CliRunner().invoke(main, ["store", *arguments, "--config", str(path)])
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done

    return call


def said(done: Result) -> Any:
    return json.loads(done.stdout)


def test_from_spool_to_store_by_hand(run: Command, tmp_path: Path) -> None:
    empty = run("status")
    assert empty.exit_code == 0
    assert "0 records" in empty.stdout
    spool = Spool(tmp_path / "spool")
    for number in range(5):
        spool.write(record(number))
    spool.close()
    waits = run("status", "--json")
    assert waits.exit_code == 1
    assert said(waits)["waiting"]["records"] == 5
    assert said(waits)["writer"] is None
    assert "no writer runs" in said(waits)["troubles"][0]

    done = run("drain", "--json")
    assert done.exit_code == 0, done.output
    assert said(done) == {"before": 5, "left": 0, "error": ""}
    assert run("drain").stdout == "stored: 0 records waited\n"
    assert run("status").exit_code == 0

    good = run("verify", "--json")
    assert good.exit_code == 0, good.output
    assert said(good)["stored"]["requests"] == 5
    assert said(good)["stored"]["rows"] == 10

    (tmp_path / "store" / "outguard.sock").unlink(missing_ok=True)
    ledger = tmp_path / "spool" / "0" / "ledger.jsonl"
    ledger.write_text(ledger.read_text().replace('"requests":5', '"requests":6'))
    wrong = run("verify")
    assert wrong.exit_code == 1
    assert "6 expected, 1 missing, 0 doubled" in wrong.stdout


def test_a_store_that_is_away(run: Command, tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    spool.write(record(1))
    spool.close()
    away = "http://127.0.0.1:1/evidence"
    left = run("drain", "--timeout", "0.5", store=away)
    assert left.exit_code == 1
    assert "1 records are left of 1: the trace store http://127.0.0.1:1/evidence is not available" in left.stderr
    assert run("verify", store=away).exit_code == 2
    assert len(list((tmp_path / "spool").glob("*/*.seg"))) == 1


def test_damage_and_what_was_set_aside_are_named(run: Command, tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    for number in range(3):
        spool.write(record(number))
    spool.write_outcome(record(3))  # type: ignore[arg-type]  # a record that cannot be stored
    spool.close()
    (path,) = (tmp_path / "spool").glob("*/*.seg")
    data = bytearray(path.read_bytes())
    data[data.index(b"r1")] ^= 1
    path.write_bytes(data)
    broken = run("verify")
    assert broken.exit_code == 1
    assert f"damaged  0/{path.stem}" in broken.stdout
    assert "the checksum does not match" in broken.stdout
    assert not path.exists()  # looking stored what can be stored
    again = run("verify")
    assert again.exit_code == 0, again.output
    assert "1 were refused and set aside, 1 stretches were damaged" in again.stdout
    told = run("status")
    assert told.exit_code == 1
    assert f"aside    {path.stem}-" in told.stdout


def test_beside_a_running_writer(run: Command, tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    spool.write(record(1))
    with open_store(f"chdb://{tmp_path}/store", tmp_path / "spool") as reader:
        assert reader.flush(20)
        spool.write(record(2))
        assert run("drain").exit_code == 0
        told = run("status", "--json")
        assert told.exit_code == 0
        assert said(told)["writer"]["delivered"] == 2
        assert said(run("verify", "--json"))["stored"]["requests"] == 2
    spool.close()


@pytest.mark.parametrize("command", ["status", "drain", "verify"])
def test_no_store_and_help(run: Command, command: str) -> None:
    none = run(command, store="none")
    assert none.exit_code == 2
    assert "trace.store: is none" in none.stderr
    page = CliRunner().invoke(main, ["store", command, "--help"]).stdout
    assert "Examples:" in page
    assert "Exit codes:" in page
