"""What workers and their supervisor tell each other: lines of JSON, over a worker's standard input and output.

The supervisor is the bus: what one worker says goes to the others of its set, or to the one that is meant.
"""

from __future__ import annotations

from typing import Final

import msgspec


class Assignment(msgspec.Struct, frozen=True):
    """The first line to a worker. ``config``: as text, so that one that replaces another runs what that one ran,
    whatever the file says by now. ``http``: the inherited descriptor of its HTTP socket, None where HTTP is off.
    ``grpc``: host:port, shared with the others; empty where gRPC is off. ``table``: the inherited descriptor of the
    memory through which workers know of each other (guard/shared.py); ``seat``, ``engines`` and ``routes``: where the
    worker and they stand in it."""

    config: str
    slot: int
    http: int | None
    grpc: str
    table: int
    seat: int
    engines: dict[str, int]
    routes: dict[str, int]


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The worker takes requests."""


class Draining(msgspec.Struct, frozen=True, tag=True):
    """An operator has an engine given nothing new, or again something. Who starts later is told as well."""

    engine: str
    draining: bool


class Turn(msgspec.Struct, frozen=True, tag=True):
    """A place has come free, and who has waited longest for one waits in the worker of this seat (guard/shared.py)."""

    seat: int


class PageWanted(msgspec.Struct, frozen=True, tag=True):
    """The worker ``by`` was asked for the metrics of all; ``number`` tells its questions apart."""

    by: int
    number: int


class Page(msgspec.Struct, frozen=True, tag=True):
    """A worker's own metrics, for the one that wanted them."""

    to: int
    number: int
    slot: int
    text: str


Message = Ready | Draining | Turn | PageWanted | Page
MAX_LINE: Final = 16 * 1024 * 1024

_decoder: Final = msgspec.json.Decoder(Message)


def encode(message: Message | Assignment) -> bytes:
    return msgspec.json.encode(message) + b"\n"


def decode(line: bytes) -> Message:
    """Raises msgspec.DecodeError on what is no message."""
    return _decoder.decode(line)
