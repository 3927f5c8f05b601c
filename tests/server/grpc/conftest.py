"""A real gRPC server on a free port, over a Service that plays a script: what a request is answered with, batch by
batch."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, NamedTuple

import grpc
import grpc.aio
import pytest

from guard.events import (
    Closed,
    Failed,
    Finished,
    FinishReason,
    GuardEvent,
    Release,
    StreamEvent,
    TextDelta,
    Usage,
    Verdicts,
)
from guard.request import GenerationRequest
from guard.server.grpc import create_server
from guard.service import EngineStatus, ModelInfo, Outcome
from guard.v1 import guard_pb2_grpc

Step = list[GuardEvent] | float | Exception
"""A batch to yield, seconds to wait, or an exception to raise."""


def finished(choice: int = 0, reason: str = "stop") -> Finished:
    return Finished(choice, reason, Usage(3, 2, 5), Verdicts(format="ok"), attempts=1)


def failed(code: str, choice: int = 0, **more: object) -> Failed:
    return Failed(choice, code, f"it ended with {code}", attempts=2, **more)  # type: ignore[arg-type]


class EchoCheck:
    """Releases what it is fed; text with a bell in it is condemned."""

    def __init__(self) -> None:
        self.fed: list[StreamEvent] = []
        self._reasons: dict[int, str] = {}
        self._ended: set[int] = set()
        self.left = asyncio.Event()

    def feed(self, events: list[StreamEvent]) -> list[GuardEvent]:
        out: list[GuardEvent] = []
        for event in events:
            self.fed.append(event)
            if isinstance(event, TextDelta) and event.choice not in self._ended:
                clean, bell, _ = event.text.partition("\a")
                if clean:
                    out.append(Release(event.choice, event.channel, clean))
                if bell:
                    self._ended.add(event.choice)
                    out.append(failed("collapsed", event.choice))
            elif isinstance(event, FinishReason):
                self._reasons[event.choice] = event.reason
        return out

    def abandon(self) -> None:
        if not self.fed or not isinstance(self.fed[-1], Closed):
            self.fed.append(Closed(clean=False))
        self.left.set()

    def close(self) -> list[GuardEvent]:
        self.fed.append(Closed(clean=True))
        seen = {event.choice for event in self.fed if isinstance(event, TextDelta | FinishReason)} or {0}
        return [
            finished(choice, self._reasons[choice]) if choice in self._reasons else failed("stream_cut", choice)
            for choice in sorted(seen - self._ended)
        ]


class ScriptedService:
    """``script`` makes the steps from the request. ``requests``, ``outcomes`` and ``checks`` hold what was asked;
    ``closed_at`` the monotonic time at which the last generation was closed."""

    def __init__(self, script: Callable[[GenerationRequest], list[Step]] | None = None) -> None:
        self.script = script or (lambda _: [[Release(0, "content", "hello")], [finished()]])
        self.requests: list[GenerationRequest] = []
        self.outcomes: list[Outcome] = []
        self.checks: list[EchoCheck] = []
        self.is_ready = True
        self.closed_at: float | None = None
        self.closed = asyncio.Event()
        self.engines_error: Exception | None = None
        self.outcome_error: Exception | None = None
        self.check_error: Exception | None = None

    async def generate(self, request: GenerationRequest, deliver: Any = None) -> AsyncIterator[list[GuardEvent]]:
        self.requests.append(request)
        try:
            for step in self.script(request):
                if isinstance(step, list):
                    yield step
                elif isinstance(step, Exception):
                    raise step
                else:
                    await asyncio.sleep(step)
        finally:
            self.closed_at = time.monotonic()
            self.closed.set()

    async def check(self, request: GenerationRequest) -> EchoCheck:
        self.requests.append(request)
        if self.check_error is not None:
            raise self.check_error
        self.checks.append(EchoCheck())
        return self.checks[-1]

    def report_outcome(self, outcome: Outcome) -> None:
        if self.outcome_error is not None:
            raise self.outcome_error
        self.outcomes.append(outcome)

    def models(self) -> list[ModelInfo]:
        return [ModelInfo("m", 1, ("a", "b")), ModelInfo("other", 1, ("c",))]

    def drain(self, engine: str, draining: bool) -> bool:
        return engine in ("a", "b", "c/d")

    async def engines(self) -> list[EngineStatus]:
        if self.engines_error is not None:
            raise self.engines_error
        return [EngineStatus(name, "vllm", f"http://{name}", "m", name != "b", image="1.2") for name in "abc"]

    def ready(self) -> tuple[bool, str]:
        return self.is_ready, "" if self.is_ready else "not yet"

    async def metrics(self) -> tuple[str, bytes]:
        return "text/plain", b""


class Served(NamedTuple):
    service: ScriptedService
    stub: guard_pb2_grpc.GuardStub
    channel: grpc.aio.Channel
    target: str


Serve = Callable[..., AbstractAsyncContextManager[Served]]


@pytest.fixture
def serve() -> Serve:
    """``serve(*steps)`` or ``serve(script=function of the request)``; other names go to create_server."""

    @asynccontextmanager
    async def served(*steps: Step, script: Any = None, **options: Any) -> AsyncIterator[Served]:
        service = ScriptedService(script or ((lambda _: list(steps)) if steps else None))
        server, port = create_server(service, address="127.0.0.1:0", **options)
        await server.start()
        target = f"127.0.0.1:{port}"
        try:
            async with grpc.aio.insecure_channel(target) as channel:
                yield Served(service, guard_pb2_grpc.GuardStub(channel), channel, target)
        finally:
            await server.stop(0)

    return served
