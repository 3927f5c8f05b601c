"""The state of one choice's answer over its attempts: what was delivered, what was tried, what it cost.

Pure bookkeeping; the loop that drives it is in pipeline.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from guard.admission import Job
from guard.decision import Action, Situation, decide
from guard.delivered import Delivered
from guard.engines.contract import Capabilities, EngineRequest
from guard.events import CONTENT, Failed, Finished, Found, GuardEvent, Recovery, Usage, Verdicts
from guard.request import GenerationRequest
from guard.retry import Attempts
from guard.stream import Condemned, StreamGuard


class Answer:
    """``kept`` collects what is released for a caller that does not stream; None for one that does."""

    def __init__(self, job: Job, choice: int, capabilities: Mapping[str, Capabilities]) -> None:
        self.job = job
        self.choice = choice
        self.request = _one_choice(job, choice)
        self.delivered = Delivered()
        self.kept: list[GuardEvent] | None = None if job.request.stream else []
        self.engine = job.engines[0]
        self.number = 0
        self.retry_after: float | None = None
        self._not_before: dict[str, float] = {}
        self._blame: Condemned | None = None
        self.usage = Usage()
        self.wasted = 0
        self.cannot_resume: set[str] = set()
        self.reason = ""
        self.failure: Failed | None = None
        self.verdicts = Verdicts()
        self._capabilities = capabilities
        self._tried: Counter[str] = Counter()
        self._resumed_at = 0
        self._prompt_tokens: int | None = None
        policy = job.policy
        self._attempts = Attempts(
            most=policy.max_attempts, initial=policy.backoff_initial, longest=policy.backoff_max, deadline=job.deadline
        )

    def begin(self, now: float) -> float:
        """A new attempt on ``engine``. Returns the seconds to wait first."""
        wait = self._not_before.get(self.engine, now) - now
        pause = self._attempts.pause(seen_before=self.engine in self._tried, retry_after=wait, now=now)
        self._attempts.begin()
        self.number += 1
        self._tried[self.engine] += 1
        self._resumed_at = self.delivered.tokens
        self.retry_after = None
        return pause

    def attempt_request(self, traceparent: str) -> EngineRequest:
        """What to ask of the engine: what is left of the token budget, from what was delivered on."""
        budget = self.request.sampling.max_tokens
        request = msgspec.structs.replace(self.request, traceparent=traceparent)
        if self.delivered.nothing:
            return EngineRequest(request, self.number, max_tokens=budget, deadline=self.job.deadline)
        return EngineRequest(
            request,
            self.number,
            prefix=self.delivered.prefix(),
            # zero would be no request at all; an answer cut after its very last token is asked for one more
            max_tokens=max(1, budget - self.delivered.tokens) if budget is not None else None,
            constrain=self._keeps_constraint(self.engine),
            deadline=self.job.deadline,
        )

    def end(self, guard: StreamGuard, why: Condemned | None, now: float) -> Action:
        """The attempt is over: account for it and ask the table what comes next, choosing the engine for it."""
        self._account(guard)
        if self.retry_after is not None:
            self._not_before[self.engine] = now + self.retry_after
        if why is not None and why.cause == "open.cannot_resume" and self._blame is not None:
            self._attempts.forgive()  # no engine was at work: what is to be answered for is what went before
        else:
            self._blame = why
        self.verdicts = guard.verdicts()
        resuming = self._next(resume=True) if self._can_go_on(guard) else None
        afresh = self.delivered.nothing or (
            self.kept is not None and (resuming is None or not self._keeps_constraint(resuming))
        )
        action = decide(
            Situation(
                cause=self._blame.cause if self._blame else "",
                delivered=not afresh,
                attempts_left=self._attempts.left(now) and not self._told_to_wait(resuming, now),
                resumable=resuming is not None,
            )
        )
        if action.kind == "retry":
            self._start_afresh()
            self.engine = self._next(resume=False) or self.engine
        elif action.kind == "resume" and resuming is not None:
            self.wasted += max(0, guard.tokens - (self.delivered.tokens - self._resumed_at))
            self.engine = resuming
        return action

    def recovery(self, action: Action, failed: str, why: Condemned) -> Recovery:
        return Recovery(
            choice=self.choice,
            attempt=self.number + 1,
            action=action.kind,
            from_engine=failed,
            to_engine=self.engine,
            reason=why.cause,
            channel=CONTENT,
            offset=self.delivered.length(CONTENT),
        )

    def finished(self, guard: StreamGuard) -> Finished:
        self.reason = guard.reason
        return Finished(
            choice=self.choice,
            reason=guard.reason,
            usage=self.usage,
            verdicts=self.verdicts,
            attempts=self.number,
            wasted_tokens=self.wasted,
            matched_stop=guard.matched_stop,
        )

    def failed(self, action: Action, why: Condemned) -> Failed:
        why = self._blame or why
        self.failure = Failed(
            choice=self.choice,
            code=action.code,
            message=why.message,
            attempts=self.number,
            engine_status=why.status,
            retry_after=self.retry_after,
            verdicts=self.verdicts,
            usage=self.usage,
        )
        return self.failure

    # --- inside ------------------------------------------------------------------------------------------------------

    def _account(self, guard: StreamGuard) -> None:
        """The prompt is counted once, whatever the attempts; delivered tokens of earlier attempts count as
        completion."""
        seen = guard.usage
        if seen is not None and self._prompt_tokens is None:
            self._prompt_tokens = max(0, seen.prompt_tokens - self._resumed_at)
        completion = self._resumed_at + (seen.completion_tokens if seen and seen.completion_tokens else guard.tokens)
        prompt = self._prompt_tokens or 0
        self.usage = Usage(
            prompt_tokens=prompt,
            completion_tokens=completion,
            total_tokens=prompt + completion,
            cached_tokens=seen.cached_tokens if seen else 0,
            reasoning_tokens=seen.reasoning_tokens if seen else 0,
        )

    def _start_afresh(self) -> None:
        self.wasted += self.usage.completion_tokens
        if self.kept is not None:
            # what was kept for the caller never left; what was found stays on the record
            self.kept = [event for event in self.kept if isinstance(event, Found | Recovery)]
        self.delivered = Delivered()
        self._resumed_at = 0

    def _can_go_on(self, guard: StreamGuard) -> bool:
        """Whether what was delivered can still become a valid answer, and is text (a half call cannot be continued)."""
        return self.job.policy.resume and not self.delivered.calls and not guard.dead_end

    def _next(self, *, resume: bool) -> str | None:
        """The least tried engine, in the route's order among equals."""
        names: Sequence[str] = self.job.engines
        if resume:
            names = [n for n in names if self._resumes(n)]
        return min(names, key=lambda n: (self._tried[n], self.job.engines.index(n)), default=None)

    def _told_to_wait(self, resuming: str | None, now: float) -> bool:
        """Whether the engine that would be next asks for more patience than the policy has: then the caller is told."""
        engine = resuming or self._next(resume=False) or self.engine
        return self._not_before.get(engine, now) - now > self.job.policy.backoff_max

    def _resumes(self, engine: str) -> bool:
        """A text completion goes on anywhere: its prompt is only longer."""
        text = self.request.kind == "completion" and isinstance(self.request.prompt, str)
        return engine not in self.cannot_resume and (text or self._capabilities[engine].resume != "no")

    def _keeps_constraint(self, engine: str) -> bool:
        """Whether a resume on this engine is still constrained by it (most start the grammar again at its root)."""
        constraint = self.request.constraint
        if constraint is None:
            return True
        return constraint.kind in ("json_schema", "json_object") and self._capabilities[engine].resume_constrained


def _one_choice(job: Job, choice: int) -> GenerationRequest:
    """vLLM's own way with n and a seed: choice i is sampled with seed + i."""
    request = job.request
    if request.n == 1:
        return request
    seed = request.sampling.seed
    sampling = request.sampling if seed is None else msgspec.structs.replace(request.sampling, seed=seed + choice)
    return msgspec.structs.replace(request, n=1, sampling=sampling)
