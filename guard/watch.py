"""What an answer is watched by: the contracts of its detectors, readers and checkers, the plan that makes them afresh
for every attempt, and what condemns an attempt."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from detectors.contract import Detector
from detectors.empty import Facts
from guard.constraint.callframe import Standing
from guard.constraint.contract import Checker
from guard.events import CONTENT, Finding, Repair, TextDelta, ToolDelta, ToolRelease

CONSTRAINT_FAMILIES = frozenset({"json", "schema", "regex", "grammar", "constraint", "tool"})


def is_of_constraint(code: str) -> bool:
    return code.partition(".")[0] in CONSTRAINT_FAMILIES


def in_order(one: Sequence[Finding], other: Sequence[Finding]) -> Sequence[Finding]:
    """Two lists of findings, by when they were certain."""
    if one and other:
        return sorted([*one, *other], key=lambda finding: finding.detected_at)
    return one or other


class ToolGuard(Protocol):
    """Holds the calls of one answer against the tools on offer (guard/constraint/toolcall.py)."""

    def feed(self, delta: ToolDelta) -> Sequence[ToolRelease | Finding | Repair]: ...

    def finish(self, truncated: bool, *, answered: bool) -> Sequence[ToolRelease | Finding | Repair]: ...

    @property
    def calls(self) -> int: ...

    def standing(self) -> Standing: ...

    def verdict(self) -> str: ...


class TextCalls(Protocol):
    """Reads calls that an engine left in a text channel (guard/constraint/formats/content.py)."""

    def feed(self, delta: TextDelta) -> Sequence[TextDelta | ToolDelta | Finding | Repair]: ...

    def finish(self) -> Sequence[TextDelta | ToolDelta | Finding | Repair]: ...


class Splitter(Protocol):
    """Takes the reasoning out of the content, where an engine left it there (guard/constraint/formats/splitter.py)."""

    @property
    def settled(self) -> bool: ...

    @property
    def lead(self) -> str: ...

    def feed(self, delta: TextDelta) -> Sequence[TextDelta | Finding | Repair]: ...

    def finish(self) -> Sequence[TextDelta | Finding | Repair]: ...


class Watcher(Detector, Protocol):
    """All detectors of one channel (detectors/panel.py)."""

    def facts(self) -> Facts: ...


class Integrity(Protocol):
    """Holds the protocol of one stream together (detectors/stream.py)."""

    def finish_reason(self, reason: str) -> Sequence[Finding]: ...

    def usage(self, prompt_tokens: int, completion_tokens: int, total_tokens: int) -> Sequence[Finding]: ...

    def end(
        self,
        *,
        kind: str,
        done: bool,
        message: str,
        text_chars: int,
        tool_calls: int,
        channels: Mapping[str, Facts],
        stopped_at_once: bool,
    ) -> Sequence[Finding]: ...


class Plan(Struct):
    """What every attempt at one answer is held against; made once a request from its constraint, tools and policy.
    ``new_text_calls`` is given the channel, the engine's tool format and its model's name, ``new_splitter`` the
    engine's reasoning format, its model's name, and whether the answer goes on within its reasoning; both whether the
    engine was asked for the raw answer, so that what they find was to be expected. ``thorough``: an answer that is
    condemned is read to its end all the same, to find everything that is wrong. ``owes_call``: an answer without a call
    is none, so its text waits for one."""

    new_panel: Callable[[str], Watcher]
    new_integrity: Callable[[], Integrity]
    new_checker: Callable[[], Checker] | None = None
    new_tools: Callable[[], ToolGuard] | None = None
    new_text_calls: Callable[[str, str, str, bool], TextCalls] | None = None
    new_splitter: Callable[[str, str, bool, bool], Splitter | None] | None = None
    act_on_detectors: bool = True
    act_on_constraints: bool = True
    repairs: bool = True
    thorough: bool = False
    owes_call: bool = False


class Condemned(Struct):
    """Why this attempt's answer must not go on. ``cause`` is a finding's code; ``status`` is the engine's own,
    where it gave one."""

    cause: str
    message: str
    channel: str = CONTENT
    onset: int = 0
    status: int | None = None
