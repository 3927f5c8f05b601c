"""A run on disk: one append-only file of JSON lines, so that a run that was killed goes on where it was.

The first line is the run itself: its matrix, cells and requests. Every other line is one volley with what was observed
in it; a volley is there whole or not at all, because a line that was cut by a kill is taken off before the file is
written on. One process at a time writes a run. The files hold content, so they are their owner's alone (mode 0600).
"""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgspec
from msgspec import Struct

from guard.config import Config
from guard.trace.store import default_spool
from replay.load import Impossible, MatrixCell
from replay.observation import Observation
from replay.scorecard import Scorecard
from replay.source import ReplayError, Source

FORMAT: Final = 1
SUFFIX: Final = ".run.jsonl"


class Head(Struct):
    """``skipped``: how many requests were left out, by reason. ``command`` is how it was asked for; ``kind``: matrix,
    faithful or acceptance."""

    format: int
    id: str
    created_at: float
    matrix: dict[str, Any]
    cells: list[MatrixCell]
    sources: list[Source]
    beside: list[Source] = msgspec.field(default_factory=list)
    left_out: list[Impossible] = msgspec.field(default_factory=list)
    skipped: dict[str, int] = msgspec.field(default_factory=dict)
    command: str = ""
    kind: str = "matrix"


class Done(Struct):
    volley: str
    observations: list[Observation]


_HEAD: Final = msgspec.json.Decoder(Head)
_DONE: Final = msgspec.json.Decoder(Done)


def new_id(now: float) -> str:
    """Sorts by time, and two made in one second differ."""
    return time.strftime("%Y%m%d-%H%M%S", time.gmtime(now)) + "-" + secrets.token_hex(2)


def default_runs(dsn: str) -> Path:
    """Beside the spool of a store."""
    spool = default_spool(dsn)
    return spool.with_name(spool.name.replace("spool", "runs", 1))


def folder_of(config: Config) -> Path:
    """Where the runs of a configuration are kept."""
    return Path(config.triage.runs) if config.triage.runs else default_runs(config.trace.dsn())


class Journal:
    """Open for writing; ``done`` are the volleys that it had when it was opened."""

    def __init__(self, path: Path, file: Any, head: Head, done: dict[str, list[Observation]]) -> None:
        self.path = path
        self.head = head
        self.done = done
        self._file = file

    @classmethod
    def create(cls, folder: Path, head: Head) -> Journal:
        """Raises ReplayError when it cannot be written."""
        path = folder / f"{head.id}{SUFFIX}"
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            file = os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_APPEND, 0o600), "rb+", buffering=0)
            _lock(file, path)
            file.write(msgspec.json.encode(head) + b"\n")
        except OSError as error:
            raise ReplayError(f"{path}: cannot be written: {error.strerror}") from error
        return cls(path, file, head, {})

    @classmethod
    def resume(cls, path: Path) -> Journal:
        """Raises ReplayError when it is no run, or another process is at it."""
        try:
            file = open(path, "rb+", buffering=0)  # noqa: SIM115  closed by close()
        except OSError as error:
            raise ReplayError(f"{path}: cannot be opened: {error.strerror}") from error
        _lock(file, path)
        data = file.read() or b""
        whole = data.rfind(b"\n") + 1
        file.truncate(whole)
        file.seek(whole)
        head, done = _parse(data[:whole], path)
        return cls(path, file, head, done)

    def add(self, volley: str, observations: Sequence[Observation]) -> None:
        """One write: a reader sees the line whole once it ends."""
        self._file.write(msgspec.json.encode(Done(volley, list(observations))) + b"\n")

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def read(path: Path) -> tuple[Head, dict[str, list[Observation]]]:
    """A run as it is now, also while it is being written. Raises ReplayError."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ReplayError(f"{path}: cannot be read: {error.strerror}") from error
    return _parse(data[: data.rfind(b"\n") + 1], path)


def read_head(path: Path) -> Head:
    """Without what was observed. Raises ReplayError."""
    try:
        with path.open("rb") as lines:
            return _head(next(lines, b""), path)
    except OSError as error:
        raise ReplayError(f"{path}: cannot be read: {error.strerror}") from error


def keep_card(path: Path, card: Scorecard) -> None:
    """Beside a run, the scorecard that came of it."""
    with os.fdopen(os.open(_card(path), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(msgspec.json.encode(card))


def card_of(path: Path) -> Scorecard | None:
    """The scorecard of a run, where there is one."""
    try:
        return msgspec.json.decode(_card(path).read_bytes(), type=Scorecard)
    except (OSError, msgspec.DecodeError):
        return None


def _card(path: Path) -> Path:
    return path.with_name(path.name.replace(SUFFIX, ".card.json"))


def stored(folder: Path) -> Iterator[Path]:
    """The runs of a folder, the newest first."""
    return iter(sorted(folder.glob(f"*{SUFFIX}"), reverse=True)) if folder.is_dir() else iter(())


def find(folder: Path, asked: str) -> Path:
    """By path, id, or the unique beginning of one. Raises ReplayError."""
    if asked.endswith(SUFFIX) or "/" in asked:
        return Path(asked)
    found = [path for path in stored(folder) if path.name.startswith(asked)]
    exact = [path for path in found if path.name == f"{asked}{SUFFIX}"]
    if len(exact or found) != 1:
        which = ", ".join(path.name.removesuffix(SUFFIX) for path in found)
        raise ReplayError(f"{asked!r} is the beginning of several runs: {which}" if found else _none(folder, asked))
    return (exact or found)[0]


def _none(folder: Path, asked: str) -> str:
    return f"there is no run that begins with {asked!r} in {folder}"


def _lock(file: Any, path: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise ReplayError(f"{path}: another process is running it") from error


def _parse(data: bytes, path: Path) -> tuple[Head, dict[str, list[Observation]]]:
    lines = data.splitlines()
    head = _head(lines[0] if lines else b"", path)
    done: dict[str, list[Observation]] = {}
    for number, line in enumerate(lines[1:], 2):
        try:
            volley = _DONE.decode(line)
        except msgspec.DecodeError as error:
            raise ReplayError(f"{path}:{number}: is no volley of a run: {error}") from error
        done[volley.volley] = volley.observations
    return head, done


def _head(line: bytes, path: Path) -> Head:
    try:
        head = _HEAD.decode(line)
    except msgspec.DecodeError as error:
        raise ReplayError(f"{path}:1: does not begin like a run: {error}") from error
    if head.format != FORMAT:
        raise ReplayError(f"{path}:1: is a run of format {head.format}, and this version reads {FORMAT}")
    return head
