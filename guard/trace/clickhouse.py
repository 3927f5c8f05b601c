"""ClickHouse as the store: in this process (chdb) or a server over HTTP, both through clickhouse-connect.

Both take the same statements; what differs is how a client is made. Rows go in as blocks of columns with a
deduplication token. Only the writer process and readers of a server import this module: it loads the embedded engine's
client.

The embedded engine reads ``./config.xml`` and the one in the home directory; who opens a path must have moved to a
directory without one (guard/trace/writer.py does).
"""

from __future__ import annotations

import datetime
import decimal
import logging
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import clickhouse_connect
from clickhouse_connect.driver.compression import available_compression
from clickhouse_connect.driver.exceptions import DatabaseError, ProgrammingError

from guard.trace import schema
from guard.trace.clickhouse_error import AWAY, REFUSALS, away, brief, code_of
from guard.trace.columns import UNFIT, Block, Inserter
from guard.trace.erase import Erased, Selection
from guard.trace.erasing import erase_rows
from guard.trace.layout import LOCAL, Layout
from guard.trace.link import ask_flush
from guard.trace.reader import SqlReader
from guard.trace.rows import TABLES, Row, Values, transposed
from guard.trace.store import QUERY_ROWS, QueryError, Refused, StoreError, Target, Unavailable, WrongSchema

log: Final = logging.getLogger(__name__)

for _chatty in ("urllib3.connectionpool", "clickhouse_connect.driver"):
    logging.getLogger(_chatty).setLevel(logging.ERROR)  # of a store that is away we tell ourselves, once

MEMORY_BYTES: Final = 1_500_000_000
"""The cap of the embedded engine. A batch of 20,000 records of 4 KB takes about 500 MB while it is inserted."""

QUERY_SECONDS: Final = 30

GRANT_TO_ERASE: Final = "GRANT SELECT, INSERT, ALTER DELETE, ALTER SETTINGS on its database is needed"

_INSERT: Final = {
    "async_insert": 0,
    "insert_deduplicate": 1,
    "deduplicate_blocks_in_dependent_materialized_views": 1,
    "max_partitions_per_insert_block": 0,
    # one block for the whole batch: a batch is then one part a day, stored whole or not at all
    "min_insert_block_size_rows": 1_000_000,
    "min_insert_block_size_bytes": 1_000_000_000,
}

_TRAILING: Final = re.compile(r"[\s;]+$")
_QUOTED: Final = re.compile(r"'(?:[^'\\]|\\.|'')*'|`[^`]*`|\"(?:[^\"\\]|\\.)*\"|--[^\n]*|/\*.*?\*/", re.DOTALL)


