"""Several streams as one: nothing lost, errors heard, everything closed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from guard.merge import merged


async def counting(name: str, upto: int, closed: list[str], pause: float = 0.0) -> AsyncGenerator[str, None]:
    try:
        for i in range(upto):
            await asyncio.sleep(pause)
            yield f"{name}{i}"
    finally:
        closed.append(name)


async def failing(after: int) -> AsyncGenerator[str, None]:
    for i in range(after):
        yield f"f{i}"
    raise ValueError("broken")


async def test_each_stream_comes_whole_and_in_its_order() -> None:
    closed: list[str] = []
    items = [
        item async for item in merged([counting("a", 5, closed), counting("b", 3, closed), counting("c", 0, closed)])
    ]
    for name, count in (("a", 5), ("b", 3)):
        assert [item for item in items if item[0] == name] == [f"{name}{i}" for i in range(count)]
    assert sorted(closed) == ["a", "b", "c"]


async def test_an_error_is_raised_and_the_others_are_closed() -> None:
    closed: list[str] = []
    with pytest.raises(ValueError, match="broken"):
        async for _ in merged([counting("a", 1000, closed, pause=0.01), failing(2)]):
            pass
    assert closed == ["a"]


async def test_leaving_early_closes_all() -> None:
    closed: list[str] = []
    stream = merged([counting("a", 1000, closed), counting("b", 1000, closed)])
    await anext(stream)
    await stream.aclose()
    assert sorted(closed) == ["a", "b"]


async def test_a_slow_reader_slows_the_streams() -> None:
    made = 0

    async def endless() -> AsyncGenerator[int, None]:
        nonlocal made
        while True:
            made += 1
            yield made

    stream = merged([endless()])
    for _ in range(3):
        await anext(stream)
        await asyncio.sleep(0.01)
    await stream.aclose()
    assert made < 10
