"""The short way of a stream: batches go to a taker as they are read, and the iterator gets what the taker leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from replay_server import ReplayServer, Reply, chunk, sse

from guard.engines.contract import EngineRequest
from guard.engines.openai_http import HttpStream, OpenAIHttpEngine
from guard.engines.tokens.native import NativeReader
from guard.events import Closed, Done, Fault, StreamEvent, TextDelta
from guard.request import GenerationRequest

WORDS = ["one", " two", " three", " four", " five", " six"]
BODY = sse(chunk(role="assistant", content=""), *(chunk(word) for word in WORDS), chunk(finish="stop"))


def text(events: list[StreamEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


class Open:
    """A stream of this reply, on an engine that is closed at the end."""

    def __init__(self, reply: Reply, **timeouts: float) -> None:
        self._server = ReplayServer(reply)
        self._timeouts = timeouts

    async def __aenter__(self) -> HttpStream:
        await self._server.__aenter__()
        self.engine = OpenAIHttpEngine("a", self._server.url, "vllm", **self._timeouts)
        request = GenerationRequest(
            id="r", kind="chat", model="m", messages=[{"role": "user", "content": "?"}], stream=True
        )
        self.stream = await self.engine.open(EngineRequest(request, 1))
        return self.stream

    async def __aexit__(self, *_: object) -> None:
        await self.stream.aclose()
        await self.engine.aclose()
        await self._server.__aexit__(None, None, None)


class Takes:
    """A Taker: ``take`` is what handing a batch on does."""

    def __init__(self, take: Callable[[list[StreamEvent]], bool]) -> None:
        self._take = take
        self._batch: list[StreamEvent] | None = None
        self._ready = False

    def judge(self, events: list[StreamEvent]) -> None:
        assert self._batch is None  # one batch at a time
        self._batch = events

    def hand_on(self) -> bool:
        assert self._batch is not None
        batch, self._batch = self._batch, None
        self._ready = self._take(batch)
        return self._ready

    def push(self) -> None:
        assert self._ready  # only what was taken goes
        self._ready = False


async def batches(stream: HttpStream) -> AsyncIterator[list[StreamEvent]]:
    async for events in stream:
        yield events


@pytest.mark.parametrize("every", [1, 7, 50, 191, 4096])
async def test_taker_and_iterator_together_get_everything_once_and_in_order(every: int) -> None:
    seen: list[StreamEvent] = []
    taken = 0

    def take(events: list[StreamEvent]) -> bool:
        nonlocal taken
        taken += 1
        seen.extend(events)
        return True

    async with Open(Reply(BODY, every=every, delay=0.0005)) as stream:
        stream.relay(Takes(take))
        async for events in batches(stream):
            seen.extend(events)
    assert text(seen) == "".join(WORDS)
    assert isinstance(seen[-2], Done)
    assert seen[-1] == Closed(clean=True)
    assert taken > 0 or every == 4096


async def test_what_the_taker_leaves_comes_as_an_empty_batch_and_then_it_is_asked_again() -> None:
    taken: list[str] = []

    def take(events: list[StreamEvent]) -> bool:
        taken.append(text(events))
        return len(taken) % 2 == 0

    empty, rest = 0, ""
    async with Open(
        Reply(BODY, cuts=[i for i in range(len(BODY)) if BODY[i : i + 6] == b"data: "], delay=0.01)
    ) as stream:
        stream.relay(Takes(take))
        async for events in batches(stream):
            empty += not events
            rest += text(events)
    assert "".join(taken) + rest == "".join(WORDS)
    assert empty == (len(taken) + 1) // 2 > 1


async def test_nothing_is_taken_while_the_iterator_is_busy() -> None:
    busy = False

    def take(events: list[StreamEvent]) -> bool:
        assert not busy
        return False

    seen = 0
    async with Open(Reply(BODY, every=100, delay=0.002)) as stream:
        stream.relay(Takes(take))
        async for _ in batches(stream):
            busy = True
            await asyncio.sleep(0.01)
            busy = False
            seen += 1
    assert seen > 1


@pytest.mark.parametrize("stage", ["judge", "hand_on", "push"])
async def test_an_exception_of_the_taker_is_raised_by_the_iterator(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> bool:
        raise ZeroDivisionError("a mistake of the guard")

    taker = Takes(lambda _: True)
    monkeypatch.setattr(taker, stage, fails)
    async with Open(Reply(BODY, every=100, delay=0.005)) as stream:
        stream.relay(taker)
        with pytest.raises(ZeroDivisionError):
            async for _ in batches(stream):
                pass


@pytest.mark.parametrize(("reply", "last"), [({}, Closed(clean=True)), ({"stop_after": 2000, "end": "reset"}, None)])
async def test_a_taker_in_no_hurry_gets_the_same_in_fewer_batches(
    monkeypatch: pytest.MonkeyPatch, reply: dict[str, Any], last: StreamEvent | None
) -> None:
    monkeypatch.setattr("guard.engines.intake.REST_SECONDS", 0.05)
    body = sse(chunk(role="assistant", content=""), *(chunk(word) for word in WORDS * 5), chunk(finish="stop"))
    counts, texts = [], []
    for hurries in (True, False):
        batch_sizes: list[int] = []
        seen: list[StreamEvent] = []

        def take(events: list[StreamEvent], sizes: list[int] = batch_sizes, seen: list[StreamEvent] = seen) -> bool:
            sizes.append(len(events))
            seen.extend(events)
            return True

        async with Open(Reply(body, every=100, delay=0.001, **reply)) as stream:
            stream.relay(Takes(take), hurries)
            async for events in batches(stream):
                seen.extend(events)
        counts.append(len(batch_sizes))
        texts.append(text(seen))
        assert seen[-1] == last if last is not None else isinstance(seen[-1], Fault)
    assert texts[0].startswith(texts[1]) if last is None else texts[0] == texts[1] == "".join(WORDS * 5)
    assert counts[1] * 2 < counts[0]


class Broken(NativeReader):
    """Breaks in the middle of a stream."""

    def __init__(self) -> None:
        super().__init__(lambda data, out: out.append(TextDelta(0, "content", "x")))
        self._fed = 0

    def feed(self, data: bytes) -> list[StreamEvent]:
        self._fed += 1
        if self._fed > 2:
            raise ZeroDivisionError("a mistake of the guard")
        return super().feed(data)


async def test_an_exception_of_the_reader_is_raised_by_the_iterator_too() -> None:
    """And not by whoever reads the socket: there it would look like a connection that broke."""
    async with Open(Reply(BODY, every=100, delay=0.005)) as stream:
        stream._intake._reader = Broken()
        stream.relay(Takes(lambda _: True))
        with pytest.raises(ZeroDivisionError):
            async for _ in batches(stream):
                pass


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (Reply(BODY, every=100, delay=0.002, stop_after=700, end="close"), "cut"),
        (Reply(BODY, every=100, delay=0.002, stop_after=700, end="hang"), "stall"),
        (Reply(sse(chunk("one"), '{"error": {"message": "out of memory"}}'), every=60, delay=0.002), "error_event"),
        (Reply(sse(chunk("one"), chunk("two"), done=False) + b"<html>\n\n", every=60, delay=0.002), "protocol"),
    ],
)
async def test_a_fault_comes_by_the_iterator(reply: Reply, kind: str) -> None:
    taken: list[StreamEvent] = []

    def take(events: list[StreamEvent]) -> bool:
        taken.extend(events)
        return True

    rest: list[StreamEvent] = []
    async with Open(reply, between_tokens_timeout=0.3) as stream:
        stream.relay(Takes(take))
        async for events in batches(stream):
            rest.extend(events)
    assert not any(isinstance(event, Fault) for event in taken)
    assert isinstance(rest[-1], Fault)
    assert rest[-1].kind == kind


async def test_a_reader_that_is_cancelled_is_not_called_any_more() -> None:
    taken = 0
    first = asyncio.Event()

    def take(events: list[StreamEvent]) -> bool:
        nonlocal taken
        taken += 1
        first.set()
        return True

    async with Open(Reply(BODY, every=60, delay=0.01)) as stream:
        stream.relay(Takes(take))
        reading = asyncio.ensure_future(anext(aiter(stream)))
        await first.wait()
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        before = taken
        await asyncio.sleep(0.05)
        assert taken == before
