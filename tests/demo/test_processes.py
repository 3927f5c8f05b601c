"""However the demo is ended, nothing that it started stays behind."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from guard.demo.processes import free_ports

SCRIPT = """
import sys, time
from pathlib import Path
from guard.demo.processes import Processes, end_like_ctrl_c
end_like_ctrl_c()
with Processes(Path(sys.argv[1])) as processes:
    processes.start("child", "http.server", sys.argv[2], "--bind", "127.0.0.1", ready=sys.argv[3])
    print("ready", flush=True)
    time.sleep(60)
"""


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2):
            return True
    except (urllib.error.URLError, OSError):
        return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_what_it_started_ends_with_it(number: signal.Signals, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}/"
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tmp_path), str(port), url],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        assert answers(url)
        process.send_signal(number)
        assert process.wait(15) != 0
    until = time.monotonic() + 5
    while answers(url) and time.monotonic() < until:
        time.sleep(0.05)
    assert not answers(url)