class ClickHouseStore:
    """``read_only`` gives a handle that can only ask, within limits. Raises Unavailable when nothing answers."""

    def __init__(self, target: Target, *, read_only: bool = False) -> None:
        self.target = target
        self._lock = threading.Lock()
        self._read_only = read_only
        self._layout = Layout(target.cluster, target.database, target.replicated) if target.cluster else None
        try:
            self._client = _connect_any(target)
            if not read_only and not self._client.query(_HAS_DATABASE, {"name": target.database}).result_rows[0][0]:
                on = self._layout.on if self._layout else ""
                self._client.command(f"CREATE DATABASE IF NOT EXISTS {target.database}{on}")
            self._client.database = target.database
            self._inserter = Inserter(self._client, target.database, _compression(target))
            if target.embedded:
                self._client.command(f"USE {target.database}")
                if read_only:
                    for name, value in _limits(QUERY_ROWS).items():
                        self._client.set_client_setting(name, value)
        except Exception as error:
            raise away(error, target) from error

    def migrate(self) -> list[str]:
        """Without Keeper every host that the target names is told."""
        if self.target.more and not self.target.replicated:
            names: list[str] = []
            for one in self._each():
                names = one.migrate() or names
            return names
        applied = self.applied()
        missing = schema.pending(applied, self.target.shown)
        if not missing:
            return []
        try:
            self._apply(missing)
        except Exception as error:
            if code_of(error) != 497:
                raise away(error, self.target) from error
            if applied or not self._has_tables():
                raise WrongSchema(
                    f"the trace store {self.target.shown} lacks {', '.join(one.name for one in missing)}, and this "
                    "user may not change its tables (error 497): run outguard store migrate as one who may",
                    497,
                ) from error
            log.info("the tables of %s are somebody else's to change", self.target.shown)
            return []
        return [migration.name for migration in missing]

    def _apply(self, missing: Sequence[schema.Migration]) -> None:
        layout = self._layout
        self._client.command(layout.migrations_table(schema.TABLE) if layout else _MIGRATIONS)
        for migration in missing:
            for statement in schema.statements(migration.text):
                for form in layout.statements(statement) if layout else [statement]:
                    self._client.command(form)
            self._client.command(
                f"INSERT INTO {schema.TABLE} (version, name, checksum) "
                f"VALUES ({migration.version}, '{migration.name}', '{migration.checksum}')",
                settings={"async_insert": 0, "insert_deduplication_token": migration.name},
            )

    def applied(self) -> dict[int, str]:
        """Version and name of every migration that the store has. Raises Unavailable."""
        try:
            if not self._client.query(_HAS_TABLE, self._table(schema.TABLE)).result_rows:
                return {}
            rows = self._client.query(
                f"SELECT version, any(name) FROM {self.target.database}.{schema.TABLE} GROUP BY version"
            ).result_rows
        except Exception as error:
            if code_of(error) == 81:  # there is no such database yet
                return {}
            raise away(error, self.target) from error
        return {int(version): str(name) for version, name in rows}

    def _table(self, name: str) -> dict[str, str]:
        return {"database": self.target.database, "table": name}

    def _has_tables(self) -> bool:
        found = self._client.query(_TABLES, {"database": self.target.database}).result_rows
        return set(TABLES) <= {row[0] for row in found}

    def insert(self, table: str, rows: Sequence[Row], token: str) -> None:
        if table not in TABLES:
            raise ValueError(f"there is no table {table!r}")
        if rows:
            self.insert_blocks(table, [self.encode(table, transposed(rows))], token)

    def encode(self, table: str, values: Sequence[Values]) -> Block:
        try:
            return self._inserter.encode(table, values)
        except UNFIT as error:
            raise Refused(type(error).__name__) from error
        except Exception as error:
            raise away(error, self.target) from error

    def insert_blocks(self, table: str, blocks: Sequence[Block], token: str) -> None:
        try:
            self._inserter.insert(table, blocks, _INSERT | {"insert_deduplication_token": token})
        except DatabaseError as error:
            code = code_of(error)
            if code in REFUSALS:
                raise Refused(f"code {code}", code) from error
            raise away(error, self.target) from error
        except Exception as error:
            raise away(error, self.target) from error

    def present(self, table: str, segment: str, start: int, end: int) -> set[tuple[int, int]]:
        if table not in TABLES:
            raise ValueError(f"there is no table {table!r}")
        try:
            found = self._client.query(
                f"SELECT spool_offset, spool_row FROM {table} WHERE spool_segment = {{segment:String}} "
                "AND spool_offset >= {start:UInt64} AND spool_offset < {end:UInt64}",
                parameters={"segment": segment, "start": start, "end": end},
            )
        except Exception as error:
            raise away(error, self.target) from error
        return {(int(row[0]), int(row[1])) for row in found.result_rows}

    def query(
        self, sql: str, params: Mapping[str, Any] | None = None, *, limit: int = QUERY_ROWS
    ) -> list[dict[str, Any]]:
        limit = max(1, min(limit, QUERY_ROWS))
        if re.search(r"\boutfile\b", _QUOTED.sub(" ", sql), re.IGNORECASE):
            raise QueryError("a query of the evidence cannot write files")
        settings = None if self.target.embedded else _limits(limit)
        try:
            # the embedded engine answers nothing to a second query while one is open on the same handle
            with self._lock:
                result = self._client.query(_TRAILING.sub("", sql), parameters=dict(params or {}), settings=settings)
        except DatabaseError as error:
            code = code_of(error)
            if code == 396:
                raise QueryError(f"the answer has more than {limit} rows: add a LIMIT", code) from error
            if code in AWAY and code not in (160, 164):
                raise away(error, self.target) from error
            raise QueryError(brief(error), code) from error
        except ProgrammingError as error:
            raise QueryError(brief(error)) from error
        except Exception as error:
            raise away(error, self.target) from error
        rows = result.result_rows
        if len(rows) > limit:
            raise QueryError(f"the answer has more than {limit} rows: add a LIMIT", 396)
        names = result.column_names
        return [dict(zip(names, map(_plain, row), strict=True)) for row in rows]

    def erase(self, selection: Selection, *, dry_run: bool = False) -> Erased:
        try:
            if self._layout is None:
                return erase_rows(self._ask, selection, dry_run=dry_run)
            self._name_every_shard()
            with ThreadPoolExecutor() as pool:  # most of it is waiting for the servers
                found = list(pool.map(lambda one: _erase_on(one, selection, dry_run), self.target.each()))
        except StoreError as error:
            if error.code == 497:
                raise Unavailable(f"this user may not erase rows: {GRANT_TO_ERASE}", 497) from error
            raise
        rows = {table: sum(one.rows[table] for one in found) for table in found[0].rows}
        return Erased(rows, gone=all(one.gone for one in found))

    def _each(self) -> Iterator[ClickHouseStore]:
        """A store for every host of a cluster."""
        for target in self.target.each():
            one = ClickHouseStore(target)
            try:
                yield one
            finally:
                one.close()

    def _name_every_shard(self) -> None:
        """Erasing is done on each shard. Raises Unavailable when the target does not name a host of each."""
        shards = self._ask(
            "SELECT uniqExact(shard_num) FROM system.clusters WHERE cluster = {name:String}",
            {"name": self.target.cluster},
        )[0][0]
        named = len(self.target.each())
        if named < shards:
            raise Unavailable(
                f"the cluster {self.target.cluster} has {shards} shards, and the trace store's address names {named} "
                "hosts: to erase, it must name one of each shard; nothing was erased"
            )

    def _ask(self, statement: str, params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """For statements of our own, without the limits of ``query``."""
        try:
            if statement.startswith("SELECT"):
                return list(self._client.query(statement, parameters=dict(params)).result_rows)
            self._client.command(statement, parameters=dict(params))
        except Exception as error:
            raise away(error, self.target) from error
        return []

    def close(self) -> None:
        self._client.close()


def _erase_on(shard: Target, selection: Selection, dry_run: bool) -> Erased:
    store = ClickHouseStore(shard)
    try:
        return erase_rows(store._ask, selection, suffix=LOCAL, dry_run=dry_run)
    finally:
        store.close()


class ServerReader(SqlReader):
    """A reader of a server. ``spool`` is where its writer listens, for ``flush``."""

    def __init__(self, target: Target, spool: Path) -> None:
        self._store = ClickHouseStore(target, read_only=True)
        self._spool = spool
        applied = self._store.applied()  # empty where somebody else made the tables
        missing = schema.pending(applied, target.shown) if applied else []
        if missing:
            raise WrongSchema(
                f"the trace store {target.shown} has schema {max(applied)}, and this Outguard reads schema "
                f"{missing[-1].version}: run outguard store migrate"
            )

    def query(
        self, sql: str, params: Mapping[str, Any] | None = None, *, limit: int = QUERY_ROWS
    ) -> list[dict[str, Any]]:
        return self._store.query(sql, params, limit=limit)

    def flush(self, timeout: float = 5.0) -> bool:
        return ask_flush(self._spool, timeout)

    def close(self) -> None:
        self._store.close()


_OF_CLUSTERS: Final = {
    "distributed_foreground_insert": 1,  # an insert is done when the shards have it
    "distributed_product_mode": "local",  # a trace lies on one shard: what is looked up by trace stays within it
    "allow_nondeterministic_mutations": 1,  # an erasure looks rows up, the same on every replica
}

_HAS_DATABASE: Final = "SELECT count() FROM system.databases WHERE name = {name:String}"
_TABLES: Final = "SELECT name FROM system.tables WHERE database = {database:String}"
_HAS_TABLE: Final = "SELECT 1 FROM system.tables WHERE database = {database:String} AND name = {table:String}"
_MIGRATIONS: Final = (
    f"CREATE TABLE IF NOT EXISTS {schema.TABLE} (version UInt32, name String, checksum String, "
    "applied_at DateTime DEFAULT now()) ENGINE = MergeTree ORDER BY version "
    "SETTINGS non_replicated_deduplication_window = 100"
)


def _limits(rows: int) -> dict[str, Any]:
    return {
        "max_execution_time": QUERY_SECONDS,
        "max_result_rows": rows,
        "max_result_bytes": 64 * 1024 * 1024,
        "result_overflow_mode": "throw",
        "readonly": 1,
    }


def _connect_any(target: Target) -> Any:
    """To the first host that answers."""
    *others, last = target.each()
    for one in others:
        try:
            return _connect(one)
        except Exception as error:
            log.warning("%s:%d of the trace store does not answer (%s)", one.host, one.port, type(error).__name__)
    return _connect(last)


def _connect(target: Target) -> Any:
    if target.embedded:
        return clickhouse_connect.get_client(
            interface="chdb", path=target.path, chdb_options={"max_server_memory_usage": str(MEMORY_BYTES)}
        )
    return clickhouse_connect.get_client(
        interface=target.scheme,
        host=target.host,
        port=target.port,
        username=target.user or None,
        password=target.password,
        database="default",
        autogenerate_session_id=False,
        connect_timeout=5,
        send_receive_timeout=60,
        query_retries=0,
        settings=_OF_CLUSTERS if target.cluster else None,
    )


def _compression(target: Target) -> str | None:
    """Of what is sent: only over a network is it worth the CPU."""
    if target.embedded or target.host in ("localhost", "127.0.0.1", "::1"):
        return None
    return "lz4" if "lz4" in available_compression else None


def _plain(value: Any) -> Any:
    """What JSON and msgpack can say, the same for every kind of store."""
    if isinstance(value, str | bool | float | None):
        return value
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**64 else str(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, datetime.datetime):
        naive = value.astimezone(datetime.UTC).replace(tzinfo=None) if value.tzinfo else value
        return naive.isoformat(timespec="microseconds" if naive.microsecond else "seconds") + "Z"
    if isinstance(value, decimal.Decimal):
        return float(value)
    return str(value)
