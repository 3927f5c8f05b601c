"""What stands between the load generator and the engine: the sidecar, or a pass-through, as a process of its own."""

from __future__ import annotations

import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.bench.loopback import BenchError, process_cpu

START_SECONDS = 30.0
STOP_SECONDS = 30.0
ROOT = Path(__file__).parents[2]

CONFIG = """\
listen: {{http: "127.0.0.1:0", grpc: "127.0.0.1:0"}}
engines:
  - {{name: dummy, url: "{url}", dialect: vllm, cluster: bench, precision: bf16, image: dummy}}
routes:
{routes}
trace: {{store: "chdb://{folder}/store", spool: "{folder}/spool", retention: {{default: full}}}}
"""


class Proxy:
    """Serves while the context lasts. ``command`` prints ``http HOST:PORT`` once it takes requests (before it
    ``grpc HOST:PORT``, where it has one), or was told its ``port`` and then answers GET ``health``. ``packages``: a
    folder whose packages go before those that are installed."""

    def __init__(
        self,
        command: list[str],
        log: Path,
        packages: Path | None = None,
        port: int = 0,
        health: str = "/health",
    ) -> None:
        self._command = command
        self._log = log
        self._environment = os.environ | ({"PYTHONPATH": str(packages.resolve())} if packages else {})
        self._process: subprocess.Popen[str] | None = None
        self._told = port
        self._health = health
        self.port = 0
        self.grpc_port = 0
        self.started_in = 0.0

    def __enter__(self) -> Self:
        began = time.monotonic()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=ROOT,
                env=self._environment,
                start_new_session=True,
            )
        try:
            until = began + START_SECONDS
            self.port = self._healthy(until) if self._told else self._announced(until)
        except BaseException:
            self._stop()
            raise
        self.started_in = time.monotonic() - began
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def cpu(self) -> float:
        """Seconds of CPU of the serving process so far."""
        return process_cpu(self.pid)

    def children_cpu(self) -> float:
        """Seconds of CPU of its child processes (the sidecar's trace writer) so far."""
        found: set[int] = set()
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            found.update(map(int, (task / "children").read_text().split()))
        return sum(map(process_cpu, found))

    def memory_mb(self) -> float:
        """Resident memory of the serving process, in MB of 10^6 bytes."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def _healthy(self, until: float) -> int:
        while time.monotonic() < until:
            if self._process is None or self._process.poll() is not None:
                raise BenchError(f"the proxy did not start:\n{self._tail()}")
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self._told}{self._health}", timeout=1):
                    return self._told
            except OSError:
                time.sleep(0.05)
        raise BenchError(f"the proxy was not ready after {START_SECONDS:.0f} s:\n{self._tail()}")

    def _announced(self, until: float) -> int:
        lines: queue.Queue[str] = queue.Queue()
        process = self._process
        assert process is not None

        def read() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                lines.put(line)
            lines.put("")

        threading.Thread(target=read, daemon=True).start()
        while True:
            try:
                line = lines.get(timeout=max(0.01, until - time.monotonic()))
            except queue.Empty:
                raise BenchError(f"the proxy was not ready after {START_SECONDS:.0f} s:\n{self._tail()}") from None
            if not line:
                raise BenchError(f"the proxy did not start:\n{self._tail()}")
            if line.startswith("grpc "):
                self.grpc_port = int(line.rpartition(":")[2])
            if line.startswith("http "):
                return int(line.rpartition(":")[2])

    def _tail(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]

    def _stop(self) -> None:
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def sidecar(folder: Path, url: str, models: list[str], packages: Path | None = None) -> Proxy:
    """``outguard serve`` as in production: all guards on (the default policy), the metrics too, traces with their
    content into an embedded store. ``packages``: what ``make compiled`` has built."""
    routes = "\n".join(f"  - {{model: {model}, engines: [dummy]}}" for model in models)
    config = folder / "outguard.yaml"
    config.write_text(CONFIG.format(url=url, routes=routes, folder=folder))
    command = str(Path(sys.executable).with_name("outguard"))
    return Proxy([command, "serve", "--config", str(config)], folder / "outguard.log", packages)


def passthrough(folder: Path, url: str) -> Proxy:
    """The yardstick (passthrough.py)."""
    return Proxy([sys.executable, "-m", "tests.bench.passthrough", url], folder / "passthrough.log")


def free_ports(count: int) -> list[int]:
    """Ports that are free now, for a program that cannot choose one itself."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [one.getsockname()[1] for one in held]
    finally:
        for one in held:
            one.close()
