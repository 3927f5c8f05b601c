"""A second engine for an answer whose first token is late: both are waited for, the first to speak goes on, the other
is cancelled at once.

A contender is what opens a stream and reads it up to its first token; one that ends without any has lost, and loses to
nobody only if both do. Nothing of either has left by then, so the choice is free.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from msgspec import Struct

from guard.engines.contract import EngineStream
from guard.events import StreamEvent, TextDelta, ToolDelta


class Lead(Struct):
    """How far a contender came. ``stream`` is None where none was opened; ``spoke``: its first token is there."""

    stream: EngineStream | None
    spoke: bool = False


class Primed:
    """An EngineStream (guard/engines/contract.py): the batches that were read already, then the rest."""

    def __init__(self, batches: list[list[StreamEvent]], rest: EngineStream) -> None:
        self.unenforced = rest.unenforced
        self.raw = getattr(rest, "raw", None)
        self._batches = batches[::-1]
        self._rest = rest
        self._more = aiter(rest)
        relay = getattr(rest, "relay", None)
        if relay is not None:
            self.relay = relay  # what has been read is given first: the short way opens when the rest is waited for

    def __aiter__(self) -> Primed:
        return self

    async def __anext__(self) -> list[StreamEvent]:
        return self._batches.pop() if self._batches else await anext(self._more)

    async def aclose(self) -> None:
        await self._rest.aclose()


async def lead(opening: Awaitable[EngineStream | None]) -> Lead:
    """Open a stream and read it up to its first token, or to its end."""
    stream = await opening
    if stream is None:
        return Lead(None)
    batches: list[list[StreamEvent]] = []
    try:
        async for events in stream:
            batches.append(events)
            if any(_speaks(event) for event in events):
                return Lead(Primed(batches, stream), spoke=True)
    except BaseException:
        await stream.aclose()
        raise
    return Lead(Primed(batches, stream))


async def race(
    first: Coroutine[Any, Any, Lead], after: float, second: Callable[[], Coroutine[Any, Any, Lead] | None]
) -> list[Lead | None]:
    """What the contenders came to, in the order in which they were asked; None: it was cancelled. ``second`` is asked
    for another when the first has not spoken after so many seconds, and may have none."""
    tasks = [asyncio.ensure_future(first)]
    leads: list[Lead | None] = []
    try:
        await asyncio.wait(tasks, timeout=after)
        if not tasks[0].done() and (other := second()) is not None:
            tasks.append(asyncio.ensure_future(other))
        while not any(task.done() and task.result().spoke for task in tasks):
            waiting = [task for task in tasks if not task.done()]
            if not waiting:
                break
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        winner = next((task for task in tasks if task.done() and task.result().spoke), None)
        leads = [
            task.result() if task.done() and (winner is None or task is winner or not task.result().spoke) else None
            for task in tasks
        ]
    finally:
        await _end(tasks, leads)
    return leads


async def _end(tasks: list[asyncio.Task[Lead]], kept: list[Lead | None]) -> None:
    """Cancel who is not needed, and close what they opened."""
    for task in tasks:
        task.cancel()
    for came in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(came, Lead) and came.stream is not None and not any(came is one for one in kept):
            await came.stream.aclose()


def _speaks(event: StreamEvent) -> bool:
    return (type(event) is TextDelta and bool(event.text)) or type(event) is ToolDelta
