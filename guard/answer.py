"""The state of one choice's answer over its attempts: what was delivered, what was tried, what it cost.

Pure bookkeeping; the loop that drives it is in pipeline.py, and what is put into a broken answer is mending.py's.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from detectors.finding import Finding
from guard.admission import Job, one_choice
from guard.advice import advice
from guard.calling import CallReader
from guard.candidates import Candidates
from guard.constraint.custom_tool import as_functions
from guard.decision import NO_BUDGET, NOWHERE, Action, Situation, decide
from guard.delivered import Delivered
from guard.enforce import Seed, as_asked, spoken_parts, token_count
from guard.engines.contract import Capabilities, EngineRequest
from guard.engines.remainder import remainder_of
from guard.events import Failed, Finished, Found, GuardEvent, Recovery, Usage, Verdicts
from guard.kept import delivered_of, record_of, taken_back
from guard.mending import Broken, Mending, Way
from guard.request import RequestError, ToolChoice
from guard.retry import Attempts
from guard.routing import Router
from guard.spent import Spent
from guard.stream import StreamGuard
from guard.variation import Places, finding_of, with_other_sampling
from guard.watch import Condemned


class Answer:
    """``kept`` collects what is released for a caller that does not stream; None for one that does. ``engine`` is the
    one to be asked next."""

    def __init__(self, job: Job, choice: int, capabilities: Mapping[str, Capabilities], router: Router) -> None:
        self.job = job
        self.choice = choice
        self.request = one_choice(job, choice)
        self.delivered = Delivered()
        self.kept: list[GuardEvent] | None = None if job.request.stream else []
        self.engine = self._asked = job.engines[0]
        self.number = 0
        self.retry_after: float | None = None
        self._not_before: dict[str, float] = {}
        self._blame: Condemned | None = None
        self.spent = Spent()
        self.reason = ""
        self.failure: Failed | None = None
        self.verdicts = Verdicts()
        self._capabilities = capabilities
        self._router = router
        self._candidates = Candidates(job.engines, self.request, capabilities, router)
        self._constrains = True
        self._places = Places()
        self._variation: Finding | None = None
        self._refuses_constraint: set[str] = set()
        policy = job.policy
        self._attempts = Attempts(
            most=policy.max_attempts, initial=policy.backoff_initial, longest=policy.backoff_max, deadline=job.deadline
        )
        self._mending = Mending(job, self.request, choice, self._candidates, capabilities)

    @property
    def usage(self) -> Usage:
        return self.spent.usage

    @property
    def wasted(self) -> int:
        return self.spent.wasted

    @property
    def seed(self) -> Seed | None:
        """What the next attempt begins with when it holds the answer to its constraint."""
        return self._mending.seed

    def pause(self, now: float) -> float:
        """The seconds to wait before the next attempt."""
        if self.seed is not None:  # holding an answer to its constraint is no attempt of the policy's
            return 0.0
        wait = self._not_before.get(self.engine, now) - now
        return self._attempts.pause(seen_before=self.engine in self._candidates.tried, retry_after=wait, now=now)

    def begin(self) -> None:
        """A new attempt on ``engine``."""
        if self.seed is None:
            self._attempts.begin()
        self.number += 1
        self._candidates.tried[self.engine] += 1
        self._asked = self.engine
        self.spent.begin(delivered=self.delivered.tokens, seeded=self.seed.tokens if self.seed is not None else 0)
        self.retry_after = None

    def twin(self, engine: str) -> Answer:
        """The same answer, asked for on another engine at the same time, before anything has come of it."""
        other = Answer(self.job, self.choice, self._capabilities, self._router)
        other.engine, other.number = engine, self.number
        return other

    def goes_on(self, other: Answer) -> None:
        """Instead of its twin."""
        self.number = max(self.number, other.number)
        self._candidates.tried += other._candidates.tried

    def outrun_by(self, twin: Answer) -> list[GuardEvent]:
        """What is said of it, unless it is kept to the end."""
        told = Recovery(self.choice, twin.number, "hedge", self.engine, twin.engine, "open.first_token_late")
        if twin.kept is None:
            return [told]
        twin.kept.append(told)
        return []

    def beside(self, now: float) -> str | None:
        """The best engine for a twin, of those that have a place free."""
        return self._candidates.beside(self.engine, now)

    def ways(self) -> list[str]:
        """The engines for its next attempt: the one that was chosen, and those that would do as well."""
        return self._candidates.alike(self.engine, self._asked, self.delivered, begun=self.begun_at >= 0)

    def cannot_go_on_here(self) -> None:
        """The engine does not go on from what was delivered."""
        self._candidates.cannot_resume.add(self.engine)

    @property
    def wants_remainder(self) -> bool:
        """Whether the attempt goes on in the middle of a constrained answer, on an engine that would start the
        constraint again."""
        return (
            self.begun_at > 0
            and self._mending.calling is None
            and not self._candidates.carries_constraint(self.engine)
            and self._candidates.takes_remainder(self.engine, self.delivered)
            and self.engine not in self._refuses_constraint
        )

    def remainder(self) -> str | None:
        """The grammar of what may still come, if there is one. Takes milliseconds, with a long answer more."""
        assert self.request.constraint is not None
        seed = self.seed.text if self.seed is not None else ""
        return remainder_of(self.request.constraint, self.delivered.text() + seed)

    def attempt_request(self, traceparent: str, remainder: str | None = None) -> EngineRequest:
        """What to ask of the engine: what is left of the token budget, from what was delivered on."""
        budget = self.request.sampling.max_tokens
        begun = self.begun_at >= 0
        self._constrains = not begun or (
            self._mending.calling is None
            and (self._candidates.carries_constraint(self.engine) or remainder is not None)
            and self.engine not in self._refuses_constraint
        )
        request = msgspec.structs.replace(self.request, traceparent=traceparent)
        request = self._mending.asked(request, self.engine, begun=begun, constrained=self._constrains)
        if not begun:
            return EngineRequest(request, self.number, max_tokens=budget, deadline=self.job.deadline)
        prefix = self.delivered.prefix()
        if self.seed is not None:
            ids = self.seed.token_ids
            prefix.content += self.seed.text
            prefix.token_ids = (*prefix.token_ids, *ids) if prefix.token_ids is not None and ids is not None else None
            if prefix.spoken is not None:
                prefix.spoken = spoken_parts(self.seed.pieces, prefix.spoken)
        if self._mending.calling is not None:
            # the call goes on as text, with those before it, and the engine is not to make anything of it
            prefix.tool_calls = ()
            prefix.spoken = None
            tools = as_functions(request.tools)
            request = msgspec.structs.replace(
                request, tools=tools, tool_choice=ToolChoice("none"), tool_choice_raw="none"
            )
        return EngineRequest(
            request,
            self.number,
            prefix=prefix,
            # zero would be no request at all; an answer cut after its very last token is asked for one more
            max_tokens=max(1, budget - self.spent.before) if budget is not None else None,
            constrain=self._constrains,
            remainder=remainder,
            ignore_eos=self._mending.stopped_early and not self._constrains,
            deadline=self.job.deadline,
        )

    def call_reader(self) -> CallReader | None:
        """What reads the attempt's text, where it is a call that is made good from outside."""
        made = self._mending.calling
        return CallReader(made) if made is not None else None

    def asks_less(self) -> bool:
        """The engine refused what the guard asked for on its own account. Whether there is something to do without."""
        if self.request.constraint is not None and self.begun_at >= 0 and self._constrains:
            self._refuses_constraint.add(self.engine)
            return True
        return self._mending.asks_less(self.engine)

    @property
    def alone(self) -> bool:
        """Whether the attempt asks no engine: the constraint has left nothing to say."""
        return self.seed is not None and self.seed.mend.whole

    @property
    def hides(self) -> bool:
        """Whether the engine's log probabilities are more than the caller asked for, and so not to be shown."""
        return self._mending.alternatives > 0

    def hide(self, events: list[GuardEvent]) -> None:
        as_asked(events, self.request.sampling)

    @property
    def begun_at(self) -> int:
        """The characters of content that the attempt goes on from; -1 when it begins afresh."""
        seed = len(self.seed.text) if self.seed is not None else 0
        return -1 if self.delivered.nothing and not seed else self.delivered.length() + seed

    def end(self, guard: StreamGuard, why: Condemned | None, now: float) -> Action:
        """The attempt is over: account for it and ask the table what comes next, choosing the engine for it."""
        candidates = self._candidates
        self.spent.end(guard.usage, guard.tokens)
        if self.retry_after is not None:
            self._not_before[self.engine] = now + self.retry_after
        if why is not None and why.cause == "open.cannot_resume" and self._blame is not None:
            self._attempts.forgive()  # no engine was at work: what is to be answered for is what went before
        else:
            self._blame = why
        self.verdicts = guard.verdicts()
        if why is None or self._blame is None:  # nearly always: nothing more is to be looked for
            self._mending.go_on(None)
            return decide(Situation(""))
        goes_on = self.job.policy.resume and not guard.dead_end  # what was delivered can still become a valid answer
        resuming = candidates.onward(self.engine, self.delivered, now) if goes_on else None
        fresh = candidates.afresh(self.engine, now)
        afresh = self.delivered.nothing or (
            self.kept is not None and (resuming is None or not candidates.keeps_constraint(resuming, self.delivered))
        )
        way = self._mending.way(Broken(guard, why, self.engine, self.delivered, self._attempts.left(now), now))
        if way is not None:
            self._take_back(way)
        action = decide(
            Situation(
                cause=self._blame.cause,
                delivered=not afresh,
                attempts_left=self._attempts.left(now) and not self._told_to_wait(fresh if afresh else resuming, now),
                budget_left=self._router.budget.left(now),
                reachable=fresh is not None,
                resumable=resuming is not None,
                enforceable=way is not None,
                again=self._again(why),
                variable=self.job.policy.vary and self._variation is None,
            )
        )
        self._mending.go_on(way if action.kind == "enforce" else None)
        if action.kind in ("retry", "resume", "vary"):
            self._router.budget.spend(now)
        if action.kind == "vary":
            sampling = with_other_sampling(self.request.sampling, document=self.request.constraint is not None)
            self.request = msgspec.structs.replace(self.request, sampling=sampling)
            self._variation = finding_of(sampling)
            fresh = candidates.staying(self.engine, fresh, now)
            resuming = candidates.staying(self.engine, resuming, now)
        if action.kind in ("retry", "vary") and fresh is not None and afresh:
            self._start_afresh()
            self.engine = fresh
        elif action.kind in ("resume", "vary") and resuming is not None:
            self.spent.throw_away(guard.tokens, kept=self.delivered.tokens)
            self.engine = resuming
        elif way is not None:
            kept = self.delivered.tokens + sum(map(token_count, way.seed.held))
            self.spent.throw_away(guard.tokens, kept=kept)
            text = self.delivered.text() + way.seed.text
            self.engine = candidates.enforcing(self.engine, text, self.delivered, now) or self.engine
        return action

    def recovery(self, action: Action, failed: str, why: Condemned) -> list[GuardEvent]:
        """What is said of it: that the answer goes on elsewhere, and what was put into it."""
        told: list[GuardEvent] = [
            Recovery(
                choice=self.choice,
                attempt=self.number + 1,
                action=action.kind,
                from_engine=failed,
                to_engine=self.engine,
                reason=why.cause,
                channel=self.delivered.channel,
                offset=self.delivered.length(self.delivered.channel),
            )
        ]
        if (done := self.changed(action)) is not None:
            told.append(Found(self.choice, done, failed, self.number))
        return told

    def changed(self, action: Action) -> Finding | None:
        """What was put into the answer, or is asked otherwise, before the next attempt; for the record."""
        return self._variation if action.kind == "vary" else self._mending.finding

    @property
    def varied(self) -> bool:
        """Whether its sampling is no longer the caller's."""
        return self._variation is not None

    def finished(self, guard: StreamGuard) -> Finished:
        self.reason = guard.reason
        self.spent.close(self.request)
        return Finished(
            choice=self.choice,
            reason=guard.reason,
            usage=self.usage,
            verdicts=self.verdicts,
            attempts=self.number,
            wasted_tokens=self.spent.wasted,
            matched_stop=guard.matched_stop,
        )

    def failed(self, action: Action, why: Condemned, dialect: str) -> Failed:
        """``dialect``: of the engine that was last asked."""
        why = self._blame or why
        told = advice(why.cause, dialect, resumes=self._candidates.resumes(self.engine), tried=self._mending.has_called)
        message = f"{why.message} ({action.why})" if action.why in (NO_BUDGET, NOWHERE) else why.message + told
        return self._fail(action.code, message, self.retry_after, why.status)

    def turned_away(self, error: RequestError) -> Failed:
        """There was no place for its next attempt."""
        return self._fail(error.code, error.message, error.retry_after)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _fail(self, code: str, message: str, retry_after: float | None, status: int | None = None) -> Failed:
        self.spent.close(self.request)
        self.failure = Failed(
            choice=self.choice,
            code=code,
            message=message,
            attempts=self.number,
            engine_status=status,
            retry_after=retry_after,
            verdicts=self.verdicts,
            usage=self.usage,
        )
        return self.failure

    def _start_afresh(self) -> None:
        self.spent.throw_all_away()
        self._drop_kept()

    def _drop_kept(self) -> None:
        if self.kept is not None:
            self.kept = record_of(self.kept)
        self.delivered = Delivered()

    def _take_back(self, way: Way) -> None:
        """What does not stand on the way on, of what is kept."""
        if way.anew:
            self._drop_kept()
        elif way.taken_back and self.kept is not None:
            self.kept = taken_back(self.kept, way.taken_back)
            self.delivered = delivered_of(self.kept, self.delivered)

    def _again(self, why: Condemned) -> bool:
        return why.cause.startswith(("repetition.", "whitespace.")) and self._places.again(why.channel, why.onset)

    def _told_to_wait(self, engine: str | None, now: float) -> bool:
        """Whether the engine that would be next asks for more patience than the policy or the caller has: then the
        caller is told."""
        wait = self._not_before.get(engine, now) - now if engine is not None else 0.0
        return wait > min(self.job.policy.backoff_max, self.job.deadline - now)
