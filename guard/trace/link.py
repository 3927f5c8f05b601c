"""Asking the writer process: a unix socket in the directory of the store (or of the spool, when the store is a server).

A message is its length in four bytes, then msgpack. ``query`` answers rows, ``flush`` stores what is spooled first,
``status`` tells how it goes, ``erase`` erases, ``yield`` asks a writer that was only started for a reader to make place
for a real one. The socket belongs to its user alone (mode 0600).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from guard.trace.reader import SqlReader
from guard.trace.store import QUERY_ROWS, QueryError, Unavailable

SOCKET: Final = "outguard.sock"
LOCK: Final = "outguard.lock"
MAX_QUESTION: Final = 4 * 1024 * 1024
MAX_ANSWER: Final = 256 * 1024 * 1024
START_SECONDS: Final = 30.0
MAX_TRIES: Final = 30
"""A question that kills whoever is asked must end some time."""

EXIT_LOCKED: Final = 75
"""The writer's exit code when another process has the store or the spool."""


class Closing(Unavailable):
    """The writer is ending, or has: whoever comes after it can be asked."""


def encode(message: Mapping[str, Any]) -> bytes:
    body = msgspec.msgpack.encode(message, enc_hook=str)
    return len(body).to_bytes(4, "big") + body


def receive(connection: socket.socket, most: int) -> dict[str, Any] | None:
    """None: the other side has closed. Raises ValueError on what is no message."""
    head = _exactly(connection, 4)
    if head is None:
        return None
    size = int.from_bytes(head, "big")
    if size > most:
        raise ValueError(f"a message of {size} bytes is too long")
    body = _exactly(connection, size)
    if body is None:
        return None
    try:
        message: dict[str, Any] = msgspec.msgpack.decode(body, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise ValueError(f"is no message: {error}") from error
    return message


def _exactly(connection: socket.socket, size: int) -> bytes | None:
    parts: list[bytes] = []
    while size:
        part = connection.recv(min(size, 1 << 20))
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


@contextlib.contextmanager
def address(directory: Path) -> Iterator[str]:
    """The socket's address, however long the path is: a unix socket's own may have 107 bytes."""
    path = str(directory / SOCKET)
    if len(os.fsencode(path)) < 100 or not os.path.isdir("/proc/self/fd"):
        yield path
        return
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{SOCKET}"
    finally:
        os.close(fd)


def held(directory: Path) -> bool:
    """Whether a process has the directory of a store or a spool."""
    try:
        fd = os.open(directory / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def connect(directory: Path, timeout: float = 5.0) -> socket.socket | None:
    """None: no writer listens there."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(timeout)
    try:
        with address(directory) as where:
            connection.connect(where)
    except OSError:
        connection.close()
        return None
    return connection


def ask(connection: socket.socket, message: Mapping[str, Any], timeout: float) -> dict[str, Any]:
    """Raises Unavailable when the writer goes away over it, QueryError when the question was at fault."""
    try:
        connection.settimeout(timeout)
        connection.sendall(encode(message))
        answer = receive(connection, MAX_ANSWER)
    except (BrokenPipeError, ConnectionError) as error:
        raise Closing("the writer of the trace store went away") from error
    except (OSError, ValueError) as error:
        raise Unavailable(f"the writer of the trace store did not answer: {error}") from error
    if answer is None:
        raise Closing("the writer of the trace store went away")
    if answer.get("ok"):
        return answer
    kind = {"query": QueryError, "closing": Closing}.get(str(answer.get("error")), Unavailable)
    raise kind(str(answer.get("message", "")), answer.get("code"))


def ask_flush(directory: Path, timeout: float) -> bool:
    connection = connect(directory)
    if connection is None:
        return False
    with connection:
        try:
            return bool(ask(connection, {"op": "flush", "timeout": timeout}, timeout + 5.0)["drained"])
        except Unavailable:
            return False


class WriterLink:
    """Questions to the writer of a store and a spool: the live one, or one that this starts and that ends with it.

    ``home`` is where a writer listens: the directory of an embedded store, else the spool.
    """

    def __init__(self, dsn: str, spool: Path, home: Path) -> None:
        self._dsn = dsn
        self._spool = spool
        self._home = home
        self._connection = connect(home)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def live(self) -> bool:
        """Whether a writer is there that can be asked, without one being started."""
        return self._connection is not None

    def ask(self, message: Mapping[str, Any], timeout: float) -> dict[str, Any]:
        """A writer may be restarted, or make place for another: every question may be asked again. Raises Unavailable
        and QueryError."""
        deadline = time.monotonic() + START_SECONDS
        for tries in range(1, MAX_TRIES + 1):
            if self._connection is None:
                self._connection = self._open()
            try:
                return ask(self._connection, message, timeout)
            except Unavailable as error:
                self._hang_up()
                if not isinstance(error, Closing) or tries == MAX_TRIES or time.monotonic() > deadline:
                    raise
                time.sleep(min(0.05 * tries, 0.5))
        raise AssertionError("unreachable")

    def close(self) -> None:
        self._hang_up()
        if self._process is not None:
            process, self._process = self._process, None
            if process.stdin:
                process.stdin.close()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _open(self) -> socket.socket:
        deadline = time.monotonic() + START_SECONDS
        while True:
            connection = connect(self._home)
            if connection is not None:
                return connection
            if self._process is None:
                self._process = self._start()
            code = self._process.poll()
            if code is not None:
                if self._process.stdin:
                    self._process.stdin.close()
                self._process = None
                if code not in (0, EXIT_LOCKED):  # it has made place, or found another one there
                    raise Unavailable(
                        f"the trace store at {self._home} cannot be opened (its writer ended with {code})"
                    )
            if time.monotonic() > deadline:
                raise Unavailable(f"the trace store at {self._home} did not open within {START_SECONDS:g} s")
            time.sleep(0.05)

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "guard.trace.writer", "--yielding"]
        if self._spool.is_dir():
            command += ["--spool", str(self._spool)]
        environment = {**os.environ, "OUTGUARD_STORE": self._dsn}
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environment)


class EmbeddedReader(SqlReader):
    """Reads an embedded store through its writer: the live one, or one that it starts and that ends with it."""

    def __init__(self, path: str, spool: Path) -> None:
        home = Path(path)
        self._link = WriterLink(f"chdb://{path}", spool, home)
        if not self._link.live and not (home / "store").is_dir() and not spool.is_dir():
            raise Unavailable(f"there is no trace store at {home}")

    def query(
        self, sql: str, params: Mapping[str, Any] | None = None, *, limit: int = QUERY_ROWS
    ) -> list[dict[str, Any]]:
        message = {"op": "query", "sql": sql, "params": dict(params or {}), "limit": limit}
        rows: list[dict[str, Any]] = self._link.ask(message, 60.0)["rows"]
        return rows

    def flush(self, timeout: float = 5.0) -> bool:
        return bool(self._link.ask({"op": "flush", "timeout": timeout}, timeout + 5.0)["drained"])

    def status(self) -> dict[str, Any]:
        return self._link.ask({"op": "status"}, 10.0)["status"]  # type: ignore[no-any-return]

    def close(self) -> None:
        self._link.close()
