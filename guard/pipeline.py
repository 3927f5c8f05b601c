"""A request's whole way, top to bottom: admitted, tried on engines, guarded, decided upon, recorded.

``generate`` is the front; ``_answer`` is the loop over attempts, in each of which an engine's events go through a
StreamGuard (guard/relay.py). Only this module sees both the engines and the caller. Whatever is done for each batch
costs every token of every caller, so the loops are few and flat.

n > 1 is fanned out: each choice is a request of its own to an engine, so that each is guarded and recovered on its
own, also on engines that ignore ``n``. A caller that does not stream holds nothing until the end, so its answer may
start afresh at any time; one that streams can only be gone on from.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing

import msgspec

from guard.admission import Job, admit
from guard.answer import Answer
from guard.attempt import Attempt, Attempts
from guard.build import status
from guard.check import CALLER, Check, Judged
from guard.config import Config
from guard.constraint.cache import ConstraintCache
from guard.cross_request import alarm_of
from guard.decision import Action
from guard.engines.contract import Engine, EngineError, EngineStream, ResumeUnsupported
from guard.events import Closed, Failed, Finished, GuardEvent, Started
from guard.evidence import AttemptEvidence, Evidence, checked
from guard.health.fleet import Ticket
from guard.health.others import NOBODY, Others
from guard.merge import merged
from guard.normalise import to_openai_body
from guard.plan import plan_for, prompt_text
from guard.racing import Racing
from guard.relay import Relay
from guard.request import GenerationRequest, RequestError
from guard.seeded import Seeded
from guard.service import Deliver, EngineStatus, ModelInfo, Outcome
from guard.trace.context import RANDOM_BYTES, begin
from guard.trace.record import OutcomeRecord
from guard.trace.tracing import Tracing
from guard.traffic import Traffic
from guard.watch import Condemned, Plan

Batches = AsyncGenerator[list[GuardEvent], None]


class Pipeline:
    """The Service that both servers stand on (guard/service.py)."""

    def __init__(
        self,
        config: Config,
        engines: Mapping[str, Engine],
        constraints: ConstraintCache,
        tracing: Tracing,
        *,
        clock: Callable[[], float] = time.monotonic,
        others: Others = NOBODY,
    ) -> None:
        self._config = config
        self._engines = engines
        self._engine_configs = {engine.name: engine for engine in config.engines}
        self._capabilities = {name: engine.capabilities for name, engine in engines.items()}
        self.traffic = Traffic(config, clock, others)
        self._constraints = constraints
        self._tracing = tracing
        self._clock = clock
        self._under_way = 0
        self._stopping = False
        self._cross_request = alarm_of(config.cross_request, secrets.token_bytes)
        self._attempts = Attempts(config.engines, self.traffic.fleet, clock)
        self._racing = Racing(self.traffic, self._attempts, self._open, self._judged, clock)
        self._started_at = int(time.time())

    # --- the request's way -------------------------------------------------------------------------------------------

    async def generate(self, request: GenerationRequest, deliver: Deliver | None = None) -> Batches:
        self._take()
        evidence = self._evidence(request)
        self._under_way += 1
        ticket: Ticket | None = None
        outcome: str | None = "cancelled"  # unless something else is known before the caller leaves
        try:
            job = await admit(self._config, self._constraints, request, now=self._clock())
            evidence.record.policy = job.policy_name
            plan = self._plan(job, evidence)
            ticket = await self.traffic.entrance.first(job)
            yield [Started(request.id, evidence.trace_id, request.model, ticket.engine)]
            missing = request.n
            async with aclosing(self._choices(job, plan, evidence, deliver, ticket)) as batches:
                async for batch in batches:
                    if type(batch[-1]) in _ENDS:
                        missing -= 1
                        if not missing:
                            outcome = None
                            self._tracing.write(evidence.close(self._clock()))  # evidence first, then the caller hears
                    yield batch
        except RequestError as error:
            outcome = "failed" if error.code in _OURS else "invalid"
            error.trace_id = evidence.trace_id
            evidence.record.error_code, evidence.record.error_message = error.code, error.message
            raise
        except Exception as error:  # ours: the server says so to the caller and to the log
            outcome = "failed"
            evidence.record.error_code, evidence.record.error_message = "internal", type(error).__name__
            raise
        finally:
            self._under_way -= 1
            if self._cross_request is not None:
                self._cross_request.leave(evidence.name)
            if ticket is not None:
                self.traffic.entrance.leave(ticket)
                self.traffic.entrance.gone(request.tenant)
            if outcome is not None:
                self._tracing.write(evidence.close(self._clock(), outcome))

    def _plan(self, job: Job, evidence: Evidence) -> Plan:
        """What its answers are held against; with the alarm for other requests' text on, its prompt is known to it."""
        alarm = self._cross_request
        if alarm is None or job.policy.detectors == "off":
            return plan_for(job.request, job.policy, job.compiled, job.tools)
        alarm.enter(evidence.name, prompt_text(job.request, said_by_others=True))
        return plan_for(job.request, job.policy, job.compiled, job.tools, alarm.detector(evidence.name))

    def _choices(self, job: Job, plan: Plan, evidence: Evidence, deliver: Deliver | None, ticket: Ticket) -> Batches:
        if job.request.n == 1:
            return self._answer(job, plan, evidence, ticket, 0, deliver)
        tickets = [ticket, *[None] * (job.request.n - 1)]
        return merged([self._answer(job, plan, evidence, one, choice) for choice, one in enumerate(tickets)])

    async def _answer(
        self,
        job: Job,
        plan: Plan,
        evidence: Evidence,
        ticket: Ticket | None,
        choice: int,
        deliver: Deliver | None = None,
    ) -> Batches:
        """One choice, over as many attempts as it takes. Its last batch ends with its one Finished or Failed.
        ``ticket``: its place on the first engine, if it has one yet."""
        answer = Answer(job, choice, self._capabilities, self.traffic.routers[job.request.model])
        evidence.answers.append(answer)
        going_on: tuple[Action, str, Condemned] | None = None
        while True:
            if answer.number and (pause := answer.pause(self._clock())):
                await asyncio.sleep(pause)
            try:
                if ticket is None:
                    ticket = await self.traffic.entrance.first(job, choice)
                elif ticket.left and not answer.alone:
                    ticket = await self.traffic.entrance.again(job, answer.ways())
            except RequestError as error:
                yield [*(answer.kept or ()), answer.turned_away(error)]
                return
            if not answer.alone:
                answer.engine = ticket.engine
            if going_on is not None:
                recovery, going_on = answer.recovery(*going_on), None
                if answer.kept is None:
                    yield recovery
                else:
                    answer.kept += recovery
            one = self._attempts.begin(answer, plan, evidence, ticket)
            try:
                told: list[GuardEvent] = []
                hedge_after = self.traffic.hedge_after(answer)
                if hedge_after is None:
                    stream = await self._open(answer, one.trail)
                else:
                    one, stream = await self._racing.run(one, plan, evidence, hedge_after)
                    if one.answer is not answer:
                        told = answer.outrun_by(one.answer)
                        answer, ticket = one.answer, one.ticket
                        evidence.goes_on_as(answer)
                guard, trail = one.guard, one.trail
                if stream is not None:
                    async with aclosing(stream):
                        heard = one.hears(stream)
                        relay = Relay(guard, answer, trail, self._clock, deliver)
                        relay.connect(heard)
                        if told:
                            yield told
                        async for events in heard:
                            if out := relay.through(events):
                                yield out
                            if guard.ended:
                                break
                    if not guard.ended:
                        guard.feed([Closed(clean=False)])  # an engine that broke its contract
                    trail.why = guard.condemned
                    if out := relay.leaves(guard.cut()):
                        yield out
            finally:
                self.traffic.entrance.leave(one.ticket)
                one.trail.close(one.guard, self._clock())

            why = self._judged(one)
            action = answer.end(guard, why, self._clock())
            trail.decided(action, why, answer.changed(action))

            if why is None:
                yield [*(answer.kept or ()), answer.finished(guard)]
                return
            if action.kind == "fail":
                yield [*(answer.kept or ()), answer.failed(action, why, self._engine_configs[one.engine].dialect)]
                return
            going_on = action, one.engine, why  # told once there is a place for it

    def _judged(self, one: Attempt) -> Condemned | None:
        """Why the attempt's answer must not stand; what it says of its engine is counted."""
        why = one.trail.why
        if why is not None and self._clock() >= one.answer.job.deadline:
            why = Condemned("deadline", f"the deadline passed ({why.message})", status=why.status)
        self.traffic.judge(one, why)
        return why

    async def _open(self, answer: Answer, trail: AttemptEvidence) -> EngineStream | None:
        """The engine's stream; or None, and in ``trail.why`` what kept it from opening one. An answer that is held to
        its constraint begins with its seed."""
        seed = answer.seed
        if seed is not None and answer.alone:
            return Seeded(seed.pieces, None)
        time_left = answer.job.deadline - self._clock()
        try:
            async with asyncio.timeout(max(time_left, 0.0)):
                stream = await self._ask(answer, trail)
        except ResumeUnsupported as error:
            answer.cannot_go_on_here()
            trail.why = Condemned("open.cannot_resume", str(error))
        except EngineError as error:
            answer.retry_after = error.retry_after
            trail.why = _refused(error, resuming=answer.begun_at >= 0)
            if trail.why.cause == "open.cannot_resume":
                answer.cannot_go_on_here()
        except TimeoutError:
            trail.why = Condemned("deadline", "the engine had not accepted the request by then")
        else:
            trail.record.unenforced = list(stream.unenforced)
            return stream if seed is None else Seeded(seed.pieces, stream)
        return None

    async def _ask(self, answer: Answer, trail: AttemptEvidence) -> EngineStream:
        """Raises EngineError, but for what the guard asked on its own account and can do without."""
        while True:
            rest = await asyncio.to_thread(answer.remainder) if answer.wants_remainder else None
            try:
                return await self._engines[answer.engine].open(answer.attempt_request(trail.traceparent, rest))
            except EngineError as error:
                if error.retryable or not answer.asks_less():
                    raise

    # --- what is kept of it ------------------------------------------------------------------------------------------

    def _evidence(self, request: GenerationRequest) -> Evidence:
        context = begin(request.traceparent, request.tracestate, secrets.token_bytes(RANDOM_BYTES))
        retention = self._tracing.retention.effective(request.tenant, request.retention)
        return Evidence(
            request,
            b"" if retention == "none" else msgspec.json.encode(to_openai_body(request)),
            context,
            wall=time.time(),
            now=self._clock(),
            retention=retention,
            service=self._config.trace.service_name,
        )

    # --- the rest of the service -------------------------------------------------------------------------------------

    async def check(self, request: GenerationRequest) -> Check:
        self._take()
        policy = self._config.policies.get(request.policy or "default")
        if policy is None:
            raise RequestError(f"there is no policy called {request.policy!r}", "outguard.policy")
        compiled = await self._constraints.compile(request.constraint) if request.constraint else None
        self._take()  # others may have been taken since
        evidence = self._evidence(request)
        evidence.record.policy = request.policy or "default"

        def over(judged: list[Judged]) -> None:
            self._under_way -= 1
            self._tracing.write(checked(evidence, request, judged, self._clock()))

        plan = plan_for(request, policy, compiled)
        self._under_way += 1
        return Check(plan, started=Started(request.id, evidence.trace_id, request.model, CALLER), on_end=over)

    def report_outcome(self, outcome: Outcome) -> None:
        record = OutcomeRecord(outcome.trace_id, outcome.tool_call_id, time.time(), outcome.ok, outcome.detail)
        self._tracing.write_outcome(record)

    def models(self) -> list[ModelInfo]:
        return [ModelInfo(route.model, self._started_at, route.engines) for route in self._config.routes]

    async def engines(self) -> list[EngineStatus]:
        healths = await asyncio.gather(*(self._engines[config.name].health() for config in self._config.engines))
        now, fleet = self._clock(), self.traffic.fleet
        return [
            status(config, health, fleet.state(config.name, now))
            for config, health in zip(self._config.engines, healths, strict=True)
        ]

    def drain(self, engine: str, draining: bool) -> bool:
        try:
            self.traffic.fleet.drain(engine, draining)
        except KeyError:
            return False
        return True

    def _take(self) -> None:
        """Raises RequestError when nothing more can be taken."""
        if self._stopping:
            raise RequestError("stopping", "", "engine_unavailable")
        if self._under_way >= self._config.limits.max_requests:
            raise RequestError(self._full(), "", "overloaded", retry_after=1.0)

    def _full(self) -> str:
        return f"{self._under_way} answers are under way, which is the limit"

    def stop(self) -> None:
        """Nothing new is taken from now on; what is under way goes on."""
        self._stopping = True

    def ready(self) -> tuple[bool, str]:
        if self._stopping:
            return False, "stopping"
        if self._under_way >= self._config.limits.max_requests:
            return False, self._full()
        if not self.traffic.ready():
            return False, "no engine of any route takes requests"
        return True, "ready"

    async def metrics(self) -> tuple[str, bytes]:
        self._tracing.metrics.engines(self.traffic.fleet.states(self._clock()), self.traffic.entrance.waiting)
        return self._tracing.metrics_page(self._under_way)


_ENDS = (Finished, Failed)

_OURS = ("overloaded", "engine_unavailable", "deadline_exceeded")
"""Codes of refusals that are no mistake of the caller's."""


def _refused(error: EngineError, *, resuming: bool) -> Condemned:
    if not error.retryable and resuming:
        # the caller's request was good once: it is the prefix that this engine does not take
        return Condemned("open.cannot_resume", error.message, status=error.status)
    if not error.retryable:
        return Condemned("open.refused", error.message, status=error.status)
    if error.status in (429, 503):
        return Condemned("open.busy", error.message, status=error.status)
    return Condemned(f"open.{error.kind}", error.message, status=error.status)
