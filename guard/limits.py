"""The section ``limits`` of the configuration."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from guard.section import Seconds, Section


class Limits(Section):
    """``max_requests``: answers under way at once, above which callers get 429 / RESOURCE_EXHAUSTED.

    Where engines have a ``max_concurrency``, or a tenant has its ``max_per_tenant`` (0: any number), ``queue_length``
    requests may wait for ``queue_seconds`` at most; who would have to wait longer is told so at once.

    ``request_timeout``: seconds, for callers that set no deadline. ``retry_ratio``: further attempts of a route for
    each of its requests, over half a minute; ``retry_floor``: so many are always allowed."""

    max_body_bytes: Annotated[int, Field(ge=1024)] = 20_000_000
    max_requests: Annotated[int, Field(ge=1)] = 1024
    max_choices: Annotated[int, Field(ge=1, le=128)] = 16
    request_timeout: Seconds = 1800.0
    retry_ratio: Annotated[float, Field(ge=0, le=10)] = 0.2
    retry_floor: Annotated[int, Field(ge=0)] = 10
    max_per_tenant: Annotated[int, Field(ge=0)] = 0
    queue_length: Annotated[int, Field(ge=0, le=100_000)] = 128
    queue_seconds: Seconds = 10.0
