"""A second look at the spool, for telemetry: everything once, ahead of the store and never waiting for it.

Positions are kept in memory. After a restart it begins where the store is, so that spans which were exported while the
store was away, or in its last batch, are exported again under the same ids.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from guard.trace.drain import Drain
from guard.trace.frames import Damage, Frame, Tail, scan, seed_of

CHUNK: Final = 4 * 1024 * 1024


class Follower:
    def __init__(self, drain: Drain) -> None:
        self._drain = drain
        self._positions: dict[tuple[str, str], int] = {}

    def poll(self) -> Iterator[Frame]:
        """The records that have come since the last poll. Damage is passed over; the drain reports it."""
        seen = set()
        for worker in self._drain.workers():
            for segment in self._drain.segments(worker):
                seen.add((worker, segment))
                yield from self._read(worker, segment)
        for gone in self._positions.keys() - seen:
            del self._positions[gone]

    def _read(self, worker: str, segment: str) -> Iterator[Frame]:
        key = (worker, segment)
        if key not in self._positions:
            self._positions[key] = self._drain.position(worker, segment)
        try:
            fd = os.open(self._drain.path(worker, segment), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            size = CHUNK
            while data := os.pread(fd, size, self._positions[key]):
                start = self._positions[key]
                for item in scan(memoryview(data), seed_of(segment), start):
                    if isinstance(item, Tail):
                        break
                    if isinstance(item, Damage) and item.end == start + len(data):
                        break  # perhaps only half written yet
                    self._positions[key] = item.end
                    if isinstance(item, Frame):
                        yield item
                if self._positions[key] > start:
                    size = CHUNK
                elif len(data) < size:
                    return  # nothing whole is there yet
                else:
                    size *= 2
        finally:
            os.close(fd)
