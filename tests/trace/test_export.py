"""A replay file says all that a record does, and says where it is wrong."""

from __future__ import annotations

import itertools
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from guard.cli import main
from guard.trace.clickhouse import ClickHouseStore
from guard.trace.export import Exported, ExportError, line, read
from guard.trace.record import AttemptRecord, FindingRecord, OutcomeRecord, RequestRecord
from guard.trace.rows import rows
from guard.trace.store import parse_dsn

Make = Callable[..., RequestRecord]

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
offsets = st.integers(-1, 2**40)
logprobs = st.lists(st.floats(-50, 0, width=32) | st.just(math.nan), max_size=4)
attempts = st.builds(
    AttemptRecord,
    choice=st.integers(0, 3),
    attempt=st.integers(1, 9),
    engine=texts,
    image=texts,
    output_token_ids=st.lists(st.integers(0, 2**32 - 1), max_size=4),
    token_logprobs=logprobs,
    runner_up_logprobs=logprobs,
    findings=st.lists(st.builds(FindingRecord, texts, texts, texts, offsets, offsets, texts), max_size=2),
)
records = st.builds(
    RequestRecord,
    trace_id=texts,
    request_id=texts,
    started_at=st.floats(0, 2e9),
    seed=st.none() | st.integers(-(2**63), 2**64 - 1),
    output_text=texts,
    request_body=st.just("") | st.dictionaries(texts, texts).map(lambda body: msgspec.json.encode(body).decode()),
    attempts=st.lists(attempts, max_size=3),
)
outcomes = st.lists(st.builds(OutcomeRecord, texts, texts, st.floats(0, 2e9), st.booleans(), texts), max_size=2)


@given(st.lists(st.builds(Exported, records, outcomes.map(tuple)), max_size=3))
def test_what_is_written_is_read_back(wanted: list[Exported]) -> None:
    data = b"".join(map(line, wanted))
    assert data.count(b"\n") == len(wanted)
    found = list(read(data.splitlines(keepends=True)))
    assert msgspec.msgpack.encode(found) == msgspec.msgpack.encode(wanted)


def test_a_line_is_plain_json(make: Make) -> None:
    record = make(1)
    told = json.loads(line(Exported(record)), parse_constant=pytest.fail)
    assert told["request"] == json.loads(record.request_body)
    assert told["record"]["attempts"][0]["token_logprobs"] == [-0.5, None, -9999.0]
    assert told["record"]["attempts"][0]["image"] == "img:1.2"
    assert "request_body" not in told["record"]
    assert json.loads(line(Exported(make(2, request_body=""))))["request"] is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"{", "truncated"),
        (b"[]", "object"),
        (b"\xff", "invalid"),
        (b'{"outguard_trace": 2, "record": {}}', "version 2"),
        (b'{"outguard_trace": 1}', "record"),
        (b'{"outguard_trace": 1, "record": {"trace_id": 5}}', "trace_id"),
        (b'{"outguard_trace": 1, "record": {"attempts": [3]}}', "attempts|missing"),
        (b'{"model": "small"}', "outguard_trace"),
    ],
)
def test_a_line_that_is_none(text: bytes, says: str, make: Make) -> None:
    with pytest.raises(ExportError, match=rf"^some\.jsonl:3: is no exported trace: .*({says})"):
        list(read([line(Exported(make(1))), b"\n", text], "some.jsonl"))


# --- outguard traces export ------------------------------------------------------------------------------------------

_databases = (f"export_{n}" for n in itertools.count())


@pytest.fixture
def stored(server: Any, make: Make, tmp_path: Path) -> Callable[..., Result]:
    """Four requests, of which the last has no content; gives ``outguard traces``."""
    dsn = server.dsn(next(_databases))
    store = ClickHouseStore(parse_dsn(dsn))
    store.migrate()
    kept = [make(n, outcome="failed" if n == 2 else "ok") for n in range(1, 4)]
    kept.append(make(4, request_body="", output_text="", retention="none", tenant="quiet"))
    told = OutcomeRecord(kept[1].trace_id, "call_1", time.time(), False, "no such row")
    for table, some in rows(enumerate([*kept, told]), "s").items():
        store.insert(table, some, "t")
    store.close()
    config = tmp_path / "outguard.yaml"
    config.write_text(
        'engines: [{name: a, url: "http://127.0.0.1:1"}]\nroutes: [{model: m, engines: [a]}]\n'
        f'trace: {{store: "{dsn}", spool: "{tmp_path / "spool"}"}}\n'
    )
    return lambda *arguments: CliRunner().invoke(main, ["traces", *arguments, "--config", str(config)])


def test_the_command_writes_what_fits(stored: Callable[..., Result], make: Make, tmp_path: Path) -> None:
    file = tmp_path / "out.jsonl"
    done = stored("export", "-o", str(file))
    assert done.exit_code == 0, done.stderr
    assert done.stderr == "4 requests written, 1 of them without content, which cannot be run again\n"
    found = list(read(file.open("rb")))
    assert {one.record.request_id for one in found} == {"req-1", "req-2", "req-3", "req-4"}
    failed = stored("export", "--outcome", "failed", "--engine", "primary", "--node", "n1")
    (one,) = read(failed.stdout_bytes.splitlines())
    assert one.record.request_id == "req-2"
    assert one.record.request_body == make(2).request_body
    assert one.record.attempts[0].findings[0].code == "repetition.token"
    assert [outcome.detail for outcome in one.outcomes] == ["no such row"]

    trace = make(3).trace_id
    done = stored("export", trace[:12])
    assert [one.record.trace_id for one in read(done.stdout_bytes.splitlines())] == [trace]
    assert done.stderr == "1 request written\n"


def test_the_command_says_what_it_could_not_write(stored: Callable[..., Result], make: Make, tmp_path: Path) -> None:
    done = stored("export", "--tenant", "nobody")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "none fits" in done.stderr
    done = stored("export", make(3).trace_id, "0" * 32)
    assert done.exit_code == 1
    assert "no such trace" in done.stderr
    assert len(list(read(done.stdout_bytes.splitlines()))) == 1
    done = stored("export", "-o", str(tmp_path / "no" / "out.jsonl"))
    assert done.exit_code == 2
    assert "out.jsonl: cannot be written: No such file" in done.stderr
    assert stored("export", "aa", "--tenant", "acme").exit_code == 2
