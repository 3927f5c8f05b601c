"""What the HTTP path costs: ``python -m tests.bench.http_path`` (``make bench``).

A dummy engine, a load generator and a real sidecar process; every scenario runs directly against the engine and through
the sidecar, in turn, several rounds, and the medians are printed. CPU is what the processes themselves account for, so
that a busy machine disturbs it little; wall times are as the machine was.
"""

from __future__ import annotations

import json
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from tests.bench.loopback import BenchError, DummyEngine, Load, Native, compile_native, run_load
from tests.bench.sidecar import Sidecar

TOKENS = 256


@dataclass(frozen=True)
class Scenario:
    """``unit``: what the cost is divided by. ``what``: for the reader."""

    name: str
    what: str
    load: Load
    unit: str = "chunk"


SCENARIOS = (
    Scenario("paced", "64 streams x 256 chunks, one each 10 ms, spread evenly", Load("p10", 64, 64, TOKENS)),
    Scenario("step", "the same, all streams at the same moment, as an engine steps", Load("s10", 64, 64, TOKENS)),
    Scenario("flat", "64 streams x 256 chunks, as fast as they go, 4 times over", Load("flat", 64, 256, TOKENS)),
    Scenario("first", "one stream at a time, 16 chunks, to the first text", Load("flat", 1, 300, 16), "request"),
    Scenario("whole1", "256 tokens not streamed, one at a time", Load("flat", 1, 400, TOKENS, False), "request"),
    Scenario("whole64", "256 tokens not streamed, 64 at a time", Load("flat", 64, 1600, TOKENS, False), "request"),
)
MODELS = sorted({scenario.load.model for scenario in SCENARIOS})
WARM_UP = (Load("flat", 64, 128, 64), Load("flat", 64, 128, 64, False))


def measure(native: Native, engine: DummyEngine, sidecar: Sidecar | None, scenario: Scenario) -> dict[str, float]:
    """One run, through the sidecar or directly. CPU in microseconds a unit, wall in seconds."""
    load = scenario.load
    before = (engine.cpu(), sidecar.worker_cpu(), sidecar.writer_cpu()) if sidecar else (engine.cpu(), 0.0, 0.0)
    seen = run_load(native, sidecar.port if sidecar else engine.port, load)
    after = (engine.cpu(), sidecar.worker_cpu(), sidecar.writer_cpu()) if sidecar else (engine.cpu(), 0.0, 0.0)
    units = load.requests * (load.tokens if scenario.unit == "chunk" else 1)
    engine_us, worker_us, writer_us = ((b - a) * 1e6 / units for a, b in zip(before, after, strict=True))
    load_us = seen["cpu_s"] * 1e6 / units
    return {
        "worker_us": worker_us,
        "writer_us": writer_us,
        "engine_us": engine_us,
        "load_us": load_us,
        "all_us": worker_us + engine_us + load_us,
        "wall_s": seen["wall_s"],
        "first_us": seen["first_us_p50"],
        "gap_p99_us": seen["gap_us_p99"],
        "events": seen["events"] / seen["requests"],
    }


def run(native: Native, folder: Path, names: list[str], rounds: int) -> dict[str, Any]:
    """All rounds of the named scenarios, round by round, so that a busy minute falls on all of them."""
    chosen = [scenario for scenario in SCENARIOS if scenario.name in names]
    direct: dict[str, list[dict[str, float]]] = {scenario.name: [] for scenario in chosen}
    through: dict[str, list[dict[str, float]]] = {scenario.name: [] for scenario in chosen}
    with DummyEngine(native) as engine, Sidecar(folder / "sidecar", engine.url, MODELS) as sidecar:
        for load in WARM_UP:
            run_load(native, engine.port, load)
            run_load(native, sidecar.port, load)
        for _ in range(rounds):
            for scenario in chosen:
                direct[scenario.name].append(measure(native, engine, None, scenario))
                through[scenario.name].append(measure(native, engine, sidecar, scenario))
        idle = sidecar.worker_cpu(), sidecar.writer_cpu()
        time.sleep(1.0)
        idle = sidecar.worker_cpu() - idle[0], sidecar.writer_cpu() - idle[1]
        result: dict[str, Any] = {
            "machine": machine(),
            "rounds": rounds,
            "started_in_s": sidecar.started_in,
            "memory_mb": sidecar.memory_mb(),
            "worker_idle_ms_per_s": idle[0] * 1e3,
            "writer_idle_ms_per_s": idle[1] * 1e3,
            "scenarios": {},
        }
    for scenario in chosen:
        result["scenarios"][scenario.name] = summary(scenario, direct[scenario.name], through[scenario.name])
    return result


