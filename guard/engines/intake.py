"""What of an answer has come, taken from the exchange that carries it and read; nothing here waits.

A batch is what one turn of the event loop has read of a socket. Whoever iterates asks ``next``, and waits where that is
None; while it waits, a ``taker`` may stand in for it (contract.py), to which the batch goes without waking anything.
Once [DONE] was seen, the body has ``LINGER_SECONDS`` to end.

An engine steps all its answers at once, so one turn reads dozens of sockets, and each batch is little work on a long
way through code. A ``Wave`` takes them through it in stages: all are parsed, then all are judged, made ready, and sent.
One after the other, each would find the processor's caches full of the stages behind its own. The first of a wave waits
for the others, which is some microseconds each, and the last leaves sooner than it would have.

No coroutine is here, so that it can be compiled; openai_http.py has what waits.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from guard.engines.contract import Taker
from guard.engines.http_exchange import Exchange, TransferError
from guard.events import Fault, StreamEvent

TAKEN_BYTES: Final = 32 * 1024
"""How much is read on at once where more than one read of the socket waits: for a slow caller it is not all in memory
three times, as bytes, as events and as what is sent."""

LINGER_SECONDS: Final = 2.0

REST_SECONDS: Final = 0.002
"""Where nobody waits for the single token: pieces that follow each other within this time are waited for so long, to
be read at once."""

WAVE: Final = 64
"""Streams that are taken through the stages together. More would save no more, and the first would wait longer."""


class Reader(Protocol):
    """Bytes of a body in, events out. ``done``: the end mark was seen; ``ended``: nothing more will come of it."""

    @property
    def done(self) -> bool: ...

    @property
    def ended(self) -> bool: ...

    def feed(self, data: bytes) -> list[StreamEvent]: ...

    def end(self, clean: bool = True) -> list[StreamEvent]: ...

    def whole(self, body: bytes) -> list[StreamEvent]: ...


class Wave:
    """What the streams of one event loop have read in this turn of it and nobody has looked at yet."""

    def __init__(self) -> None:
        self._intakes: list[Intake] = []

    def add(self, intake: Intake, loop: asyncio.AbstractEventLoop) -> None:
        self._intakes.append(intake)
        if len(self._intakes) == 1:
            loop.call_soon(self._run)

    def _run(self) -> None:
        came = self._intakes
        self._intakes = []
        for at in range(0, len(came), WAVE):
            intakes = came[at : at + WAVE]
            for intake in intakes:
                intake.parse()
            for intake in intakes:
                intake.judge()
            for intake in intakes:
                intake.hand_on()
            for intake in intakes:
                intake.push()


class Intake:
    """``ended``: nothing comes any more. ``taker``: where batches go while nobody asks for them, if anywhere;
    ``hurries``: whether it wants each as soon as it is there."""

    def __init__(self, exchange: Exchange, reader: Reader, wave: Wave) -> None:
        self.ended = False
        self.taker: Taker | None = None
        self.hurries = True
        self._exchange = exchange
        self._reader = reader
        self._wave = wave
        self._in_wave = False
        self._batch: list[StreamEvent] | None = None  # on its way through the wave
        self._ready = False  # something of it is
        self._waited = 0.0
        self._lingers = False
        self._left: list[StreamEvent] | None = None  # by the taker, for whoever asks next
        self._failure: Exception | None = None

    def next(self) -> list[StreamEvent] | None:
        """The next batch; None where nothing has come yet. An empty one says that the taker cannot go on. Raises what
        the taker raised."""
        if self._failure is not None:
            raise self._failure
        if self._left is not None:
            left = self._left
            self._left = None
            return self._seen(left) if left else left
        exchange = self._exchange
        while True:
            try:
                data = exchange.take(TAKEN_BYTES)
            except TransferError as error:
                return self.fail(error)
            if data is None:
                return None
            if not data:
                self.ended = True
                return self._reader.end(True)
            events = self._reader.feed(data)
            if events:
                exchange.progress()
                return self._seen(events)

    def relay(self) -> None:
        """From now on a read of the socket goes to the taker, until the iterator is woken."""
        self._exchange.relay = self._came

    def _came(self) -> None:
        if not self._in_wave:
            self._in_wave = True
            self._wave.add(self, self._exchange.loop)

    def parse(self) -> None:
        self._in_wave = False
        exchange = self._exchange
        if exchange.relay is None:
            return  # the iterator was woken meanwhile, and asks by itself
        try:
            events = self._reader.feed(exchange.take() or b"")
            if not events:
                return
            self._waited = exchange.progress()
        except Exception as error:
            self._fails(error)
            return
        if self._reader.done or self._reader.ended:
            self._leave(events)
        else:
            self._batch = events

    def judge(self) -> None:
        batch, taker = self._batch, self.taker
        if batch is None or taker is None:
            return
        try:
            taker.judge(batch)
        except Exception as error:
            self._fails(error)

    def hand_on(self) -> None:
        taker = self.taker
        if self._batch is None or taker is None:
            return
        self._batch = None
        try:
            self._ready = taker.hand_on()
        except Exception as error:
            self._fails(error)
            return
        if not self._ready:
            self._leave([])

    def push(self) -> None:
        taker = self.taker
        if not self._ready or taker is None:
            return
        self._ready = False
        try:
            taker.push()
        except Exception as error:
            self._fails(error)
            return
        if self._waited < REST_SECONDS and not self.hurries:
            self._exchange.rest(REST_SECONDS)

    def _leave(self, events: list[StreamEvent]) -> None:
        """For whoever iterates, who is woken."""
        self._left = events
        self._exchange.relay = None
        self._exchange.wake()

    def _fails(self, error: Exception) -> None:
        """For whoever iterates: here it would be the connection's."""
        self._batch = None
        self._failure = error
        self._exchange.relay = None
        self._exchange.wake()

    def fail(self, error: TransferError) -> list[StreamEvent]:
        """The body cannot be read on."""
        self.ended = True
        self._exchange.close()
        events = self._reader.end(False)
        if events and isinstance(events[-1], Fault):
            events[-1] = Fault(error.kind, error.message)
        return events

    def _seen(self, events: list[StreamEvent]) -> list[StreamEvent]:
        """A batch that is not empty goes to whoever asked: perhaps it holds the end."""
        if self._reader.ended:
            self.ended = True
            self._exchange.close()
        elif self._reader.done and not self._lingers:
            self._lingers = True
            self._exchange.linger(LINGER_SECONDS)
        return events
