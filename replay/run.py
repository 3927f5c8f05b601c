"""Runs one volley of a plan on its engine: each answer one attempt, through the same stream guard as live traffic.

No recovery here: what an engine answers is what is to be seen. What only makes company is sent in the same way and
forgotten; it is cancelled as soon as what is observed has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping

import msgspec
from msgspec import Struct

from guard.config import Config, Policy
from guard.constraint.cache import ConstraintCache
from guard.delivered import Delivered
from guard.engines.contract import Engine, EngineError, EngineRequest, EngineStream
from guard.events import Closed
from guard.plan import plan_for
from guard.reading import Reading
from guard.request import GenerationRequest, RequestError
from guard.stream import StreamGuard
from guard.watch import Plan as Watched
from replay.heard import Heard
from replay.load import MatrixCell
from replay.matrix import COLD, Asked
from replay.observation import Observation, Sampling, Timing
from replay.plan import Volley
from replay.source import ReplayError, Source

PRIMED_TOKENS = 1


class Ready(Struct):
    """A request that can be sent: normalised, with what its answers are held against."""

    source: Source
    request: GenerationRequest
    watched: Watched


class Runner:
    """``salt`` makes what is sent cold differ from everything an engine has seen."""

    def __init__(
        self,
        config: Config,
        engines: Mapping[str, Engine],
        constraints: ConstraintCache,
        *,
        asked: Asked | None = None,
        top_logprobs: int = 0,
        salt: str = "",
    ) -> None:
        self._configs = {engine.name: engine for engine in config.engines}
        self._policies = config.policies
        self._engines = engines
        self._constraints = constraints
        self._asked = (asked or Asked()).model_dump(exclude_none=True)
        self._top_logprobs = top_logprobs
        self._salt = salt
        self._ready: dict[str, Ready] = {}

    async def prepare(self, source: Source) -> Ready:
        """Raises ReplayError when the request cannot be sent as it is."""
        if source.id not in self._ready:
            request = source.request()
            sampling = msgspec.structs.replace(request.sampling, **self._asked)
            try:
                compiled = await self._constraints.compile(request.constraint) if request.constraint else None
            except RequestError as error:
                raise ReplayError(f"the format that {source.id} asks for cannot be compiled: {error}") from error
            policy = self._policies.get(source.policy) or self._policies.get("default") or Policy()
            request = msgspec.structs.replace(request, sampling=sampling, return_token_ids=True)
            self._ready[source.id] = Ready(source, request, plan_for(request, policy, compiled))
        return self._ready[source.id]

    async def volley(
        self, volley: Volley, cell: MatrixCell, ready: list[Ready], beside: list[Ready]
    ) -> list[Observation]:
        """What was observed, in the order of ``volley.observed``. ``ready`` and ``beside`` are what it names."""
        if volley.primed:
            await self._send_and_forget(cell, ready[0], f"{volley.key}.prime", PRIMED_TOKENS)
        together = tuple(one.source.id for one in (*ready, *beside))
        company = [
            asyncio.create_task(self._company(cell, one, f"{volley.key}.beside{i}")) for i, one in enumerate(beside)
        ]
        try:
            return list(
                await asyncio.gather(
                    *(
                        self._observe(cell, one, volley, i, together[:i] + together[i + 1 :])
                        for i, one in enumerate(ready)
                    )
                )
            )
        finally:
            for task in company:
                task.cancel()
            await asyncio.gather(*company, return_exceptions=True)

    async def _observe(
        self, cell: MatrixCell, ready: Ready, volley: Volley, place: int, in_flight: tuple[str, ...]
    ) -> Observation:
        engine = self._engines[cell.engine]
        request = self._for_engine(ready.request, cell, f"{volley.key}.{place}")
        sampling = request.sampling
        copies = len(volley.observed) if len(set(volley.observed)) == 1 else 1
        seen = Observation(
            request_id=ready.source.id,
            cell=cell.cell,
            repeat=volley.repeat * copies + (place if copies > 1 else 0),
            expected=ready.source.expected,
            sampling=Sampling(sampling.temperature, sampling.top_p, sampling.seed, sampling.max_tokens),
            prompt_ids=ready.source.prompt_ids,
            in_flight=in_flight,
        )
        heard, delivered = Heard(), Delivered()
        config = self._configs[cell.engine]
        reading = Reading(
            ready.watched,
            delivered,
            tool_format=config.tool_format or "auto",
            reasoning_format=config.reasoning_format,
            model=config.model,
        )
        guard = StreamGuard(ready.watched, delivered, engine=cell.engine, reading=reading)
        wall, started = time.time(), time.monotonic()
        first = 0.0
        try:
            stream = await self._open(engine, request, ready.request)
        except EngineError as error:
            took = (time.monotonic() - started) * 1e3
            return msgspec.structs.replace(seen, error=_told(error), timing=Timing(wall, 0.0, took))
        async with contextlib.aclosing(stream):
            async for events in stream:
                first = first or (time.monotonic() - started) * 1e3
                heard.feed(events)
                guard.feed(events)
                if guard.ended:
                    break
        if not guard.ended:
            guard.feed([Closed(clean=False)])
        guard.cut()
        took = (time.monotonic() - started) * 1e3
        return msgspec.structs.replace(
            heard.observation(seen, guard, delivered), timing=Timing(wall, round(first, 3), round(took, 3))
        )

    async def _open(self, engine: Engine, request: GenerationRequest, own: GenerationRequest) -> EngineStream:
        """Log probabilities that are asked for on our own account are done without where an engine refuses the request
        with them (llama.cpp: with tools in a stream). Raises EngineError."""
        limit = request.sampling.max_tokens
        try:
            return await engine.open(EngineRequest(request, max_tokens=limit))
        except EngineError as error:
            if error.retryable or request.sampling.logprobs == own.sampling.logprobs:
                raise
            bare = msgspec.structs.replace(request, sampling=own.sampling)
            return await engine.open(EngineRequest(bare, max_tokens=limit))

    async def _company(self, cell: MatrixCell, ready: Ready, key: str) -> None:
        """Until it is cancelled or has its answer. A cancelled neighbour is given up after its first piece, and sent
        again."""
        if cell.load.kind == "cancelled":
            await self._send_and_forget(cell, ready, key, pieces=1)
        await self._send_and_forget(cell, ready, f"{key}.again")

    async def _send_and_forget(
        self, cell: MatrixCell, ready: Ready, key: str, max_tokens: int | None = None, pieces: int | None = None
    ) -> None:
        request = self._for_engine(ready.request, cell, key)
        limit = max_tokens or request.sampling.max_tokens
        with contextlib.suppress(EngineError):
            stream = await self._engines[cell.engine].open(EngineRequest(request, max_tokens=limit))
            async with contextlib.aclosing(stream):
                count = 0
                async for _ in stream:
                    count += 1
                    if count == pieces:
                        return

    def _for_engine(self, request: GenerationRequest, cell: MatrixCell, key: str) -> GenerationRequest:
        """With log probabilities where the engine has them, and off or on its prefix cache as the cell says."""
        config = self._configs[cell.engine]
        sampling, extra = request.sampling, request.extra
        if self._top_logprobs and self._engines[cell.engine].capabilities.logprobs:
            most = max(self._top_logprobs, sampling.top_logprobs or 0)
            sampling = msgspec.structs.replace(sampling, logprobs=True, top_logprobs=most)
        field = COLD.get(config.dialect)
        if field == "cache_prompt" and cell.cache != "as_is":
            extra = {**extra, field: cell.cache == "warm"}
        elif field and cell.cache == "cold":
            extra = {**extra, field: f"{self._salt}.{key}"}
        return msgspec.structs.replace(request, sampling=sampling, extra=extra)


def _told(error: EngineError) -> str:
    """With the engine's status in front, so that a refusal is told from a breakdown."""
    said = error.message or error.kind
    return f"HTTP {error.status}: {said}" if error.status is not None else said
