"""What is kept for a caller that does not stream, until its answer is whole: what of it stands when an attempt ends."""

from __future__ import annotations

from collections.abc import Sequence

from guard.delivered import Delivered
from guard.events import CONTENT, Found, GuardEvent, Recovery, Release
from guard.holding import share


def record_of(kept: Sequence[GuardEvent]) -> list[GuardEvent]:
    """Without the answer, which never left; what was found stays on the record."""
    return [event for event in kept if isinstance(event, Found | Recovery)]


def taken_back(kept: Sequence[GuardEvent], count: int) -> list[GuardEvent]:
    """Less the last ``count`` characters of content."""
    out: list[GuardEvent] = []
    for event in reversed(kept):
        if count and isinstance(event, Release) and event.channel == CONTENT:
            text = event.text[: max(0, len(event.text) - count)]
            count -= len(event.text) - len(text)
            if not text:
                continue
            event = Release(event.choice, CONTENT, text, count=share(event, len(text)))
        out.append(event)
    return out[::-1]


def delivered_of(kept: Sequence[GuardEvent], more: Delivered | None = None) -> Delivered:
    """As if all of it had been delivered. ``more``: what was, before a part of it was taken back."""
    delivered = Delivered()
    for event in kept:
        if isinstance(event, Release):
            delivered.add(event)
    if more is not None:
        delivered.lead = more.lead
        text, spoken = delivered.text(), more.spoken
        if spoken is not None and delivered.total_chars() == len(text) and spoken.text.startswith(text):
            delivered.spoken = spoken.first(len(text))
    return delivered
