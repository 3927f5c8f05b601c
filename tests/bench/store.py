"""What reading costs over a million stored requests: ``make bench-store``, or
``python -m tests.bench.store [--rows 1000000] [--only embedded|server] [--keep DIRECTORY]``.

Fills a store by SQL (tests/bench/store_rows.py), asks every question that the commands and the dashboard ask, through
the code that asks them, and prints warm medians. Goals: no query over 300 ms, a look-up of one trace by its id under
50 ms. The embedded store is asked in this process, the server over HTTP (the same engine in a process of its own).

Wall-clock time on a shared machine says little: the CPU column is the engine's own, of all threads, for the query that
took most of it, in the same rounds. A goal is held when the slowest query's time or that CPU keeps to it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from guard.trace.clickhouse import ClickHouseStore
from guard.trace.contradictions import contradictions
from guard.trace.overview import overview
from guard.trace.place import settle
from guard.trace.reader import SqlReader
from guard.trace.record import RequestRecord
from guard.trace.store import QUERY_ROWS, Target, parse_dsn
from guard.trace.tail import Tail
from tests.bench.store_rows import DAYS, fill
from tests.grafana import queries

GOAL_MS: Final = 300.0
POINT_MS: Final = 50.0
WARM: Final = 2
RUNS: Final = 7


class Timed(SqlReader):
    """A reader that keeps what each query took: ``times`` and ``spent`` (the engine's CPU), in milliseconds."""

    def __init__(self, store: ClickHouseStore, cpu: Callable[[], float]) -> None:
        self._store = store
        self._cpu = cpu
        self.times: list[float] = []
        self.spent: list[float] = []

    def query(
        self, sql: str, params: Mapping[str, Any] | None = None, *, limit: int = QUERY_ROWS
    ) -> list[dict[str, Any]]:
        began, before = time.perf_counter(), self._cpu()
        try:
            return self._store.query(sql, params, limit=limit)
        finally:
            self.times.append((time.perf_counter() - began) * 1e3)
            self.spent.append((self._cpu() - before) * 1e3)

    def flush(self, timeout: float = 5.0) -> bool:
        return True

    def close(self) -> None:
        self._store.close()


class Question(NamedTuple):
    name: str
    goal: float
    ask: Callable[[Timed], object]


def questions(reader: Timed, end: float) -> list[Question]:
    """Everything that the commands and the dashboard ask. ``end``: when the last request was."""
    day, week = end - 86_400, end - DAYS * 86_400
    kept = reader.query(
        "SELECT trace_id, request_id FROM requests WHERE retention = 'full' AND outcome = 'failed' "
        "ORDER BY cityHash64(trace_id) LIMIT 1"
    )[0]
    trace, request = kept["trace_id"], kept["request_id"]
    some = reader.query("SELECT trace_id, request_id FROM requests ORDER BY cityHash64(trace_id) LIMIT 100")
    heads = [RequestRecord(row["trace_id"], row["request_id"], 0.0) for row in some]
    found = [
        Question("show TRACE", POINT_MS, lambda r: r.get_request(trace)),
        Question("show, the verdicts", POINT_MS, lambda r: r.outcomes(trace)),
        Question("show REQUEST", GOAL_MS, lambda r: r.get_request(request)),
        Question("show, 12 digits of a trace", GOAL_MS, lambda r: r.get_request(trace[:12])),
        Question("show, no such trace", GOAL_MS, lambda r: r.get_request("0" * 32)),
        Question("list", GOAL_MS, lambda r: overview(r, 20, {})),
        Question("list --limit 1000", GOAL_MS, lambda r: overview(r, 1_000, {})),
        Question("list --outcome failed --since 24h", GOAL_MS,
                 lambda r: overview(r, 20, {"outcome": "failed", "since": day})),
        Question("list --tenant --outcome failed", GOAL_MS,
                 lambda r: overview(r, 20, {"tenant": "tenant-9", "outcome": "failed"})),
        Question("list --finding 'repetition.*'", GOAL_MS, lambda r: overview(r, 20, {"finding": "repetition"})),
        Question("list --finding --since 24h", GOAL_MS, lambda r: overview(r, 20, {"finding": "schema", "since": day})),
        Question("list --image --cluster --precision", GOAL_MS, lambda r: overview(
            r, 20, {"engine": "engine-6", "cluster": "a", "precision": "fp8"})),
        Question("list --node --since 24h", GOAL_MS, lambda r: overview(r, 20, {"node": "node-7", "since": day})),
        Question("tail, its start", GOAL_MS, lambda r: Tail(r, None, end)),
        Question("tail, a look", GOAL_MS, _look(end)),
        Question("export, 100 whole requests", GOAL_MS, lambda r: r.get_requests(heads)),
        Question("engines --contradictions --since 7d", GOAL_MS, lambda r: contradictions(r, week)),
        Question("a trace's spans", POINT_MS, lambda r: r.query(
            "SELECT * FROM otel_traces WHERE TraceId = {t:String} ORDER BY Timestamp", {"t": trace})),
        Question("a trace's spans, as Grafana asks", GOAL_MS, lambda r: r.query(
            "WITH {t:String} AS id, (SELECT min(Start) FROM otel_traces_trace_id_ts WHERE TraceId = id) AS low, "
            "(SELECT max(End) + 1 FROM otel_traces_trace_id_ts WHERE TraceId = id) AS high "
            "SELECT TraceId, SpanId, ParentSpanId, ServiceName, SpanName, Timestamp, Duration, SpanAttributes "
            "FROM otel_traces WHERE TraceId = id AND Timestamp >= low AND Timestamp <= high LIMIT 1000", {"t": trace})),
        Question("attempts and KV cache on one clock", GOAL_MS,
                 lambda r: r.query(_SLOW_AND_WRONG, {"since": int(day)})),
    ]  # fmt: skip
    names = {
        "model": ["qwen3-32b", "llama-4-scout", "deepseek-v4"],
        "engine": [f"engine-{number}" for number in range(1, 9)],
    }
    for title, sql in queries(week, end, names):
        found.append(Question(f"dashboard: {title}", GOAL_MS, lambda r, sql=sql: r.query(sql)))
    return found


_SLOW_AND_WRONG: Final = """
SELECT a.engine AS engine, a.outcome AS outcome, count() AS attempts, round(avg(m.value), 3) AS kv_cache
FROM (SELECT engine, outcome, toDateTime64(started_at, 3, 'UTC') AS at FROM attempts
    WHERE started_at >= toDateTime({since:UInt32})) AS a
ASOF LEFT JOIN (SELECT engine, at, value FROM engine_metrics
    WHERE metric = 'vllm:kv_cache_usage_perc' AND at >= toDateTime({since:UInt32}) - 60) AS m
ON a.engine = m.engine AND a.at >= m.at
GROUP BY engine, outcome ORDER BY engine, outcome
"""


def _look(end: float) -> Callable[[Timed], object]:
    """A look with a few hundred new rows."""

    def look(reader: Timed) -> object:
        tail = Tail(reader, {"outcome": "ok"}, end)
        reader.times.clear()
        reader.spent.clear()
        tail._shown = {segment: max(-1, last - 800_000) for segment, last in tail._shown.items()}
        return tail.poll(end)

    return look


class Measured(NamedTuple):
    name: str
    goal: float
    queries: int
    slowest: float
    together: float
    cpu: float

    @property
    def held(self) -> bool:
        return min(self.slowest, self.cpu) <= self.goal


def measure(reader: Timed, question: Question) -> Measured:
    slowest, together, spent = [], [], []
    for turn in range(WARM + RUNS):
        reader.times.clear()
        reader.spent.clear()
        question.ask(reader)
        if turn >= WARM:
            spent.append(max(reader.spent))
            slowest.append(max(reader.times))
            together.append(sum(reader.times))
    return Measured(
        question.name,
        question.goal,
        len(reader.times),
        statistics.median(slowest),
        statistics.median(together),
        statistics.median(spent),
    )


def report(kind: str, found: list[Measured]) -> bool:
    print(f"\n{kind:58} {'queries':>7} {'slowest':>10} {'together':>10} {'CPU':>10}")
    for one in found:
        mark = "" if one.held else f"  over {one.goal:.0f} ms"
        print(
            f"{one.name[:58]:58} {one.queries:7} {one.slowest:7.1f} ms {one.together:7.1f} ms {one.cpu:7.1f} ms{mark}"
        )
    missed = [one.name for one in found if not one.held]
    print(f"goals held: {len(found) - len(missed)} of {len(found)}")
    return not missed


def sizes(store: ClickHouseStore) -> None:
    rows = store.query(
        "SELECT table, sum(rows) AS rows, sum(bytes_on_disk) AS bytes, count() AS parts FROM system.parts "
        "WHERE active AND database = {db:String} GROUP BY table HAVING rows > 100 ORDER BY bytes DESC",
        {"db": store.target.database},
    )
    for row in rows:
        print(f"  {row['table']:24} {row['rows']:>10,} rows {row['bytes'] / 1e6:8.1f} MB in {row['parts']} parts")


def filled(store: ClickHouseStore, rows: int) -> float:
    """Fill it, unless it is; when the last request was."""
    store.migrate()
    if store.query("SELECT count() AS n FROM requests") != [{"n": rows}]:
        began = time.monotonic()
        for done in fill(lambda sql, params: store._client.command(sql, parameters=params), rows, time.time()):
            print(f"\r  {done:,} requests", end="", flush=True)
        print(f" in {time.monotonic() - began:.0f} s")
    (row,) = store.query("SELECT toUnixTimestamp64Micro(max(started_at)) AS last FROM requests")
    return int(row["last"]) / 1e6


def run(kind: str, target: Target, rows: int, cpu: Callable[[], float]) -> bool:
    print(f"\n{kind}: {target.shown}")
    store = ClickHouseStore(target)
    end = filled(store, rows)
    sizes(store)
    store.close()
    reader = Timed(ClickHouseStore(target, read_only=True), cpu)
    try:
        return report(kind, [measure(reader, question) for question in questions(reader, end)])
    finally:
        reader.close()


def _own_cpu() -> float:
    spent = os.times()
    return spent.user + spent.system


def _cpu_of(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def _server(directory: Path) -> Iterator[tuple[Target, int]]:
    from tests.clickhouse_server import Server

    directory.mkdir(parents=True, exist_ok=True)
    server = Server(directory, memory=2_000_000_000)
    server.start()
    try:
        yield parse_dsn(server.dsn("bench")), server.pid
    finally:
        server.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--only", choices=["embedded", "server"])
    parser.add_argument("--keep", type=Path, help="where the stores lie, and stay; a second run finds them filled")
    options = parser.parse_args()
    held = []
    with tempfile.TemporaryDirectory() as made:
        home = (options.keep or Path(made)).resolve()
        if options.only != "embedded":
            with _server(home / "server") as (target, pid):
                held.append(run("server", target, options.rows, lambda: _cpu_of(pid)))
        if options.only != "server":
            settle(home / "embedded")
            held.append(run("embedded", parse_dsn(f"chdb://{home / 'embedded'}"), options.rows, _own_cpu))
            os.chdir("/")
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
