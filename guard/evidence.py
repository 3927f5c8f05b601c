"""Gathers what the trace keeps of a request while it runs, at the price of a few additions a batch.

One Evidence a request, one AttemptEvidence an attempt. The records are complete, and written, before the caller hears
that its answer is finished.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

import msgspec

from detectors.finding import Finding
from guard import __version__
from guard.answer import Answer
from guard.calling import promised
from guard.check import CALLER, Judged
from guard.config import EngineConfig
from guard.decision import Action
from guard.engines.dialect_constraints import named
from guard.events import CONTENT, GuardEvent, Release
from guard.request import GenerationRequest
from guard.spoken import Spoken
from guard.stream import StreamGuard
from guard.trace.context import TraceContext, attempt_span_id
from guard.trace.record import AttemptRecord, FindingRecord, RequestRecord
from guard.watch import CONSTRAINT_FAMILIES, Condemned


class AttemptEvidence:
    """``why`` is what ended the attempt badly. Times are seconds on the monotonic clock."""

    def __init__(
        self,
        config: EngineConfig,
        request: GenerationRequest,
        context: TraceContext,
        *,
        choice: int,
        attempt: int,
        wall: float,
        now: float,
        concurrency: int,
        resumed: int,
        prefix_hint: str = "",
    ) -> None:
        self.why: Condemned | None = None
        self.traceparent = context.traceparent(attempt_span_id(context.span_id, choice, attempt))
        self.arrivals = array("d")  # when each read of the engine's stream came
        self.first_out = 0.0  # when something was released for the first time
        self.record = AttemptRecord(
            choice=choice,
            attempt=attempt,
            engine=config.name,
            dialect=config.dialect,
            endpoint=urlsplit(config.url).netloc.rpartition("@")[2],
            engine_model=config.model or request.model,
            engine_version=config.version,
            image=config.image,
            cluster=config.cluster,
            node=config.node,
            precision=config.precision,
            started_at=wall,
            concurrency_at_start=concurrency,
            prefix_hint=prefix_hint,
            resumed_at=resumed,
            outcome="cancelled",  # until it is decided upon
            action="stop",
        )
        self._constraint = request.constraint
        self._promised = promised(request)
        self.started = now
        self._released = 0
        self._notes: list[Finding] = []
        self._spoken: Spoken | None = None
        self._said_before = 0

    def saw(self, out: list[GuardEvent]) -> None:
        """What was released after the last arrival, with token ids and logprobs where the engine gave them."""
        if not self.first_out and self.arrivals:
            self.first_out = self.arrivals[-1]
        for event in out:
            if type(event) is Release:
                self._released += len(event.text)
                if event.token_ids is not None or event.logprobs is not None:
                    self._numbers(event)

    def _numbers(self, release: Release) -> None:
        record = self.record
        record.output_token_ids.extend(release.token_ids or ())
        for entry in release.logprobs or ():
            record.token_logprobs.append(_number(entry.get("logprob")))
            record.runner_up_logprobs.append(_runner_up(entry))

    def speaks(self, prompt: Sequence[int], spoken: Spoken | None) -> None:
        """The engine is spoken with in tokens: those of the prompt, unless it is one that is gone on from, and the raw
        answer, whose ids are all that was said, markup and calls included."""
        if self.record.resumed_at < 0:
            self.record.prompt_token_ids = list(prompt)
        self._spoken = spoken
        self._said_before = spoken.named if spoken is not None else 0

    def close(self, guard: StreamGuard, now: float) -> None:
        record = self.record
        if self._spoken is not None:
            record.output_token_ids = self._spoken.ids(self._said_before)
        record.duration_ms = (now - self.started) * 1e3
        arrivals = self.arrivals
        record.chunks = len(arrivals)
        if arrivals:
            record.first_token_ms = (arrivals[0] - self.started) * 1e3
        gaps = sorted(later - sooner for sooner, later in pairwise(arrivals))
        if gaps:
            record.inter_token_p50_ms = gaps[len(gaps) // 2] * 1e3
            record.inter_token_max_ms = gaps[-1] * 1e3
        record.released_chars = self._released
        record.held_chars = guard.held_chars
        record.finish_reason = guard.reason
        if guard.opened is not None and guard.opened.model:
            record.engine_model = guard.opened.model
        record.prompt_tokens = guard.usage.prompt_tokens if guard.usage else 0
        record.completion_tokens = guard.usage.completion_tokens if guard.usage else guard.tokens
        record.cached_tokens = guard.usage.cached_tokens if guard.usage else 0
        record.reasoning_tokens = guard.usage.reasoning_tokens if guard.usage else 0
        record.findings = [_finding(finding, record) for finding in (*guard.findings, *self._notes)]
        record.contradictions = self._contradictions(guard)

    def decided(self, action: Action, why: Condemned | None, changed: Finding | None = None) -> None:
        """``changed``: what was put into the answer, or is asked otherwise, before the next attempt."""
        record = self.record
        record.action = action.kind
        if changed is not None:
            record.findings.append(_finding(changed, record))
        if why is None:
            record.outcome = "ok"
            return
        record.outcome = "refused" if why.cause.startswith("open.") else "condemned"
        record.error_kind, record.error_message, record.error_status = why.cause, why.message, why.status or 0
        if record.outcome == "condemned" and why.cause.startswith(("stream.", "deadline")):
            record.outcome = "fault"
        elif record.outcome == "condemned":
            record.onset = why.onset

    def outrun(self) -> None:
        """Another attempt at the same time was quicker; ``why`` is what this one had failed of, if it had."""
        if self.why is not None:
            self.decided(Action("retry"), self.why)
        self.record.action = "outrun"

    def noted(self, code: str, message: str) -> None:
        """Something that the guard did about the engine, beside the answer."""
        found = Finding(code, "info", message, "stream")
        self._notes.append(found)
        self.record.findings.append(_finding(found, self.record))

    def _contradictions(self, guard: StreamGuard) -> list[str]:
        """What the engine was asked to enforce, took, and broke. One that was not asked contradicts nothing, be it the
        whole constraint or the schema keywords that its grammar is known to drop."""
        constraint, unenforced = self._constraint, self.record.unenforced
        if self.record.resumed_at >= 0:
            return []
        broken = {f"tools:{finding.code}" for finding in guard.findings if finding.code in self._promised}
        if constraint is None or named(constraint) in unenforced:
            return sorted(broken)
        return sorted(
            broken
            | {
                f"{constraint.kind}:{finding.code}"
                for finding in guard.findings
                if finding.severity == "error"
                and finding.channel == CONTENT
                and finding.family in CONSTRAINT_FAMILIES
                and not finding.code.endswith(".truncated")
                and finding.code.removeprefix("schema.") not in unenforced
            }
        )


class Evidence:
    """``answers`` are the request's choices, in the order in which they began."""

    def __init__(
        self,
        request: GenerationRequest,
        body: bytes,
        context: TraceContext,
        *,
        wall: float,
        now: float,
        retention: str,
        service: str = "outguard",
    ) -> None:
        sampling = request.sampling
        extra = request.extra
        constraint = request.constraint
        self.context = context
        self.answers: list[Answer | Judged] = []
        self.attempts: list[AttemptEvidence] = []
        self.started = now
        self.record = RequestRecord(
            trace_id=context.trace_id,
            span_id=context.span_id,
            parent_span_id=context.parent_span_id,
            trace_state=context.state,
            sampled=context.sampled,
            request_id=request.id,
            started_at=wall,
            service=service,
            guard_version=__version__,
            protocol=request.protocol,
            kind=request.kind,
            tenant=request.tenant,
            model=request.model,
            policy=request.policy,
            retention=retention,
            choices=request.n,
            stream=request.stream,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=_count(extra.get("top_k")),
            min_p=_setting(extra.get("min_p")),
            frequency_penalty=sampling.frequency_penalty,
            presence_penalty=sampling.presence_penalty,
            repetition_penalty=_setting(extra.get("repetition_penalty")),
            stop_strings=len(sampling.stop),
            seed=sampling.seed,
            max_tokens=sampling.max_tokens,
            constraint_kind=constraint.kind if constraint else "",
            constraint_hash=constraint.key[:32] if constraint else "",
            tools=len(request.tools),
            request_body=body.decode(),
        )

    def goes_on_as(self, answer: Answer) -> None:
        """The answer to a choice goes on as this one, which was asked for at the same time."""
        self.answers = [answer if one.choice == answer.choice else one for one in self.answers]

    @property
    def trace_id(self) -> str:
        return self.record.trace_id

    @property
    def name(self) -> str:
        """Tells it apart from every other request, of the same trace too."""
        return f"{self.context.trace_id}/{self.context.span_id}"

    def close(self, now: float, outcome: str = "") -> RequestRecord:
        """The finished record. ``outcome`` is given when the answers did not come to their own end."""
        record = self.record
        record.duration_ms = (now - self.started) * 1e3
        first_out = min((attempt.first_out for attempt in self.attempts if attempt.first_out), default=0.0)
        record.first_token_ms = (first_out - self.started) * 1e3 if first_out else 0.0
        answers = sorted(self.answers, key=lambda answer: answer.choice)
        failures = [answer.failure for answer in answers if answer.failure is not None]
        record.outcome = outcome or ("failed" if failures else "ok")
        if failures:
            record.error_code, record.error_message = failures[0].code, failures[0].message
        record.attempts_made = len(record.attempts)
        outrun = sum(one.record.action == "outrun" and one.why is None for one in self.attempts)
        record.recovered = record.outcome == "ok" and record.attempts_made - outrun > record.choices
        record.finish_reason = ",".join(answer.reason for answer in answers)
        record.prompt_tokens = max((answer.usage.prompt_tokens for answer in answers), default=0)
        record.completion_tokens = sum(answer.usage.completion_tokens for answer in answers)
        record.wasted_tokens = sum(answer.wasted for answer in answers)
        for answer in answers:
            record.verdict_format = _worse(record.verdict_format, answer.verdicts.format)
            record.verdict_tool_choice = _worse(record.verdict_tool_choice, answer.verdicts.tool_choice)
        record.released_chars = sum(answer.delivered.total_chars() for answer in answers)
        if record.retention != "none":
            texts = [answer.delivered.whole() for answer in answers]
            record.output_text = texts[0] if record.choices == 1 and texts else _json(texts) if texts else ""
        return record


