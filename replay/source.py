"""What is run again: a request as its caller sent it, and what came of it then.

A request whose content was not kept cannot be run again; that is said and counted, never guessed around. What was
recorded is kept apart from what is replayed: a trace is often chosen because it failed, so it must not count among the
runs that say how often that happens.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from guard.normalise import chat_request, completion_request
from guard.request import GenerationRequest, RequestError
from guard.trace.record import AttemptRecord, RequestRecord
from replay.observation import Cell, Counts, Found, Observation, Sampling, Timing


class ReplayError(Exception):
    """Why there is nothing to run again."""


class Source(Struct):
    """``body`` is in the OpenAI shape, of the given ``kind`` (chat or completion). ``output`` is what the caller got
    then, the first choice's; ``answered`` is False where nothing was recorded. ``attempts`` are what each engine did
    with it. ``expected``: the right answer of a known-answer task. ``beside`` are the ids of requests that ran at the
    same time on the same engine."""

    id: str
    kind: str
    body: dict[str, Any]
    policy: str = ""
    answered: bool = False
    output: str = ""
    started_at: float = 0.0
    attempts: list[Observation] = msgspec.field(default_factory=list)
    expected: str | None = None
    prompt_ids: tuple[int, ...] = ()
    beside: tuple[str, ...] = ()

    @property
    def model(self) -> str:
        return str(self.body.get("model", ""))

    def asked(self) -> str:
        """The prompt as text, every message with its role; empty for a prompt of token ids."""
        messages = self.body.get("messages")
        if isinstance(messages, list):
            return "\n\n".join(f"{m.get('role')}: {_plain(m.get('content'))}" for m in messages if isinstance(m, dict))
        prompt = self.body.get("prompt")
        return prompt if isinstance(prompt, str) else ""

    def request(self) -> GenerationRequest:
        """One choice of it, streamed. Raises ReplayError."""
        normalise = chat_request if self.kind == "chat" else completion_request
        try:
            request = normalise(self.body, request_id=self.id, protocol="replay")
        except RequestError as error:
            raise ReplayError(f"the request of {self.id} cannot be read: {error}") from error
        return msgspec.structs.replace(request, n=1, stream=True)


def source_of(record: RequestRecord) -> Source:
    """Raises ReplayError."""
    if not record.request_body or record.retention != "full":
        raise ReplayError(
            f"the content of trace {record.trace_id} was not kept (retention {record.retention}): "
            "there is nothing to run again"
        )
    try:
        body = msgspec.json.decode(record.request_body, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise ReplayError(f"the stored request of trace {record.trace_id} cannot be read: {error}") from error
    source = Source(
        record.trace_id,
        record.kind,
        body,
        policy=record.policy,
        answered=record.outcome in ("ok", "failed"),
        output=_first_output(record),
        started_at=record.started_at,
        attempts=[observed(record, attempt) for attempt in record.attempts if attempt.choice == 0],
    )
    try:
        request = source.request()
    except ReplayError as error:
        raise ReplayError(f"the stored request of trace {record.trace_id} cannot be read: {error.__cause__}") from error
    if isinstance(request.prompt, tuple):
        source.prompt_ids = request.prompt
    return source


def observed(record: RequestRecord, attempt: AttemptRecord) -> Observation:
    """What was seen of one recorded attempt."""
    return Observation(
        request_id=record.trace_id,
        cell=Cell(
            engine=attempt.engine,
            version=attempt.engine_version,
            image=attempt.image,
            cluster=attempt.cluster,
            node=attempt.node,
            precision=attempt.precision,
            concurrency=attempt.concurrency_at_start,
        ),
        sampling=Sampling(record.temperature, record.top_p, record.seed, record.max_tokens),
        tokenizer_hash=attempt.tokenizer_hash,
        template_hash=attempt.template_hash,
        text={"content": attempt.output_text} if attempt.output_text else {},
        fingerprint=attempt.output_fingerprint,
        token_ids=tuple(attempt.output_token_ids),
        logprobs=tuple(attempt.token_logprobs),
        finish_reason=attempt.finish_reason,
        findings=tuple(Found(f.code, f.severity, f.channel, f.onset) for f in attempt.findings),
        condemned=attempt.error_kind if attempt.outcome == "condemned" else "",
        counts=Counts(attempt.prompt_tokens or -1, attempt.completion_tokens, attempt.cached_tokens),
        error=(attempt.error_message or attempt.outcome) if attempt.outcome in ("fault", "refused") else "",
        timing=Timing(attempt.started_at, attempt.first_token_ms, attempt.duration_ms),
    )


def _plain(content: Any) -> str:
    if isinstance(content, list) and all(isinstance(part, dict) for part in content):
        return "\n".join(str(part.get("text", f"[{part.get('type')}]")) for part in content)
    return content if isinstance(content, str) else ""


def _first_output(record: RequestRecord) -> str:
    if record.choices == 1:
        return record.output_text
    texts = msgspec.json.decode(record.output_text or "[]")
    return str(texts[0]) if texts else ""
