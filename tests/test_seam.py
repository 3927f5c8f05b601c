"""A stop string that began before the place where an answer goes on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.events import Closed, Done, Fault, FinishReason, StreamEvent, TextDelta
from guard.seam import Seam


class Stream:
    def __init__(self, batches: list[list[StreamEvent]]) -> None:
        self.unenforced = ("regex",)
        self.closed = False
        self._batches = batches

    async def __aiter__(self) -> AsyncIterator[list[StreamEvent]]:
        for batch in self._batches:
            yield batch

    async def aclose(self) -> None:
        self.closed = True


END: list[StreamEvent] = [FinishReason(0, "stop"), Done(), Closed(True)]


async def heard(
    before: str, pieces: list[str], stops: tuple[str, ...], last: list[StreamEvent] = END
) -> list[StreamEvent]:
    batches: list[list[StreamEvent]] = [[TextDelta(0, "content", piece, (i,))] for i, piece in enumerate(pieces)]
    seam = Seam(Stream([*batches, last]), stops, before)
    return [event async for batch in seam for event in batch]


def text(events: list[StreamEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


@pytest.mark.parametrize(
    ("before", "pieces", "stops", "said", "matched"),
    [
        ("one STO", ["P", " two"], ("STOP",), "", "STOP"),
        ("one S", ["T", "OP two"], ("STOP",), "", "STOP"),
        ("one", [" ST", "OP two"], ("STOP",), " ", "STOP"),
        ("one S", ["ort of"], ("STOP",), "ort of", None),
        ("STOP one", [" two"], ("STOP",), " two", None),
        ("a", ["bc", "d"], ("abx", "bcd"), "", "bcd"),
        ("x\n", ["\nHuman: y"], ("\n\nHuman",), "", "\n\nHuman"),
        ("é🙂", ["🙂é", "b"], ("🙂🙂",), "", "🙂🙂"),
        ("one", [" two"], ("Z",), " two", None),
    ],
)
async def test_the_seam(before: str, pieces: list[str], stops: tuple[str, ...], said: str, matched: str | None) -> None:
    events = await heard(before, pieces, stops)
    assert text(events) == said
    assert [e.matched_stop for e in events if isinstance(e, FinishReason)] == [matched]
    assert isinstance(events[-1], Closed)


async def test_behind_it_everything_passes_as_it_came() -> None:
    events = await heard("one ST", ["abcde", "STOP", " f"], ("STOP",))
    assert [e.text for e in events if isinstance(e, TextDelta)] == ["abcde", "STOP", " f"]  # the engine's own business
    assert [e.token_ids for e in events if isinstance(e, TextDelta)] == [(0,), (1,), (2,)]


async def test_what_was_held_is_not_lost_at_the_end_and_not_invented_at_a_cut() -> None:
    assert text(await heard("one", [" STO"], ("STOP",))) == " STO"
    fault: list[StreamEvent] = [Fault("cut", "x")]
    events = await heard("one", [" STO"], ("STOP",), fault)
    assert (text(events), events[-1]) == (" ", fault[0])


async def test_it_is_the_stream_that_it_stands_for() -> None:
    rest = Stream([])
    seam = Seam(rest, ("a",), "b")
    assert seam.unenforced == ("regex",)
    await seam.aclose()
    assert rest.closed


@given(st.text(alphabet="abS", max_size=12), st.integers(0, 12), st.integers(1, 4))
async def test_any_seam_and_any_split(whole: str, at: int, size: int) -> None:
    """As if the answer had come in one piece; what was delivered of a stop string has been."""
    stop = "SaS"
    before, rest = whole[:at], whole[at:]
    if stop in before:
        return
    pieces = [rest[i : i + size] for i in range(0, len(rest), size)]
    events = await heard(before, pieces, (stop,))
    found = whole.find(stop, max(0, at - len(stop) + 1))
    reason: Any = next(e for e in events if isinstance(e, FinishReason))
    if 0 <= found < at:
        assert (before + text(events), reason.matched_stop) == (before, stop)
    elif reason.matched_stop is not None:
        assert before + text(events) == whole[:found]
    else:
        assert text(events) == rest
