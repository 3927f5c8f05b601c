"""One suite for every store: what was written is read back the same, whichever store it lies in.

Records take the real way: a spool, the delivery, the store, a reader. The embedded store lives in a writer process.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from guard.trace.clickhouse import ClickHouseStore, ServerReader
from guard.trace.delivery import Delivery
from guard.trace.drain import Drain
from guard.trace.memory import MemoryStore
from guard.trace.record import AttemptRecord, FindingRecord, LossRecord, OutcomeRecord, RequestRecord
from guard.trace.rows import COLUMNS, Row, rows
from guard.trace.schema import migrations, statements
from guard.trace.spool import Spool
from guard.trace.store import AmbiguousTrace, QueryError, Refused, TraceReader, Unavailable, open_store, parse_dsn

Make = Callable[..., RequestRecord]
Put = Callable[[Sequence[RequestRecord | OutcomeRecord]], TraceReader]

_databases = (f"test_{n}" for n in itertools.count())


@pytest.fixture(params=["memory", "embedded", "server"])
def put(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Put]:
    """Stores records and gives a reader of them."""
    spool = Spool(tmp_path / "spool")
    readers: list[TraceReader] = []
    if request.param == "memory":
        store: Any = MemoryStore()
        dsn = ""
    elif request.param == "server":
        dsn = request.getfixturevalue("server").dsn(next(_databases))
        store = ClickHouseStore(parse_dsn(dsn))
        store.migrate()
    else:
        dsn = f"chdb://{tmp_path / 'store'}"
        store = None
        request.getfixturevalue("start_writer")(dsn, tmp_path / "spool")

    def put(records: Sequence[RequestRecord | OutcomeRecord]) -> TraceReader:
        for record in records:
            spool.write_outcome(record) if isinstance(record, OutcomeRecord) else spool.write(record)
        reader: TraceReader
        if store is None:
            (tmp_path / "store").mkdir(exist_ok=True)
            reader = open_store(dsn, tmp_path / "spool")
            assert reader.flush(30)
        else:
            drain = Drain(tmp_path / "spool")
            for batch in drain.batches():
                delivery = Delivery(store, tmp_path / "aside")
                delivery.send(delivery.prepare(batch))
                drain.commit(batch)
            drain.close()
            reader = store if dsn == "" else open_store(dsn)
        readers.append(reader)
        return reader

    yield put
    for reader in readers:
        reader.close()
    if store is not None:
        store.close()


def encoded(record: Any) -> bytes:
    """For comparing records in which a number may be none."""
    return msgspec.msgpack.encode(record)


def test_everything_comes_back(put: Put, make: Make) -> None:
    plain = RequestRecord(trace_id="f" * 32, request_id="plain", started_at=round(time.time() - 5, 3))
    first, second = make(1), make(2, seed=2**64 - 1, max_tokens=-1, temperature=None, tenant="other")
    told = [
        OutcomeRecord(first.trace_id, "call_1", round(time.time(), 3), False, "no such row"),
        OutcomeRecord(first.trace_id, "call_1", round(time.time() + 1, 3), True),
    ]
    reader = put([first, second, *told, plain])
    for wanted in (first, second, plain):
        found = reader.get_request(wanted.trace_id)
        assert encoded(found) == encoded(wanted)
    assert encoded(reader.attempts(first.trace_id)) == encoded(first.attempts)
    assert reader.findings(first.trace_id) == first.attempts[0].findings
    assert reader.outcomes(first.trace_id) == told
    assert reader.outcomes(second.trace_id) == []

    # found by the beginning of its id, by its request's, and only when it is one
    assert reader.get_request(first.trace_id[:9].upper()) is not None
    found = reader.get_request("req-2")
    assert found is not None
    assert found.trace_id == second.trace_id
    assert reader.get_request("0" * 32) is None
    assert reader.get_request("' OR 1=1 --") is None
    assert reader.get_request("%") is None
    assert reader.get_request("") is None

    # the list: the newest first, without bodies
    listed = reader.list_requests()
    assert listed[-1].request_id == "plain"
    assert {record.request_id for record in listed} == {"req-1", "req-2", "plain"}
    assert all(not record.request_body and not record.output_text and not record.attempts for record in listed)
    assert len(reader.list_requests(1)) == 1

    def ids(**filters: Any) -> set[str]:
        return {record.request_id for record in reader.list_requests(50, filters)}

    assert ids(tenant="acme") == {"req-1"}
    assert ids(engine="second") == {"req-1", "req-2"}
    assert ids(engine="second", image="img:1.2") == set()  # of one attempt, not of two
    assert ids(engine="primary", image="img:1.2", cluster="b") == {"req-1", "req-2"}
    assert (
        ids(finding="repetition") == ids(finding="repetition.token") == ids(finding="rep*.tok*") == {"req-1", "req-2"}
    )
    assert ids(finding="repetition.tok") == ids(finding="r_petition.token") == set()
    assert ids(node="n1", precision="fp8", engine_version="0.9") == {"req-1", "req-2"}
    assert ids(node="n1", precision="bf16") == set()
    assert ids(recovered=False) == {"plain"}
    assert ids(model="small", recovered=True) == {"req-1", "req-2"}
    assert ids(until=first.started_at - 1) == {"plain"}
    assert ids(since=first.started_at - 1) == {"req-1", "req-2"}
    assert ids(model="' OR 1=1 --") == set()
    with pytest.raises(QueryError, match="colour"):
        reader.list_requests(5, {"colour": "red"})


def test_several_requests_of_one_trace(put: Put, make: Make) -> None:
    """A caller's own trace may hold many: each has its own attempts."""
    trace = "c" * 32
    one, two, other = make(1, trace_id=trace), make(2, trace_id=trace), make(3)
    two.started_at += 1
    two.attempts = two.attempts[1:]
    reader = put([one, two, other])
    assert encoded(reader.get_request(trace)) == encoded(two)
    assert encoded(reader.get_request("req-1")) == encoded(one)
    assert len(reader.attempts(trace)) == 3
    assert [a.engine for a in reader.attempts(trace, "req-2")] == ["second"]
    assert len(reader.findings(trace)) == len(reader.findings(trace, "req-1")) == 2
    listed = reader.list_requests()
    assert [encoded(whole) for whole in reader.get_requests(listed)] == [
        encoded({"req-1": one, "req-2": two, "req-3": other}[head.request_id]) for head in listed
    ]
    assert reader.get_requests([make(9)]) == []


