"""Events with all neighbouring text joined: how two readings of the same bytes compare that cut them differently."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeGuard

from guard.events import StreamEvent, TextDelta


def joined(events: Iterable[StreamEvent]) -> list[StreamEvent]:
    out: list[StreamEvent] = []
    for event in events:
        last = out[-1] if out else None
        if _bare(event) and _bare(last) and (event.choice, event.channel) == (last.choice, last.channel):
            out[-1] = TextDelta(last.choice, last.channel, last.text + event.text, count=last.count + event.count)
        else:
            out.append(event)
    return out


def _bare(event: StreamEvent | None) -> TypeGuard[TextDelta]:
    return isinstance(event, TextDelta) and event.token_ids is None and event.logprobs is None
