"""The supervisor of several worker processes that share the sidecar's addresses.

- The workers share the ports (SO_REUSEPORT), over which the kernel spreads connections evenly (guard/addresses.py).
- Of a set of workers the first shows whether the configuration can be served; the others start when it can. The
  addresses are announced when all of them take requests.
- A worker that ends unasked is replaced, after a pause that doubles while that goes on; the others never notice.
- SIGHUP reads the file again. What is wrong with it is logged, and the old workers stay. Else new ones are started, and
  when all of them take requests the old ones are told to end, each when its answers have. Addresses need a restart.
- SIGTERM and SIGINT are passed on, and the supervisor ends when the workers have; a second one ends them at once.
- A worker ends in order when the supervisor is gone, however that came about (guard/worker.py).

What the workers have under way and know of engines they share in memory (guard/shared.py), so that limits hold over all
of them and a breaker that opens in one is open in all. Queues, and what is said of an engine before its breaker opens,
are each worker's own. /metrics answers for all, with the label ``worker``, and an
engine that an operator drains is drained by all, also by those that come later.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from guard.addresses import Addresses
from guard.checked_yaml import ConfigError, place_of, read_text
from guard.config import Config, parse_config
from guard.shared import Table
from guard.workers import StartFailed, Workers

log: Final = logging.getLogger(__name__)

Announce = Callable[[str], None]


class Supervisor:
    """``text``: what ``path`` said when it was read as ``config``; ``command`` starts a worker. Raises ServeError."""

    def __init__(self, config: Config, text: str, path: Path, command: Sequence[str]) -> None:
        self._path = path
        self._command = command
        self._addresses = Addresses(config)
        self._draining: dict[str, bool] = {}
        self._table = Table()
        self._workers = self._set(config, text)
        self._code = 0
        self._retiring: dict[Workers, asyncio.Task[None]] = {}
        self._asked = asyncio.Event()
        self._stop = asyncio.Event()

    async def run(self, announce: Announce) -> int:
        """Until a signal comes; the exit code. Raises StartFailed or OSError when no first workers can be had."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_stop, number)
        loop.add_signal_handler(signal.SIGHUP, self._asked.set)
        work = asyncio.create_task(self._work(announce))
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait([work, stopping], return_when=asyncio.FIRST_COMPLETED)
            if not self._stop.is_set():
                work.result()
        finally:
            self._addresses.close()  # what comes now finds a closed door as soon as the workers have closed theirs
            for one in (work, stopping):
                one.cancel()
            await asyncio.gather(work, stopping, return_exceptions=True)
            await asyncio.gather(self._workers.end(), *self._retiring.values())
        return self._code

    def _set(self, config: Config, text: str) -> Workers:
        return Workers(config, text, self._addresses, self._command, self._draining, self._table)

    def _on_stop(self, number: int) -> None:
        every = (self._workers, *self._retiring)
        for workers in every:
            if self._stop.is_set():
                workers.kill()
                self._code = 128 + number
            else:
                workers.tell()
        self._stop.set()

    async def _work(self, announce: Announce) -> None:
        await self._workers.start()
        for line in self._addresses.lines:
            announce(line)
        while True:
            await self._asked.wait()
            self._asked.clear()
            await self._reload()

    async def _reload(self) -> None:
        try:
            text = read_text(self._path)
            config = parse_config(text, str(self._path))
            self._check_addresses(config)
        except ConfigError as error:
            for problem in error.problems:
                log.error("%s", problem)
            log.error("the configuration is not taken, and the one before it stays")
            return
        for engine in [name for name, draining in self._draining.items() if not draining]:
            del self._draining[engine]  # it was to have requests as the old file drained it; the new one knows better
        workers = self._set(config, text)
        try:
            await workers.start()
        except (StartFailed, OSError) as error:
            log.error("the configuration is not taken, and the one before it stays: %s", error)
            return
        old, self._workers = self._workers, workers
        self._addresses.keep(config.workers)
        self._retiring[old] = asyncio.create_task(self._retire(old))
        log.info("the configuration is read again, and %d workers run it", config.workers)

    def _check_addresses(self, config: Config) -> None:
        """Raises ConfigError."""
        now = {"listen.http": config.listen.http, "listen.grpc": config.listen.grpc}
        changed = [key for key, address in now.items() if address != self._addresses.wanted[key]]
        if changed:
            raise ConfigError([f"{place_of(self._path, key)}: {key}: changes with a restart only" for key in changed])

    async def _retire(self, workers: Workers) -> None:
        await workers.end()
        del self._retiring[workers]


def supervise(config: Config, text: str, path: Path, options: Sequence[str], announce: Announce) -> int:
    """The exit code. ``options``: of ``outguard serve``, for the workers. Raises ServeError."""
    command = [sys.executable, "-P", "-m", "guard", "serve", "--worker", "--config", str(path), *options]

    async def run() -> int:
        return await Supervisor(config, text, path, command).run(announce)

    try:
        return asyncio.run(run())
    except StartFailed as error:
        log.error("%s", error)
        return error.code if error.code > 0 else 1