def test_a_short_id_may_mean_several(put: Put, make: Make) -> None:
    one, two = make(1, trace_id="ab" + "1" * 30), make(2, trace_id="ab" + "2" * 30)
    reader = put([one, two])
    with pytest.raises(AmbiguousTrace) as raised:
        reader.get_request("ab")
    assert set(raised.value.candidates) == {one.trace_id, two.trace_id}
    found = reader.get_request("ab1")
    assert found is not None
    assert found.request_id == "req-1"


def test_sql_is_for_reading_and_within_limits(put: Put, make: Make, tmp_path: Path) -> None:
    reader = put([make(1)])
    if isinstance(reader, MemoryStore):
        with pytest.raises(QueryError, match="SQL"):
            reader.query("SELECT 1")
        return
    found = reader.query(
        "SELECT engine, image, started_at, {who:String} AS who, [1, 2] AS list, map('k', 1) AS map, "
        "toDecimal32(1.5, 2) AS number FROM attempts WHERE engine = {engine:String};",
        {"who": "it's 100% {me}\n", "engine": "primary"},
    )
    assert len(found) == 1
    started = found[0].pop("started_at")
    assert started.endswith("Z")
    assert found[0] == {
        "engine": "primary",
        "image": "img:1.2",
        "who": "it's 100% {me}\n",
        "list": [1, 2],
        "map": {"k": 1},
        "number": 1.5,
    }
    for wrong in (
        "DROP TABLE requests",
        "INSERT INTO requests (trace_id) VALUES ('x')",
        "ALTER TABLE requests DELETE WHERE 1",
        "SYSTEM SHUTDOWN",
        "SELECT 1 SETTINGS max_result_rows = 0",
        "SET readonly = 0",
        "SELECT * FROM file('/etc/passwd', 'LineAsString')",
        f"SELECT 1 INTO OUTFILE '{tmp_path / 'out'}'",
        f"SELECT 1 INTO/**/OUTFILE '{tmp_path / 'out'}'",
        "SELECT nonsense",
        "SELEC 1",
        "SELECT {missing:String}",
        "",
    ):
        with pytest.raises(QueryError):
            reader.query(wrong)
    assert not (tmp_path / "out").exists()
    with pytest.raises(QueryError, match="more than 10000 rows"):
        reader.query("SELECT number FROM numbers(20000)")
    with pytest.raises(QueryError, match="more than 5 rows"):
        reader.query("SELECT number FROM numbers(6)", limit=5)
    assert len(reader.query("SELECT number FROM numbers(5)", limit=5)) == 5
    assert len(reader.list_requests()) == 1  # and it still answers


# --- what only a store that speaks SQL has --------------------------------------------------------------------------


@pytest.fixture
def store(server: Any) -> Iterator[ClickHouseStore]:
    made = ClickHouseStore(parse_dsn(server.dsn(next(_databases))))
    made.migrate()
    yield made
    made.close()


def row(offset: int, table: str = "requests", **changes: Any) -> Row:
    """A row of segment ``s``."""
    record: Any = RequestRecord(str(offset), "r", time.time(), attempts=[AttemptRecord(0, 1, "primary")])
    if table == "outcomes":
        record = OutcomeRecord("a", "call", time.time(), True)
    ((found),) = rows([(offset, record)], "s")[table]
    values = tuple(changes.get(name, value) for name, value in zip(COLUMNS[table], found.values, strict=True))
    return Row(offset, 0, values)


def test_migrations_are_applied_once(server: Any) -> None:
    made = ClickHouseStore(parse_dsn(server.dsn(next(_databases))))
    assert made.migrate() == [name for _, name, _ in migrations()]
    assert made.migrate() == []
    made.close()


def test_a_user_who_may_only_insert(server: Any) -> None:
    """Grants of SELECT and INSERT on the database, and the tables made by somebody else, are enough."""
    dsn = server.dsn("narrow", user="narrow")
    with pytest.raises(Unavailable, match="497"):
        ClickHouseStore(parse_dsn(dsn))
    other = ClickHouseStore(parse_dsn(server.dsn("narrow")))
    for _, _, text in migrations():
        for statement in statements(text):
            other._client.command(statement)
    other.close()
    narrow = ClickHouseStore(parse_dsn(dsn))
    assert narrow.migrate() == []
    narrow.insert("outcomes", [row(1, "outcomes")], "t")
    assert narrow.present("outcomes", "s", 0, 5) == {(1, 0)}
    narrow.close()
    with open_store(dsn) as reader:
        assert len(reader.outcomes("a")) == 1


def test_every_field_of_a_record_has_its_column(store: ClickHouseStore) -> None:
    for table, record in (
        ("requests", RequestRecord),
        ("attempts", AttemptRecord),
        ("findings", FindingRecord),
        ("outcomes", OutcomeRecord),
        ("losses", LossRecord),
    ):
        columns = store.query(
            "SELECT name FROM system.columns WHERE database = {db:String} AND table = {table:String}",
            {"db": store.target.database, "table": table},
        )
        missing = set(record.__struct_fields__) - {"attempts", "findings"} - {column["name"] for column in columns}
        assert not missing, f"{table} lacks {missing}: a field of a record needs a migration"


def test_a_token_twice_is_stored_once(store: ClickHouseStore) -> None:
    batch = [row(n) for n in range(3)]
    for _ in range(3):
        store.insert("requests", batch, "the batch")
    assert store.present("requests", "s", 0, 10) == {(0, 0), (1, 0), (2, 0)}
    assert store.query("SELECT count() AS n FROM requests") == [{"n": 3}]
    assert store.present("requests", "s", 1, 2) == {(1, 0)}
    assert store.present("requests", "other", 0, 10) == set()


def test_a_refused_batch_leaves_nothing_and_says_nothing_of_its_rows(
    store: ClickHouseStore, caplog: pytest.LogCaptureFixture
) -> None:
    for column, value in (
        ("choices", "a secret word"),
        ("choices", 2**40),
        ("choices", -1),
        ("started_at", float("nan")),
        ("model", {"a": "secret"}),
        ("seed", 2**200),
    ):
        with pytest.raises(Refused) as raised:
            store.insert("requests", [row(1), row(2, **{column: value}), row(3)], f"{column} {value}")
        assert "secret" not in raised.value.message
        assert store.present("requests", "s", 0, 10) == set()
    assert "secret" not in caplog.text
    store.insert("requests", [row(1)], "t")
    assert store.present("requests", "s", 0, 10) == {(1, 0)}


def test_a_table_of_another_version_does_no_harm(store: ClickHouseStore) -> None:
    """What it lacks is left out, also when that changes while the store is open; what it has more has its default."""
    store._client.command("ALTER TABLE attempts ADD COLUMN of_tomorrow UInt8 DEFAULT 7, DROP COLUMN tokenizer_hash")
    store.insert("attempts", [row(1, "attempts")], "t")
    store._client.command("ALTER TABLE attempts DROP COLUMN template_hash")
    with pytest.raises(Unavailable):
        store.insert("attempts", [row(2, "attempts")], "u")
    store.insert("attempts", [row(2, "attempts")], "u")
    assert store.query("SELECT spool_offset AS at, engine, of_tomorrow AS t FROM attempts ORDER BY at") == [
        {"at": 1, "engine": "primary", "t": 7},
        {"at": 2, "engine": "primary", "t": 7},
    ]


def test_a_batch_over_many_days_is_one_batch(store: ClickHouseStore) -> None:
    batch = [row(day, started_at=time.time() - day * 86_400) for day in range(80)]
    store.insert("requests", batch, "t")
    store.insert("requests", batch, "t")
    assert store.query("SELECT count() AS n FROM requests") == [{"n": 80}]


def test_a_store_that_is_not_there(server: Any) -> None:
    for dsn in (server.dsn("x", password="wr0ng"), "http://guard:wr0ng@127.0.0.1:1/x"):
        with pytest.raises(Unavailable) as raised:
            open_store(dsn)
        assert "wr0ng" not in str(raised.value)
    with pytest.raises(Unavailable, match="no trace store"):
        open_store("chdb:///nowhere/at/all")


def test_statements_are_split_at_the_end_of_a_line() -> None:
    assert statements("-- c;\nSELECT ';';\n\nSELECT 2 -- d\n;\n") == ["SELECT ';'", "SELECT 2 -- d"]


def test_a_server_reader_finds_no_writer_to_flush(server: Any, tmp_path: Path) -> None:
    with ServerReader(parse_dsn(server.dsn("default")), tmp_path) as reader:
        assert not reader.flush(0.1)
