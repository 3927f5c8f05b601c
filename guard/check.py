"""Guards an output that the caller streams itself: the same stream guard, no engine, no recovery.

One guard a choice. A condemned choice ends in Failed; nothing of it that was held leaves.
"""

from __future__ import annotations

from guard.decision import error_code
from guard.delivered import Delivered
from guard.events import Closed, Failed, Finished, GuardEvent, StreamEvent, Usage
from guard.stream import Plan, StreamGuard

CALLER = "caller"
"""The name under which findings about a caller's own stream are kept."""


class Check:
    """``feed`` takes engine events of any choice; ``close`` says that the stream has ended and ends every choice."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.guards: dict[int, StreamGuard] = {}
        self.delivered: dict[int, Delivered] = {}
        self._ended: set[int] = set()

    def feed(self, events: list[StreamEvent]) -> list[GuardEvent]:
        out: list[GuardEvent] = []
        for event in events:
            choice = getattr(event, "choice", None)
            if choice is None:
                # the protocol's own events concern every choice, and a stream without any is still one answer
                for index in self.guards or (0,):
                    self._feed(index, event, out)
            else:
                self._feed(choice, event, out)
        return out

    def close(self) -> list[GuardEvent]:
        return self.feed([Closed(clean=True)])

    def _feed(self, choice: int, event: StreamEvent, out: list[GuardEvent]) -> None:
        guard = self.guards.get(choice)
        if guard is None:
            self.delivered[choice] = Delivered()
            guard = self.guards[choice] = StreamGuard(self._plan, self.delivered[choice], choice=choice, engine=CALLER)
        if choice in self._ended:
            return
        out += guard.feed([event])
        if guard.ended:
            self._ended.add(choice)
            out.append(self._end(choice, guard))

    def _end(self, choice: int, guard: StreamGuard) -> Finished | Failed:
        usage = guard.usage or Usage(completion_tokens=guard.tokens, total_tokens=guard.tokens)
        why = guard.condemned
        if why is None:
            return Finished(choice, guard.reason, usage, guard.verdicts(), attempts=1, matched_stop=guard.matched_stop)
        return Failed(
            choice,
            error_code(why.cause),
            why.message,
            attempts=1,
            engine_status=why.status,
            verdicts=guard.verdicts(),
            usage=usage,
        )
