"""A short storm with every run of the tests; ``make chaos`` is the long one."""

from __future__ import annotations

import pytest

from tests.chaos.storm import Storm


@pytest.mark.parametrize(("rate", "requests"), [(0.4, 80), (0.9, 50)], ids=["bad weather", "very bad weather"])
async def test_every_request_ends_whole_or_in_an_honest_error_and_leaves_nothing_behind(
    rate: float, requests: int
) -> None:
    storm = Storm(requests, seed=7, rate=rate)
    await storm.run()
    assert not storm.wrong
    assert not storm.leaks
    assert sum(storm.ends.values()) == requests
    assert rate > 0.5 or storm.ends["whole"] > requests / 3
    assert sum(sum(engine.met.values()) for engine in storm.engines) > 20
    assert rate < 0.5 or any(name.startswith("error") for name in storm.ends)
