"""Where the sidecar's time goes, as a flame graph: ``python -m tests.bench.flame`` (``make flame``).

py-spy samples a real ``outguard serve`` from outside while a scenario of http_path.py runs against it, functions of the
interpreter and of compiled modules included (``--native``). It needs the right to trace another process, which
containers often withhold.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import click

from tests.bench.http_path import MODELS, SCENARIOS, WARM_UP
from tests.bench.loopback import BenchError, DummyEngine, compile_native, run_load
from tests.bench.proxies import sidecar

BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--sampler", required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path), help="py-spy.")
@click.option("--scenario", default="step", show_default=True, type=click.Choice(list(BY_NAME)))
@click.option("--seconds", default=5, show_default=True, type=click.IntRange(1, 600))
@click.option("--rate", default=200, show_default=True, type=click.IntRange(1, 1000), help="Samples a second.")
@click.option("--packages", type=click.Path(exists=True, file_okay=False, path_type=Path), help="See make compiled.")
@click.option("-o", "--output", default=Path("flame.svg"), show_default=True, type=click.Path(path_type=Path))
def main(sampler: Path, scenario: str, seconds: int, rate: int, packages: Path | None, output: Path) -> None:
    """Write a flame graph of the sidecar under one scenario's load."""
    load = BY_NAME[scenario].load
    with tempfile.TemporaryDirectory(prefix="outguard-flame-") as name:
        folder = Path(name)
        try:
            native = compile_native(folder)
            with DummyEngine(native) as engine, sidecar(folder, engine.url, MODELS, packages) as ours:
                for one in WARM_UP:
                    run_load(native, ours.port, one)
                command = [str(sampler), "record", "--native", "--format", "flamegraph", "--rate", str(rate)]
                command += ["--duration", str(seconds), "--output", str(output), "--pid", str(ours.pid)]
                with subprocess.Popen(command) as recording:
                    while recording.poll() is None:
                        run_load(native, ours.port, load)
        except BenchError as error:
            click.echo(f"flame: {error}", err=True)
            sys.exit(1)
    if recording.returncode:
        sys.exit(recording.returncode)
    click.echo(f"{output}: {scenario}, {seconds} s at {rate} samples a second")


if __name__ == "__main__":
    main()
