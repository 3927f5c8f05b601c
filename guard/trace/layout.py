"""The tables of a cluster, made from those of one server: on every shard a table ``NAME_local`` holds the rows, and a
Distributed table NAME in front of them is what is written to and asked. Pure.

All rows of a trace lie on one shard, so that what is looked up, joined or erased by trace stays within it. With Keeper
the local tables are Replicated ones and statements run ON CLUSTER; without it (``replicated=no`` in the DSN) they are
plain, and each host that the DSN names is told every statement.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

LOCAL: Final = "_local"

BY_TRACE: Final = "cityHash64(trace_id)"
SHARDING: Final = {
    "requests": BY_TRACE,
    "attempts": BY_TRACE,
    "findings": BY_TRACE,
    "outcomes": BY_TRACE,
    "sketches": BY_TRACE,
    "otel_traces": "cityHash64(TraceId)",
    "losses": "cityHash64(spool_segment, spool_offset)",
    "engine_metrics": "cityHash64(engine)",
    "erasures": "cityHash64(spool_segment, spool_offset)",
}
"""Who is written to through its Distributed table. The others are filled by views, on their own shard. A batch that is
sent again goes where it went before."""

_TABLE: Final = re.compile(r"CREATE TABLE IF NOT EXISTS (\w+)\n(.*)\nENGINE = (\w*MergeTree)\b(.*)", re.DOTALL)
_FILLED: Final = re.compile(r"CREATE MATERIALIZED VIEW IF NOT EXISTS (\w+) TO (\w+) AS\n(.*)", re.DOTALL)
_VIEW: Final = re.compile(r"CREATE VIEW IF NOT EXISTS (\w+) AS\n(.*)", re.DOTALL)
_ASKS: Final = re.compile(r"ALTER TABLE (\w+)\n\s*MODIFY QUERY\n(.*)", re.DOTALL)
_ALTER: Final = re.compile(r"ALTER TABLE (\w+)\n(.*)", re.DOTALL)
_SOURCE: Final = re.compile(r"\bFROM (\w+)\b(?!\()")


class Layout(Struct, frozen=True):
    cluster: str
    database: str
    replicated: bool = True

    @property
    def on(self) -> str:
        return f" ON CLUSTER {self.cluster}" if self.replicated else ""

    def statements(self, statement: str) -> list[str]:
        """What one statement of a migration is here. Raises ValueError on a form that is not known."""
        if match := _TABLE.fullmatch(statement):
            return [self._local(*match.groups()), self._front(match[1], "CREATE TABLE IF NOT EXISTS")]
        if match := _FILLED.fullmatch(statement):
            name, target, query = match.groups()
            query = _SOURCE.sub(rf"FROM \1{LOCAL}", query)
            return [f"CREATE MATERIALIZED VIEW IF NOT EXISTS {name}{self.on} TO {target}{LOCAL} AS\n{query}"]
        if match := _VIEW.fullmatch(statement):
            return [f"CREATE VIEW IF NOT EXISTS {match[1]}{self.on} AS\n{match[2]}"]
        if match := _ASKS.fullmatch(statement):
            query = _SOURCE.sub(rf"FROM \1{LOCAL}", match[2])
            return [f"ALTER TABLE {match[1]}{self.on} MODIFY QUERY\n{query}"]
        if match := _ALTER.fullmatch(statement):
            altered = f"ALTER TABLE {match[1]}{LOCAL}{self.on}\n{match[2]}"
            return [altered, self._front(match[1], "CREATE OR REPLACE TABLE")]
        raise ValueError(f"there is no form for a cluster of: {statement[:60]}")

    def _local(self, name: str, body: str, engine: str, rest: str) -> str:
        if self.replicated:
            place = f"/clickhouse/tables/{{shard}}/{self.database}/{name}{LOCAL}"
            engine = f"Replicated{engine}('{place}', '{{replica}}')"
            rest = rest.replace("non_replicated_deduplication_window", "replicated_deduplication_window")
        return f"CREATE TABLE IF NOT EXISTS {name}{LOCAL}{self.on}\n{body}\nENGINE = {engine}{rest}"

    def _front(self, name: str, create: str) -> str:
        key = f", {SHARDING[name]}" if name in SHARDING else ""
        return (
            f"{create} {name}{self.on} AS {self.database}.{name}{LOCAL}\n"
            f"ENGINE = Distributed('{self.cluster}', '{self.database}', '{name}{LOCAL}'{key})"
        )

    def migrations_table(self, name: str) -> str:
        """Where migrations are written down: with Keeper the same on every host, else each host's own."""
        engine = "MergeTree"
        if self.replicated:
            engine = f"ReplicatedMergeTree('/clickhouse/tables/all/{self.database}/{name}', '{{shard}}-{{replica}}')"
        return (
            f"CREATE TABLE IF NOT EXISTS {name}{self.on} (version UInt32, name String, checksum String, "
            f"applied_at DateTime DEFAULT now()) ENGINE = {engine} ORDER BY version"
        )
