"""What is kept of a request: one row for it and one for each attempt.

Built by the pipeline, written by the spool, stored in ClickHouse; the same field names all the way. Times are Unix
seconds, durations milliseconds, offsets characters. Content fields are already reduced to what retention allows when a
record is made: ``full`` holds text, ``hash`` a keyed fingerprint, ``none`` nothing.
"""

from __future__ import annotations

from msgspec import Struct, field


class FindingRecord(Struct):
    code: str
    severity: str
    channel: str
    onset: int
    detected_at: int
    message: str
    confidence: float = 1.0
    attempt: int = 0
    choice: int = 0
    engine: str = ""


class AttemptRecord(Struct):
    """One try on one engine for one choice. ``outcome``: ok, condemned, fault, refused or cancelled.

    ``endpoint`` is the engine's host:port; ``cached_tokens`` how much of the prompt its prefix cache already had, as it
    said; ``prefix_hint`` what was to be expected of that cache: cold, partly or warm (guard/prefixes.py).
    """

    choice: int
    attempt: int
    engine: str
    dialect: str = ""
    engine_model: str = ""
    engine_version: str = ""
    image: str = ""
    cluster: str = ""
    node: str = ""
    precision: str = ""
    endpoint: str = ""
    tokenizer_hash: str = ""
    template_hash: str = ""
    started_at: float = 0.0
    first_token_ms: float = 0.0
    duration_ms: float = 0.0
    chunks: int = 0
    inter_token_p50_ms: float = 0.0
    inter_token_max_ms: float = 0.0
    concurrency_at_start: int = 0
    prefix_hint: str = ""
    outcome: str = "ok"
    action: str = "finish"
    error_kind: str = ""
    error_status: int = 0
    error_message: str = ""
    finish_reason: str = ""
    resumed_at: int = -1
    onset: int = -1
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    released_chars: int = 0
    held_chars: int = 0
    unenforced: list[str] = field(default_factory=list)
    contradictions: list[str] = field(default_factory=list)
    output_text: str = ""
    output_fingerprint: str = ""
    output_token_ids: list[int] = field(default_factory=list)
    token_logprobs: list[float] = field(default_factory=list)
    runner_up_logprobs: list[float] = field(default_factory=list)
    prompt_token_ids: list[int] = field(default_factory=list)
    findings: list[FindingRecord] = field(default_factory=list)


class RequestRecord(Struct):
    """``request_body`` is the request as JSON in the OpenAI shape, enough to run it again; ``output_text`` what was
    delivered (choices joined as a JSON array when there are several). ``outcome``: ok, failed, cancelled or invalid.
    ``trace_id`` has 32 hex digits, span ids 16; ``trace_state`` and ``sampled`` are the caller's (see context.py).
    ``service`` and ``guard_version`` say which sidecars recorded it. Sampling settings are None where the caller set
    none; ``stop_strings`` is how many it gave.
    """

    trace_id: str
    request_id: str
    started_at: float
    span_id: str = ""
    parent_span_id: str = ""
    trace_state: str = ""
    sampled: bool = True
    service: str = "outguard"
    guard_version: str = ""
    protocol: str = "http"
    kind: str = "chat"
    tenant: str = ""
    model: str = ""
    policy: str = ""
    retention: str = "none"
    duration_ms: float = 0.0
    first_token_ms: float = 0.0
    outcome: str = "ok"
    error_code: str = ""
    error_message: str = ""
    finish_reason: str = ""
    choices: int = 1
    stream: bool = True
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None
    stop_strings: int = 0
    seed: int | None = None
    max_tokens: int | None = None
    constraint_kind: str = ""
    constraint_hash: str = ""
    tools: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    wasted_tokens: int = 0
    attempts_made: int = 0
    recovered: bool = False
    verdict_format: str = "none"
    verdict_tool_choice: str = "none"
    released_chars: int = 0
    request_body: str = ""
    output_text: str = ""
    prompt_fingerprint: str = ""
    output_fingerprint: str = ""
    attempts: list[AttemptRecord] = field(default_factory=list)


class OutcomeRecord(Struct):
    trace_id: str
    tool_call_id: str
    reported_at: float
    ok: bool
    detail: str = ""


class LossRecord(Struct):
    """Records that a worker could not keep, written once it can write again. ``reason``: bound, disk, encoding or
    closed; times are Unix seconds of the first and the last loss."""

    worker: str
    reason: str
    count: int
    first_at: float
    last_at: float


class EngineSample(Struct):
    """One series of an engine's /metrics page, at one moment (guard/trace/engine_metrics.py)."""

    metric: str
    value: float
    labels: dict[str, str] = field(default_factory=dict)


class ScrapeRecord(Struct):
    """What an engine said of itself. ``at`` is Unix seconds on the clock of the machine that asked."""

    at: float
    engine: str
    cluster: str
    samples: list[EngineSample]


class SketchRecord(Struct):
    """What is kept of one text under retention ``hash`` beside its fingerprint (guard/trace/sketch.py). ``part``:
    prompt, output, or attempt for one attempt's own output where that is not the request's."""

    trace_id: str
    request_id: str
    started_at: float
    tenant: str
    model: str
    part: str
    choice: int
    attempt: int
    length: int
    kinds: int
    prefixes: list[int]
    grams: list[int]
