"""What becomes of one batch of an engine's events, and the short way for the ordinary one.

The long way: the engine's iterator wakes the task that answers the request, the batch goes through the guard, and what
comes of it goes up through pipeline and server. The short way (``judge``, ``hand_on``, ``push``): whoever has read the
engine's socket calls the guard and hands its release to the server, and nothing is woken. It ends, for one batch, where
something is not ordinary: the answer has ended, or the caller's socket is full.

Both ways do the same to a batch, in the same order; the short one is open only while the task waits for the next.
"""

from __future__ import annotations

from collections.abc import Callable

from guard.answer import Answer
from guard.engines.contract import EngineStream
from guard.events import GuardEvent, StreamEvent
from guard.evidence import AttemptEvidence
from guard.service import Deliver
from guard.stream import StreamGuard


class Relay:
    """One attempt's. ``deliver`` is the server's, if it has one."""

    def __init__(
        self,
        guard: StreamGuard,
        answer: Answer,
        trail: AttemptEvidence,
        clock: Callable[[], float],
        deliver: Deliver | None,
    ) -> None:
        self._guard = guard
        self._answer = answer
        self._hides = answer.hides
        self._kept = answer.kept
        self._trail = trail
        self._arrivals = trail.arrivals
        self._clock = clock
        self._deliver = deliver
        self._left: list[GuardEvent] = []

    def connect(self, stream: EngineStream) -> None:
        """Open the short way, if the engine and the server (or the keeping of the whole answer) have one."""
        relay = getattr(stream, "relay", None)
        if relay is not None and (self._deliver is not None or self._kept is not None):
            relay(self, self._kept is None)

    def judge(self, events: list[StreamEvent]) -> None:
        """This and the next two are the short way; see Taker in engines/contract.py."""
        self._arrivals.append(self._clock())
        out = self._guard.feed(events)
        self._left = self.leaves(out) if out else out

    def hand_on(self) -> bool:
        out = self._left
        if self._guard.ended:
            return False
        if out:
            deliver = self._deliver
            if deliver is None or not deliver.take(out):
                return False
            self._left = []
        return True

    def push(self) -> None:
        if self._deliver is not None:
            self._deliver.push()

    def through(self, events: list[StreamEvent]) -> list[GuardEvent]:
        """What may leave after this batch. An empty batch says that the short way has ended: what it left comes now."""
        if not events:
            out, self._left = self._left, []
            return out
        self._arrivals.append(self._clock())
        return self.leaves(self._guard.feed(events))

    def leaves(self, out: list[GuardEvent]) -> list[GuardEvent]:
        """Note what the guard let go. Nothing of it leaves now where the whole answer is kept until its end."""
        if not out:
            return out
        if self._hides:
            self._answer.hide(out)
        self._trail.saw(out)
        if self._kept is None:
            return out
        self._kept.extend(out)
        return []
