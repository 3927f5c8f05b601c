"""What a trace store can do, and what a reader of it may ask.

Two contracts: a ``Store`` takes rows (the writer process holds one), a ``TraceReader`` answers (the CLI, the replay).
``open_store`` gives a reader for a DSN; where the evidence lies is its business alone:

- ``chdb:///path``: the embedded store. One process at a time can have it open, so the reader asks the writer that has
  it, or starts one for as long as it reads (guard/trace/link.py).
- ``http[s]://user:password@host:8123/database``, ``clickhouse://...``: a ClickHouse server.
- ``http://user:password@host:8123,host:8123/database?cluster=NAME``: a cluster, as its servers' configuration names it;
  ``&replicated=no`` where it has no Keeper (guard/trace/layout.py). The first host that answers is asked; migrations
  without Keeper and erasing need one host of every shard.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec
from msgspec import Struct

from guard.trace.erase import Erased, Selection
from guard.trace.record import AttemptRecord, FindingRecord, OutcomeRecord, RequestRecord
from guard.trace.rows import Row, Values

QUERY_ROWS: Final = 10_000
"""The most rows a query may answer with, unless the caller says otherwise."""


class StoreError(Exception):
    """``code`` is ClickHouse's error number, or None."""

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


class Refused(StoreError):
    """The store is there and will not take these rows as they are: sending them again is of no use."""


class Unavailable(StoreError):
    """The store is away, full or busy: the same rows may be taken later."""


class WrongSchema(Unavailable):
    """The store's tables are of a newer version than this program, or (for a reader, which changes nothing) of an older
    one. Rows wait in the spool until one of the two is brought up to date."""


class QueryError(StoreError):
    """The reader's own mistake, or a limit that its query passed."""


class AmbiguousTrace(StoreError):
    """``candidates``: trace ids that begin with what was asked for."""

    def __init__(self, asked: str, candidates: Sequence[str]) -> None:
        super().__init__(f"{asked!r} is the beginning of several trace ids: {', '.join(candidates)}")
        self.candidates = tuple(candidates)


class RequestFilter(Struct, frozen=True, forbid_unknown_fields=True):
    """Empty means any. ``since`` and ``until`` are Unix seconds; ``finding`` is a code (``json.invalid``), a family
    (``json``) or a pattern (``json.*``), and holds when any attempt of the request has it; the axes of an attempt
    (``engine`` and what follows it) hold when one attempt has them all."""

    since: float | None = None
    until: float | None = None
    model: str = ""
    tenant: str = ""
    policy: str = ""
    outcome: str = ""
    error_code: str = ""
    retention: str = ""
    protocol: str = ""
    recovered: bool | None = None
    finding: str = ""
    engine: str = ""
    engine_version: str = ""
    image: str = ""
    cluster: str = ""
    node: str = ""
    precision: str = ""


REQUEST_FILTERS: Final = ("model", "tenant", "policy", "outcome", "error_code", "retention", "protocol")
ATTEMPT_FILTERS: Final = ("engine", "engine_version", "image", "cluster", "node", "precision")


class Store(Protocol):
    def migrate(self) -> list[str]:
        """Bring the tables to this version's form. Returns the names of the migrations that were applied. Raises
        WrongSchema (they are of a newer version) or Unavailable."""
        ...

    def insert(self, table: str, rows: Sequence[Row], token: str) -> None:
        """All or none of the rows. The same token twice is stored once. Raises Refused or Unavailable."""
        ...

    def encode(self, table: str, values: Sequence[Values]) -> Any:
        """Columns of a table as ``insert_blocks`` takes them; may be made on another thread, and ahead of time. Raises
        Refused or Unavailable."""
        ...

    def insert_blocks(self, table: str, blocks: Sequence[Any], token: str) -> None:
        """Like ``insert``, of what was encoded."""
        ...

    def present(self, table: str, segment: str, start: int, end: int) -> set[tuple[int, int]]:
        """The (offset, number) of the rows that are stored of a stretch of a segment. Raises Unavailable."""
        ...

    def query(
        self, sql: str, params: Mapping[str, Any] | None = None, *, limit: int = QUERY_ROWS
    ) -> list[dict[str, Any]]:
        """Read only. Raises QueryError or Unavailable."""
        ...

    def erase(self, selection: Selection, *, dry_run: bool = False) -> Erased:
        """Remove what is meant, so that no file holds it any more; or only count it. Done when it returns. Raises
        Unavailable; whoever was cut off starts again."""
        ...

    def close(self) -> None: ...


class TraceReader(Protocol):
    """Synchronous. Every method raises StoreError."""

    def list_requests(
        self, limit: int = 50, filters: RequestFilter | Mapping[str, Any] | None = None
    ) -> list[RequestRecord]:
        """The newest first; without bodies, outputs and attempts."""
        ...

    def get_request(self, trace: str) -> RequestRecord | None:
        """By trace id, the beginning of one, or a request id; with its attempts and their findings. Of several requests
        in one trace (a caller's own) the newest. Raises AmbiguousTrace."""
        ...

    def get_requests(self, requests: Sequence[RequestRecord]) -> list[RequestRecord]:
        """Whole records of what ``list_requests`` gave, in that order."""
        ...

    def attempts(self, trace_id: str, request_id: str = "") -> list[AttemptRecord]:
        """Of one request of the trace, or of all."""
        ...

    def findings(self, trace_id: str, request_id: str = "") -> list[FindingRecord]: ...

    def outcomes(self, trace_id: str) -> list[OutcomeRecord]:
        """In the order of the reports: the last of a call holds."""
        ...

    def query(
        self, sql: str, params: Mapping[str, Any] | None = None, *, limit: int = QUERY_ROWS
    ) -> list[dict[str, Any]]:
        """SQL with ``{name:Type}`` parameters. Read only; more than ``limit`` rows are an error, not a cut."""
        ...

    def flush(self, timeout: float = 5.0) -> bool:
        """Have the live writer store what is spooled now. False: something is left, or no writer is there."""
        ...

    def close(self) -> None: ...

    def __enter__(self) -> TraceReader: ...

    def __exit__(self, *exception: object) -> None: ...