def summary(scenario: Scenario, direct: list[dict[str, float]], through: list[dict[str, float]]) -> dict[str, Any]:
    """Medians over the rounds; ratios and differences are taken within a round first."""

    def pairs(key: str, combine: Callable[[float, float], float]) -> float:
        return statistics.median(combine(t[key], d[key]) for t, d in zip(through, direct, strict=True))

    return {
        "what": scenario.what,
        "unit": scenario.unit,
        "through": {key: statistics.median(run[key] for run in through) for key in through[0]},
        "direct": {key: statistics.median(run[key] for run in direct) for key in direct[0]},
        "worker_us_rounds": [round(run["worker_us"], 2) for run in through],
        "cpu_ratio": pairs("all_us", lambda t, d: t / d),
        "wall_ratio": pairs("wall_s", lambda t, d: t / d),
        "added_first_us": pairs("first_us", lambda t, d: t - d),
    }


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
        f"{result['machine']}; medians of {result['rounds']} rounds; CPU in us",
        f"sidecar: ready after {result['started_in_s']:.1f} s, {result['memory_mb']:.0f} MB; "
        f"idle {result['worker_idle_ms_per_s']:.1f} ms/s, its trace writer {result['writer_idle_ms_per_s']:.1f} ms/s",
        "",
        f"{'':8} {'sidecar':>8} {'per':8} {'writer':>7} {'generator':>16} {'engine':>16} {'all CPU':>8} {'wall':>7} "
        f"{'added first':>12}",
        f"{'':8} {'':>8} {'':8} {'':>7} {'direct/through':>16} {'direct/through':>16} {'ratio':>8} {'ratio':>7} "
        f"{'text, us':>12}",
    ]
    for name, row in result["scenarios"].items():
        t, d = row["through"], row["direct"]
        lines.append(
            f"{name:8} {t['worker_us']:8.1f} {row['unit']:8} {t['writer_us']:7.1f} "
            f"{d['load_us']:7.1f} /{t['load_us']:7.1f} {d['engine_us']:7.1f} /{t['engine_us']:7.1f} "
            f"{row['cpu_ratio']:8.2f} {row['wall_ratio']:7.2f} {row['added_first_us']:12.0f}"
        )
    lines.append("")
    lines += [f"{name:8} {row['what']}" for name, row in result["scenarios"].items()]
    return "\n".join(lines)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--json", "as_json", is_flag=True, help="Print everything that was measured as JSON.")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1, 50))
@click.option(
    "--scenario",
    "names",
    multiple=True,
    type=click.Choice([scenario.name for scenario in SCENARIOS]),
    help="Only this one; can be repeated.",
)
def main(as_json: bool, rounds: int, names: tuple[str, ...]) -> None:
    """Microseconds of CPU a streamed chunk of the HTTP path with all guards on, against a direct connection."""
    with tempfile.TemporaryDirectory(prefix="outguard-bench-") as folder:
        try:
            native = compile_native(Path(folder))
            result = run(native, Path(folder), list(names) or [scenario.name for scenario in SCENARIOS], rounds)
        except BenchError as error:
            click.echo(f"bench: {error}", err=True)
            sys.exit(1)
    click.echo(json.dumps(result, indent=1) if as_json else table(result))


if __name__ == "__main__":
    main()
