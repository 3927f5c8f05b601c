"""Bytes of an OpenAI-style answer in, engine events out. Pure; any split of the same bytes gives the same events.

Rules.
- A Fault is the end: nothing is emitted after it. An error object in the stream is one, in the engine's own words.
- ``end`` says how the body ended: Closed, or a Fault ``cut`` where it ended early and [DONE] had not been seen.
- Where deltas are joined, the split decides how; never what they hold together, nor of how many tokens it is.

What the JSON of a chunk says is in openai_answer.py.
"""

from __future__ import annotations

from typing import Final

from guard.engines.error_body import read_error_body
from guard.engines.openai_answer import AnswerReader
from guard.engines.runs import Runs
from guard.engines.sse import MAX_EVENT_BYTES, SseReader
from guard.events import Closed, Done, Fault, StreamEvent

_BRACE: Final = ord("{")

MANY_BYTES: Final = 1536
"""A piece of the stream above which it is worth while to look for runs of ordinary chunks: some six of them."""

LESSONS: Final = 4
"""How often at most a run is learnt in one piece: in a stream whose chunks are all different it is learnt in vain."""


class OpenAIReader:
    """Reads one streamed answer. ``ended`` after a Fault or the end; ``done`` once [DONE] was seen. ``joins``: deltas
    of the same channel that come with one piece, and have neither token ids nor log probabilities, come as one."""

    __slots__ = ("_answer", "_drop_prefix", "_runs", "_sse", "done", "ended")

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES, drop_prefix: str = "", *, joins: bool = False) -> None:
        self._sse = SseReader(max_event_bytes)
        self._answer = AnswerReader(joins=joins)
        self._runs = Runs() if joins else None
        self._drop_prefix = drop_prefix
        self.done = False
        self.ended = False

    def feed(self, data: bytes) -> list[StreamEvent]:
        """The events that are complete with this piece, in order."""
        out: list[StreamEvent] = []
        if self.ended:
            return out
        if self._runs is None:
            self._take(self._sse.feed(data), out)
        elif len(data) <= MANY_BYTES:
            self._take_few(self._runs, data, out)
        elif (rest := self._take_runs(self._runs, data, out)) is not None:
            self._take(self._sse.feed(rest), out)
        return out

    def end(self, clean: bool = True) -> list[StreamEvent]:
        """The body has ended; ``clean``: its transfer was complete. The last event is a Closed or a Fault."""
        out: list[StreamEvent] = []
        if self.ended:
            return out
        if clean and self._take(self._sse.finish(), out):
            return out
        self.ended = True
        self._answer.flush(out)
        if clean or self.done:
            out.append(Closed(clean=clean))
        else:
            out.append(Fault("cut", "the connection ended in the middle of the answer"))
        return out

    def whole(self, body: bytes) -> list[StreamEvent]:
        """An engine that answers a stream request with one object."""
        self.ended = True
        return read_whole(body, self._drop_prefix)

    def _take_few(self, runs: Runs, data: bytes, out: list[StreamEvent]) -> None:
        """A read of a stream whose tokens come one by one: as a rule it is one event."""
        sse, answer = self._sse, self._answer
        alone = sse.between and answer.whole_characters
        if alone and runs.one(data, out):
            return
        events = sse.feed(data)
        if not self._take(events, out) and alone and len(events) == 1 and answer.whole_characters:
            runs.wonder(events[0][1], out, answer.chunk)

    def _take_runs(self, runs: Runs, data: bytes, out: list[StreamEvent]) -> bytes | None:
        """Take what can be taken by its bytes. Returns the rest; None when the answer has ended."""
        sse, answer = self._sse, self._answer
        for _ in range(LESSONS):
            if sse.between and answer.whole_characters:
                data = data[runs.take(data, out) :]
                if len(data) <= MANY_BYTES:
                    break
            end = data.find(b"\n\n") + 2  # the next event in the ordinary way, to learn from it
            if end < 2:
                break
            events = sse.feed(data[:end])
            data = data[end:]
            if self._take(events, out):
                return None
            if len(events) == 1 and answer.whole_characters:
                runs.learn(events[0][1], answer.chunk)
        return data

    def _take(self, events: list[tuple[str, bytes]], out: list[StreamEvent]) -> bool:
        """Whether the answer has ended with these."""
        answer = self._answer
        for name, data in events:
            if data and data[0] == _BRACE and name != "error":
                fault = answer.chunk(data, out)
            elif data.strip() == b"[DONE]":
                if not self.done:
                    answer.flush(out)
                    out.append(Done())
                self.done = True
                continue
            elif name == "error":
                said = read_error_body(data)
                fault = Fault("error_event", said.message or "the engine reported an error", said.status)
            elif not data.strip():
                continue  # a keep-alive
            else:
                fault = answer.chunk(data, out)
            if fault is not None:
                self._fail(fault, out)
                return True
        if self._sse.broken is not None:
            words = read_error_body(self._sse.stray).message if self._sse.stray[:1] == b"{" else ""
            more = f" ({words})" if words else ""
            self._fail(Fault("protocol", f"the engine's stream holds {self._sse.broken}{more}"), out)
            return True
        return False

    def _fail(self, fault: Fault, out: list[StreamEvent]) -> None:
        self._answer.flush(out)
        out.append(fault)
        self.ended = True


def read_stream(body: bytes, clean: bool = True) -> list[StreamEvent]:
    """A recorded event stream as events. ``clean``: its transfer was complete."""
    reader = OpenAIReader()
    return reader.feed(body) + reader.end(clean)


def read_whole(body: bytes, drop_prefix: str = "") -> list[StreamEvent]:
    """A whole ChatCompletion or Completion object as events, ending with Closed or a Fault.

    ``drop_prefix``: text that the engine repeats in front of what it adds (llama.cpp, when it continues a turn).
    """
    out: list[StreamEvent] = []
    answer = AnswerReader(whole=True, drop_prefix=drop_prefix)
    fault = answer.chunk(body, out)
    answer.flush(out)
    # a whole body is its own end mark
    out += [fault] if fault is not None else [Done(), Closed(clean=True)]
    return out
