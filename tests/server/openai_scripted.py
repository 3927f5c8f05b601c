"""For the tests of the HTTP server: a Service that plays a script, and a real server around it on a free port."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from guard.events import Failed, Finished, GuardEvent, Release, Started, Usage, Verdicts
from guard.request import GenerationRequest
from guard.server.asgi import serve_http
from guard.server.openai import OpenAIApp
from guard.service import EngineStatus, ModelInfo, Outcome

Step = list[GuardEvent] | float | Exception
"""A batch, seconds to wait, or an exception to raise."""

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SERVED = ModelInfo("m", 1_700_000_000, ("a", "b")), ModelInfo("org/big", 1_700_000_000, ("c",))


def started(request: GenerationRequest) -> list[GuardEvent]:
    return [Started(request.id, TRACE, request.model, "a")]


def text(piece: str, choice: int = 0, channel: str = "content", **more: Any) -> Release:
    return Release(choice, channel, piece, **more)


def finished(choice: int = 0, reason: str = "stop", **more: Any) -> Finished:
    return Finished(choice, reason, Usage(7, 3, 10, 2, 1), Verdicts(format="ok"), attempts=1, **more)


def failed(code: str, choice: int = 0, **more: Any) -> Failed:
    return Failed(choice, code, f"it ended with {code}", attempts=2, **more)


class OpenAIScript:
    """``requests``: what was asked. ``closed_at``: the monotonic time at which each generation was closed.
    ``pulled``: batches that were taken."""

    def __init__(self, script: Callable[[GenerationRequest], list[Step]] | None = None) -> None:
        self.script = script or (lambda request: [started(request), [text("Hel"), text("lo")], [finished()]])
        self.requests: list[GenerationRequest] = []
        self.closed_at: list[float] = []
        self.pulled = 0
        self.is_ready = True

    @property
    def request(self) -> GenerationRequest:
        return self.requests[-1]

    async def generate(self, request: GenerationRequest, deliver: Any = None) -> AsyncIterator[list[GuardEvent]]:
        self.requests.append(request)
        try:
            for step in self.script(request):
                if isinstance(step, list):
                    self.pulled += 1
                    yield step
                elif isinstance(step, Exception):
                    raise step
                else:
                    await asyncio.sleep(step)
        finally:
            self.closed_at.append(time.monotonic())

    def check(self, request: GenerationRequest) -> Any:
        raise NotImplementedError("HTTP has no checks")

    def report_outcome(self, outcome: Outcome) -> None:
        raise NotImplementedError("HTTP has no outcomes")

    def models(self) -> list[ModelInfo]:
        return list(SERVED)

    def drain(self, engine: str, draining: bool) -> bool:
        return engine in ("a", "b", "c/d")

    async def engines(self) -> list[EngineStatus]:
        return []

    def ready(self) -> tuple[bool, str]:
        return self.is_ready, "" if self.is_ready else "no engine is up"

    async def metrics(self) -> tuple[str, bytes]:
        return "text/plain; version=0.0.4", b"outguard_requests_total 1\n"


@asynccontextmanager
async def serving(service: OpenAIScript, **options: Any) -> AsyncIterator[tuple[str, int]]:
    """The address of a real server on a free port of this machine, as long as the block lasts."""
    server = serve_http(OpenAIApp(service, **options), grace=1)
    task = asyncio.create_task(server.serve())
    try:
        yield server.address  # the socket listens already
    finally:
        server.stop()
        await task


class Reply:
    """What an application answered: ``ended`` says whether the body came to its end."""

    def __init__(self, sent: list[dict[str, Any]]) -> None:
        self.status: int = sent[0]["status"] if sent else 0
        self.headers: dict[bytes, bytes] = dict(sent[0]["headers"]) if sent else {}
        self.pieces: list[bytes] = [message["body"] for message in sent[1:]]
        self.body = b"".join(self.pieces)
        self.ended = bool(sent) and len(sent) > 1 and not sent[-1]["more_body"]

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        found: dict[str, Any] = self.json["error"]
        return found

    @property
    def events(self) -> list[Any]:
        """The data of a stream's events."""
        parts = self.body.decode().split("\n\n")
        assert parts.pop() == ""
        assert all(part.startswith("data: ") and "\n" not in part for part in parts)
        return [part[6:] if part == "data: [DONE]" else json.loads(part[6:]) for part in parts]


async def ask(
    service: OpenAIScript,
    body: Any = None,
    *,
    path: str = "/v1/chat/completions",
    method: str = "POST",
    headers: dict[str, str] | None = None,
    pieces: list[bytes] | None = None,
    **options: Any,
) -> Reply:
    """One request to the application itself, without a socket. ``body`` is bytes, or written as JSON."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    queue = list(pieces or [data])
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        if queue:
            piece = queue.pop(0)
            return {"type": "http.request", "body": piece, "more_body": bool(queue)}
        return await asyncio.Future()

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in (headers or {}).items()]
    scope = {"type": "http", "method": method, "path": path, "root_path": "", "headers": raw}
    await OpenAIApp(service, **options)(scope, receive, send)
    return Reply(sent)


def chat(**more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": "hi"}]} | more
