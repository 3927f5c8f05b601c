"""What the gRPC path costs: ``python -m tests.bench.grpc_path`` (``make bench-grpc``).

The same dummy engine and a real sidecar, asked on its gRPC port by a process of its own (grpc_load.py) whose cost is
counted apart, and in the same rounds on its HTTP port by the compiled generator: the ratio of the two is what gRPC
adds. CPU is what the processes account for themselves, medians over the rounds.
"""

from __future__ import annotations

import json
import signal
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from tests.bench.http_path import machine
from tests.bench.loopback import BenchError, DummyEngine, Load, Native, compile_native, run_load
from tests.bench.options import bench_options
from tests.bench.proxies import ROOT, Proxy, sidecar


@dataclass(frozen=True)
class Scenario:
    """``goal``: microseconds of the sidecar's CPU a token, at most."""

    name: str
    what: str
    load: Load
    goal: float


SCENARIOS = (
    Scenario("step", "64 calls x 256 tokens, one each 10 ms", Load("s10", 64, 64, 256), 55),
    Scenario("flat", "64 calls x 256 tokens, as fast as they go, twice over", Load("flat", 64, 128, 256), 20),
)
WARM_UP = Load("flat", 64, 64, 64)
Measured = dict[str, float]


def run_grpc_load(port: int, engine_port: int, load: Load) -> dict[str, Any]:
    """Every answer was complete and right, or BenchError. Fields: grpc_load.py."""
    counts = [load.streams, load.requests, load.tokens]
    command = [sys.executable, "-m", "tests.bench.grpc_load", str(port), str(engine_port), load.model]
    try:
        done = subprocess.run(
            [*command, *map(str, counts)], capture_output=True, text=True, timeout=load.seconds, cwd=ROOT
        )
    except subprocess.TimeoutExpired:
        raise BenchError(f"the calls had not ended after {load.seconds} s ({load})") from None
    if done.returncode:
        raise BenchError(done.stderr.strip()[-2000:] or f"the load generator ended with {done.returncode} ({load})")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def measure(native: Native, engine: DummyEngine, ours: Proxy, load: Load) -> Measured:
    """One run over gRPC and one over HTTP. CPU in microseconds a token."""
    scale = 1e6 / (load.requests * load.tokens)
    before = ours.cpu()
    seen = run_grpc_load(ours.grpc_port, engine.port, load)
    between = ours.cpu()
    run_load(native, ours.port, load)
    grpc_s, http_s = between - before, ours.cpu() - between
    return {
        "grpc_us": grpc_s * scale,
        "http_us": http_s * scale,
        "to_http": grpc_s / http_s,
        "load_us": seen["cpu_s"] * scale,
        "messages": seen["messages"] / (load.requests * load.tokens),
        "first_us": seen["first_us_p50"],
        "wall_s": seen["wall_s"],
    }


def run(native: Native, folder: Path, names: list[str], rounds: int, packages: Path | None = None) -> dict[str, Any]:
    chosen = [scenario for scenario in SCENARIOS if scenario.name in names]
    runs: dict[str, list[Measured]] = {scenario.name: [] for scenario in chosen}
    models = sorted({scenario.load.model for scenario in SCENARIOS})
    with DummyEngine(native) as engine, sidecar(folder, engine.url, models, packages) as ours:
        measure(native, engine, ours, WARM_UP)
        for _ in range(rounds):
            for scenario in chosen:
                runs[scenario.name].append(measure(native, engine, ours, scenario.load))
        return {
            "machine": machine(),
            "rounds": rounds,
            "modules": "compiled" if packages else "Python",
            "memory_mb": ours.memory_mb(),
            "scenarios": {name: medians(each) for name, each in runs.items()},
        }


def medians(runs: list[Measured]) -> Measured:
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}


def table(result: dict[str, Any]) -> str:
    lines = [
        f"{result['machine']}; medians of {result['rounds']} rounds; CPU in us a token",
        f"sidecar ({result['modules']}): {result['memory_mb']:.0f} MB",
        "",
        f"{'':6} {'GRPC':>7} {'goal':>6} {'HTTP':>7} {'ratio':>6} {'generator':>9} {'messages':>9} {'first text':>11}",
        f"{'':6} {'':>7} {'':>6} {'':>7} {'':>6} {'':>9} {'a token':>9} {'us':>11}",
    ]
    chosen = [scenario for scenario in SCENARIOS if scenario.name in result["scenarios"]]
    for scenario in chosen:
        row = result["scenarios"][scenario.name]
        lines.append(
            f"{scenario.name:6} {row['grpc_us']:7.1f} {scenario.goal:6.0f} {row['http_us']:7.1f} {row['to_http']:6.2f} "
            f"{row['load_us']:9.1f} {row['messages']:9.2f} {row['first_us']:11.0f}"
            + ("" if row["grpc_us"] <= scenario.goal else "  missed")
        )
    return "\n".join([*lines, "", *(f"{scenario.name:6} {scenario.what}" for scenario in chosen)])


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@bench_options([scenario.name for scenario in SCENARIOS])
def main(as_json: bool, rounds: int, names: tuple[str, ...], packages: Path | None) -> None:
    """Microseconds of CPU a token of the gRPC path with all guards on, and what gRPC costs beside HTTP."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started ends too
    with tempfile.TemporaryDirectory(prefix="outguard-bench-") as folder:
        try:
            native = compile_native(Path(folder))
            chosen = list(names) or [scenario.name for scenario in SCENARIOS]
            result = run(native, Path(folder), chosen, rounds, packages)
        except BenchError as error:
            click.echo(f"bench: {error}", err=True)
            sys.exit(1)
    click.echo(json.dumps(result, indent=1) if as_json else table(result))


if __name__ == "__main__":
    main()
