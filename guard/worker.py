"""One of several workers: what its supervisor (guard/supervisor.py) tells it, and how it ends when that is gone.

The supervisor writes one line of JSON to the worker's standard input and leaves it open: its end is the supervisor's.
The configuration comes as text, so that a worker that replaces another runs what that one ran, whatever the file says
by now. The worker prints its addresses to standard output once it takes requests.
"""

from __future__ import annotations

import os
import signal
import threading
from typing import Final

import msgspec

_STDIN: Final = 0


class Assignment(msgspec.Struct, frozen=True):
    """``http``: the inherited descriptor of the listening socket, None where HTTP is off. ``grpc``: host:port, shared
    with the other workers; empty where gRPC is off."""

    config: str
    slot: int
    http: int | None
    grpc: str


def receive_assignment() -> Assignment:
    """From standard input, which is watched from then on. Raises EOFError where the supervisor has gone."""
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(_STDIN, 1 << 16)
        if not piece:
            raise EOFError("the supervisor has gone")
        line += piece
    threading.Thread(target=_watch, daemon=True, name="supervisor").start()
    return msgspec.json.decode(line, type=Assignment)


def _watch() -> None:
    """What is under way may end, as at any SIGTERM: its callers have done nothing wrong."""
    while os.read(_STDIN, 1 << 16):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
