"""The directory of a writer: its lock, and a working directory in which no stray file says anything to the engine."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Final

from guard.trace.link import LOCK, ask, connect
from guard.trace.store import StoreError

SILENCE_SECONDS: Final = 1.5
"""How long the holder of a lock may say nothing before it is taken for one that stays."""

YIELD_SECONDS: Final = 20.0
"""How long one that has said it will make place may take: it stores what is left first."""


def hold(directory: Path, *, asking: bool) -> int | None:
    """Take the directory's lock. ``asking``: a holder that was only started for a reader is asked to make place."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    fd = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    began = time.monotonic()
    promised = False
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return fd
        except BlockingIOError:
            pass
        promised = asking and (_asked_to_yield(directory) or promised)
        patience = YIELD_SECONDS if promised else SILENCE_SECONDS if asking else 0.0
        if time.monotonic() - began > patience:
            os.close(fd)
            return None
        time.sleep(0.1)


def _asked_to_yield(directory: Path) -> bool:
    """Whether the holder said that it will. False, too, when nobody answers: it is going, or has only just come."""
    connection = connect(directory)
    if connection is None:
        return False
    with connection:
        try:
            return bool(ask(connection, {"op": "yield"}, 5.0)["yielding"])
        except StoreError:
            return False


def settle(path: Path) -> None:
    """Move to a directory of its own: the engine reads configuration from the working and the home directory, and the
    client leaves temporary files behind when it is killed."""
    place = path / "outguard-run"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True, mode=0o700)
    os.chdir(place)
    os.environ["HOME"] = str(place)
    tempfile.tempdir = str(place)
