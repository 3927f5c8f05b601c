"""Sockets that listen or only keep a port, bound before anything else starts: a port in use is an error at once."""

from __future__ import annotations

import socket
from typing import Final

BACKLOG: Final = 2048


class ServeError(Exception):
    """Why the sidecar could not start: ``key`` of the configuration leads to something that cannot be had."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(f"{key}: {message}")
        self.key = key


def listening(host: str, port: int) -> socket.socket:
    """On host:port (0: any free one). Raises OSError when the address cannot be bound."""
    listener = _bound(host, port)
    try:
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def reserved(host: str, port: int) -> socket.socket:
    """A port that was free and that processes of this user may share from now on (SO_REUSEPORT). It takes no
    connections itself, and keeps the port as long as it is open. Raises OSError."""
    keeper = _bound(host, port)  # alone at first: who listens there already is a mistake, and no share
    try:
        keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    except OSError:
        keeper.close()
        raise
    return keeper


def shared(host: str, port: int) -> socket.socket:
    """A further socket on a port that is ``reserved``. It takes connections once it listens. Raises OSError."""
    return _bound(host, port, reuse=True)


def _bound(host: str, port: int, *, reuse: bool = False) -> socket.socket:
    host = host.removeprefix("[").removesuffix("]")
    family, kind, protocol, _, address = socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    made = socket.socket(family, kind, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reuse:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        made.bind(address)
    except OSError:
        made.close()
        raise
    return made
