"""The writer's end of the spool: batches in order, a position that survives, segments deleted once they are stored.

A batch is a stretch of one segment. Before it is sent, its end is written down in the worker's ``progress.json``; after
it is stored, its end becomes the position, together with the sums of what was stored up to there. Whoever starts after
a crash therefore repeats exactly the batch that may have been under way, under the same name, and says so (``again``).
When the position itself cannot be read, everything in the segments may have been stored already: ``again`` then holds
for all of them. The sums of a segment that is done go into the worker's ledger (guard/trace/ledger.py).

One process at a time drains a spool (guard/trace/writer.py holds the lock).
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

import msgspec

from guard.trace.frames import HEADER, MAX_PAYLOAD, Damage, Frame, Tail, scan, seed_of
from guard.trace.ledger import Entry, append

log: Final = logging.getLogger(__name__)

BATCH_RECORDS: Final = 20_000
BATCH_BYTES: Final = 64 * 1024 * 1024
"""The most that a batch has. It has what is there, so batches grow while the store does not keep up, and one of 20,000
records costs half as much a record as one of 5,000: fewer parts to write, and hardly any to merge."""

PROGRESS_BYTES: Final = 512


class Progress(msgspec.Struct):
    """``offset``: up to here ``segment`` is stored. ``pending``: the end of the batch that is being stored, or 0.
    ``doubtful``: the position was lost, and what follows may be stored already. ``rows``, ``refused`` and ``damaged``
    are sums over the segment up to ``offset``; None where its beginning was stored by somebody who kept none."""

    segment: str = ""
    offset: int = 0
    pending: int = 0
    doubtful: bool = False
    rows: dict[str, int] | None = None
    refused: int = 0
    damaged: int = 0


class _Cursor(NamedTuple):
    """How far ``batches`` has read, which may be ahead of what is stored. ``done``: the segment to its end."""

    segment: str
    offset: int
    pending: int
    done: bool = False


class Batch(NamedTuple):
    """``frames`` point into the bytes that were read; ``last``: the segment is complete and ends here; ``caught_up``:
    there was no more to read when it was read."""

    worker: str
    segment: str
    start: int
    end: int
    frames: list[Frame]
    damage: list[Damage]
    last: bool
    caught_up: bool
    again: bool

    @property
    def token(self) -> str:
        return f"{self.segment}/{self.start}-{self.end}"


class Drain:
    """Reads what workers spooled below ``root``, which may not exist yet. ``durable``: which batch is under way is on
    the disk before it is sent."""

    def __init__(
        self, root: str | Path, *, records: int = BATCH_RECORDS, size: int = BATCH_BYTES, durable: bool = False
    ) -> None:
        self.root = Path(root)
        self.durable = durable
        self.records = records
        self.size = size
        self._progress: dict[str, Progress] = {}
        self._cursors: dict[str, _Cursor] = {}
        self._locks: dict[tuple[str, str], int] = {}

    def batches(self) -> Iterator[Batch]:
        """What can be stored now, each worker's in order. It may be read ahead (from one other thread), but every batch
        that was taken must in its turn be given to ``begin``, stored, and given to ``commit``."""
        for worker in self.workers():
            for segment in self.segments(worker):
                cursor = self._cursor(worker)
                if segment < cursor.segment or (segment == cursor.segment and cursor.done):
                    continue  # read, and not committed yet
                done = False
                while not done:
                    batch = self._next(worker, segment)
                    if batch is None:
                        break
                    self._cursors[worker] = _Cursor(segment, batch.end, 0, batch.last)
                    yield batch
                    done = batch.last
                    if batch.caught_up and not done:
                        break  # the next few records are left to collect some more
                if not done:
                    break  # still being written: nothing of this worker comes after it

    def begin(self, batch: Batch) -> None:
        before = self._before(batch)
        before.pending = batch.end
        self._save(batch.worker, before, sync=self.durable)

    def commit(self, batch: Batch, rows: Mapping[str, int] | None = None, refused: int = 0) -> None:
        """``rows``: how many of each table are stored now, ``refused``: how many were set aside."""
        after = self._before(batch)
        after.offset = batch.end
        if after.rows is not None:
            more = rows or {}
            after.rows = {table: after.rows.get(table, 0) + more.get(table, 0) for table in after.rows | dict(more)}
            after.refused += refused
            after.damaged += len(batch.damage)
        self._save(batch.worker, after)
        if batch.last:
            if after.rows is not None:
                sums = Entry(batch.segment, batch.end, after.rows, after.refused, after.damaged, time.time())
                append(self.root / batch.worker, sums)
            self._remove(batch.worker, batch.segment)

    def _before(self, batch: Batch) -> Progress:
        """What is known up to the beginning of a batch."""
        progress = self._of(batch.worker)
        if progress.segment == batch.segment and progress.offset == batch.start:
            return msgspec.structs.replace(progress, pending=0)
        fresh: dict[str, int] | None = {} if not batch.start and not progress.doubtful else None
        return Progress(batch.segment, batch.start, doubtful=progress.doubtful, rows=fresh)

    def tails(self) -> dict[tuple[str, str], int]:
        """How long every segment is now."""
        found = {}
        for worker in self.workers():
            for segment in self.segments(worker):
                with contextlib.suppress(FileNotFoundError):
                    found[worker, segment] = self.path(worker, segment).stat().st_size
        return found

    def passed(self, tails: dict[tuple[str, str], int]) -> int:
        """How many of the bytes that ``tails`` named are not stored yet."""
        left = 0
        for (worker, segment), size in tails.items():
            if self.path(worker, segment).exists():
                left += size - self.position(worker, segment)
        return max(0, left)

    def progress(self, worker: str) -> Progress:
        """As it was last written down by whoever drains."""
        return self._of(worker)

    def position(self, worker: str, segment: str) -> int:
        """Up to which offset a segment is stored."""
        progress = self._of(worker)
        return progress.offset if progress.segment == segment else 0

    def workers(self) -> list[str]:
        try:
            return sorted(entry.name for entry in os.scandir(self.root) if entry.is_dir(follow_symlinks=False))
        except FileNotFoundError:
            return []

    def segments(self, worker: str) -> list[str]:
        try:
            names = os.listdir(self.root / worker)
        except FileNotFoundError:
            return []
        return sorted(name[:-4] for name in names if name.endswith(".seg"))

    def close(self) -> None:
        for fd in self._locks.values():
            os.close(fd)
        self._locks.clear()

    def _next(self, worker: str, segment: str) -> Batch | None:
        """None: nothing new, and more may come."""
        cursor = self._cursor(worker)
        start, pending = (cursor.offset, cursor.pending) if cursor.segment == segment else (0, 0)
        try:
            complete = self._complete(worker, segment)  # asked before the length is, which may grow until then
            with open(self.path(worker, segment), "rb") as file:
                size = os.fstat(file.fileno()).st_size
                limit = pending - start if pending else self.size
                data = os.pread(file.fileno(), limit, start)
                while True:
                    frames, damage, end = _walk(data, segment, start, self.records if not pending else None)
                    at_end = start + len(data) >= size
                    if end > start or at_end or len(data) > MAX_PAYLOAD + HEADER:
                        break
                    data = os.pread(file.fileno(), len(data) * 2, start)
        except FileNotFoundError:
            return None
        if pending and pending <= size:
            # exactly the stretch that was begun, also where its damaged tail was given up on
            if end < pending:
                damage.append(Damage(end, pending, "the record is cut short"))
            end = pending
        elif complete and at_end and end == start and start < size:
            damage.append(Damage(start, size, "the record is cut short"))
            end = size
        elif not complete and damage and damage[-1].end == end:
            end = damage.pop().start  # seen while it was being written, perhaps: look again
            frames = [frame for frame in frames if frame.end <= end]
        last = complete and end >= size
        if end == start and not last:
            return None
        caught_up = not pending and at_end and len(frames) < self.records
        again = bool(pending) or self._of(worker).doubtful
        return Batch(worker, segment, start, end, frames, damage, last, caught_up, again)

    def _cursor(self, worker: str) -> _Cursor:
        if worker not in self._cursors:
            progress = self._of(worker)
            self._cursors[worker] = _Cursor(progress.segment, progress.offset, progress.pending)
        return self._cursors[worker]

    def _complete(self, worker: str, segment: str) -> bool:
        """Whether nobody appends to the segment any more: its lock can be had. Raises FileNotFoundError."""
        key = (worker, segment)
        if key in self._locks:
            return True
        fd = os.open(self.path(worker, segment), os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return False
        self._locks[key] = fd
        return True

    def _remove(self, worker: str, segment: str) -> None:
        self.path(worker, segment).unlink(missing_ok=True)
        fd = self._locks.pop((worker, segment), -1)
        if fd >= 0:
            os.close(fd)

    def path(self, worker: str, segment: str) -> Path:
        return self.root / worker / f"{segment}.seg"

    def _of(self, worker: str) -> Progress:
        known = self._progress.get(worker)
        if known is not None:
            return known
        path = self.root / worker / "progress.json"
        try:
            progress = _read(path.read_bytes())
        except FileNotFoundError:
            progress = Progress()
        except (OSError, ValueError, msgspec.DecodeError) as error:
            log.error("the position in the spool of worker %s is lost (%s): looking for every row", worker, error)
            progress = Progress(doubtful=True)
        self._progress[worker] = progress
        return progress

    def _save(self, worker: str, progress: Progress, *, sync: bool = False) -> None:
        """In place, and always the same number of bytes: on a full disk this must still work, or the spool could never
        be emptied again."""
        body = msgspec.json.encode(progress)
        fd = os.open(self.root / worker / "progress.json", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(fd, (b"%08x " % crc32(body) + body).ljust(PROGRESS_BYTES - 1) + b"\n", 0)
            if sync:
                os.fsync(fd)
        finally:
            os.close(fd)
        self._progress[worker] = progress


def _read(data: bytes) -> Progress:
    if not data:
        return Progress()
    checksum, _, body = data.partition(b" ")
    if len(checksum) != 8 or crc32(body.rstrip()) != int(checksum, 16):
        raise ValueError("its checksum does not match")
    return msgspec.json.decode(body, type=Progress)


def _walk(data: bytes, segment: str, start: int, records: int | None) -> tuple[list[Frame], list[Damage], int]:
    frames: list[Frame] = []
    damage: list[Damage] = []
    end = start
    for item in scan(memoryview(data), seed_of(segment), start):
        if isinstance(item, Tail):
            break
        end = item.end
        if isinstance(item, Damage):
            damage.append(item)
            continue
        frames.append(item)
        if len(frames) == records:
            break
    return frames, damage, end
