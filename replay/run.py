"""Runs one request again on chosen engines: each run one attempt, through the same stream guard as live traffic.

No recovery here: what an engine answers is what is to be seen. One run at a time on each engine, the engines side by
side.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec import Struct

from guard.config import Policy
from guard.constraint.cache import ConstraintCache
from guard.delivered import Delivered
from guard.engines.contract import Engine, EngineError, EngineRequest
from guard.events import Closed
from guard.plan import plan_for
from guard.request import GenerationRequest
from guard.stream import StreamGuard
from guard.watch import Plan


class RunResult(Struct):
    """``error`` is set when there was no answer at all; ``condemned`` when the guard would not have delivered it."""

    engine: str
    repeat: int
    text: str = ""
    reason: str = ""
    condemned: str = ""
    error: str = ""
    findings: list[str] = msgspec.field(default_factory=list)
    token_ids: list[int] = msgspec.field(default_factory=list)
    completion_tokens: int = 0
    first_token_ms: float = 0.0
    duration_ms: float = 0.0


async def run_matrix(
    request: GenerationRequest,
    engines: Mapping[str, Engine],
    constraints: ConstraintCache,
    *,
    repeats: int,
    policy: Policy | None = None,
    tool_formats: Mapping[str, str] | None = None,
    done: Callable[[RunResult], None] = lambda _: None,
) -> list[RunResult]:
    """Results in the order of the engines, then of the repeats. ``policy`` is what the answers are guarded by,
    ``tool_formats`` the engines' own by name. ``done`` hears of each as it ends."""
    compiled = await constraints.compile(request.constraint) if request.constraint else None
    plan = plan_for(request, policy or Policy(), compiled)
    formats = tool_formats or {}
    single = msgspec.structs.replace(request, n=1, stream=True)

    async def column(name: str) -> list[RunResult]:
        results = []
        for repeat in range(repeats):
            result = await run_once(single, name, engines[name], plan, repeat, formats.get(name) or "auto")
            done(result)
            results.append(result)
        return results

    columns: Sequence[list[RunResult]] = await asyncio.gather(*(column(name) for name in engines))
    return [result for results in columns for result in results]


async def run_once(
    request: GenerationRequest, name: str, engine: Engine, plan: Plan, repeat: int, tool_format: str = "auto"
) -> RunResult:
    result = RunResult(engine=name, repeat=repeat)
    delivered = Delivered()
    guard = StreamGuard(plan, delivered, attempt=repeat + 1, engine=name, tool_format=tool_format)
    started = time.monotonic()
    try:
        stream = await engine.open(EngineRequest(request, max_tokens=request.sampling.max_tokens))
    except EngineError as error:
        result.error = error.message
        return result
    try:
        async for events in stream:
            if not result.first_token_ms:
                result.first_token_ms = (time.monotonic() - started) * 1e3
            guard.feed(events)
            if guard.ended:
                break
    finally:
        await stream.aclose()
    if not guard.ended:
        guard.feed([Closed(clean=False)])
    result.duration_ms = (time.monotonic() - started) * 1e3
    guard.cut()
    result.text = delivered.whole()
    result.reason = guard.reason
    result.condemned = guard.condemned.cause if guard.condemned else ""
    result.findings = [finding.code for finding in guard.findings]
    result.token_ids = list(delivered.token_ids or ())
    result.completion_tokens = guard.usage.completion_tokens if guard.usage else guard.tokens
    return result
