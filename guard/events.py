"""The vocabulary: what an engine says, and what the guard says to a caller.

Engine streams yield batches (lists) of engine events, one batch a socket read. The stream guard turns them into guard
events. Text offsets count characters within a channel: ``content``, ``reasoning``, ``refusal`` or ``tool:N`` (the
arguments of the answer's call N).
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct, field

from detectors.finding import Finding as Finding
from guard.deltas import Release as Release
from guard.deltas import TextDelta as TextDelta

CONTENT: Final = "content"
REASONING: Final = "reasoning"
REFUSAL: Final = "refusal"


def tool_channel(index: int) -> str:
    return f"tool:{index}"


# --- engine -> guard -------------------------------------------------------------------------------------------------


class Opened(Struct, gc=False):
    """The engine has accepted the request and named its answer."""

    response_id: str
    model: str
    prompt_token_ids: tuple[int, ...] | None = None
    fingerprint: str | None = None


class ToolDelta(Struct):
    """A piece of a tool call as the engine framed it: ``index`` is the engine's own, and may be wrong.

    ``arguments`` is a string as the API demands; an engine that sent something else (an object) puts it into
    ``raw_arguments`` and leaves ``arguments`` empty, so that the guard can repair it and say so.
    """

    choice: int
    index: int | None
    id: str | None = None
    name: str | None = None
    arguments: str = ""
    raw_arguments: Any = None
    token_ids: tuple[int, ...] | None = None


class FinishReason(Struct, gc=False):
    choice: int
    reason: str
    matched_stop: str | int | None = None


class Usage(Struct, gc=False):
    """``estimated``: no engine had counted the prompt, so its tokens are estimated (guard/spent.py)."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    estimated: bool = False


class Fault(Struct):
    """The engine failed in mid-stream: in its own words, or seen by the edge. Ends the engine's stream.

    ``kind``: error_event (an error object in the stream), cut (the socket ended in mid-body), stall (nothing for the
    between-token timeout), first_token_timeout, total_timeout, protocol (bytes that are no HTTP, SSE or JSON).
    """

    kind: str
    message: str
    status: int | None = None


class Done(Struct, gc=False):
    """The protocol's own end mark ([DONE]) was seen."""


class Closed(Struct, gc=False):
    """The body ended. ``clean``: the transfer's framing was complete. Always the last event unless a Fault was."""

    clean: bool


StreamEvent = Opened | TextDelta | ToolDelta | FinishReason | Usage | Fault | Done | Closed


# --- guard -> caller -------------------------------------------------------------------------------------------------


class Started(Struct):
    request_id: str
    trace_id: str
    model: str
    engine: str


class ToolRelease(Struct):
    """A piece of a tool call. ``id`` and ``name`` come with the call's first piece only; ``index`` counts from 0."""

    choice: int
    index: int
    arguments: str = ""
    id: str | None = None
    name: str | None = None


class Recovery(Struct):
    """The answer goes on elsewhere. ``offset``: characters already released on ``channel`` when it did."""

    choice: int
    attempt: int
    action: str
    from_engine: str
    to_engine: str
    reason: str
    channel: str = CONTENT
    offset: int = 0


class Found(Struct):
    choice: int
    finding: Finding
    engine: str
    attempt: int


class Repair(Struct):
    """A change that loses nothing, made by policy. ``code`` names the finding family.kind it answers."""

    choice: int
    code: str
    message: str


class Verdicts(Struct):
    """Three verdicts, never one. Each: ok, failed, or none (nothing was asked); execution: unknown until reported."""

    format: str = "none"
    tool_choice: str = "none"
    execution: str = "unknown"


class Finished(Struct):
    """The answer is complete. ``usage.completion_tokens`` counts the tokens of the delivered answer; ``wasted_tokens``
    those of attempts that were thrown away."""

    choice: int
    reason: str
    usage: Usage
    verdicts: Verdicts
    attempts: int
    wasted_tokens: int = 0
    matched_stop: str | int | None = None


class Failed(Struct):
    """The answer could not be completed; what was released stays released and is not called finished.

    ``code`` is a stable word (guard/errors.py maps it to HTTP and gRPC codes).
    """

    choice: int
    code: str
    message: str
    attempts: int
    engine_status: int | None = None
    retry_after: float | None = None
    verdicts: Verdicts = field(default_factory=Verdicts)
    usage: Usage = field(default_factory=Usage)


GuardEvent = Started | Release | ToolRelease | Recovery | Found | Repair | Finished | Failed
