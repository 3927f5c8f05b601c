"""Asks engines the known question: those that are being tried after a failure, and those that nobody asks anything.

With it callers' requests are no trials: an engine that was out comes back once it has answered the question (as often
as breaker.py demands). The answer goes through the same stream guard as a caller's, and counts the same.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Final

from guard.config import Config, Policy
from guard.delivered import Delivered
from guard.engines.contract import Engine, EngineError, EngineRequest
from guard.events import CONTENT, REASONING, Closed
from guard.health.attempt import verdict_of
from guard.health.known_answer import KnownAnswer, question
from guard.health.verdict import WELL, Verdict, verdict
from guard.plan import plan_for
from guard.reading import Reading
from guard.stream import StreamGuard
from guard.traffic import Traffic, out_message
from guard.watch import Condemned

LONGEST: Final = 20.0
"""Seconds after which a probe is given up; an engine's own limits may end it sooner."""

LOOK: Final = 0.5
"""Seconds between two looks at who is due."""

_QUESTION_IS_WRONG: Final = (400, 405, 413, 415, 422)

_log: Final = logging.getLogger("outguard.probing")


class Prober:
    """``count`` hears of every probe: the engine, and what came of it (ok, or the cause)."""

    def __init__(
        self,
        config: Config,
        engines: Mapping[str, Engine],
        traffic: Traffic,
        clock: Callable[[], float],
        count: Callable[[str, str], None] = lambda engine, outcome: None,
    ) -> None:
        self._interval = config.health.probe_interval
        self._configs = {engine.name: engine for engine in config.engines}
        self._models = {name: route.model for route in reversed(config.routes) for name in route.engines}
        self._engines = engines
        self._traffic = traffic
        self._clock = clock
        self._count = count
        self._known = {name: KnownAnswer() for name in self._models}
        self._asked: Counter[str] = Counter()
        self._under_way: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Until it is cancelled."""
        try:
            while True:
                self.look()
                await asyncio.sleep(min(LOOK, self._interval))
        finally:
            for task in self._under_way.values():
                task.cancel()
            await asyncio.gather(*self._under_way.values(), return_exceptions=True)

    def look(self) -> None:
        """Begin a probe of every engine that is due."""
        now = self._clock()
        for name in self._models:
            if name not in self._under_way and self._traffic.fleet.due(name, now, self._interval):
                task = self._under_way[name] = asyncio.ensure_future(self.probe(name))
                task.add_done_callback(lambda _, name=name: self._under_way.pop(name, None))  # type: ignore[misc]

    async def probe(self, name: str) -> None:
        fleet = self._traffic.fleet
        ticket = fleet.begin(name, self._clock())
        try:
            cause, said = await self._ask(name)
        finally:
            fleet.leave(ticket)
        self._count(name, cause or "ok")
        if said is None:
            return
        if fleet.judge(ticket, said, self._clock(), cause=cause):
            _log.warning("%s: its probe (%s)", out_message(fleet, name, self._clock()), cause)

    async def _ask(self, name: str) -> tuple[str, Verdict | None]:
        engine, config = self._engines[name], self._configs[name]
        self._asked[name] += 1
        asked = question(self._models[name], engine.capabilities, number=self._asked[name])
        plan = plan_for(asked, Policy(), None)
        delivered = Delivered()
        reading = Reading(
            plan,
            delivered,
            tool_format=config.tool_format or "auto",
            reasoning_format=config.reasoning_format,
            model=config.model,
        )
        guard = StreamGuard(plan, delivered, engine=name, reading=reading)
        why: Condemned | None = None
        try:
            async with asyncio.timeout(LONGEST):
                deadline = self._clock() + LONGEST
                stream = await engine.open(
                    EngineRequest(asked, max_tokens=asked.sampling.max_tokens, deadline=deadline)
                )
                async with aclosing(stream):
                    async for events in stream:
                        guard.feed(events)
                        if guard.ended:
                            break
                if not guard.ended:
                    guard.feed([Closed(clean=False)])
                why = guard.condemned
        except EngineError as error:
            if error.status in _QUESTION_IS_WRONG:
                return "", WELL  # it is there, and knows what it does not take
            why = Condemned(f"open.{error.kind}", error.message, status=error.status)
        except TimeoutError:
            return "probe.timeout", verdict("open.first_token_timeout")
        if why is not None or guard.unsound:
            return verdict_of(guard, delivered, why, before=0, contradicted=False)
        return self._known[name].judge(delivered.text(REASONING) + delivered.text(CONTENT))
