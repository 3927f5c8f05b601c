"""The section ``health`` of the configuration."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from guard.section import Seconds, Section


class HealthSettings(Section):
    """When an engine is kept from requests. ``mode``: enforce does so, observe only shows what it would do.

    A breaker opens after ``failures`` in a row (weighted, see verdict.py), or when within about ``window`` seconds the
    share of failures is ``failure_rate`` or more, or far above that of the route's other engines. It stays open for
    ``open_initial`` seconds, twice as long each time it fails again, at most ``open_max``; then single requests are let
    through to try it. An engine that has recovered is given its share of requests over ``slow_start`` seconds.
    ``probe_interval``: seconds between requests with a known answer to an engine that is being tried, or has had
    nothing to do for so long; 0: none are sent, and callers' requests are the trials.
    """

    mode: Literal["enforce", "observe"] = "enforce"
    failures: Annotated[int, Field(ge=1, le=1000)] = 5
    failure_rate: Annotated[float, Field(gt=0, le=1)] = 0.5
    window: Seconds = 60.0
    open_initial: Seconds = 1.0
    open_max: Seconds = 60.0
    slow_start: Annotated[float, Field(ge=0, le=3600)] = 20.0
    probe_interval: Annotated[float, Field(ge=0, le=86_400)] = 0.0

    @model_validator(mode="after")
    def _grows(self) -> HealthSettings:
        if self.open_max < self.open_initial:
            raise ValueError(f"open_max ({self.open_max:g}) is less than open_initial ({self.open_initial:g})")
        return self
