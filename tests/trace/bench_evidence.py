"""What evidence costs: ``make bench-trace``, or ``python -m tests.trace.bench_evidence [records]``.

Prints the CPU of one ``Tracing.write`` (retention, spool, metrics; spans are made in the writer process), and how many
records go from the spool to the embedded store and to a server, a second and a second of CPU (of both processes). A
record has 3.7 KB of content: a body of 2,000 characters and two arrays of 200 four-byte numbers.

On a busy machine only the CPU means something, and the least of several measurements more than their median: what
others do to the caches is in it as well.
"""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from guard.trace.link import WriterLink, connect
from guard.trace.record import AttemptRecord, FindingRecord, RequestRecord
from guard.trace.retention import RetentionRules
from guard.trace.store import open_store
from guard.trace.tracing import Tracing
from tests.clickhouse_server import Server


def record(draw: random.Random, tokens: int = 200) -> RequestRecord:
    now = time.time()
    attempt = AttemptRecord(
        choice=0,
        attempt=1,
        engine="primary",
        dialect="vllm",
        engine_model="small",
        image="registry/engine:1.2",
        cluster="b",
        precision="fp8",
        started_at=now,
        first_token_ms=20.0,
        duration_ms=2_000.0,
        chunks=tokens,
        finish_reason="stop",
        prompt_tokens=300,
        completion_tokens=tokens,
        output_text="word " * 100,
        output_token_ids=[draw.randrange(150_000) for _ in range(tokens)],
        token_logprobs=[-draw.random() for _ in range(tokens)],
        findings=[FindingRecord("repetition.token", "warn", "content", 5, 9, "a word five times")],
    )
    words = " ".join(draw.choice(("alpha", "beta", "gamma", "delta")) for _ in range(180))
    return RequestRecord(
        trace_id=f"{draw.getrandbits(128):032x}",
        request_id="req",
        started_at=now,
        span_id=f"{draw.getrandbits(64):016x}",
        tenant="acme",
        model="small",
        policy="default",
        retention="full",
        duration_ms=2_000.0,
        first_token_ms=20.0,
        finish_reason="stop",
        prompt_tokens=300,
        completion_tokens=tokens,
        attempts_made=1,
        request_body='{"model":"small","messages":[{"role":"user","content":"' + words + '"}]}',
        output_text="word " * 100,
        attempts=[attempt],
    )


def writing(records: list[RequestRecord], home: Path) -> None:
    for retention in ("full", "hash", "none"):
        rules = RetentionRules(default=retention, most=retention)
        tracing = Tracing("http://127.0.0.1:1/bench", home / retention, retention=rules)
        times = []
        for _ in range(15):
            began = time.process_time()
            for one in records:
                tracing.write(one)
            times.append((time.process_time() - began) / len(records) * 1e6)
        low, middle = min(times), statistics.median(times)
        print(f"write, retention {retention:4}: {low:.1f} us of CPU a request at best, {middle:.1f} in the median")


def storing(records: list[RequestRecord], home: Path, count: int, server: Server | None) -> None:
    """The spool is full before the writer starts; it is timed from its first stored batch on."""
    store, spool = server.dsn("outguard") if server else f"chdb://{home / 'store'}", home / "spool"
    where = spool if server else home / "store"
    tracing = Tracing(store, spool, retention=RetentionRules(default="full"), spool_max_bytes=8_000_000_000)
    for number in range(count):
        tracing.write(records[number % len(records)])
    print(f"spooled: {_size(spool) / count:,.0f} bytes a record")
    environment = {**os.environ, "OUTGUARD_STORE": store}
    command = [sys.executable, "-m", "guard.trace.writer", "--spool", str(spool)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment)
    pids = [process.pid, *([server.pid] if server else [])]
    while connect(where) is None:
        time.sleep(0.01)
    link = WriterLink(store, spool, where)
    while not (before := _delivered(link)):
        time.sleep(0.01)
    began, cpu = time.monotonic(), sum(map(_cpu, pids))
    while (after := _delivered(link)) < count:
        time.sleep(0.05)
    seconds, cpu = time.monotonic() - began, sum(map(_cpu, pids)) - cpu
    stored = after - before
    print(
        f"spool to {'a server' if server else 'the embedded store'}: {stored / seconds:,.0f} records/s while "
        f"{os.getloadavg()[0]:.1f} processes wanted {os.cpu_count()} cores; "
        f"{stored / cpu:,.0f} records a second of CPU ({cpu / stored * 1e6:.0f} us each, merges included)"
    )
    with open_store(store, spool) as reader:
        link.ask({"op": "flush", "timeout": 60.0}, 70.0)
        found = reader.query("SELECT count() AS n, uniqExact(spool_segment, spool_offset) AS u FROM requests")
        assert found == [{"n": count, "u": count}]
        disk = reader.query("SELECT sum(bytes_on_disk) AS b FROM system.parts WHERE active AND database = 'outguard'")
    print(f"on disk: {disk[0]['b'] / count:,.0f} bytes a record (from 1,000 different ones)")
    with open(f"/proc/{process.pid}/status") as status:
        print("writer:", next(line for line in status if line.startswith("VmHWM")).split(":")[1].strip(), "at most")
    link.close()
    assert process.stdin is not None
    process.stdin.close()
    process.wait()


def _delivered(link: WriterLink) -> int:
    return int(link.ask({"op": "status"}, 10.0)["status"]["delivered"])


def _size(spool: Path) -> int:
    return sum(path.stat().st_size for path in spool.rglob("*.seg"))


def _cpu(pid: int) -> float:
    """Seconds of CPU that a process has used."""
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 30_000
    draw = random.Random(1)
    records = [record(draw) for _ in range(1_000)]
    with tempfile.TemporaryDirectory() as home:
        writing(records, Path(home))
        storing(records, Path(home) / "embedded", count, None)
        (Path(home) / "clickhouse").mkdir()
        server = Server(Path(home) / "clickhouse", memory=2_000_000_000)
        server.start()
        try:
            storing(records, Path(home) / "server", count, server)
        finally:
            server.stop()


if __name__ == "__main__":
    main()
