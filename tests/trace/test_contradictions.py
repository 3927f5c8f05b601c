"""Broken promises of engines, counted over the embedded store, and as the command shows them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from guard.cli import main
from guard.trace.contradictions import contradictions
from guard.trace.record import AttemptRecord, RequestRecord
from guard.trace.spool import Spool
from guard.trace.store import open_store


def attempt(engine: str, version: str, *broken: str, **more: Any) -> AttemptRecord:
    fields: dict[str, Any] = {"choice": 0, "attempt": 1, "started_at": time.time(), "outcome": "ok"}
    return AttemptRecord(engine=engine, engine_version=version, contradictions=list(broken), **{**fields, **more})


def record(number: int, *attempts: AttemptRecord, kind: str = "json_schema", age: float = 0.0) -> RequestRecord:
    at = time.time() - age
    for one in attempts:
        one.started_at = at
    return RequestRecord(
        trace_id=f"{number:032x}", request_id=f"r{number}", started_at=at, constraint_kind=kind, attempts=list(attempts)
    )


RECORDS = [
    record(1, attempt("a", "1.0", "json_schema:schema.minimum"), age=7200.0),
    record(2, attempt("a", "1.0", "json_schema:schema.minimum", "json_schema:schema.type")),
    record(3, attempt("a", "1.0")),
    record(4, attempt("a", "1.1")),
    record(5, attempt("b", "", "regex:regex.mismatch"), kind="regex"),
    record(6, attempt("a", "1.0", unenforced=["json_schema"])),  # was not asked
    record(7, attempt("a", "1.0", resumed_at=12)),
    record(8, attempt("a", "1.0"), kind=""),
]


@pytest.fixture
def config(tmp_path: Path, start_writer: Callable[..., Any]) -> Path:
    """Of a store that holds the records."""
    store = f"chdb://{tmp_path / 'store'}"
    start_writer(store, tmp_path / "spool")
    spool = Spool(tmp_path / "spool")
    for one in RECORDS:
        spool.write(one)
    (tmp_path / "store").mkdir(exist_ok=True)
    path = tmp_path / "outguard.yaml"
    path.write_text(
        "engines: [{name: a, url: 'http://127.0.0.1:1'}]\nroutes: [{model: m, engines: [a]}]\n"
        f"trace: {{store: '{store}', spool: '{tmp_path / 'spool'}'}}\n"
    )
    with open_store(store, tmp_path / "spool") as reader:
        assert reader.flush(30)
        found = contradictions(reader)
        assert [(c.engine, c.version, c.kind, c.code, c.broken, c.asked) for c in found] == [
            ("a", "1.0", "json_schema", "schema.minimum", 2, 3),
            ("a", "1.0", "json_schema", "schema.type", 1, 3),
            ("b", "", "regex", "regex.mismatch", 1, 1),
        ]
        assert found[0].trace_id == f"{2:032x}"
        assert found[0].last_at - found[0].first_at == pytest.approx(7200, abs=5)
        lately = contradictions(reader, since=time.time() - 3600)
        assert [(c.code, c.broken, c.asked) for c in lately if c.engine == "a"] == [
            ("schema.minimum", 1, 2),
            ("schema.type", 1, 2),
        ]
    return path


def test_counted_by_engine_version_constraint_and_keyword_and_shown(config: Path) -> None:
    """One store for all of it: starting one takes seconds."""
    shown = CliRunner().invoke(main, ["engines", "--contradictions", "--config", str(config)])
    assert shown.exit_code == 0, shown.output
    assert "schema.minimum" in shown.output
    assert "66.7%" in shown.output
    told = CliRunner().invoke(main, ["engines", "--contradictions", "--json", "--since", "1h", "--config", str(config)])
    rows = json.loads(told.output)
    assert [(row["engine"], row["code"], row["broken"]) for row in rows] == [
        ("a", "schema.minimum", 1),
        ("a", "schema.type", 1),
        ("b", "regex.mismatch", 1),
    ]


def test_without_a_store_there_is_nothing_to_read(tmp_path: Path) -> None:
    path = tmp_path / "outguard.yaml"
    path.write_text("engines: [{name: a, url: 'http://127.0.0.1:1'}]\nroutes: [{model: m, engines: [a]}]\n")
    shown = CliRunner().invoke(main, ["engines", "--contradictions", "--config", str(path)])
    assert shown.exit_code == 2
