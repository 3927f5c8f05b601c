"""What happened while an answer was made: how each choice ended, and the evidence that goes with it.

It becomes the usage and the ``outguard`` object of the answer, or the error that replaces it. Evidence is bounded: the
first MAX_NOTES of each kind are told, the rest counted (the trace holds them all).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from guard.errors import ERRORS
from guard.events import Failed, Finished, Found, GuardEvent, Recovery, Repair, Started, Usage

MAX_NOTES: Final = 64


class Outcome:
    """``complete``: every choice has ended. ``trace_id`` and ``model`` are known once the guard has started; the answer
    is called after its trace, or after the request (``name``) where there is none. ``custom``: the tools that
    are called with a text, whose calls have another shape."""

    __slots__ = (
        "_findings",
        "_omitted",
        "_recoveries",
        "_repairs",
        "choices",
        "custom",
        "ended",
        "engine",
        "model",
        "name",
        "trace_id",
    )

    def __init__(self, choices: int, model: str, name: str = "", custom: Collection[str] = ()) -> None:
        self.choices = choices
        self.custom = custom
        self.name = name
        self.model = model
        self.trace_id = ""
        self.engine = ""
        self.ended: dict[int, Finished | Failed] = {}
        self._findings: list[dict[str, Any]] = []
        self._repairs: list[dict[str, Any]] = []
        self._recoveries: list[dict[str, Any]] = []
        self._omitted = 0

    @property
    def complete(self) -> bool:
        return len(self.ended) >= self.choices

    def note(self, event: GuardEvent) -> None:
        """Take any event that is no text."""
        match event:
            case Finished() | Failed():
                self.ended[event.choice] = event
            case Started():
                self.trace_id = event.trace_id
                self.name = event.trace_id or self.name
                self.engine = event.engine
                self.model = event.model or self.model
            case Found(finding=finding):
                note = {
                    "choice": event.choice,
                    "attempt": event.attempt,
                    "engine": event.engine,
                    "code": finding.code,
                    "severity": finding.severity,
                    "channel": finding.channel,
                    "onset": finding.onset,
                    "detected_at": finding.detected_at,
                    "confidence": finding.confidence,
                    "message": finding.message,
                }
                self._keep(self._findings, note)
            case Repair():
                note = {"choice": event.choice, "code": event.code, "message": event.message}
                self._keep(self._repairs, note)
            case Recovery():
                note = {
                    "choice": event.choice,
                    "attempt": event.attempt,
                    "action": event.action,
                    "from_engine": event.from_engine,
                    "to_engine": event.to_engine,
                    "reason": event.reason,
                    "channel": event.channel,
                    "offset": event.offset,
                }
                self._keep(self._recoveries, note)

    def close(self, why: str = "the answer ended without a verdict") -> None:
        """The guard's events are over; a choice without an end of its own failed, whatever the reason."""
        for choice in range(self.choices):
            if choice not in self.ended:
                self.ended[choice] = Failed(choice, "internal", why, attempts=0)

    def failure(self) -> Failed | None:
        """The failure to report: the first choice's, a server's before a caller's."""
        failures = [end for _, end in sorted(self.ended.items()) if isinstance(end, Failed)]
        kinds = ERRORS
        return min(failures, key=lambda f: (f.code in kinds and kinds[f.code].http < 500, f.choice), default=None)

    def usage(self) -> dict[str, Any]:
        """All choices together; the prompt, which they share, is counted once."""
        usages = [end.usage for _, end in sorted(self.ended.items())] or [Usage()]
        prompt = max(usage.prompt_tokens for usage in usages)
        completion = sum(usage.completion_tokens for usage in usages)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": max(usage.cached_tokens for usage in usages)},
            "completion_tokens_details": {"reasoning_tokens": sum(usage.reasoning_tokens for usage in usages)},
        }

    def extension(self) -> dict[str, Any]:
        """The ``outguard`` object. ``verdicts`` has one entry a choice, ``attempts`` counts those of all choices."""
        verdicts = []
        for choice, end in sorted(self.ended.items()):
            verdict: dict[str, Any] = {
                "choice": choice,
                "format": end.verdicts.format,
                "tool_choice": end.verdicts.tool_choice,
                "execution": end.verdicts.execution,
                "attempts": end.attempts,
            }
            if isinstance(end, Failed):
                verdict["error"] = end.code
            elif end.wasted_tokens:
                verdict["wasted_tokens"] = end.wasted_tokens
            verdicts.append(verdict)
        told: dict[str, Any] = {
            "trace_id": self.trace_id,
            "engine": self.engine,
            "attempts": sum(end.attempts for end in self.ended.values()),
            "verdicts": verdicts,
            "findings": self._findings,
            "repairs": self._repairs,
            "recoveries": self._recoveries,
        }
        if any(end.usage.estimated for end in self.ended.values()):
            told["estimated"] = ["usage.prompt_tokens"]
        if self._omitted:
            told["omitted"] = self._omitted
        return told

    def _keep(self, notes: list[dict[str, Any]], note: dict[str, Any]) -> None:
        if len(notes) < MAX_NOTES:
            notes.append(note)
        else:
            self._omitted += 1
