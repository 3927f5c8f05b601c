"""From the kernel's memory to the disk: a power cut costs the last second of the spool, and nothing that is stored.

Nobody on a request's way waits for a disk. The writer process syncs for all workers: what they appended, once a second;
an embedded store, before a batch counts as stored and its segment may go; the position in the spool, before a batch is
sent, so that after a power cut too exactly the batch that was under way is in doubt. What a server has taken is the
server's to keep (its table setting ``fsync_after_insert``).
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import threading
from pathlib import Path
from typing import Final

from guard.trace.drain import Drain

log: Final = logging.getLogger("outguard.writer")

SYNC_SECONDS: Final = 1.0


class Syncer:
    """A thread that brings segments to the disk. ``sync`` may be called without it."""

    def __init__(self, drain: Drain) -> None:
        self._drain = drain
        self._known: dict[tuple[str, str], int] = {}
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="sync")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join(5.0)

    def sync(self) -> int:
        """How many segments had grown, and are on the disk now."""
        tails = self._drain.tails()
        grown = {place: size for place, size in tails.items() if size != self._known.get(place)}
        for worker, segment in grown:
            with contextlib.suppress(FileNotFoundError):  # stored meanwhile
                _sync(self._drain.path(worker, segment))
        for worker in {worker for worker, segment in grown if (worker, segment) not in self._known}:
            with contextlib.suppress(FileNotFoundError):
                _sync(self._drain.root / worker)  # its entries: a new segment has to be found again
        self._known = tails
        return len(grown)

    def _run(self) -> None:
        said = ""
        while not self._ending.wait(SYNC_SECONDS):
            try:
                self.sync()
                said = ""
            except OSError as error:
                if str(error) != said:
                    log.error("the spool cannot be brought to its disk: %s", error.strerror)
                said = str(error)


def settle_disk(directory: Path) -> None:
    """Everything below a directory is on its disk, with its file system. Raises OSError."""
    syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if syncfs is None:
        os.sync()
        return
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if syncfs(fd):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(directory))
    finally:
        os.close(fd)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
