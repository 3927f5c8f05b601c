"""The sidecar as one process: engines, pipeline and both servers in one event loop, until it is told to stop.

At SIGTERM or SIGINT readiness turns off, no new request is taken, what is under way may end within DRAIN_SECONDS, and
the traces are flushed. A second signal ends it at once.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial

import uvloop

from guard.build import build_engine, build_tracing
from guard.config import Config
from guard.constraint.cache import ConstraintCache
from guard.engines.intake import Wave
from guard.health.others import NOBODY
from guard.pipeline import Pipeline
from guard.probing import Prober
from guard.server.asgi import serve_http
from guard.server.grpc import create_server
from guard.server.listener import ServeError
from guard.server.openai import OpenAIApp
from guard.server.pages import Pages
from guard.service import Service
from guard.shared import Seat
from guard.worker import OneOfSeveral
from guard.worker_messages import Assignment

DRAIN_SECONDS = 20.0
Announce = Callable[[str], None]


def run(config: Config, announce: Announce, assignment: Assignment | None = None) -> None:
    """Serve until a signal comes. ``announce`` gets one line for each address once it takes requests. ``assignment``:
    for one of several workers, whose addresses are there already. Raises ServeError."""
    _quiet_collector()
    uvloop.run(serve(config, announce, assignment))


def _quiet_collector() -> None:
    """What is loaded now stays, so the collector need not walk it again and again; requests leave few cycles."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


async def serve(config: Config, announce: Announce, assignment: Assignment | None = None) -> None:
    stop = _stop_signal()
    async with AsyncExitStack() as stack:
        wave = Wave()
        engines = {engine.name: build_engine(engine, wave) for engine in config.engines}
        for engine in engines.values():
            stack.push_async_callback(engine.aclose)
        constraints = ConstraintCache()
        stack.callback(constraints.close)
        try:
            tracing = build_tracing(config)
        except OSError as error:
            raise ServeError("trace.spool", f"{error.filename} cannot be written: {error.strerror}") from error
        await tracing.start()
        stack.push_async_callback(tracing.aclose)
        seat = None
        if assignment is not None:
            seat = Seat(assignment.table, assignment.seat, assignment.engines, assignment.routes)
        pipeline = Pipeline(config, engines, constraints, tracing, others=seat or NOBODY)
        service: Service = pipeline
        if assignment is not None and seat is not None:
            look = pipeline.traffic.entrance.look
            service = worker = OneOfSeveral(pipeline, assignment.slot, config.workers, look)
            seat.on_turn = worker.turn
            stack.push_async_callback(worker.aclose)
        if config.health.probe_interval:
            prober = Prober(config, engines, pipeline.traffic, time.monotonic, tracing.metrics.probe)
            probing = asyncio.ensure_future(prober.run())
            stack.push_async_callback(_ended, probing)
        keys = config.listen.api_keys()
        drains: list[Callable[[], Awaitable[None]]] = []
        stack.push_async_callback(_all_at_once, drains)
        if config.listen.grpc:
            try:
                grpc_server, port = create_server(
                    service,
                    address=assignment.grpc if assignment is not None else config.listen.grpc,
                    api_keys=keys,
                    max_message_bytes=config.limits.max_body_bytes,
                    shared=assignment is not None,
                )
            except RuntimeError as error:
                raise ServeError("listen.grpc", f"{config.listen.grpc} cannot be bound (its port is taken?)") from error
            await grpc_server.start()
            drains.append(partial(grpc_server.stop, DRAIN_SECONDS))
            announce(f"grpc {config.listen.grpc.rpartition(':')[0]}:{port}")
        if config.listen.http:
            host, _, wanted = config.listen.http.rpartition(":")
            app = OpenAIApp(
                service,
                max_body_bytes=config.limits.max_body_bytes,
                max_choices=config.limits.max_choices,
                request_timeout=config.limits.request_timeout,
                api_keys=keys,
                pages=Pages(config),
            )
            try:
                listener = assignment.http if assignment is not None else None
                http_server = serve_http(app, host, int(wanted), fd=listener, grace=int(DRAIN_SECONDS))
            except OSError as error:
                raise ServeError("listen.http", f"{config.listen.http} cannot be bound: {error.strerror}") from error
            serving = asyncio.ensure_future(http_server.serve())
            drains.append(partial(_finish, http_server.stop, serving))
            announce("http {}:{}".format(*http_server.address))
            serving.add_done_callback(lambda _: stop.set())  # it may fail on its own, and then there is no going on
        if assignment is not None:
            await worker.open()
        await stop.wait()
        pipeline.stop()


async def _all_at_once(drains: Sequence[Callable[[], Awaitable[None]]]) -> None:
    await asyncio.gather(*(drain() for drain in drains))


async def _ended(task: asyncio.Future[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _finish(stop: Callable[[], None], serving: asyncio.Future[None]) -> None:
    stop()
    await serving


def _stop_signal() -> asyncio.Event:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal(number: int) -> None:
        if stop.is_set():
            os._exit(128 + number)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    return stop
