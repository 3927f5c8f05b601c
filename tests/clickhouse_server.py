"""A real ClickHouse server for tests: the embedded engine with its HTTP handlers on, in a process of its own."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path


class Server:
    """A real ClickHouse server: the embedded engine with its HTTP handlers on, in a process of its own.

    ``path`` keeps what it stored; ``stop`` kills it, ``start`` brings it back at the same port.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None
        directory.joinpath("config.xml").write_text(
            f"<clickhouse><http_port>{self.port}</http_port><listen_host>127.0.0.1</listen_host>"
            "<max_server_memory_usage>1000000000</max_server_memory_usage>"
            "<users_config>users.xml</users_config></clickhouse>"
        )
        user = "<networks><ip>127.0.0.1</ip></networks><profile>default</profile><quota>default</quota>"
        directory.joinpath("users.xml").write_text(
            "<clickhouse><profiles><default/></profiles><quotas><default/></quotas><users>"
            f"<default><password></password>{user}</default><guard><password>pass</password>{user}</guard>"
            f"<narrow><password>pass</password>{user}"
            "<grants><query>GRANT SELECT, INSERT ON narrow.*</query><query>GRANT SELECT, INSERT ON narrow_old.*</query>"
            "</grants></narrow>"
            "</users></clickhouse>"
        )

    def dsn(self, database: str, password: str = "pass", user: str = "guard") -> str:
        return f"http://{user}:{password}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        script = (
            "from chdb import _chdb\n"
            "_chdb.query('SYSTEM START LISTEN HTTP; SELECT sleepEachRow(3) FROM system.numbers FORMAT Null SETTINGS "
            "max_block_size=1, function_sleep_max_microseconds_per_block=0, max_execution_time=0', "
            "'TabSeparated', path='data')"
        )
        with open(self.directory / "log", "ab") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-c", script], cwd=self.directory, stdout=out, stderr=out, stdin=subprocess.DEVNULL
            )
        deadline = time.monotonic() + 30
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/ping", timeout=2):
                    return
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                assert self._process.poll() is None, (self.directory / "log").read_text()
                assert time.monotonic() < deadline, "the ClickHouse server does not answer"
                time.sleep(0.05)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
