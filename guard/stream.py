"""One answer, held against everything it must be, while it streams.

The rules:

- Text leaves only when no detector and no constraint can still take it back. Each says how far it is clear; the stream
  releases up to the smallest of them, in the order in which things came, across channels too.
- In a healthy stream nothing is doubted, so a delta goes in and the same delta comes out.
- A stream that ends without its terminal event failed. Nothing is invented: no finish reason, no bracket, no call.
- The first thing that condemns an answer latches; what was held from there on is dropped, what was clean before it may
  still leave.

Pure: events in, events out. A StreamGuard sees one attempt of one choice; what was delivered by earlier attempts is
given as ``delivered`` and is fed to the detectors and the checker first, so that they judge the answer as one.

An engine may be spoken with in tokens (``reads_raw``): then its deltas are the raw answer, a token each. What of one
token may leave leaves together, so that what was delivered always ends with a token, and ``delivered.spoken`` is the
raw answer up to there: what is still waiting, or was condemned, is not in it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from guard.constraint.callframe import Standing
from guard.decision import Sight, while_streaming
from guard.delivered import Delivered
from guard.enforce import Salvage, is_whole
from guard.events import (
    CONTENT,
    REASONING,
    Closed,
    Done,
    Fault,
    Finding,
    FinishReason,
    Found,
    GuardEvent,
    Opened,
    Release,
    Repair,
    StreamEvent,
    TextDelta,
    ToolDelta,
    ToolRelease,
    Usage,
    Verdicts,
    tool_channel,
)
from guard.holding import Channel, Holding, split, untold
from guard.reading import Reading
from guard.watch import CONSTRAINT_FAMILIES, Condemned, Plan, in_order, is_of_constraint


class StreamGuard:
    """Feed batches of engine events; take guard events. After ``ended`` either ``condemned`` says why the answer must
    not stand, or ``reason`` is its finish reason and everything has been released."""

    def __init__(
        self,
        plan: Plan,
        delivered: Delivered,
        *,
        choice: int = 0,
        attempt: int = 1,
        engine: str = "",
        reading: Reading | None = None,
    ) -> None:
        self._plan = plan
        self._delivered = delivered
        self._choice = choice
        self._attempt = attempt
        self._engine = engine
        self._reading = reading or Reading(plan, delivered)
        self._calling = self._reading.calling
        self._told = [len(arguments) for _, _, arguments in delivered.calls] if self._calling else []
        self._raw = False
        self._grouped = False
        self._broken_in: int | None = None  # the token in which the answer was condemned
        self._pending: deque[tuple[int, str, tuple[int, ...] | None]] = deque()  # tokens of which something waits
        self._channels: dict[str, Channel] = {}
        self._at: Channel | None = None  # where the last text came, which is of the name:
        self._at_name = ""
        watched, constrained = (
            while_streaming(Sight("doubt", acts=acts)) == "hold"
            for acts in (plan.act_on_detectors, plan.act_on_constraints)
        )
        self._holding = Holding(choice, delivered, watched=watched, constrained=constrained)
        self._tools = plan.new_tools() if plan.new_tools else None
        self._integrity = plan.new_integrity()
        self._format_failed = False
        self.unsound = False
        self._format_checked = False
        self._matched_stop: str | int | None = None
        self._fed_at_finish = 0
        self.ended = False
        self.condemned: Condemned | None = None
        self.reason = ""
        self.usage: Usage | None = None
        self.opened: Opened | None = None
        self.findings: list[Finding] = []
        self.tokens = 0
        self._replay()

    # --- feeding -----------------------------------------------------------------------------------------------------

    def feed(self, events: Sequence[StreamEvent]) -> list[GuardEvent]:
        """One batch of the engine's events. Nothing is accepted once ``ended``."""
        out: list[GuardEvent] = []
        for event in events:
            if self.ended:
                break
            kind = type(event)
            if kind is TextDelta:
                if self._raw:
                    self._raw_text(event, out)  # type: ignore[arg-type]
                elif self._reading.idle:
                    self._text(event, out)  # type: ignore[arg-type]
                else:
                    self._apart(event, out)  # type: ignore[arg-type]
            elif kind is ToolDelta:
                if not self._calling:
                    self._tool(event, out)  # type: ignore[arg-type]
            else:
                self._protocol(event, out)
        return out

    def _text(self, delta: TextDelta, out: list[GuardEvent]) -> None:
        name, text, token_ids, logprobs = delta.channel, delta.text, delta.token_ids, delta.logprobs
        channel = self._at
        if channel is None or name != self._at_name:
            self._at = channel = self._channels.get(name) or self._open(name)
            self._at_name = name
        if token_ids is not None:
            self.tokens += len(token_ids)
        elif text:
            self.tokens += len(logprobs) if logprobs else delta.count
        start = channel.fed
        channel.fed = end = start + len(text)
        checker, panel = channel.checker, channel.panel
        chosen = _chosen(logprobs) if logprobs else None
        if checker is None:
            found = panel.feed(text, token_ids, chosen)
            clear = panel.doubt
        else:
            found = checker.feed(text)
            seen = self._seen_until(found, start, text) if found else text
            found = in_order(found, panel.feed(seen, token_ids, chosen))
            clear = channel.clear()
        if found:
            self._take(found, out)
        waits = self._holding.pieces or channel.waits or self._grouped
        if clear >= end and not (waits or self.ended or (checker and checker.drops)):
            if text or token_ids or logprobs:
                release = Release(self._choice, name, text, token_ids, logprobs, delta.count)
                self._delivered.add(release)
                out.append(release)
            return
        self._holding.add(channel, start, delta)
        self._drain(out)

    def _apart(self, delta: TextDelta, out: list[GuardEvent]) -> None:
        """Text in which something is looked for is read a token at a time, whether or not it came joined: then all that
        comes of it is counted."""
        while delta.count > 1 and len(delta.text) > 1 and not self._reading.idle:
            first, delta = split(delta, max(1, len(delta.text) // delta.count))
            self._read(self._reading.feed(first), out)
            if self.ended:
                return
        if self._reading.idle:
            self._text(delta, out)
        else:
            self._read(self._reading.feed(delta), out)

    def _read(self, pieces: Sequence[TextDelta | ToolDelta | Finding | Repair], out: list[GuardEvent]) -> None:
        """What was read out of the engine's text."""
        for piece in pieces:
            if self.ended:
                return
            if isinstance(piece, TextDelta):
                self._text(piece, out)
            elif isinstance(piece, ToolDelta):
                self._tool(piece, out)
            elif isinstance(piece, Finding):
                self._take((piece,), out)
            else:
                piece.choice = self._choice
                out.append(piece)

    def _tool(self, delta: ToolDelta, out: list[GuardEvent]) -> None:
        self.tokens += len(delta.token_ids) if delta.token_ids is not None else 1
        if self._tools is None:
            message = "the engine made a tool call although no tool was offered"
            self._take((Finding("tool.not_offered", "error", message, channel="stream"),), out)
            return
        self._take_calls(self._tools.feed(delta), out)

    def _take_calls(self, pieces: Sequence[ToolRelease | Finding | Repair], out: list[GuardEvent]) -> None:
        for piece in pieces:
            if self.ended:
                return
            if isinstance(piece, ToolRelease):
                piece.choice = self._choice  # an engine numbers its only choice 0, whichever of the caller's it is
                name = tool_channel(piece.index)
                channel = self._channels.get(name) or self._open(name)
                start = channel.fed
                channel.fed += len(piece.arguments)
                if piece.arguments:
                    self._take(channel.panel.feed(piece.arguments), out)
                if CONTENT in self._channels:
                    self._channels[CONTENT].waits = False  # for a call
                if rest := untold(piece, start, self._told):
                    self._holding.add(channel, *rest)
            elif isinstance(piece, Finding):
                self._take((piece,), out)
            else:
                piece.choice = self._choice
                out.append(piece)
        self._drain(out)

    # --- in tokens ----------------------------------------------------------------------------------------------------

    def reads_raw(self, vocabulary: str, reading: Reading) -> None:
        """The engine speaks in tokens of this vocabulary. What is kept of the raw answer is read again first, so that
        every reader stands where it stood."""
        kept = self._delivered.reads_raw(vocabulary)
        self._raw = self._holding.whole = True
        self._reading = reading
        if not kept:
            return
        self._channels.clear()
        self._at = None
        delivered = self._delivered
        self._delivered = self._holding.delivered = Delivered()
        for delta in kept.deltas():
            self._token(delta, [])
        self._holding.pieces.clear()  # all of it has left before
        self._delivered = self._holding.delivered = delivered
        self.findings.clear()
        self.tokens = 0

    def _raw_text(self, delta: TextDelta, out: list[GuardEvent]) -> None:
        self._holding.group += 1
        if delta.text:
            self._pending.append((self._holding.group, delta.text, delta.token_ids))
        tokens = self.tokens + (len(delta.token_ids) if delta.token_ids is not None else 1)
        self._token(delta, out)
        self.tokens = tokens
        self._keep()

    def _token(self, delta: TextDelta, out: list[GuardEvent]) -> None:
        if self._reading.idle:
            self._text(delta, out)
            return
        self._grouped = True  # until all that comes of it is there
        self._read(self._reading.feed(delta), out)
        self._grouped = False
        self._drain(out)

    def _keep(self) -> None:
        """Of the raw answer, what has left with all that came of it, or waits in a reader that will read it again."""
        spoken = self._delivered.spoken
        if spoken is None or not self._raw:
            return
        first = self._holding.front
        if first is None:
            first = self._holding.group + 1
        if self._broken_in is not None:
            first = min(first, self._broken_in)
        pending = self._pending
        while pending and pending[0][0] < first:
            _, text, ids = pending.popleft()
            spoken.add(text, ids)

    def _protocol(self, event: StreamEvent, out: list[GuardEvent]) -> None:
        match event:
            case FinishReason():
                if not self.reason:
                    self.reason = event.reason
                    self._fed_at_finish = self._fed()
                self._matched_stop = event.matched_stop
                self._take(self._integrity.finish_reason(event.reason), out)
            case Usage():
                self.usage = event
                self._take(self._integrity.usage(event.prompt_tokens, event.completion_tokens, event.total_tokens), out)
            case Opened():
                self.opened = event
            case Done():
                self._end("done", True, "", out)
            case Closed():
                self._end("clean" if event.clean else "cut", False, "", out)
            case Fault():
                self._end(event.kind, False, event.message, out, event.status)
            case _:
                raise TypeError(f"not an engine event: {event!r}")

    # --- the end -----------------------------------------------------------------------------------------------------

    def _end(self, kind: str, done: bool, message: str, out: list[GuardEvent], status: int | None = None) -> None:
        fault = kind not in ("done", "clean", "cut")
        if self.reason and not fault:
            self._settle(out)
        calls = self._tools.calls if self._tools else 0
        chars = self._fed()
        found = self._integrity.end(
            kind=kind,
            done=done,
            message=message,
            text_chars=chars,
            tool_calls=calls,
            channels={name: channel.panel.facts() for name, channel in self._channels.items()},
            stopped_at_once=self._matched_stop is not None and not chars,
        )
        self._take(found, out)
        if fault:
            self._condemn(Condemned(f"stream.{kind}", message))
        if self.condemned is None:
            if not self.reason:
                self._settle(out)  # nobody minds, so that is its end
            self._drain(out, final=True)
        elif status is not None:
            self.condemned.status = status
        self.ended = True

    def _settle(self, out: list[GuardEvent]) -> None:
        """What waits for more is the end of the answer. Of one that broke off it is no end: that may go on."""
        if self.reason and self._fed() > self._fed_at_finish:
            told = "the answer went on after its finish reason"
            self._take((Finding("stream.after_finish", "warn", told, channel="stream"),), out)
        tokens = self.tokens
        self._read(self._reading.finish(truncated=self.reason == "length"), out)
        self._repair(out)
        self._finish_channels(self.reason == "length", out)
        if self._raw:
            self.tokens = tokens  # those of what waited have been counted

    def _repair(self, out: list[GuardEvent]) -> None:
        """What the engine put in the wrong place and can be put right without loss."""
        calls = self._tools.calls if self._tools else 0
        if calls and self.reason == "stop" and self._raw:
            self.reason = "tool_calls"  # the engine does not know what it said
        if while_streaming(Sight("repairable", acts=self._plan.repairs)) != "repair":
            return
        if calls and self.reason == "stop":
            self.reason = "tool_calls"
            out.append(
                Repair(self._choice, "stream.finish_mismatch", "finished with 'stop' although tools were called")
            )
        content, reasoning = self._channels.get(CONTENT), self._channels.get(REASONING)
        if (
            self._plan.new_checker
            and reasoning
            and not calls
            and not (content and content.fed)
            and self.reason == "stop"
        ):
            document = self._delivered.text(REASONING)
            if document and is_whole(document, self._plan.new_checker):
                message = "the document came in the reasoning channel, the content was empty"
                self._take((Finding("empty.answer_in_reasoning", "warn", message),), out)
                out.append(Repair(self._choice, "empty.answer_in_reasoning", message))
                self._text(TextDelta(self._choice, CONTENT, document), out)

    def _finish_channels(self, truncated: bool, out: list[GuardEvent]) -> None:
        if self._tools is not None:
            content = self._channels.get(CONTENT)
            answered = content is not None and content.panel.facts().visible > 0
            self._take_calls(self._tools.finish(truncated, answered=answered), out)
        calls = self._tools.calls if self._tools else 0
        if self._plan.new_checker and CONTENT not in self._channels and not calls:
            self._open(CONTENT)
        for name, channel in self._channels.items():
            self._take(channel.panel.finish(), out)
            # an answer that calls tools instead of speaking owes no document
            if channel.checker is not None and (channel.fed or not calls):
                self._take(channel.checker.finish(truncated), out)
                if channel.checker.drops and self.condemned is None:
                    out.append(Repair(self._choice, "json.fenced", "the fence around the whole answer was taken off"))
                self._format_checked = self._format_checked or name == CONTENT

    def cut(self) -> list[GuardEvent]:
        """After a condemnation: what is clean of what was held may leave. The rest never does."""
        out: list[GuardEvent] = []
        if self.condemned is not None:
            self._drain(out)
            self._keep()
        return out

    @property
    def dead_end(self) -> bool:
        """What has left can no longer become a valid answer, so going on from it is pointless."""
        channel = self._channels.get(CONTENT)
        if channel is None or channel.checker is None or not self._plan.act_on_constraints:
            return False
        return channel.checker.good < self._holding.first_of(channel)

    def salvage(self) -> Salvage | None:
        """What of the content may stand although the answer was condemned: all before the condemnation that its
        constraint can still make whole. None where content is not all that waits, or no constraint is on it."""
        if self._calling and self.condemned is not None:
            return self._reading.salvage(self.condemned)
        channel = self._channels.get(CONTENT)
        if channel is None or channel.checker is None or self.condemned is None:
            return None
        limit = channel.checker.good
        if not is_of_constraint(self.condemned.cause):
            limit = min(limit, max(self._holding.first_of(channel), self.condemned.onset))
        return self._holding.salvage(channel, limit)

    def standing(self) -> Standing | None:
        """What may stand of the calls although the answer was condemned."""
        return self._tools.standing() if self._tools is not None else None

    @property
    def matched_stop(self) -> str | int | None:
        return self._matched_stop

    @property
    def held_chars(self) -> int:
        return self._holding.chars

    def verdicts(self) -> Verdicts:
        checked = self._format_checked or bool(self._tools and self._tools.calls)
        return Verdicts(
            format="failed" if self._format_failed else "ok" if checked else "none",
            tool_choice=self._tools.verdict() if self._tools else "none",
        )

    # --- inside ------------------------------------------------------------------------------------------------------

    def _fed(self) -> int:
        """The characters that have come on all channels."""
        return sum(channel.fed for channel in self._channels.values())

    def _open(self, name: str) -> Channel:
        checker = self._plan.new_checker() if name == CONTENT and self._plan.new_checker else None
        channel = self._channels[name] = Channel(self._plan.new_panel(name), checker)
        channel.waits = (
            name == CONTENT
            and self._plan.owes_call
            and self._plan.act_on_constraints
            and not (self._tools and self._tools.calls)
        )
        return channel

    def _replay(self) -> None:
        """What earlier attempts delivered is part of the answer, and can no longer be doubted."""
        for name in (REASONING, CONTENT):
            text = self._delivered.text(name)
            if text:
                channel = self._open(name)
                channel.fed = len(text)
                channel.panel.feed(text)
                if channel.checker is not None:
                    channel.checker.feed(text)

    def _seen_until(self, found: Sequence[Finding], start: int, text: str) -> str:
        """What the detectors may see of a piece in which the constraint broke: nothing behind the break, or how much
        came in one piece would decide what is clear."""
        if self._plan.act_on_constraints and not self._plan.thorough:
            ends = [finding.detected_at for finding in found if finding.severity == "error"]
            if ends:
                return text[: max(0, min(ends) - start)]
        return text

    def _take(self, findings: Sequence[Finding], out: list[GuardEvent]) -> None:
        """Record findings, in their order, up to the one that condemns: what came behind it is nobody's answer."""
        for finding in findings:
            if self.condemned is not None and not self._plan.thorough:
                return
            self.findings.append(finding)
            out.append(Found(self._choice, finding, self._engine, self._attempt))
            if finding.severity == "error":
                self._take_error(finding)

    def _take_error(self, finding: Finding) -> None:
        self.unsound = True
        acts = self._plan.act_on_detectors
        if finding.family in CONSTRAINT_FAMILIES:
            self._format_failed = True
            acts = self._plan.act_on_constraints
        if while_streaming(Sight("error", finding.code, acts, at_limit=self.reason == "length")) == "stop":
            self._condemn(Condemned(finding.code, finding.message, finding.channel, finding.onset))

    def _condemn(self, why: Condemned) -> None:
        if self.condemned is None:
            if self._grouped:
                self._broken_in = self._holding.group
            self.condemned = why
            self.ended = not self._plan.thorough

    def _drain(self, out: list[GuardEvent], *, final: bool = False) -> None:
        """What is clear leaves. What was condemned stays, whatever came after it."""
        if self._grouped:
            return
        why = self.condemned
        if why is None:
            self._holding.leave(out, final=final)
        else:
            condemned = self._channels.get(why.channel)
            self._holding.leave(out, condemned=condemned, onset=why.onset, until=self._broken_in)


def _chosen(logprobs: list[dict[str, Any]]) -> list[float]:
    return [entry.get("logprob", 0.0) for entry in logprobs]
