"""What a detector reports.

A finding is evidence, not an action: what is done about it is decided elsewhere. Its code is ``family.kind``; offsets
count characters (Unicode code points) from the start of the channel it was seen in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

Severity = Literal["info", "warn", "error"]

FAMILIES: Final = (
    "repetition",
    "whitespace",
    "empty",
    "leak",
    "encoding",
    "stream",
    "numeric",
    "json",
    "schema",
    "regex",
    "grammar",
    "tool",
    "constraint",
    "guard",
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with an answer.

    ``severity`` error means the answer must not be delivered as it is; warn is recorded and the answer goes on; info is
    evidence only. ``onset`` is where the trouble begins (text before it is clean), ``detected_at`` how much of the
    channel had been seen when it was certain. ``confidence`` is in (0, 1].
    """

    code: str
    severity: Severity
    message: str
    channel: str = "content"
    onset: int = 0
    detected_at: int = 0
    confidence: float = 1.0
    evidence: Mapping[str, Any] = field(default_factory=dict)

    @property
    def family(self) -> str:
        return self.code.partition(".")[0]
