"""The addresses that several workers share: kept by their supervisor, and spread over them by the kernel.

Each worker has a socket of its own on the HTTP port (SO_REUSEPORT), since of one socket for all the first to wake takes
a whole burst. The supervisor holds these sockets too, and at a reload the next worker of the same slot goes on with it:
what waits there to be accepted is not lost. When a worker dies its socket is given up, so that new connections go to
the others at once, and the one that replaces it gets a new one, which takes nothing before it does. gRPC binds for
itself; its port is only kept.
"""

from __future__ import annotations

import socket

from guard.config import Config
from guard.server.listener import ServeError, reserved, shared


class Addresses:
    """``lines``: as they are announced. ``grpc``: host:port, empty where gRPC is off. Raises ServeError when one cannot
    be had, which includes that somebody else listens there."""

    def __init__(self, config: Config) -> None:
        self.wanted = {"listen.http": config.listen.http, "listen.grpc": config.listen.grpc}
        self.lines: list[str] = []
        self.grpc = ""
        self._keepers: list[socket.socket] = []
        self._http: tuple[str, int] | None = None
        self._sockets: dict[int, socket.socket] = {}
        if config.listen.grpc:
            host, port = self._reserve("listen.grpc")
            self.grpc = f"{host}:{port}"
            self.lines.append(f"grpc {self.grpc}")
        if config.listen.http:
            self._http = self._reserve("listen.http")
            self.lines.append("http {}:{}".format(*self._keepers[-1].getsockname()[:2]))

    def _reserve(self, key: str) -> tuple[str, int]:
        host, _, port = self.wanted[key].rpartition(":")
        try:
            keeper = reserved(host, int(port))
        except OSError as error:
            self.close()
            raise ServeError(key, f"{self.wanted[key]} cannot be bound: {error.strerror}") from error
        self._keepers.append(keeper)
        return host, keeper.getsockname()[1]

    def http(self, slot: int) -> int | None:
        """The descriptor of a worker's HTTP socket; None where HTTP is off. Raises OSError."""
        if self._http is None:
            return None
        if slot not in self._sockets:
            self._sockets[slot] = shared(*self._http)
        return self._sockets[slot].fileno()

    def give_up(self, slot: int) -> None:
        """Its worker has died."""
        if slot in self._sockets:
            self._sockets.pop(slot).close()

    def keep(self, count: int) -> None:
        """There are only so many workers from now on."""
        for slot in [slot for slot in self._sockets if slot >= count]:
            self.give_up(slot)

    def close(self) -> None:
        self.keep(0)
        for keeper in self._keepers:
            keeper.close()
