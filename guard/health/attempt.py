"""From an attempt that has ended to what it says of its engine. Pure."""

from __future__ import annotations

from guard.delivered import Delivered
from guard.health.verdict import WELL, Verdict, verdict
from guard.stream import StreamGuard
from guard.watch import Condemned


def verdict_of(
    guard: StreamGuard, delivered: Delivered, why: Condemned | None, *, before: int, contradicted: bool
) -> tuple[str, Verdict | None]:
    """The cause, and what it says; None: nothing. ``before``: the characters that earlier attempts had delivered;
    ``contradicted``: a constraint was broken that the engine had accepted. What the policy only observes counts against
    the engine all the same."""
    if why is not None:
        cause, channel, onset, status = why.cause, why.channel, why.onset, why.status
    elif guard.unsound:
        broken = next(finding for finding in guard.findings if finding.severity == "error")
        cause, channel, onset, status = broken.code, broken.channel, broken.onset, None
    else:
        return "", WELL
    elsewhere = delivered.total_chars() - delivered.length(channel)
    return cause, verdict(cause, status=status, onset=onset + elsewhere - before, accepted=contradicted)
