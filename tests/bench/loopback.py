"""The dummy engine and the load generator: compiled when the bench starts, run as processes of their own.

Both are one thread of C (native/), so that neither is the bottleneck; what they cost is measured beside what they
measure. Only processes started here are ended, by their own handles.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

SOURCES = Path(__file__).parent / "native"


class BenchError(Exception):
    """Why no number can be given."""


@dataclass(frozen=True)
class Load:
    """``model`` says how the engine's chunks come (native/engine.c). ``requests`` in all, over ``streams``
    connections."""

    model: str
    streams: int
    requests: int
    tokens: int
    streamed: bool = True
    prompt_bytes: int = 400
    seconds: int = 60


@dataclass(frozen=True)
class Native:
    """The two programs, compiled."""

    engine: Path
    load: Path


def compile_native(folder: Path) -> Native:
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise BenchError("the bench needs a C compiler: gcc or cc on the path, or CC in the environment")
    paths = []
    for name in ("engine", "load"):
        target = folder / name
        command = [compiler, "-O2", "-Wall", "-Wextra", "-o", str(target), str(SOURCES / f"{name}.c")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        if done.returncode:
            raise BenchError(f"{name}.c does not compile:\n{done.stderr}")
        paths.append(target)
    return Native(*paths)


class DummyEngine:
    """Serves while the context lasts."""

    def __init__(self, native: Native) -> None:
        self._program = native.engine
        self._process: subprocess.Popen[str] | None = None
        self.port = 0

    def __enter__(self) -> Self:
        # its end of the pipe closes with this process, however that ends, and then it ends too
        self._process = subprocess.Popen(
            [str(self._program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.strip().isdigit():
            raise BenchError("the dummy engine did not start")
        self.port = int(line)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        process = self._process
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def cpu(self) -> float:
        """Seconds of CPU so far."""
        assert self._process is not None
        return process_cpu(self._process.pid)


def run_load(native: Native, port: int, load: Load) -> dict[str, Any]:
    """Every answer was complete and right, or BenchError. Fields: native/load.c."""
    counts = [load.streams, load.requests, load.tokens, int(load.streamed), load.seconds, load.prompt_bytes]
    command = [str(native.load), str(port), load.model, *map(str, counts)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=load.seconds + 10)
    if done.returncode:
        raise BenchError(done.stderr.strip() or f"the load generator ended with {done.returncode} ({load})")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def process_cpu(pid: int) -> float:
    """Seconds of user and system time of a process, all its threads, also those that have ended.

    Read from the process's CPU clock (nanoseconds), which counts the same as utime + stime in /proc/PID/stat (ticks
    of 10 ms).
    """
    return time.clock_gettime((~pid << 3) | 2)  # how Linux names the CPU clock of another process