def checked(evidence: Evidence, request: GenerationRequest, judged: list[Judged], now: float) -> RequestRecord:
    """The record of an output that the caller streamed itself: one attempt a choice, on no engine of ours."""
    evidence.record.protocol = "check"
    for one in judged:
        trail = AttemptEvidence(
            _CALLERS_OWN,
            request,
            evidence.context,
            choice=one.choice,
            attempt=1,
            wall=evidence.record.started_at,
            now=evidence.started,
            concurrency=1,
            resumed=-1,
        )
        trail.why = one.guard.condemned
        trail.close(one.guard, now)
        trail.decided(Action("finish" if trail.why is None else "fail"), trail.why)
        trail.record.released_chars = one.delivered.total_chars()
        evidence.record.attempts.append(trail.record)
        evidence.answers.append(one)
    return evidence.close(now)


_CALLERS_OWN = EngineConfig(name=CALLER, url="http://caller")


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else float("nan")


def _count(value: Any) -> int | None:
    """A setting that goes to the engine as it came, where it is one that a column can hold."""
    return value if type(value) is int and -(2**63) <= value < 2**63 else None


def _setting(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) and abs(value) < 1e300 else None


def _runner_up(entry: dict[str, Any]) -> float:
    """The best logprob among the alternatives that were not chosen; NaN where the engine gave none."""
    others = [
        _number(o.get("logprob")) for o in entry.get("top_logprobs") or () if o.get("token") != entry.get("token")
    ]
    return max(others, default=float("nan"))


def _finding(finding: Any, attempt: AttemptRecord) -> FindingRecord:
    """Which other request it was is for whoever reads the traces, and not for the caller."""
    other = finding.evidence.get("other_request", "")
    return FindingRecord(
        code=finding.code,
        severity=finding.severity,
        channel=finding.channel,
        onset=finding.onset,
        detected_at=finding.detected_at,
        message=f"{finding.message} (trace {other.partition('/')[0]})" if other else finding.message,
        confidence=finding.confidence,
        attempt=attempt.attempt,
        choice=attempt.choice,
        engine=attempt.engine,
    )


def _worse(one: str, other: str) -> str:
    return max(one, other, key=("none", "ok", "failed").index)
