"""The standard health service, which says what the guard's service says of itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import grpc
from grpc_health.v1 import health_pb2

POLL_S: Final = 0.5
"""How often a watched status is looked at; readiness has no event of its own."""


class HealthServicer:
    """``services``: the names that can be asked about; the empty name, the whole server, always can."""

    def __init__(self, ready: Callable[[], tuple[bool, str]], services: tuple[str, ...]) -> None:
        self._ready = ready
        self._services = ("", *services)

    async def Check(self, request: Any, context: Any) -> Any:
        if request.service not in self._services:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"there is no service called {request.service[:200]!r}")
        return health_pb2.HealthCheckResponse(status=self._status())

    async def List(self, request: Any, context: Any) -> Any:
        status = health_pb2.HealthCheckResponse(status=self._status())
        return health_pb2.HealthListResponse(statuses=dict.fromkeys(self._services, status))

    async def Watch(self, request: Any, context: Any) -> AsyncIterator[Any]:
        known = request.service in self._services
        last = None
        while True:
            status = self._status() if known else health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
            if status != last:
                yield health_pb2.HealthCheckResponse(status=status)
                last = status
            await asyncio.sleep(POLL_S)

    def _status(self) -> Any:
        ready, _ = self._ready()
        status = health_pb2.HealthCheckResponse
        return status.SERVING if ready else status.NOT_SERVING
