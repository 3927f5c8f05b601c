"""One request, whatever protocol it came by.

Both servers normalise to a GenerationRequest; the pipeline and the engines know no other form. Fields that the guard
does not need to understand are kept in ``extra`` and reach the engine as they came.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from guard.constraint.spec import Constraint

Retention = Literal["full", "hash", "none"]


class Tool(Struct, frozen=True):
    """One function offered to the model. ``raw`` is the tool as the caller wrote it, in the OpenAI shape."""

    name: str
    parameters: Any
    strict: bool
    raw: dict[str, Any]

    @property
    def is_custom(self) -> bool:
        """Called with a text, not with arguments."""
        return self.raw.get("type") == "custom"


class ToolChoice(Struct, frozen=True):
    """``names`` restricts the choice: one name for named, the allowed set for allowed (whose ``required`` says whether
    one of them must be called)."""

    mode: Literal["none", "auto", "required", "named", "allowed"] = "auto"
    names: tuple[str, ...] = ()
    required: bool = False


class Sampling(Struct, frozen=True):
    """None means: not set by the caller, so not sent. ``extra`` of the request may hold more (top_k, min_p, ...)."""

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    stop: tuple[str, ...] = ()
    logprobs: bool = False
    top_logprobs: int | None = None


class PolicyOverrides(Struct, frozen=True):
    """What one request asks for beyond its policy; it can only make it more careful. ``max_attempts`` counts where it
    is lower than the policy's; ``release_on_complete``: json_release is on_complete."""

    max_attempts: int | None = None
    no_resume: bool = False
    release_on_complete: bool = False
    no_repairs: bool = False


class GenerationRequest(Struct):
    """``kind`` chat has ``messages`` (OpenAI shape, as they came); completion has ``prompt``: text or token ids.

    ``deadline`` is seconds on the monotonic clock. ``policy`` names a policy of the config, or is empty for the
    route's.
    """

    id: str
    kind: Literal["chat", "completion"]
    model: str
    messages: list[dict[str, Any]] = []
    prompt: str | tuple[int, ...] = ""
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    tool_choice_raw: Any = None
    parallel_tool_calls: bool | None = None
    constraint: Constraint | None = None
    sampling: Sampling = Sampling()
    n: int = 1
    extra: dict[str, Any] = {}
    tenant: str = ""
    protocol: Literal["http", "grpc", "replay", "check"] = "http"
    policy: str = ""
    overrides: PolicyOverrides | None = None
    retention: Retention | None = None
    deadline: float | None = None
    traceparent: str = ""
    tracestate: str = ""
    engines: tuple[str, ...] = ()
    stream: bool = True
    return_token_ids: bool = False


class RequestError(Exception):
    """The caller's mistake. ``param`` is the path of the field that is wrong, ``code`` a stable word. ``trace_id``
    is set where the request has left a row, ``retry_after`` (seconds) where it may be sent again then."""

    def __init__(
        self, message: str, param: str = "", code: str = "invalid_request", *, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code
        self.retry_after = retry_after
        self.trace_id = ""
