"""What the servers may ask of the guard; the one interface that both protocols stand on.

``generate`` yields batches of guard events. It raises RequestError before the first event when the caller is at fault;
afterwards every choice ends with exactly one Finished or Failed. Closing the iterator cancels the engines' work.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from msgspec import Struct

from guard.events import GuardEvent, StreamEvent
from guard.request import GenerationRequest


class ModelInfo(Struct):
    """``engines``: the names of the engines that can serve this model, in routing order."""

    id: str
    created: int
    engines: tuple[str, ...]


class EngineStatus(Struct):
    """``ok`` and ``detail``: what it says of itself when asked.

    From ``state`` on it is what a running guard knows of it, and empty where none was asked: ``state`` of its breaker
    (closed, half_open or open), ``cause``: what opened it, ``reopens_in``: seconds until it is tried again,
    ``under_way``: attempts, ``failure_rate``: the share of failures lately."""

    name: str
    dialect: str
    url: str
    model: str
    ok: bool
    detail: str = ""
    version: str = ""
    image: str = ""
    cluster: str = ""
    precision: str = ""
    state: str = ""
    draining: bool = False
    under_way: int = 0
    failure_rate: float = 0.0
    cause: str = ""
    reopens_in: float = 0.0


class Outcome(Struct):
    """The caller's execution verdict on a tool call (or on the whole answer, with an empty call id)."""

    trace_id: str
    tool_call_id: str = ""
    ok: bool = False
    detail: str = ""


class CheckSession(Protocol):
    """Guards an output that the caller streams itself. No engine, no recovery: what is condemned ends in Failed."""

    def feed(self, events: list[StreamEvent]) -> list[GuardEvent]: ...

    def close(self) -> list[GuardEvent]:
        """The caller's stream has ended. Returns the rest; always ends with Finished or Failed for every choice."""
        ...

    def abandon(self) -> None:
        """The caller is gone in the middle of its stream. Does nothing after ``close``."""
        ...


class Deliver(Protocol):
    """A server's short way to its caller."""

    def take(self, batch: list[GuardEvent]) -> bool:
        """Make a batch ready to go. False: it cannot go now, and nothing was done."""
        ...

    def push(self) -> None:
        """What was taken goes. Always called soon after."""
        ...


class Service(Protocol):
    def generate(self, request: GenerationRequest, deliver: Deliver | None = None) -> AsyncIterator[list[GuardEvent]]:
        """``deliver``: a batch may be given to it instead of being yielded, while the next is waited for. One that it
        does not take is yielded."""
        ...

    async def check(self, request: GenerationRequest) -> CheckSession:
        """Raises RequestError when the caller is at fault."""
        ...

    def report_outcome(self, outcome: Outcome) -> None: ...

    def models(self) -> list[ModelInfo]: ...

    async def engines(self) -> list[EngineStatus]: ...

    def drain(self, engine: str, draining: bool) -> bool:
        """Give an engine nothing new, or again something. False: there is none of that name."""
        ...

    def ready(self) -> tuple[bool, str]:
        """Whether requests can be taken, and if not, why."""
        ...

    async def metrics(self) -> tuple[str, bytes]:
        """Content type and body of the Prometheus page."""
        ...
