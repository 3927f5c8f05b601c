"""What both storms look at: the bytes of an answer, and what this process has open."""

from __future__ import annotations

import contextlib
import os


def open_sockets() -> int:
    """How many this process has open; gRPC keeps descriptors of other kinds for its own use."""
    held = 0
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            held += os.readlink(f"/proc/self/fd/{fd}").startswith("socket:")
    return held


def unchunked(data: bytes) -> bytes:
    body = b""
    while data and not data.startswith(b"0\r\n"):
        size, _, data = data.partition(b"\r\n")
        body, data = body + data[: int(size, 16)], data[int(size, 16) + 2 :]
    return body
