"""One attempt at an answer: the engine and the place it has there, the guard that reads it, what is kept of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial

from msgspec import Struct

from guard.answer import Answer
from guard.config import EngineConfig
from guard.engines.contract import EngineStream, Raw
from guard.evidence import AttemptEvidence, Evidence
from guard.health.fleet import Fleet, Ticket
from guard.prefixes import Prefixes
from guard.reading import Reading
from guard.seam import Seam
from guard.stream import StreamGuard
from guard.watch import Plan


class Attempt(Struct, eq=False):
    """``alone``: no engine is asked. ``before``: the characters that were delivered when it began."""

    answer: Answer
    engine: str
    ticket: Ticket
    guard: StreamGuard
    trail: AttemptEvidence
    alone: bool
    before: int
    new_reading: Callable[..., Reading]

    def hears(self, stream: EngineStream) -> EngineStream:
        """The stream that was opened says how it is to be read: before anything of it is fed to the guard. Returns what
        is to be fed."""
        raw: Raw | None = getattr(stream, "raw", None)
        if raw is None:
            self.answer.delivered.reads_channels()
            stops, said = self.answer.request.sampling.stop, self.answer.delivered.text()
            return Seam(stream, stops, said) if stops and said and not self.alone else stream
        record = self.trail.record
        record.tokenizer_hash, record.template_hash = raw.vocabulary, raw.template
        self.answer.spent.sent(len(raw.prompt))
        if self.answer.call_reader() is None:
            self.guard.reads_raw(raw.vocabulary, self.new_reading(raw=True))
            self.trail.speaks(raw.prompt, self.answer.delivered.spoken)
        else:
            self.answer.delivered.reads_channels()
        return stream


class Attempts:
    """Begins them, on engines as they are configured."""

    def __init__(self, engines: Iterable[EngineConfig], fleet: Fleet, clock: Callable[[], float]) -> None:
        self._configs = {engine.name: engine for engine in engines}
        self._fleet = fleet
        self._clock = clock
        self._prefixes = Prefixes()

    def begin(self, answer: Answer, plan: Plan, evidence: Evidence, ticket: Ticket) -> Attempt:
        """The next attempt at an answer, on its engine. Where none can be begun, its place is free again."""
        try:
            return self._begun(answer, plan, evidence, ticket)
        except BaseException:
            self._fleet.leave(ticket)
            raise

    def _begun(self, answer: Answer, plan: Plan, evidence: Evidence, ticket: Ticket) -> Attempt:
        answer.begin()
        engine = answer.engine
        config = self._configs[engine]
        new_reading = partial(
            Reading,
            plan,
            answer.delivered,
            tool_format=config.tool_format or "auto",
            reasoning_format=config.reasoning_format,
            model=config.model,
            seeded=answer.seed is not None and bool(answer.seed.pieces),
        )
        reading = new_reading(call=answer.call_reader())
        guard = StreamGuard(
            plan, answer.delivered, choice=answer.choice, attempt=answer.number, engine=engine, reading=reading
        )
        trail = self._trail(evidence, answer)
        return Attempt(answer, engine, ticket, guard, trail, answer.alone, answer.delivered.total_chars(), new_reading)

    def _trail(self, evidence: Evidence, answer: Answer) -> AttemptEvidence:
        request, now = answer.job.request, self._clock()
        trail = AttemptEvidence(
            _ITSELF if answer.alone else self._configs[answer.engine],
            request,
            evidence.context,
            choice=answer.choice,
            attempt=answer.number,
            wall=time.time(),
            now=now,
            concurrency=self._fleet.under_way(answer.engine),
            resumed=answer.begun_at,
            prefix_hint="" if answer.alone else self._prefixes.hint(answer.engine, request, now),
        )
        evidence.attempts.append(trail)
        evidence.record.attempts.append(trail.record)
        return trail


_ITSELF = EngineConfig(name="outguard", url="http://127.0.0.1")
"""On record for an attempt in which no engine was asked: the constraint had left nothing to say."""
