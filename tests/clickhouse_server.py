"""A real ClickHouse server for tests and benches: the embedded engine with its handlers on, in a process of its own."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path


class Server:
    """``directory`` keeps what it stores; ``stop`` kills it, ``start`` brings it back at the same ports.

    ``memory`` is its cap in bytes. ``shards``: servers of one cluster, called ``main``, that this one knows; to be set
    before it starts.
    """

    def __init__(self, directory: Path, *, memory: int = 1_000_000_000) -> None:
        self.directory = directory
        self.memory = memory
        self.port, self.tcp_port = _free_ports(2)
        self.shards: list[Server] = []
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def dsn(self, database: str, password: str = "pass", user: str = "guard") -> str:
        return f"http://{user}:{password}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        self._configure()
        script = (
            "from chdb import _chdb\n"
            "_chdb.query('SYSTEM START LISTEN HTTP; SYSTEM START LISTEN TCP; SELECT sleepEachRow(3) "
            "FROM system.numbers FORMAT Null SETTINGS max_block_size=1, max_execution_time=0, "
            "function_sleep_max_microseconds_per_block=0', 'TabSeparated', path='data')"
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

    def _configure(self) -> None:
        shards = "".join(
            f"<shard><internal_replication>true</internal_replication><replica><host>127.0.0.1</host>"
            f"<port>{shard.tcp_port}</port><user>guard</user><password>pass</password></replica></shard>"
            for shard in self.shards
        )
        self.directory.joinpath("config.xml").write_text(
            f"<clickhouse><http_port>{self.port}</http_port><tcp_port>{self.tcp_port}</tcp_port>"
            "<listen_host>127.0.0.1</listen_host>"
            f"<max_server_memory_usage>{self.memory}</max_server_memory_usage>"
            f"<remote_servers><main>{shards}</main></remote_servers>"
            "<users_config>users.xml</users_config></clickhouse>"
        )
        user = "<networks><ip>127.0.0.1</ip></networks><profile>default</profile><quota>default</quota>"
        grants = "".join(f"<query>GRANT SELECT, INSERT ON {name}.*</query>" for name in ("narrow", "narrow_old"))
        self.directory.joinpath("users.xml").write_text(
            "<clickhouse><profiles><default/></profiles><quotas><default/></quotas><users>"
            f"<default><password></password>{user}</default><guard><password>pass</password>{user}</guard>"
            f"<narrow><password>pass</password>{user}<grants>{grants}</grants></narrow>"
            "</users></clickhouse>"
        )


def _free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports
