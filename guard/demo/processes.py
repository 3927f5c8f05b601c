"""The processes of the demo: started in order, each waited for until it answers, all ended together.

Only processes that were started here are ever ended, by their own handles.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self


class DemoError(Exception):
    """Why the demo cannot go on."""


class Processes:
    """Their output goes to files in ``folder``, for a look when something went wrong."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: list[tuple[str, subprocess.Popen[bytes]]] = []

    def start(self, name: str, *arguments: str, ready: str, seconds: float = 60.0) -> subprocess.Popen[bytes]:
        """Start ``python -m ARGUMENTS`` and wait until ``ready`` (a URL) answers with 200."""
        with (self._folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                stdin=subprocess.PIPE,  # its end tells the child that this process is gone
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
            )
        self._running.append((name, process))
        until = time.monotonic() + seconds
        while not _answers(ready):
            if process.poll() is not None or time.monotonic() > until:
                tail = (self._folder / f"{name}.log").read_text(errors="replace")[-2000:]
                raise DemoError(f"{name} did not start:\n{tail}")
            time.sleep(0.05)
        return process

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for _, process in reversed(self._running):
            process.terminate()
        for _, process in reversed(self._running):
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def end_like_ctrl_c() -> None:
    """SIGTERM and a closed terminal end this process by way of its ``with`` blocks, and so what it started."""

    def leave(number: int, _: object) -> None:
        sys.exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nothing listens on now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
