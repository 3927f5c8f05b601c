"""A short storm with every run of the tests; ``make chaos`` is the long one."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from tests.chaos import real
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


@pytest.mark.engine
@pytest.mark.skipif("OUTGUARD_SLOW" not in os.environ, reason="takes minutes of CPU: make chaos does more of it")
def test_real_engines_that_die_and_freeze_and_are_cut() -> None:
    if reason := real.reason_not_to():
        pytest.skip(reason)
    storm = real.storm(16, seed=3, rate=0.4)
    assert not storm.wrong
    assert not storm.leaks
    assert sum(storm.ends.values()) == 16
    assert storm.ends["whole"] > 4


WHOLE = real.Said("", (("f", '{"a": 1}'), ("g", "{}")), "tool_calls")


@pytest.mark.parametrize(
    ("said", "begins"),
    [
        (real.Said(), True),
        (real.Said("", (("f", '{"a'),)), True),
        (real.Said("", (("f", '{"a": 1}'), ("g", ""))), True),
        (real.Said("", (("f", '{"b'),)), False),
        (real.Said("", (("h", ""),)), False),
        (real.Said("x"), False),
        (real.Said("", (("f", '{"a": 1}'), ("g", "{}"), ("g", ""))), False),
    ],
)
def test_what_is_a_clean_beginning(said: real.Said, begins: bool) -> None:
    assert said.begins(WHOLE) is begins


def test_what_the_real_storm_calls_wrong(tmp_path: Path) -> None:
    """It can fail: on an answer that was doubled, cut in silence or another one, and on an error behind another one."""
    storm = real.RealStorm(0, 1, 0.0, None, tmp_path)
    whole = real.Said("All is well.", (), "stop")
    for reply in (
        real.Reply(whole._replace(content="All is All is well.")),
        real.Reply(whole._replace(content="All is")),
        real.Reply(whole._replace(reason="length")),
        real.Reply(real.Said("All was"), {"code": "stream_cut", "message": "cut"}),
        real.Reply(real.Said("All"), {"code": "stream_cut", "message": ""}),
        real.Reply(real.Said("All"), problem="a stream that ends without an end and without an error"),
    ):
        before = len(storm.wrong)
        storm._judge("text over tokens, streamed", reply, whole)
        assert len(storm.wrong) == before + 1, reply
    storm._judge("text over tokens, streamed", real.Reply(whole, recovered=True), whole)
    storm._judge("text over tokens, whole", real.Reply(real.Said(), {"code": "overloaded", "message": "full"}), whole)
    assert len(storm.wrong) == 6
    assert storm.ends == Counter({"whole": 4, "error: stream_cut": 2, "error: overloaded": 1})


def test_a_stream_as_its_caller_holds_it() -> None:
    good = (
        b'data: {"choices": [{"delta": {"content": "Al"}}]}\n\ndata: {"choices": [{"delta": {"content": "l"}, "finish'
    )
    good += b'_reason": "stop"}]}\n\ndata: [DONE]\n\n'
    assert real._streamed(good, ended=True) == real.Reply(real.Said("All", (), "stop"))
    assert real._streamed(good, ended=False).problem
    assert real._streamed(good.replace(b"data: [DONE]\n\n", b""), ended=True).problem
    failed = b'data: {"error": {"code": "stream_cut", "message": "cut"}}\n\n'
    assert real._streamed(failed, ended=False).problem == ""
    assert real._streamed(failed, ended=True).problem
