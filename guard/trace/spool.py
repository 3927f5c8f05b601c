"""The spool: records on local disk before an answer is called finished.

Each worker appends to segment files in a directory of its own, ``ROOT/WORKER/SEGMENT.seg``; a writer process reads them
(guard/trace/drain.py), stores them and deletes them. The rules:

- A record is one ``write`` call, so a worker that is killed leaves whole records and at most one torn tail.
- A worker's directory is its own while it lives: it holds the directory's lock (``flock``), which ends with the
  process. Who finds a name taken, by another worker or another sidecar on the same spool, takes the next; the
  directory of a dead one is taken over, and what it left there is stored before what comes after it.
- A worker never appends to a segment that it found: it starts a new one. While it writes one it holds its lock as well;
  who gets that lock knows that the segment is complete.
- A segment's name is unique for all time: batches are named after it, and a name used twice would be taken for a
  repetition of a batch that is already stored.
- A segment is deleted as a whole, so the bytes of it that are stored go on counting. In a spool that is half full
  segments are shorter, and at the bound every worker ends its own: the writer can then make room.
- Nothing here raises once the spool is open. A record that cannot be kept is counted by its reason, and the count is
  written as a record of its own as soon as that is possible.

Survives kill -9 of everything. The writer process brings it to the disk once a second (guard/trace/durable.py).
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import secrets
import time
from pathlib import Path
from typing import Any, Final

import msgspec

from guard.trace.frames import HEADER, LOSS, MAX_PAYLOAD, OUTCOME, PACKED, REQUEST, SCRAPE, SKETCH, seal, seed_of
from guard.trace.packing import ARRAYS, Packed, pack
from guard.trace.record import LossRecord, OutcomeRecord, RequestRecord, ScrapeRecord, SketchRecord

log: Final = logging.getLogger(__name__)

SEGMENT_BYTES: Final = 64 * 1024 * 1024
"""A batch is a stretch of one segment: the larger a writer that is behind may take them, the less a record costs it."""
MAX_WORKERS: Final = 1_000

TIGHT: Final = 4
"""A spool that is more than half full has segments of a fourth of the size."""

SCAN_BYTES: Final = 16 * 1024 * 1024
"""After so many of its own bytes, or a 64th of the bound, a worker looks at what the others have."""

RESCAN_SECONDS: Final = 0.2
"""How often a full spool looks whether the writer has made room."""


class Spool:
    """One worker's end of the spool.

    ``max_bytes`` bounds all segments below ``root`` together. What other workers have appended to their current
    segments since this one last looked is not seen, so the bound may be passed by SCAN_BYTES for each of them.
    ``worker`` is the name that is wanted; the one that was free is in the attribute of that name. Raises OSError when
    the directory cannot be made or written: at start that is a mistake in the configuration.
    """

    def __init__(
        self,
        root: str | Path,
        worker: str = "0",
        *,
        max_bytes: int = 1_000_000_000,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        self.root = Path(root)
        self.worker, self._lock = claim(self.root, worker)
        self.directory = self.root / self.worker
        self.max_bytes = max_bytes
        self.segment_bytes = min(segment_bytes, max(max_bytes // 4, 64 * 1024))
        self._look_after = min(SCAN_BYTES, max_bytes // 64)
        self.written = 0
        self.lost: dict[str, int] = {}
        self._unreported: dict[str, LossRecord] = {}
        self._encoder = msgspec.msgpack.Encoder()
        self._buffer = bytearray(16 * 1024)
        self._fd = -1
        self._seed = 0
        self._size = 0
        self._others = 0
        self._unseen = 0
        self._scanned_at = 0.0
        self._last_name = 0
        self._closed = False
        for found in self.directory.glob("*.seg"):  # order must hold even when the clock was set back meanwhile
            number = found.name.partition("-")[0]
            self._last_name = max(self._last_name, int(number) if number.isdecimal() else 0)
        for unborn in self.directory.glob("*.new"):  # its worker was killed before anything was in it
            unborn.unlink()
        try:
            self._rotate()
        except OSError:
            os.close(self._lock)
            raise

    @property
    def bytes(self) -> int:
        """Bytes in the segments below ``root``, as of the last look at the others."""
        return self._others + self._size

    @property
    def _longest(self) -> int:
        """Bytes of this segment. It goes only as a whole: where the spool fills, it is to end early, or what is stored
        already would leave no room."""
        tight = self._others + self._size > self.max_bytes // 2
        return self.segment_bytes // TIGHT if tight else self.segment_bytes

    @property
    def lost_records(self) -> int:
        return sum(self.lost.values())

    def write(self, record: RequestRecord) -> None:
        numbers = pack(record)
        if numbers is None:
            self._append(REQUEST, record)
            return
        attempts = record.attempts
        record.attempts = [msgspec.structs.replace(attempt, **_NO_LISTS) for attempt in attempts]
        self._append(PACKED, Packed(record, numbers))
        record.attempts = attempts

    def write_outcome(self, record: OutcomeRecord) -> None:
        self._append(OUTCOME, record)

    def write_scrape(self, record: ScrapeRecord) -> None:
        self._append(SCRAPE, record)

    def write_sketch(self, record: SketchRecord) -> None:
        self._append(SKETCH, record)

    def refresh(self) -> None:
        """Look again at how much the writer has left; for the metrics page."""
        self._scan()

    async def aclose(self) -> None:
        self.close()

    def close(self) -> None:
        if self._fd >= 0:
            self._report_losses()
            os.close(self._fd)
            self._fd = -1
        if not self._closed:
            os.close(self._lock)
        self._closed = True

    def _append(self, kind: int, record: Any) -> None:
        reason = self._try(kind, record)
        if reason:
            self._lose(reason)
        elif self._unreported:
            self._report_losses()

    def _try(self, kind: int, record: Any) -> str:
        """Empty when the record is safe, else why it is not."""
        if self._closed:
            return "closed"
        buffer = self._buffer
        try:
            try:
                self._encoder.encode_into(record, buffer, HEADER)
            except UnicodeEncodeError:
                # half of a surrogate pair, cut out of an engine's JSON: the rest of the record is still worth keeping
                self._encoder.encode_into(_clean(msgspec.to_builtins(record)), buffer, HEADER)
        except Exception:
            log.exception("a trace record of %s could not be encoded", type(record).__name__)
            return "encoding"
        length = len(buffer) - HEADER
        if length > MAX_PAYLOAD:
            self._buffer = bytearray(16 * 1024)
            return "encoding"
        return self._put(buffer, kind, length)

    def _put(self, buffer: bytearray, kind: int, length: int) -> str:
        size = len(buffer)
        if self._size and self._size + size > self._longest:
            self._leave()
        if self._others + self._size + size > self.max_bytes:
            now = time.monotonic()
            if now - self._scanned_at > RESCAN_SECONDS:
                self._scan()
            if self._others + self._size + size > self.max_bytes:
                if self._size:
                    self._leave()
                return "bound"
        try:
            if self._fd < 0:
                self._rotate()
            seal(buffer, kind, length, self._seed)
            done = os.write(self._fd, buffer)
        except OSError:
            return "disk"
        if done != size:
            try:
                os.ftruncate(self._fd, self._size)
            except OSError:
                self._leave()  # the torn record stays behind at the end of its segment, where it is recognised
            return "disk"
        self._size += size
        self._unseen += size
        self.written += 1
        if self._unseen > self._look_after:
            self._scan()
        return ""

    def _lose(self, reason: str) -> None:
        now = time.time()
        self.lost[reason] = self.lost.get(reason, 0) + 1
        loss = self._unreported.get(reason)
        if loss is None:
            self._unreported[reason] = LossRecord(self.worker, reason, 1, now, now)
            log.error("trace records are being lost: %s", _REASONS[reason])
        else:
            loss.count += 1
            loss.last_at = now

    def _report_losses(self) -> None:
        for reason, loss in list(self._unreported.items()):
            if self._try(LOSS, loss):
                return
            log.error("%d trace records were lost: %s", loss.count, _REASONS[reason])
            del self._unreported[reason]

    def _leave(self) -> None:
        os.close(self._fd)  # which also gives up its lock: from here on the writer may take it
        self._fd = -1
        self._others += self._size
        self._size = 0

    def _rotate(self) -> None:
        """Start a new segment. It appears under its name only when it is locked."""
        self._scan()
        self._last_name = max(time.time_ns(), self._last_name + 1)
        name = f"{self._last_name:020d}-{secrets.token_hex(4)}"
        fresh = self.directory / f"{name}.new"
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            os.rename(fresh, self.directory / f"{name}.seg")
        except OSError:
            os.close(fd)
            raise
        self._fd, self._size, self._seed = fd, 0, seed_of(name)

    def _scan(self) -> None:
        self._scanned_at = time.monotonic()
        self._unseen = 0
        total = 0
        try:
            with os.scandir(self.root) as workers:
                for worker in workers:
                    if not worker.is_dir(follow_symlinks=False):
                        continue
                    with os.scandir(worker.path) as segments:
                        for segment in segments:
                            if segment.name.endswith(".seg"):
                                total += segment.stat(follow_symlinks=False).st_size
        except OSError:
            return  # the writer deletes segments meanwhile; the next look will see
        self._others = max(0, total - self._size)


def claim(root: Path, wanted: str) -> tuple[str, int]:
    """A directory below ``root`` that no living worker has, and the descriptor that holds its lock: ``wanted``, else
    ``wanted-2`` and so on."""
    for number in range(1, MAX_WORKERS + 1):
        name = wanted if number == 1 else f"{wanted}-{number}"
        directory = root / name
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if isinstance(error, BlockingIOError):
                continue
            error.filename = str(directory)  # a file system without locks: nothing would be safe there
            raise
        if number > 1:
            log.info("another worker spools as %s in %s, so this one does as %s", wanted, root, name)
        return name, fd
    raise OSError(errno.EAGAIN, f"{MAX_WORKERS} workers write there already", str(root))


_NO_LISTS: Final[dict[str, Any]] = {name: [] for name in ARRAYS}

_REASONS: Final = {
    "bound": "the spool has reached its size and the store does not take records",
    "disk": "the spool's disk is full or failing",
    "encoding": "a record cannot be encoded",
    "closed": "the spool is closed",
}


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {key: _clean(item) for key, item in value.items()}
    return value
