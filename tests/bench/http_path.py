"""What the HTTP path costs: ``python -m tests.bench.http_path`` (``make bench``).

A dummy engine, a load generator and a real sidecar process. Every scenario runs directly against the engine, through a
pass-through that guards nothing (passthrough.py) and through the sidecar, in turn, several rounds, and medians are
printed. CPU is what the processes themselves account for. What a microsecond of it buys depends on what else the
machine does and on how deep it sleeps between two chunks; the ratio to the pass-through, within each round, does not.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import click

from tests.bench.loopback import BenchError, DummyEngine, Load, Native, compile_native, run_load
from tests.bench.options import bench_options
from tests.bench.peers import ONE_MODEL, installed
from tests.bench.proxies import Proxy, passthrough, sidecar

TOKENS = 256


@dataclass(frozen=True)
class Scenario:
    """``unit``: what the cost is divided by. ``what``: for the reader. ``goals``: the most that a number should be, by
    its key in GOALS."""

    name: str
    what: str
    load: Load
    unit: str = "chunk"
    goals: dict[str, float] = field(default_factory=dict)


GOALS: dict[str, tuple[str, Callable[[dict[str, Any]], float]]] = {
    "cpu_us": ("CPU, us", lambda row: row["sidecar"]["proxy_us"]),
    "to_router": ("CPU to vllm-router", lambda row: row["to_peers"]["vllm-router"]),
    "first_us": ("first text added, us", lambda row: row["added_first_us"]),
    "kb_a_stream": ("memory grown, KB a stream", lambda row: row["sidecar"]["kb_a_stream"]),
}
"""What is held against a goal, and where it is in a row of the summary."""
MEMORY_GOAL_MB = 150
WHOLE = {"cpu_us": 200.0}
SCENARIOS = (
    # the first, as only what grows for the first time is seen to grow
    Scenario(
        "slow1000",
        "1,000 streams x 4 chunks, one a second each",
        Load("p1000", 1000, 1000, 4),
        goals={"kb_a_stream": 40},
    ),
    Scenario(
        "step",
        "64 streams x 256 chunks, one each 10 ms, all at the moment of the step",
        Load("s10", 64, 64, TOKENS),
        goals={"cpu_us": 20, "to_router": 1.0},
    ),
    Scenario(
        "json",
        "the same, each a document under the JSON schema that its request carries",
        Load("s10j", 64, 64, TOKENS),
        goals={"cpu_us": 24},
    ),
    Scenario(
        "call",
        "the same, each a tool call with such a document as its arguments",
        Load("s10c", 64, 64, TOKENS),
        goals={"cpu_us": 24},
    ),
    Scenario("spread", "the same, but every stream at a moment of its own", Load("p10", 64, 64, TOKENS)),
    Scenario("flat", "64 streams x 256 chunks, as fast as they go, twice over", Load("flat", 64, 128, TOKENS)),
    Scenario(
        "first",
        "one stream at a time, 16 chunks, to the first text",
        Load("flat", 1, 200, 16),
        "request",
        {"first_us": 300},
    ),
    Scenario(
        "prompt",
        "a prompt of 200,000 tokens (800 KB), one at a time, 16 chunks, to the first text",
        Load("flat", 1, 20, 16, prompt_bytes=800_000),
        "request",
    ),
    Scenario("whole1", "256 tokens not streamed, one at a time", Load("flat", 1, 100, TOKENS, False), "request", WHOLE),
    Scenario(
        "whole64", "256 tokens not streamed, 64 at a time", Load("flat", 64, 320, TOKENS, False), "request", WHOLE
    ),
)
MODELS = sorted({scenario.load.model for scenario in SCENARIOS})
WARM_UP = (Load("flat", 64, 64, 64), Load("flat", 64, 64, 64, False))
Measured = dict[str, float]


def measure(native: Native, engine: DummyEngine, proxy: Proxy | None, scenario: Scenario) -> Measured:
    """One run, through a proxy or directly. CPU in microseconds a unit; ``others_cores``: what everything else on the
    machine used meanwhile."""
    load = scenario.load
    counters = [engine.cpu, proxy.cpu, proxy.children_cpu] if proxy else [engine.cpu, _none, _none]
    machine_before, before = machine_cpu(), [counter() for counter in counters]
    with Highest(proxy.memory_mb if proxy else _none) as memory:
        seen = run_load(native, proxy.port if proxy else engine.port, load)
    engine_s, proxy_s, children_s = (now() - then for now, then in zip(counters, before, strict=True))
    ours = engine_s + proxy_s + children_s + seen["cpu_s"]
    scale = 1e6 / (load.requests * (load.tokens if scenario.unit == "chunk" else 1))
    return {
        "proxy_us": proxy_s * scale,
        "children_us": children_s * scale,
        "engine_us": engine_s * scale,
        "load_us": seen["cpu_s"] * scale,
        "all_us": (engine_s + proxy_s + seen["cpu_s"]) * scale,
        "memory_mb": memory.value,
        "wall_s": seen["wall_s"],
        "first_us": seen["first_us_p50"],
        "gap_p99_us": seen["gap_us_p99"],
        "events": seen["events"] / seen["requests"],
        "others_cores": max(0.0, (machine_cpu() - machine_before - ours) / seen["wall_s"]),
    }


class Highest:
    """The highest of a number while the context lasts, looked at twenty times a second."""

    def __init__(self, look: Callable[[], float]) -> None:
        self._look = look
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.value = look()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self.value = max(self.value, self._look())

    def _watch(self) -> None:
        while not self._ended.wait(0.05):
            self.value = max(self.value, self._look())


def run(
    native: Native,
    folder: Path,
    names: list[str],
    rounds: int,
    packages: Path | None = None,
    peers: Path | None = None,
) -> dict[str, Any]:
    """All rounds of the named scenarios, round by round, so that a busy minute falls on all of them. ``peers``: the
    folder with the programs of other systems (peers.py), which then run in the same rounds."""
    chosen = [scenario for scenario in SCENARIOS if scenario.name in names]
    runs: dict[str, dict[str, list[Measured]]] = {scenario.name: {} for scenario in chosen}
    with ExitStack() as stack:
        engine = stack.enter_context(DummyEngine(native))
        yardstick = stack.enter_context(passthrough(folder, engine.url))
        ours = stack.enter_context(sidecar(folder, engine.url, MODELS, packages))
        ways: dict[str, Proxy | None] = {"direct": None, "passthrough": yardstick, "sidecar": ours}
        there, missing = installed(peers) if peers else ({}, [])
        for name, peer in there.items():
            assert peers is not None
            ways[name] = stack.enter_context(peer(folder, engine.url, peers / name))
        for load in WARM_UP:
            for way, proxy in ways.items():
                load = replace(load, model=ONE_MODEL.get(way, load.model))
                run_load(native, proxy.port if proxy else engine.port, load)
        warm_mb = {way: proxy.memory_mb() if proxy else 0.0 for way, proxy in ways.items()}
        for _ in range(rounds):
            for scenario in chosen:
                for way, proxy in ways.items():
                    if scenario.load.model == ONE_MODEL.get(way, scenario.load.model):
                        measured = measure(native, engine, proxy, scenario)
                        runs[scenario.name].setdefault(way, []).append(measured)
        idle = ours.cpu(), ours.children_cpu()
        time.sleep(1.0)
        return {
            "machine": machine(),
            "rounds": rounds,
            "modules": "compiled" if packages else "Python",
            "peers_missing": missing,
            "started_in_s": ours.started_in,
            "memory_mb": ours.memory_mb(),
            "idle_ms_per_s": (ours.cpu() - idle[0]) * 1e3,
            "writer_idle_ms_per_s": (ours.children_cpu() - idle[1]) * 1e3,
            "scenarios": {scenario.name: summary(scenario, runs[scenario.name], warm_mb) for scenario in chosen},
        }


def summary(scenario: Scenario, runs: dict[str, list[Measured]], warm_mb: dict[str, float]) -> dict[str, Any]:
    """Medians over the rounds; ratios and differences are taken within a round first. Memory is the highest of all
    rounds over what it was after the warm-up (``warm_mb``): a heap that has grown stays grown."""

    def pairs(key: str, other: str, combine: Callable[[float, float], float]) -> float:
        return statistics.median(combine(t[key], d[key]) for t, d in zip(runs["sidecar"], runs[other], strict=True))

    row: dict[str, Any] = {"what": scenario.what, "unit": scenario.unit}
    for way, each in runs.items():
        grown_mb = max(run["memory_mb"] for run in each) - warm_mb[way]
        row[way] = {key: statistics.median(run[key] for run in each) for key in each[0]}
        row[way]["kb_a_stream"] = max(0.0, grown_mb) * 1e3 / scenario.load.streams
    others = [way for way in runs if way not in ("direct", "passthrough", "sidecar")]
    row["to_peers"] = {way: pairs("proxy_us", way, lambda t, o: t / o) for way in others}
    return {
        **row,
        "sidecar_us_rounds": [round(run["proxy_us"], 2) for run in runs["sidecar"]],
        "to_passthrough": pairs("proxy_us", "passthrough", lambda t, p: t / p),
        "cpu_ratio": pairs("all_us", "direct", lambda t, d: t / d),
        "wall_ratio": pairs("wall_s", "direct", lambda t, d: t / d),
        "added_first_us": pairs("first_us", "direct", lambda t, d: t - d),
    }


def _none() -> float:
    return 0.0


def machine_cpu() -> float:
    """Seconds that all cores together have not been idle."""
    ticks = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


def machine() -> str:
    model, cores = "", 0
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model, cores = line.partition(":")[2].strip(), cores + 1
    return (
        f"{model or platform.machine()}, {cores} cores, Python {platform.python_version()}, Linux {platform.release()}"
    )


def table(result: dict[str, Any]) -> str:
    lines = [
        f"{result['machine']}; medians of {result['rounds']} rounds; CPU in us a chunk or a request",
        f"sidecar ({result['modules']}): ready after {result['started_in_s']:.1f} s, {result['memory_mb']:.0f} MB, "
        f"idle {result['idle_ms_per_s']:.1f} ms of CPU a second, its trace writer {result['writer_idle_ms_per_s']:.1f}",
        "",
        f"{'':8} {'SIDECAR':>9} {'per':8} {'pass-':>8} {'ratio':>6} {'writer':>8} {'generator':>9} {'engine':>8} "
        f"{'all CPU':>9} {'wall':>7} {'first text':>11} {'others':>7} {'KB a':>7} {'to vllm-':>8}",
        f"{'':8} {'':>9} {'':8} {'through':>8} {'':>6} {'':>8} {'':>9} {'':>8} "
        f"{'to direct':>9} {'':>7} {'added, us':>11} {'cores':>7} {'stream':>7} {'router':>8}",
    ]
    for name, row in result["scenarios"].items():
        ours = row["sidecar"]
        first = name == SCENARIOS[0].name  # in a later one nothing grows that had not grown before
        grown = f"{ours['kb_a_stream']:.1f}" if first else "-"
        lines.append(
            f"{name:8} {ours['proxy_us']:9.1f} {row['unit']:8} {row['passthrough']['proxy_us']:8.1f} "
            f"{row['to_passthrough']:6.2f} {ours['children_us']:8.1f} {ours['load_us']:9.1f} {ours['engine_us']:8.1f} "
            f"{row['cpu_ratio']:9.2f} {row['wall_ratio']:7.2f} {row['added_first_us']:11.0f} "
            f"{ours['others_cores']:7.2f} {grown:>7} "
            + (f"{row['to_peers']['vllm-router']:8.2f}" if "vllm-router" in row["to_peers"] else f"{'-':>8}")
        )
    lines += [*peers_table(result), "", *goals(result), ""]
    lines += [f"{name:8} {row['what']}" for name, row in result["scenarios"].items()]
    return "\n".join(lines)


def peers_table(result: dict[str, Any]) -> list[str]:
    """What the other systems cost in the same rounds, and what share of it the sidecar does."""
    lines = []
    for name, row in result["scenarios"].items():
        for peer, ratio in row["to_peers"].items():
            theirs = row[peer]
            added = theirs["first_us"] - row["direct"]["first_us"]
            lines.append(
                f"{name:8} {peer:12} {theirs['proxy_us']:9.1f} us a {row['unit']}, {theirs['memory_mb']:5.0f} MB, "
                f"first text {added:7.0f} us later; the sidecar costs {ratio:.2f} of it"
            )
    lines += [f"not installed, so not beside it: {peer}" for peer in result.get("peers_missing", ())]
    return ["", *lines] if lines else []


def goals(result: dict[str, Any]) -> list[str]:
    """Each goal beside what was measured."""
    lines = [f"{'goal':38} {'at most':>8} {'measured':>9}"]

    def line(what: str, most: float, seen: float) -> None:
        lines.append(f"{what:38} {most:8.4g} {seen:9.4g}" + ("" if seen <= most else "  missed"))

    for scenario in SCENARIOS:
        row = result["scenarios"].get(scenario.name)
        for key, most in scenario.goals.items():
            what, read = GOALS[key]
            if row is not None and (key != "to_router" or "vllm-router" in row["to_peers"]):
                line(f"{scenario.name}: {what}", most, read(row))
    line("memory, MB", MEMORY_GOAL_MB, result["memory_mb"])
    return lines


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@bench_options([scenario.name for scenario in SCENARIOS])
@click.option(
    "--peers",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A folder with the programs of other systems, to run in the same rounds (make bench-peers).",
)
def main(as_json: bool, rounds: int, names: tuple[str, ...], packages: Path | None, peers: Path | None) -> None:
    """Microseconds of CPU a streamed chunk of the HTTP path with all guards on, against a direct connection."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started ends too
    with tempfile.TemporaryDirectory(prefix="outguard-bench-") as folder:
        try:
            native = compile_native(Path(folder))
            chosen = list(names) or [scenario.name for scenario in SCENARIOS]
            result = run(native, Path(folder), chosen, rounds, packages, peers)
        except BenchError as error:
            click.echo(f"bench: {error}", err=True)
            sys.exit(1)
    click.echo(json.dumps(result, indent=1) if as_json else table(result))


if __name__ == "__main__":
    main()
