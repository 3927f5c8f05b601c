"""What routing, health and limits add to a request, in us of CPU: ``python -m tests.bench.traffic [REQUESTS]``.

An answer is asked for once, over a scripted engine; then everything that is done for each request and each attempt on
its account is done again and again: a place, the budget, the verdict on the engine, the place given back. Nothing is
done for each chunk.
"""

from __future__ import annotations

import asyncio
import sys
import time

from guard.admission import Job
from guard.attempt import Attempt
from guard.config import parse_config
from guard.constraint.cache import ConstraintCache
from guard.engines.scripted import ScriptedEngine, telling
from guard.pipeline import Pipeline
from guard.request import GenerationRequest
from guard.trace.tracing import Tracing
from guard.traffic import Traffic

CONFIG = """\
engines:
  - {{name: a, url: "http://127.0.0.1:1", max_concurrency: {places}}}
  - {{name: b, url: "http://127.0.0.1:2", max_concurrency: {places}}}
  - {{name: c, url: "http://127.0.0.1:3", max_concurrency: {places}}}
routes: [{{model: m, engines: [a, b, c], balance: {balance}}}]
policies: {{default: {{hedge_after: {hedge}}}}}
limits: {{max_per_tenant: {places}}}
"""
PROMPT = "You are a helpful assistant. " * 100


class Caught(Traffic):
    """Keeps the attempt that was judged last."""

    last: Attempt

    def judge(self, one: Attempt, why: object) -> None:
        self.last = one
        super().judge(one, why)  # type: ignore[arg-type]


async def one_attempt(config: str) -> tuple[Traffic, Job, Attempt]:
    pipeline = Pipeline(
        parse_config(config),
        {name: ScriptedEngine(name, telling("All is well.")) for name in "abc"},
        ConstraintCache(),
        Tracing(),
    )
    pipeline.traffic = caught = Caught(parse_config(config), time.monotonic)
    request = GenerationRequest("r", "chat", "m", [{"role": "user", "content": PROMPT}], tenant="t")
    async for _ in pipeline.generate(request):
        pass
    return caught, caught.last.answer.job, caught.last


async def measure(config: str, requests: int) -> float:
    """Microseconds a request, the best of five rounds."""
    traffic, job, attempt = await one_attempt(config)
    best = float("inf")
    for _ in range(5):
        began = time.process_time()
        for _ in range(requests):
            attempt.ticket = await traffic.entrance.first(job)
            traffic.hedge_after(attempt.answer)
            traffic.entrance.leave(attempt.ticket)
            Traffic.judge(traffic, attempt, None)
            traffic.entrance.leave(attempt.ticket)
            traffic.entrance.gone("t")
        best = min(best, (time.process_time() - began) / requests * 1e6)
    return best


def main(requests: int) -> None:
    for name, how in {
        "ordered, no limits": {"places": 0, "balance": "ordered", "hedge": "null"},
        "least loaded, limits, a hedge": {"places": 50, "balance": "least_loaded", "hedge": "1"},
    }.items():
        cost = asyncio.run(measure(CONFIG.format(**how), requests))
        print(f"{name}: {cost:.1f} us of CPU a request")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5000)
