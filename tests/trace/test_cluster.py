"""A cluster of two shards: what its tables are, and that it does what one server does."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from guard.trace import schema
from guard.trace.clickhouse import ClickHouseStore
from guard.trace.erase import Selection
from guard.trace.layout import SHARDING, Layout
from guard.trace.overview import overview
from guard.trace.record import OutcomeRecord, RequestRecord
from guard.trace.rows import TABLES, rows
from guard.trace.store import QueryError, Target, Unavailable, open_store, parse_dsn
from tests.clickhouse_server import Server

Make = Callable[..., RequestRecord]


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    made = [Server(tmp_path_factory.mktemp(f"shard{number}")) for number in range(2)]
    for one in made:
        one.shards = made
        one.start()
    yield made
    for one in made:
        one.stop()


def dsn(shards: list[Server], database: str) -> str:
    hosts = ",".join(f"127.0.0.1:{shard.port}" for shard in shards)
    return f"http://guard:pass@{hosts}/{database}?cluster=main&replicated=no"


def encoded(record: Any) -> bytes:
    return msgspec.msgpack.encode(record)


def test_two_shards_hold_a_store(shards: list[Server], make: Make) -> None:
    place = dsn(shards, "evidence")
    store = ClickHouseStore(parse_dsn(place))
    names = [migration.name for migration in schema.migrations()]
    assert store.migrate() == names
    assert store.migrate() == []
    wanted = [make(number, tenant="acme" if number % 2 else "other") for number in range(12)]
    told = [OutcomeRecord(one.trace_id, "call", one.started_at, True) for one in wanted]
    copies: Any = [msgspec.msgpack.decode(encoded(one), type=type(one)) for one in (*wanted, *told)]
    for table, some in rows(enumerate(copies), "s").items():
        if some:
            for _ in range(2):  # sent twice, stored once
                store.insert(table, some, "the batch")
    assert store.present("requests", "s", 0, 100) == {(number, 0) for number in range(12)}

    here = []  # of each shard, the traces that it has: all rows of a trace lie together
    for shard in shards:
        alone = ClickHouseStore(parse_dsn(shard.dsn("evidence")))
        found = [
            {row["id"] for row in alone.query(f"SELECT DISTINCT {name} AS id FROM {table}_local")}
            for table, name in (("requests", "trace_id"), ("attempts", "trace_id"), ("outcomes", "trace_id"))
        ]
        assert found[0] == found[1] == found[2]
        assert found[0] == {row["id"] for row in alone.query("SELECT DISTINCT TraceId AS id FROM otel_traces_local")}
        here.append(found[0])
        alone.close()
    assert not here[0] & here[1]
    assert all(here)

    with open_store(place) as reader:
        for one in wanted:
            assert encoded(reader.get_request(one.trace_id)) == encoded(one)
            assert len(reader.outcomes(one.trace_id)) == 1
        found_by = overview(reader, 20, {"finding": "repetition", "engine": "primary", "tenant": "acme"})
        assert {row.request.request_id for row in found_by} == {f"req-{number}" for number in range(1, 12, 2)}
        assert all(row.engines == ["primary", "second"] for row in found_by)
        assert len(reader.get_requests(reader.list_requests())) == 12
        assert reader.query("SELECT sum(attempts) AS n FROM attempts_per_minute") == [{"n": 24}]
        assert reader.query("SELECT count() AS n FROM otel_traces_trace_id_ts") == [{"n": 12}]

    erased = store.erase(Selection(tenant="acme"))
    assert (erased.rows["requests"], erased.rows["otel_traces"], erased.gone) == (6, 18, True)
    assert store.present("requests", "s", 0, 100) == {(number, 0) for number in range(0, 12, 2)}
    assert store.present("outcomes", "s", 0, 100) == {(number, 0) for number in range(12, 24, 2)}
    store.close()

    one_of_two = ClickHouseStore(parse_dsn(dsn(shards[:1], "evidence")))
    with pytest.raises(Unavailable, match=r"has 2 shards, .* names 1 hosts"):
        one_of_two.erase(Selection(tenant="other"))
    one_of_two.close()


def test_a_host_that_is_away_is_passed_over(shards: list[Server]) -> None:
    place = f"http://guard:pass@127.0.0.1:1,127.0.0.1:{shards[1].port}/default?cluster=main&replicated=no"
    store = ClickHouseStore(parse_dsn(place), read_only=True)
    assert store.query("SELECT 1 AS one") == [{"one": 1}]
    store.close()


# --- the statements --------------------------------------------------------------------------------------------------


def test_every_migration_has_a_form_for_a_cluster() -> None:
    target = Target(embedded=False, database="evidence", cluster="main")
    forms = schema.forms(target)
    assert all(" ON CLUSTER main" in form for form in forms)
    tables = {name for form in forms if (name := "".join(re.findall(r"^CREATE TABLE IF NOT EXISTS (\w+)_local", form)))}
    assert set(TABLES) <= tables
    assert set(SHARDING) <= tables
    for name in tables:
        (local,) = [form for form in forms if form.startswith(f"CREATE TABLE IF NOT EXISTS {name}_local ")]
        path = f"'/clickhouse/tables/{{shard}}/evidence/{name}_local', '{{replica}}'"
        assert re.search(rf"ENGINE = Replicated\w*MergeTree\({re.escape(path)}\)", local)
        assert "non_replicated" not in local
        assert any(
            form.startswith(f"CREATE TABLE IF NOT EXISTS {name} ON CLUSTER")
            and f"Distributed('main', 'evidence', '{name}_local'" in form
            for form in forms
        )
    plain = schema.forms(msgspec.structs.replace(target, replicated=False))
    assert not any("ON CLUSTER" in form or "Replicated" in form for form in plain)
    assert schema.forms(msgspec.structs.replace(target, cluster="")) == [
        statement for migration in schema.migrations() for statement in schema.statements(migration.text)
    ]


@pytest.mark.parametrize("replicated", [True, False])
def test_clickhouse_reads_every_statement_for_a_cluster(server: Server, replicated: bool) -> None:
    """Its own parser, on what no test can run: this engine comes without Keeper."""
    store = ClickHouseStore(parse_dsn(server.dsn("default")), read_only=True)
    for form in schema.forms(Target(embedded=False, database="evidence", cluster="main", replicated=replicated)):
        (row,) = store.query("SELECT formatQuery({text:String}) AS text", {"text": form})
        assert ("ON CLUSTER main" in row["text"]) == replicated
        assert "Replicated" not in row["text"] or replicated
    with pytest.raises(QueryError):
        store.query("SELECT formatQuery('CREATE TABLE t ON CLUSTER (a UInt8) ENGINE = ReplicatedMergeTree')")
    store.close()


def test_a_form_that_is_not_known_is_refused() -> None:
    with pytest.raises(ValueError, match="no form for a cluster of: OPTIMIZE"):
        Layout("main", "evidence").statements("OPTIMIZE TABLE requests")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("http://a:1,b:2/x", "several hosts"),
        ("http://a/x?cluster=", "plain name"),
        ("http://a/x?cluster=m;drop", "plain name|no option"),
        ("http://a/x?cluster=m&replicated=maybe", "yes or no"),
        ("http://a/x?shards=3", "no option shards"),
        ("http://a:1,b:x/x?cluster=m", "no number"),
        ("http://a,,b/x?cluster=m", "needs a host"),
    ],
)
def test_an_address_that_is_none(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_dsn(text)


def test_an_address_of_a_cluster(tmp_path: Path) -> None:
    target = parse_dsn("https://me:s%40crt@a,b:9/x?cluster=main")
    assert target.shown == "https://me@a:8443,b:9/x?cluster=main"
    assert [(one.host, one.port, one.password) for one in target.each()] == [("a", 8443, "s@crt"), ("b", 9, "s@crt")]
