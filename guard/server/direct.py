"""The short way to a caller's socket, for the pieces of a stream.

A piece goes straight to uvicorn's transport, framed as HTTP wants it: as an ASGI message it would be checked, taken
apart and framed anew, at an eighth of the cost of a whole chunk. Nothing is written while the socket is full, before
the head is out, or after the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from guard.events import GuardEvent


class Direct:
    """``cycle``: uvicorn's own end of the response (RequestResponseCycle); None under any other server."""

    def __init__(self, cycle: Any) -> None:
        self._cycle: Any = cycle

    def open(self) -> bool:
        """Whether a stream has been started and its socket takes more at once."""
        cycle = self._cycle
        return not (
            cycle is None
            or not cycle.chunked_encoding
            or cycle.flow.write_paused
            or cycle.disconnected
            or cycle.response_complete
        )

    def write(self, data: bytes) -> bool:
        """A piece of the body, not empty, in one write. False: it cannot be written now, and was not."""
        if not self.open():
            return False
        self.push(framed(data))
        return True

    def push(self, frames: bytes) -> None:
        """Pieces that are ``framed`` already, where it is known to be ``open``."""
        self._cycle.transport.write(frames)


def framed(data: bytes) -> bytes:
    """A piece of a body whose length is not known before, as HTTP/1.1 wants it."""
    return b"%x\r\n%b\r\n" % (len(data), data)


class Delivery:
    """Takes batches to the caller at once (Deliver in service.py). ``written``: the bytes of a batch, which may be
    none."""

    def __init__(self, direct: Direct, written: Callable[[Sequence[GuardEvent]], bytes]) -> None:
        self._direct = direct
        self._written = written
        self._frames = b""

    def take(self, batch: Sequence[GuardEvent]) -> bool:
        if not self._direct.open():
            return False
        piece = self._written(batch)
        if piece:
            self._frames += framed(piece)
        return True

    def push(self) -> None:
        frames = self._frames
        if frames:
            self._frames = b""
            self._direct.push(frames)
