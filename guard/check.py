"""Guards an output that the caller streams itself: the same stream guard, no engine, no recovery.

One guard a choice. A condemned choice ends in Failed; nothing of it that was held leaves.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct, field

from guard.decision import error_code
from guard.delivered import Delivered
from guard.events import Closed, Failed, Finished, GuardEvent, Started, StreamEvent, Usage, Verdicts
from guard.stream import StreamGuard
from guard.watch import Plan

CALLER = "caller"
"""The name under which findings about a caller's own stream are kept."""


class Judged(Struct):
    """One choice and what became of it; the same facts that an Answer gives (guard/answer.py)."""

    choice: int
    guard: StreamGuard
    delivered: Delivered
    reason: str = ""
    failure: Failed | None = None
    usage: Usage = field(default_factory=Usage)
    verdicts: Verdicts = field(default_factory=Verdicts)
    wasted: int = 0
    ended: bool = False


class Check:
    """``feed`` takes engine events of any choice; ``close`` says that the stream has ended and ends every choice,
    ``abandon`` that nothing more will come of it. ``on_end`` hears once that all is over. ``started`` leaves with the
    first events."""

    def __init__(
        self, plan: Plan, *, started: Started | None = None, on_end: Callable[[list[Judged]], None] | None = None
    ) -> None:
        self._plan = plan
        self._started = started
        self._on_end = on_end
        self._choices: dict[int, Judged] = {}

    @property
    def judged(self) -> list[Judged]:
        return [self._choices[choice] for choice in sorted(self._choices)]

    def feed(self, events: list[StreamEvent]) -> list[GuardEvent]:
        out: list[GuardEvent] = []
        if self._started is not None:
            out.append(self._started)
            self._started = None
        for event in events:
            choice = getattr(event, "choice", None)
            if choice is None:
                # the protocol's own events concern every choice, and a stream without any is still one answer
                for index in self._choices or (0,):
                    self._feed(index, event, out)
            else:
                self._feed(choice, event, out)
        return out

    def close(self) -> list[GuardEvent]:
        return self._close(clean=True)

    def abandon(self) -> None:
        """The caller went away, or broke the protocol: what had come goes on record as cut. Nothing after ``close``."""
        if self._on_end is not None:
            self._close(clean=False)

    def _close(self, *, clean: bool) -> list[GuardEvent]:
        try:
            return self.feed([Closed(clean=clean)])
        finally:
            on_end, self._on_end = self._on_end, None
            if on_end is not None:
                on_end(self.judged)

    def _feed(self, choice: int, event: StreamEvent, out: list[GuardEvent]) -> None:
        judged = self._choices.get(choice)
        if judged is None:
            delivered = Delivered()
            guard = StreamGuard(self._plan, delivered, choice=choice, engine=CALLER)
            judged = self._choices[choice] = Judged(choice, guard, delivered)
        if judged.ended:
            return
        out += judged.guard.feed([event])
        if judged.guard.ended:
            out.append(self._end(judged))

    def _end(self, judged: Judged) -> Finished | Failed:
        guard, why = judged.guard, judged.guard.condemned
        judged.ended = True
        judged.reason = guard.reason
        judged.usage = guard.usage or Usage(completion_tokens=guard.tokens, total_tokens=guard.tokens)
        judged.verdicts = guard.verdicts()
        if why is None:
            return Finished(
                judged.choice, guard.reason, judged.usage, judged.verdicts, attempts=1, matched_stop=guard.matched_stop
            )
        judged.failure = Failed(
            judged.choice,
            error_code(why.cause),
            why.message,
            attempts=1,
            engine_status=why.status,
            verdicts=judged.verdicts,
            usage=judged.usage,
        )
        return judged.failure
