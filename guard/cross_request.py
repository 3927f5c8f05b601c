"""The alarm for text of one running request's prompt in the answer to another, as the sidecar runs it.

Off unless the configuration asks for it. Prompts are known as keyed hashes and only while their requests run
(detectors/cross_request.py); the key is made at start, or comes from the environment, and never leaves the process.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import Field

from detectors.contract import Detector
from detectors.cross_request import MOST_ROWS, CrossRequest, Prompts
from detectors.finding import Severity
from guard.section import MayBeOff, Section


class CrossRequestSettings(Section):
    """The section ``cross_request``. ``mode``: off; observe: an alarm is recorded with the trace and the answer goes
    on; enforce: the answer ends as a collapsed one does. ``key_env`` names the variable that holds the key; empty: one
    is made at start. ``max_rows``: rows of eight words known at once; prompts above that are not watched for."""

    mode: Annotated[Literal["off", "observe", "enforce"], MayBeOff] = "off"
    key_env: str = ""
    max_rows: Annotated[int, Field(ge=1_000, le=10_000_000)] = MOST_ROWS


class CrossRequestAlarm:
    """One for a process: ``enter`` and ``leave`` around each request, ``detector`` for each channel of its answer."""

    def __init__(self, prompts: Prompts, severity: Severity) -> None:
        self.prompts = prompts
        self._severity: Severity = severity

    def enter(self, name: str, prompt: str | None) -> None:
        """``name`` tells requests apart and is what an alarm names; a prompt of token ids is None and not watched."""
        if prompt:
            self.prompts.add(name, prompt)

    def leave(self, name: str) -> None:
        self.prompts.remove(name)

    def detector(self, name: str) -> Callable[[str], Detector]:
        """What makes the detector of a channel of this request's answer."""
        return lambda channel: CrossRequest(self.prompts, name, channel=channel, severity=self._severity)


def alarm_of(settings: CrossRequestSettings, random_bytes: Callable[[int], bytes]) -> CrossRequestAlarm | None:
    """None where the alarm is off."""
    if settings.mode == "off":
        return None
    key = os.environ.get(settings.key_env, "").encode() if settings.key_env else random_bytes(32)
    severity: Severity = "error" if settings.mode == "enforce" else "warn"
    return CrossRequestAlarm(Prompts(key, most_rows=settings.max_rows), severity)
