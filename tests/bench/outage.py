"""A store that is away: ``python -m tests.bench.outage --minutes 10`` (``make bench-outage``).

A dummy engine, a real sidecar, a real ClickHouse server and so many requests a second. The server is killed for the
time given and comes back. What is compared is how long answers take, and how much CPU the sidecar uses for one, with
the store and without: as a ratio, since the machine may be busy. In the end the store is asked for every request.

With ``--records`` there is neither engine nor sidecar: the object that a sidecar writes its evidence with (its spool,
its writer process) gets whole records of 3.7 KB at that rate, and what is timed is its ``write``. That is all that a
store may slow down, and it leaves a small machine room for the rate.
"""

from __future__ import annotations

import asyncio
import gc
import json
import random
import statistics
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import click
import msgspec

from guard.trace.link import WriterLink
from guard.trace.retention import RetentionRules
from guard.trace.store import open_store
from guard.trace.tracing import Tracing
from tests.bench.loopback import DummyEngine, compile_native
from tests.bench.proxies import Proxy
from tests.clickhouse_server import Server
from tests.trace.bench_evidence import record

STREAMS = 64
CONFIG = """\
listen: {{http: "127.0.0.1:0", grpc: ""}}
engines: [{{name: dummy, url: "{url}", dialect: vllm, cluster: bench}}]
routes: [{{model: flat, engines: [dummy]}}]
trace: {{store: "{store}", spool: "{folder}/spool", retention: {{default: full}}}}
"""
WORDS = " ".join(f"word{i % 97}" for i in range(280))


@dataclass
class Phase:
    """``seconds`` an answer took from the moment it was asked for; ``cpu`` of the serving process, in seconds;
    ``skipped``: requests that were not made, since the machine did not get through those before them."""

    name: str
    began: float = 0.0
    cpu: float = 0.0
    spooled: int = 0
    skipped: int = 0
    seconds: list[float] = field(default_factory=list)

    def line(self) -> str:
        ordered = sorted(self.seconds)
        return (
            f"{self.name:6} {len(ordered):7,} in all, {statistics.median(ordered) * 1e3:7.3f} ms in the median, "
            f"{ordered[len(ordered) * 99 // 100] * 1e3:7.3f} of 99 in 100, "
            f"{self.cpu / len(ordered) * 1e6:6.0f} us of CPU each"
            + (f"; {self.skipped:,} were not asked: the machine is too busy" if self.skipped else "")
        )


class Load:
    """``rate`` requests a second over connections that stay open; each starts when its time has come, whatever the
    others do, unless all connections are busy."""

    def __init__(self, port: int, rate: float) -> None:
        self._port = port
        self._rate = rate
        self._body = json.dumps(
            {
                "model": "flat",
                "stream": True,
                "max_tokens": 64,
                "messages": [{"role": "user", "content": WORDS}],
            }
        ).encode()
        self.answered = 0
        self.phase = Phase("warm")

    async def run(self, stop: asyncio.Event) -> None:
        due = asyncio.Queue[None]()
        callers = [asyncio.create_task(self._caller(due)) for _ in range(STREAMS)]
        begun, sent = time.monotonic(), 0
        while not stop.is_set():
            await asyncio.sleep(0.005)
            while sent < (time.monotonic() - begun) * self._rate:
                sent += 1
                if due.qsize() < STREAMS:
                    due.put_nowait(None)
                else:
                    self.phase.skipped += 1
        await due.join()
        for caller in callers:
            caller.cancel()
        await asyncio.gather(*callers, return_exceptions=True)

    async def _caller(self, due: asyncio.Queue[None]) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(self._body)}\r\n\r\n".encode()
        try:
            while True:
                await due.get()
                began = time.monotonic()
                writer.write(head + self._body)
                answer = await reader.readuntil(b"\r\n0\r\n\r\n")
                if b"data: [DONE]" not in answer:
                    raise click.ClickException(f"an answer was cut: {answer[-300:]!r}")
                self.phase.seconds.append(time.monotonic() - began)
                self.answered += 1
                due.task_done()
        finally:
            writer.close()


async def measure(proxy: Proxy, server: Server, spool: Path, minutes: float, rate: float) -> tuple[list[Phase], int]:
    load = Load(proxy.port, rate)
    stop = asyncio.Event()
    running = asyncio.create_task(load.run(stop))
    phases = []
    for name, seconds in lasts(minutes).items():
        if name == "away":
            server.stop()
        elif name == "after":
            await asyncio.to_thread(server.start)
        phase = load.phase = Phase(name, spooled=size(spool))
        cpu = proxy.cpu()
        await asyncio.wait([running], timeout=seconds)
        if running.done():
            await running
        phase.cpu, phase.spooled = proxy.cpu() - cpu, size(spool) - phase.spooled
        phases.append(phase)
    stop.set()
    await running
    return phases[1:], load.answered


