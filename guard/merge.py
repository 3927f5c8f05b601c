"""Several streams of batches as one, in the order in which they come, each batch whole.

One task a stream, one place for each stream's next batch: a slow reader slows them all, and nothing piles up.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TypeVar

T = TypeVar("T")


async def merged(streams: list[AsyncGenerator[T, None]]) -> AsyncGenerator[T, None]:
    """Ends when all have ended. An exception of one is raised here, after the others were closed."""
    queue: asyncio.Queue[T | _End] = asyncio.Queue(maxsize=len(streams))
    tasks = [asyncio.ensure_future(_pump(stream, queue)) for stream in streams]
    try:
        running = len(tasks)
        while running:
            item = await queue.get()
            if isinstance(item, _End):
                running -= 1
                if item.error is not None:
                    raise item.error
            else:
                yield item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _End:
    def __init__(self, error: Exception | None) -> None:
        self.error = error


async def _pump(stream: AsyncGenerator[T, None], queue: asyncio.Queue[T | _End]) -> None:
    error: Exception | None = None
    try:
        async with aclosing(stream) as batches:
            async for batch in batches:
                await queue.put(batch)
    except Exception as raised:
        error = raised
    await queue.put(_End(error))
