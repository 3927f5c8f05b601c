"""``outguard store migrate`` and what a program says of a store that is not of its version."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from guard.cli import main
from guard.trace import schema
from guard.trace.clickhouse import ClickHouseStore
from guard.trace.link import connect
from guard.trace.store import WrongSchema, open_store, parse_dsn

NAMES = [migration.name for migration in schema.migrations()]
_databases = (f"migrate_{n}" for n in itertools.count())


def store(dsn: str, tmp_path: Path, *arguments: str) -> Result:
    config = tmp_path / "outguard.yaml"
    config.write_text(
        'engines: [{name: a, url: "http://127.0.0.1:1"}]\nroutes: [{model: m, engines: [a]}]\n'
        f'trace: {{store: "{dsn}"}}\n'
    )
    return CliRunner().invoke(main, ["store", *arguments, "--config", str(config)])


def test_what_a_store_lacks_is_said_and_then_made(server: Any, tmp_path: Path) -> None:
    dsn = server.dsn(next(_databases))
    for _ in range(2):  # a dry run changes nothing
        done = store(dsn, tmp_path, "migrate", "--dry-run", "--json")
        assert done.exit_code == 0, done.stderr
        told = json.loads(done.stdout)
        assert (told["version"], told["names"]) == (0, NAMES)
    assert "pass" not in done.stdout
    done = store(dsn, tmp_path, "migrate")
    assert done.exit_code == 0, done.stderr
    assert [line.split()[1] for line in done.stdout.splitlines()[:-1]] == NAMES
    for arguments in (["--dry-run"], []):
        again = json.loads(store(dsn, tmp_path, "migrate", "--json", *arguments).stdout)
        assert (again["version"], again["names"]) == (schema.latest(), [])


def test_two_starters_at_once(server: Any) -> None:
    dsn = server.dsn(next(_databases))
    stores = [ClickHouseStore(parse_dsn(dsn)) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        applied = list(pool.map(lambda one: one.migrate(), stores))
    assert any(applied)
    rows = stores[0].query("SELECT version, count() AS n FROM schema_migrations GROUP BY version ORDER BY version")
    assert rows == [{"version": number + 1, "n": 1} for number in range(len(NAMES))]
    for one in stores:
        one.close()


def test_a_migration_that_was_cut_off_is_applied_again(server: Any) -> None:
    """Every statement of every migration twice, and nothing else comes of it."""
    one = ClickHouseStore(parse_dsn(server.dsn(next(_databases))))
    one.migrate()
    before = one.query("SELECT name, create_table_query FROM system.tables WHERE database = currentDatabase()")
    one._client.command(f"TRUNCATE TABLE {schema.TABLE}")
    one._client.command(f"ALTER TABLE {schema.TABLE} MODIFY SETTING non_replicated_deduplication_window = 0")
    assert one.migrate() == NAMES
    one._client.command(f"ALTER TABLE {schema.TABLE} MODIFY SETTING non_replicated_deduplication_window = 100")
    after = one.query("SELECT name, create_table_query FROM system.tables WHERE database = currentDatabase()")
    assert after == before
    one.close()


def test_a_store_of_a_newer_program_is_left_alone(server: Any, tmp_path: Path) -> None:
    dsn = server.dsn(next(_databases))
    one = ClickHouseStore(parse_dsn(dsn))
    one.migrate()
    one._client.command(f"INSERT INTO {schema.TABLE} (version, name) VALUES (9001, '9001_of_tomorrow.sql')")
    says = r"has schema 9001 .*newer Outguard"
    with pytest.raises(WrongSchema, match=says):
        one.migrate()
    with pytest.raises(WrongSchema, match=says):
        open_store(dsn)
    one.close()
    done = store(dsn, tmp_path, "migrate")
    assert done.exit_code == 2
    assert f"this one knows schema {schema.latest()}" in done.stderr


def test_a_reader_names_the_command_for_an_older_store(server: Any) -> None:
    dsn = server.dsn(next(_databases))
    one = ClickHouseStore(parse_dsn(dsn))
    one.migrate()
    one._client.command(f"ALTER TABLE {schema.TABLE} DELETE WHERE version > 1 SETTINGS mutations_sync = 2")
    with pytest.raises(WrongSchema, match=r"has schema 1, .*outguard store migrate"):
        open_store(dsn)
    one.close()


def test_a_user_who_may_not_change_tables_that_are_too_old(server: Any) -> None:
    one = ClickHouseStore(parse_dsn(server.dsn("narrow_old")))
    one.migrate()
    one._client.command(f"ALTER TABLE {schema.TABLE} DELETE WHERE version > 1 SETTINGS mutations_sync = 2")
    one.close()
    narrow = ClickHouseStore(parse_dsn(server.dsn("narrow_old", user="narrow")))
    with pytest.raises(WrongSchema, match="may not change its tables"):
        narrow.migrate()
    narrow.close()


def test_an_embedded_store(tmp_path: Path, start_writer: Callable[..., Any]) -> None:
    place = tmp_path / "store"
    dsn = f"chdb://{place}"
    done = store(dsn, tmp_path, "migrate", "--dry-run", "--json")
    assert json.loads(done.stdout)["names"] == NAMES, done.stderr
    assert not place.exists()
    done = store(dsn, tmp_path, "migrate", "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout) == {"store": dsn, "version": schema.latest(), "names": NAMES}

    start_writer(dsn, tmp_path / "spool")  # a sidecar's, which has it open
    deadline = time.monotonic() + 20
    while connect(place) is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    with open_store(dsn, tmp_path / "spool") as reader:
        assert reader.query("SELECT count() AS n FROM requests") == [{"n": 0}]
    done = store(dsn, tmp_path, "migrate", "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["names"] == []


def test_no_store(tmp_path: Path) -> None:
    done = store("none", tmp_path, "migrate")
    assert done.exit_code == 2
    assert "trace.store: is none" in done.stderr
    done = store("http://guard@127.0.0.1:1/x", tmp_path, "migrate")
    assert done.exit_code == 2
    assert "not available" in done.stderr