async def measure_records(
    store: str, server: Server, spool: Path, minutes: float, rate: float
) -> tuple[list[Phase], int]:
    tracing = Tracing(store, spool, retention=RetentionRules(default="full"), spool_max_bytes=4_000_000_000)
    await tracing.start()
    draw = random.Random(1)
    some = [record(draw) for _ in range(500)]
    gc.freeze()
    phases, written = [], 0
    for name, seconds in lasts(minutes).items():
        if name == "away":
            server.stop()
        elif name == "after":
            await asyncio.to_thread(server.start)
        phase = Phase(name, spooled=size(spool))
        begun, due = time.monotonic(), 0
        while (past := time.monotonic() - begun) < seconds:
            while due < past * rate:
                due += 1
                now = time.time()
                one = msgspec.structs.replace(some[due % len(some)], trace_id=f"{written:032x}", started_at=now)
                one.attempts = [msgspec.structs.replace(one.attempts[0], started_at=now)]
                began, cpu = time.perf_counter(), time.thread_time()
                tracing.write(one)
                phase.cpu += time.thread_time() - cpu
                phase.seconds.append(time.perf_counter() - began)
                written += 1
            await asyncio.sleep(0.002)
        phase.spooled = size(spool) - phase.spooled
        phases.append(phase)
        click.echo(phase.line())
    await tracing.aclose()
    return phases[1:], written


def lasts(minutes: float) -> dict[str, float]:
    """The phases, and their seconds."""
    return {"warm": 5.0, "before": 15.0 * minutes, "away": 60.0 * minutes, "after": 15.0 * minutes}


def size(spool: Path) -> int:
    return sum(path.stat().st_size for path in spool.glob("*/*.seg") if path.exists())


@click.command()
@click.option("--minutes", default=2.0, show_default=True, help="How long the store is away.")
@click.option("--rate", default=200.0, show_default=True, help="Requests a second.")
@click.option("--records", is_flag=True, help="Records alone, without engine and sidecar.")
def main(minutes: float, rate: float, records: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "clickhouse").mkdir()
        server = Server(folder / "clickhouse")
        server.start()
        store, spool = server.dsn("evidence"), folder / "spool"
        config = folder / "outguard.yaml"
        try:
            if records:
                phases, answered = asyncio.run(measure_records(store, server, spool, minutes, rate))
                found, drained = stored(store, spool)
            else:
                with DummyEngine(compile_native(folder)) as engine:
                    config.write_text(CONFIG.format(url=engine.url, store=store, folder=folder))
                    with Proxy(
                        [sys.executable, "-m", "guard", "serve", "--config", str(config)], folder / "log"
                    ) as proxy:
                        phases, answered = asyncio.run(measure(proxy, server, spool, minutes, rate))
                        found, drained = stored(store, spool)
            report(phases, bare=records)
        finally:
            server.stop()
    click.echo(
        f"the store has {found['n']:,} rows of {found['u']:,} requests; {answered:,} were answered; the rest of the "
        f"spool was stored {drained:.1f} s after the end"
    )
    if not found["n"] == found["u"] == answered:
        raise click.ClickException(f"{answered - found['u']} were lost, {found['n'] - found['u']} doubled")


def stored(store: str, spool: Path) -> tuple[dict[str, int], float]:
    """Rows and different requests of the store once the spool is empty, and how long that took."""
    began = time.monotonic()
    with closing(WriterLink(store, spool, spool)) as link, open_store(store, spool) as reader:
        while not link.ask({"op": "flush", "timeout": 60.0}, 90.0)["drained"]:
            click.echo("still draining")
        drained = time.monotonic() - began
        (found,) = reader.query("SELECT count() AS n, uniqExact(trace_id) AS u FROM requests")
    return found, drained


def report(phases: list[Phase], *, bare: bool) -> None:
    for phase in phases if not bare else ():
        click.echo(phase.line())
    before, away, after = phases
    present = sorted(before.seconds + after.seconds)
    middle = statistics.median(away.seconds) / statistics.median(present)
    cpu = (away.cpu / len(away.seconds)) / ((before.cpu + after.cpu) / len(present))
    what = "a write" if bare else "an answer"
    click.echo(f"without the store {what} takes {middle:.2f} times as long, and {cpu:.2f} times the CPU")
    click.echo(f"spooled while it was away: {away.spooled / len(away.seconds):,.0f} bytes a request")


if __name__ == "__main__":
    main()
