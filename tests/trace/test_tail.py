"""Following requests as they are stored: each once, in order, whatever its age, and with its findings."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from guard import traces_command
from guard.cli import main
from guard.trace import tail
from guard.trace.clickhouse import ClickHouseStore
from guard.trace.record import RequestRecord
from guard.trace.rows import TABLES, rows
from guard.trace.store import open_store, parse_dsn
from guard.trace.tail import Tail

Make = Callable[..., RequestRecord]
_databases = (f"tail_{n}" for n in itertools.count())


class Stage:
    """A store, and a place in the spool for each record that is put there."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.store = ClickHouseStore(parse_dsn(dsn))
        self.store.migrate()
        self._offset = itertools.count(0, 100)

    def put(
        self, records: Sequence[RequestRecord], segment: str = "000001-a", tables: Sequence[str] = TABLES
    ) -> list[int]:
        places = [next(self._offset) for _ in records]
        self.put_at(zip(places, records, strict=True), segment, tables)
        return places

    def put_at(self, placed: Any, segment: str, tables: Sequence[str]) -> None:
        found = rows(placed, segment)
        for table in tables:
            if found[table]:
                self.store.insert(table, found[table], f"{segment}/{found[table][0].offset}")


@pytest.fixture
def stage(server: Any) -> Iterator[Stage]:
    made = Stage(server.dsn(next(_databases)))
    yield made
    made.store.close()


def ids(following: Tail) -> list[str]:
    return [row.request.request_id for row in following.poll(time.time())]


def test_each_once_and_in_order(stage: Stage, make: Make) -> None:
    stage.put([make(1)])
    with open_store(stage.dsn) as reader:
        following = Tail(reader, None, time.time())
        assert ids(following) == ids(following) == []  # what was there before is not followed
        stage.put([make(2), make(3, started_at=time.time() - 1_700)])
        assert ids(following) == []  # its findings may still be on their way
        assert ids(following) == ["req-2", "req-3"]
        stage.put([make(4)], "000002-b")  # another sidecar's, or a new segment
        stage.put([make(5)])
        ids(following)
        assert ids(following) == ["req-5", "req-4"]
        assert ids(following) == []


def test_filters_see_the_findings_of_a_batch_that_came_in_two_steps(stage: Stage, make: Make) -> None:
    with open_store(stage.dsn) as reader:
        following = Tail(reader, {"finding": "repetition", "engine": "primary"}, time.time())
        stage.put_at([(0, make(1)), (100, make(2, attempts=[]))], "s", ["requests"])
        assert ids(following) == []
        stage.put_at([(0, make(1)), (100, make(2, attempts=[]))], "s", ["attempts", "findings"])
        (row,) = following.poll(time.time())
        assert (row.request.request_id, row.engines) == ("req-1", ["primary", "second"])
        assert ids(following) == []


def test_more_than_one_look_holds(stage: Stage, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "MOST", 3)
    with open_store(stage.dsn) as reader:
        following = Tail(reader, None, time.time())
        for segment in ("000001-a", "000002-b"):
            stage.put([make(n) for n in range(4)], segment)
        seen = [name for _ in range(5) for name in ids(following)]
        assert seen == [f"req-{n}" for n in range(4)] * 2


def test_the_command(stage: Stage, make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "outguard.yaml"
    config.write_text(
        'engines: [{name: a, url: "http://127.0.0.1:1"}]\nroutes: [{model: m, engines: [a]}]\n'
        f'trace: {{store: "{stage.dsn}", spool: "{tmp_path / "spool"}"}}\n'
    )
    steps: list[Callable[[], object]] = []

    def sleep(_: float) -> None:
        if not steps:
            raise KeyboardInterrupt
        steps.pop(0)()

    monkeypatch.setattr(traces_command.time, "sleep", sleep)
    stage.put([make(1), make(2)])
    for arguments in ((), ("--json",)):
        steps[:] = [lambda: stage.put([make(3)]), lambda: None]
        done = CliRunner().invoke(main, ["traces", "tail", "-n", "1", *arguments, "--config", str(config)])
        assert done.exit_code == 0, done.stderr
        lines = done.stdout.splitlines()
        assert len(lines) == 2
        if arguments:
            assert [json.loads(line)["request_id"] for line in lines][1:] == ["req-3"]
            assert json.loads(lines[1])["findings"] == ["json.truncated", "repetition.token"]
        else:
            assert make(3).trace_id[:12] in lines[1]
            assert "primary > second" in lines[1]
        stage.store._client.command(
            "ALTER TABLE requests DELETE WHERE request_id = 'req-3' SETTINGS mutations_sync = 2"
        )
