"""What codecs, sorting keys and granules are worth: ``python -m tests.bench.store_layout [rows]`` (default 100,000).

Fills an embedded store (tests/bench/store_rows.py), copies columns and tables under other choices, and prints their
sizes and what questions cost in CPU, of all threads. Token ids here are drawn like words of a text (few are frequent)
and logprobs like a model's (most are near zero), since the store's own test rows have neither shape.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from guard.trace.clickhouse import ClickHouseStore
from guard.trace.store import parse_dsn
from guard.trace.writer import settle
from tests.bench.store_rows import fill

TOKENS: Final = "arrayMap(i -> toUInt32(150000 * pow((sipHash64(trace_id, i) % 1000003) / 1000003, 4)), range(160))"
LOGPROBS: Final = "arrayMap(i -> toFloat32(-8 * pow((sipHash64(trace_id, i, 1) % 1000003) / 1000003, 6)), range(160))"

COLUMNS: Final[tuple[tuple[str, str, str, str, tuple[str, ...]], ...]] = (
    ("attempts", "output_token_ids", "Array(UInt32)", TOKENS, ("NONE", "ZSTD(1)", "T64, ZSTD(1)", "ZSTD(3)")),
    ("attempts", "token_logprobs", "Array(Float32)", LOGPROBS, ("NONE", "ZSTD(1)", "Gorilla, ZSTD(1)", "ZSTD(3)")),
    ("requests", "request_body", "String", "request_body", ("LZ4", "ZSTD(1)", "ZSTD(3)", "ZSTD(6)")),
    ("requests", "started_at", "DateTime64(6)", "started_at", ("ZSTD(1)", "Delta, ZSTD(1)", "DoubleDelta, ZSTD(1)")),
    ("requests", "trace_id", "String", "trace_id", ("LZ4", "ZSTD(1)")),
    ("requests", "prompt_tokens", "UInt32", "prompt_tokens", ("LZ4", "ZSTD(1)", "T64, ZSTD(1)")),
)  # fmt: skip
"""table, column, type, what is in it, codecs"""

ORDERS: Final = ("started_at, trace_id", "model, engine, started_at, trace_id", "trace_id")
GRANULES: Final = (1024, 8192)
QUESTIONS: Final = {
    "one trace": "SELECT * FROM {table} WHERE trace_id = {{trace:String}}",
    "one model and engine, a day": "SELECT image, outcome, count(), avg(duration_ms) FROM {table} WHERE model = "
    "'qwen3-32b' AND engine = 'engine-2' AND started_at > (SELECT max(started_at) FROM {table}) - INTERVAL 1 DAY "
    "GROUP BY image, outcome",
    "all by image and cluster": "SELECT image, cluster, countIf(outcome != 'ok') / count() FROM {table} GROUP BY ALL",
}


def cpu() -> float:
    spent = os.times()
    return spent.user + spent.system


class Bench:
    def __init__(self, store: ClickHouseStore) -> None:
        self.command = store._client.command
        self.query = store.query

    def codecs(self) -> None:
        for table, column, type_, value, codecs in COLUMNS:
            where = "WHERE retention = 'full'" if type_.startswith("Array") or column == "request_body" else ""
            for codec in codecs:
                self.command("DROP TABLE IF EXISTS tried SYNC")
                self.command(
                    f"CREATE TABLE tried (at DateTime64(6), it {type_} CODEC({codec})) ENGINE = MergeTree ORDER BY at "
                    "SETTINGS min_bytes_for_wide_part = 0"
                )
                before = cpu()
                self.command(f"INSERT INTO tried SELECT started_at, {value} FROM {table} {where}")
                self.command("OPTIMIZE TABLE tried FINAL")
                written = cpu() - before
                before = cpu()
                for _ in range(3):
                    self.query("SELECT sum(cityHash64(it)) AS h FROM tried")
                read = (cpu() - before) / 3
                rows = self.query(
                    "SELECT sum(column_data_compressed_bytes) / sum(rows) AS b FROM system.parts_columns "
                    "WHERE active AND table = 'tried' AND column = 'it'"
                )
                print(
                    f"  {column:18} {codec:22} {rows[0]['b']:8.1f} bytes a row {written * 1e3:8.0f} ms CPU to write "
                    f"{read * 1e3:6.0f} to read",
                    flush=True,
                )

    def orders(self) -> None:
        trace = self.query("SELECT trace_id FROM attempts ORDER BY cityHash64(trace_id) LIMIT 1")[0]["trace_id"]
        for order in ORDERS:
            for granule in GRANULES:
                self.command("DROP TABLE IF EXISTS tried SYNC")
                self.command(
                    "CREATE TABLE tried AS attempts ENGINE = MergeTree PARTITION BY toDate(started_at) "
                    f"ORDER BY ({order}) SETTINGS index_granularity = {granule}"
                )
                self.command("INSERT INTO tried SELECT * FROM attempts")
                spent = []
                for sql in QUESTIONS.values():
                    for turn in range(7):
                        if turn == 2:
                            before = cpu()
                        self.query(sql.format(table="tried"), {"trace": trace})
                    spent.append((cpu() - before) / 5 * 1e3)
                size = self.query(
                    "SELECT sum(bytes_on_disk) / sum(rows) AS b FROM system.parts WHERE active AND table = 'tried'"
                )[0]["b"]
                costs = " ".join(f"{ms:8.1f}" for ms in spent)
                print(f"  {order:36} {granule:6} {size:8.0f} bytes a row {costs} ms CPU", flush=True)


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    with tempfile.TemporaryDirectory() as made:
        home = Path(made).resolve()
        settle(home)
        store = ClickHouseStore(parse_dsn(f"chdb://{home}"))
        store.migrate()
        for _ in fill(lambda sql, params: store._client.command(sql, parameters=params), rows, time.time()):
            pass
        bench = Bench(store)
        print("codecs")
        bench.codecs()
        print(f"attempts by sorting key and granule: {', '.join(QUESTIONS)}")
        bench.orders()
        store.close()
        os.chdir("/")


if __name__ == "__main__":
    main()
