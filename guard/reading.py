"""What an engine left in its text is read out of it: reasoning first, then tool calls. Deltas of text go in; text of
its true channel, calls and what is to be said of them come out.

Only what the plan asks for is looked for. A call that is made good from outside (calling.py) is all that its attempt's
text is, on whatever channel the engine takes it for.
"""

from __future__ import annotations

from collections.abc import Sequence

from guard.calling import CallReader
from guard.delivered import Delivered
from guard.enforce import Salvage
from guard.events import CONTENT, REASONING, Finding, Repair, TextDelta, ToolDelta
from guard.watch import Condemned, Plan, Splitter, TextCalls, is_of_constraint

Piece = TextDelta | ToolDelta | Finding | Repair


class Reading:
    """Of one attempt. ``idle``: everything passes as it came, now and later. ``seeded``: it begins with content that
    was put there, behind which there is no reasoning any more, whatever the engine's own parser says."""

    def __init__(
        self,
        plan: Plan,
        delivered: Delivered,
        *,
        tool_format: str = "auto",
        reasoning_format: str = "auto",
        model: str = "",
        seeded: bool = False,
        call: CallReader | None = None,
        raw: bool = False,
    ) -> None:
        self._delivered = delivered
        self._tool_format = tool_format
        self._model = model
        self._call = call
        self._seeded = seeded
        self._raw = raw
        reads_calls = call is None and (raw or plan.repairs)
        self._new_text_calls = plan.new_text_calls if reads_calls else None
        self._text_calls: dict[str, TextCalls] = {}
        begun = seeded or delivered.lead or delivered.length(CONTENT) or delivered.calls
        inside = delivered.length(REASONING) > 0
        if raw and delivered.spoken:  # it is read again
            begun = inside = False
        self._splitter: Splitter | None = None
        if plan.new_splitter is not None and not begun:
            self._splitter = plan.new_splitter(reasoning_format, model, inside, raw)
        self.idle = self._is_idle()

    @property
    def calling(self) -> bool:
        """Whether the text is a call that is made good from outside."""
        return self._call is not None

    def feed(self, delta: TextDelta) -> Sequence[Piece]:
        if self._call is not None:
            return self._call.feed(delta) if delta.text else ()
        if self._seeded and delta.channel == REASONING:
            delta.channel = CONTENT
        splitter = self._splitter
        if splitter is None:
            return self._calls_in((delta,))
        if delta.channel == CONTENT:
            pieces = self._calls_in(splitter.feed(delta))
            if splitter.settled:
                self._delivered.lead = splitter.lead
                self._settled()
            return pieces
        if delta.channel == REASONING and delta.text:  # the engine splits it off by itself
            pieces = [*self._calls_in(splitter.finish()), *self._calls_in((delta,))]
            self._settled()
            return pieces
        return self._calls_in((delta,))

    def finish(self, *, truncated: bool) -> Sequence[Piece]:
        """The text has ended; ``truncated``: by the token limit."""
        if self._call is not None:
            return self._call.finish(truncated)
        out: list[Piece] = []
        if self._splitter is not None:
            out += self._calls_in(self._splitter.finish())
        for reader in self._text_calls.values():
            out += reader.finish()
        return out

    def salvage(self, why: Condemned) -> Salvage | None:
        """What may stand of a call that is made good from outside."""
        if self._call is None:
            return None
        of_detector = not is_of_constraint(why.cause) and why.channel.startswith("tool:")
        return self._call.salvage(why.onset if of_detector else None)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _calls_in(self, pieces: Sequence[TextDelta | Finding | Repair]) -> Sequence[Piece]:
        if self._new_text_calls is None:
            return pieces
        out: list[Piece] = []
        for piece in pieces:
            if not isinstance(piece, TextDelta):
                out.append(piece)
                continue
            reader = self._text_calls.get(piece.channel)
            if reader is None:
                reader = self._new_text_calls(piece.channel, self._tool_format, self._model, self._raw)
                self._text_calls[piece.channel] = reader
            out += reader.feed(piece)
        return out

    def _settled(self) -> None:
        self._splitter = None
        self.idle = self._is_idle()

    def _is_idle(self) -> bool:
        return not self._seeded and self._splitter is None and self._new_text_calls is None