def as_filter(filters: RequestFilter | Mapping[str, Any] | None) -> RequestFilter:
    """Raises QueryError. None as a value is as good as absent."""
    if isinstance(filters, RequestFilter):
        return filters
    given = {name: value for name, value in (filters or {}).items() if value is not None}
    try:
        return msgspec.convert(given, RequestFilter)
    except msgspec.ValidationError as error:
        raise QueryError(f"the filter is not understood: {error}") from error


class Target(Struct, frozen=True):
    """A DSN, taken apart. ``path`` for the embedded store; the others for a server, or for a cluster whose other hosts
    are ``more`` (host, port)."""

    embedded: bool
    path: str = ""
    scheme: str = "http"
    host: str = ""
    port: int = 0
    user: str = ""
    password: str = ""
    database: str = "outguard"
    more: tuple[tuple[str, int], ...] = ()
    cluster: str = ""
    replicated: bool = True

    @property
    def shown(self) -> str:
        """For people and logs: without the password."""
        if self.embedded:
            return f"chdb://{self.path}"
        who = f"{self.user}@" if self.user else ""
        hosts = ",".join(f"{host}:{port}" for host, port in ((self.host, self.port), *self.more))
        cluster = f"?cluster={self.cluster}{'' if self.replicated else '&replicated=no'}" if self.cluster else ""
        return f"{self.scheme}://{who}{hosts}/{self.database}{cluster}"

    def each(self) -> list[Target]:
        """One for every host."""
        places = ((self.host, self.port), *self.more)
        return [msgspec.structs.replace(self, host=host, port=port, more=()) for host, port in places]


def parse_dsn(dsn: str) -> Target:
    """Raises ValueError, whose message never holds the password."""
    parts = urlsplit(dsn)
    if parts.scheme == "chdb":
        path = unquote(parts.netloc + parts.path)
        if not path or parts.netloc:
            raise ValueError("an embedded store is chdb:// and an absolute path: chdb:///var/lib/outguard/store")
        return Target(embedded=True, path=str(Path(path).resolve()))
    if parts.scheme not in ("http", "https", "clickhouse"):
        raise ValueError(
            "a trace store is chdb:///path, http[s]://host:port/database or clickhouse://host:port/database"
        )
    database = unquote(parts.path.strip("/")) or "outguard"
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", database):
        raise ValueError("the database of a trace store is a plain name")
    scheme = "https" if parts.scheme == "https" else "http"
    who, _, where = parts.netloc.rpartition("@")
    user, _, password = who.partition(":")
    hosts = [_host(one, 8443 if scheme == "https" else 8123) for one in where.split(",")]
    cluster, replicated = _cluster(parts.query)
    if len(hosts) > 1 and not cluster:
        raise ValueError("a trace store of several hosts is a cluster: ?cluster=NAME is missing")
    return Target(
        embedded=False,
        scheme=scheme,
        host=hosts[0][0],
        port=hosts[0][1],
        user=unquote(user),
        password=unquote(password),
        database=database,
        more=tuple(hosts[1:]),
        cluster=cluster,
        replicated=replicated,
    )


def _host(text: str, port: int) -> tuple[str, int]:
    parts = urlsplit(f"//{text}")
    try:
        given = parts.port
    except ValueError:
        raise ValueError("the port of a trace store is no number") from None
    if not parts.hostname:
        raise ValueError("a trace store needs a host")
    return parts.hostname, given or port


def _cluster(query: str) -> tuple[str, bool]:
    """What stands behind the question mark."""
    given = dict(parse_qsl(query, keep_blank_values=True))
    cluster, replicated = given.pop("cluster", ""), given.pop("replicated", "yes")
    if given:
        raise ValueError(f"a trace store has no option {', '.join(given)}")
    if query and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", cluster):
        raise ValueError("the cluster of a trace store is a plain name: ?cluster=NAME")
    if replicated not in ("yes", "no"):
        raise ValueError("the option replicated of a trace store is yes or no")
    return cluster, replicated == "yes"


def default_spool(dsn: str) -> Path:
    """Where the spool of a store lies when the configuration names no place: beside the embedded store, else in the
    user's state directory, one for each server and database."""
    if dsn.startswith("chdb:"):
        return Path(parse_dsn(dsn).path) / "outguard-spool"
    base = Path.home() / ".local" / "state" / "outguard"
    if dsn in ("", "none"):
        return base / "spool-none"
    target = parse_dsn(dsn)
    return base / f"spool-{target.host}-{target.port}-{target.database}"


def open_store(dsn: str, spool: str | Path = "") -> TraceReader:
    """A reader. ``spool`` is where the workers spool to, when that is not the default place. Raises ValueError on a DSN
    that is none, Unavailable when nothing is there to be read."""
    target = parse_dsn(dsn)
    if target.embedded:
        from guard.trace.link import EmbeddedReader

        return EmbeddedReader(target.path, Path(spool) if spool else default_spool(dsn))
    from guard.trace.clickhouse import ServerReader  # only here: it takes a third of a second

    return ServerReader(target, Path(spool) if spool else default_spool(dsn))
