"""What of an answer has come, taken from the exchange that carries it and read; nothing here waits.

A batch is what one read of the socket held. Whoever iterates asks ``next``, and waits where that is None; while it
waits, ``relayed`` may stand in for it (see EngineStream in contract.py): it is called after each read of the socket,
and hands the batch to the ``taker`` there and then. Once [DONE] was seen, the body has ``LINGER_SECONDS`` to end.

No coroutine is here, so that it can be compiled; openai_http.py has what waits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from guard.engines.http_exchange import Exchange, TransferError
from guard.events import Fault, StreamEvent

TAKEN_BYTES: Final = 32 * 1024
"""How much is read on at once where more than one read of the socket waits: for a slow caller it is not all in memory
three times, as bytes, as events and as what is sent."""

LINGER_SECONDS: Final = 2.0

REST_SECONDS: Final = 0.002
"""Where nobody waits for the single token: pieces that follow each other within this time are waited for so long, to
be read at once."""


class Reader(Protocol):
    """Bytes of a body in, events out. ``done``: the end mark was seen; ``ended``: nothing more will come of it."""

    @property
    def done(self) -> bool: ...

    @property
    def ended(self) -> bool: ...

    def feed(self, data: bytes) -> list[StreamEvent]: ...

    def end(self, clean: bool = True) -> list[StreamEvent]: ...

    def whole(self, body: bytes) -> list[StreamEvent]: ...


class Intake:
    """``ended``: nothing comes any more. ``taker``: where batches go while nobody asks for them, if anywhere;
    ``hurries``: whether it wants each as soon as it is there."""

    def __init__(self, exchange: Exchange, reader: Reader) -> None:
        self.ended = False
        self.taker: Callable[[list[StreamEvent]], bool] | None = None
        self.hurries = True
        self._exchange = exchange
        self._reader = reader
        self._lingers = False
        self._left: list[StreamEvent] | None = None  # by ``relayed``, for whoever asks next
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

    def relayed(self) -> None:
        """The socket was read while somebody waits."""
        exchange = self._exchange
        try:
            events = self._reader.feed(exchange.take() or b"")
            if not events:
                return
            waited = exchange.progress()
            if self._reader.done or self._reader.ended:
                self._left = events
            elif self.taker is not None and self.taker(events):
                if waited < REST_SECONDS and not self.hurries:
                    exchange.rest(REST_SECONDS)
                return
            else:
                self._left = []
        except Exception as error:  # for whoever iterates: here it would be the connection's
            self._failure = error
        exchange.relay = None
        exchange.wake()

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
