"""How real engines die, abort and are cut, played in front of a second engine: the caller gets one answer that was
continued, or an honest error; never a pretended end."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from replay_server import ReplayServer, Reply, chunk, sse

from guard.build import build_engine
from guard.config import parse_config
from guard.constraint.cache import ConstraintCache
from guard.errors import ERRORS
from guard.events import Failed, Finished, GuardEvent, Recovery, Release, ToolRelease
from guard.normalise import chat_request
from guard.pipeline import Pipeline
from guard.request import GenerationRequest
from guard.trace.tracing import Tracing

DEATHS = [
    "vllm/engine_killed_midstream",
    "vllm/sigterm_midstream",
    "llamacpp/engine_killed_midstream",
    "sglang/engine_killed_midstream",
    "transformers/engine_killed_midstream",
    "vllm/chat_stream_json_loop_cut",
    "vllm/chat_stream_ignore_eos",
]
CUT_IN = [
    "vllm/chat_stream_usage",
    "vllm/chat_stream_token_ids",
    "vllm/chat_stream_logprobs",
    "vllm/chat_stop_string_stream",
    "vllm/json_schema_stream",
    "vllm/tool_auto_stream",
    "llamacpp/chat_stream_utf8",
    "llamacpp/chat_stream_usage",
    "llamacpp/json_schema_stream",
    "llamacpp-hermes-template/tool_auto_markup_stream",
    "sglang/chat_stream_usage",
    "sglang/json_schema_stream",
    "sglang-hermes-parser/tool_auto_stream",
    "transformers/chat_stream_usage",
]
REST = " and so it went on, until the lamp was out."
GOOD = Reply(sse(chunk(REST), chunk(finish="stop")))
DEAD = Reply(b'{"error": {"message": "down"}}', 503, {"content-type": "application/json"}, framing="length")


class Recorded:
    def __init__(self, root: Path, name: str) -> None:
        stem = root / "recordings" / name
        self.asked: dict[str, Any] = json.loads(stem.with_name(f"{stem.name}.request.json").read_text())["body_json"]
        self.body = stem.with_name(f"{stem.name}.response").read_bytes().partition(b"\r\n\r\n")[2]
        timing = json.loads(stem.with_name(f"{stem.name}.timing.json").read_text())
        self.end = "clean" if timing["clean_end"] else "close"
        dialect = name.partition("/")[0].removesuffix("-hermes-template").removesuffix("-hermes-parser")
        self.dialect = "plain" if dialect == "transformers" else dialect

    def request(self) -> GenerationRequest:
        return chat_request({**self.asked, "model": "m", "stream": True}, request_id="r")


async def play(recorded: Recorded, first: Reply, second: Reply) -> list[GuardEvent]:
    """The first engine is of the recorded kind, the second one of a kind that can go on with its text."""
    async with ReplayServer(first) as one, ReplayServer(second) as two:
        config = parse_config(
            f"engines:\n  - {{name: a, url: '{one.url}', dialect: {recorded.dialect}}}\n"
            f"  - {{name: b, url: '{two.url}', dialect: vllm}}\n"
            "routes: [{model: m, engines: [a, b]}]\npolicies: {default: {backoff_initial: 0.001, backoff_max: 0.002}}"
        )
        engines = {section.name: build_engine(section) for section in config.engines}
        constraints = ConstraintCache()
        try:
            pipeline = Pipeline(config, engines, constraints, Tracing())
            return [event async for batch in pipeline.generate(recorded.request()) for event in batch]
        finally:
            constraints.close()
            for engine in engines.values():
                await engine.aclose()


def honest(events: list[GuardEvent]) -> Finished | Failed:
    """One end, and nothing behind it; what failed has a code that callers know, and no finish reason."""
    ends = [event for event in events if isinstance(event, Finished | Failed)]
    assert len(ends) == 1
    assert events[-1] is ends[0]
    if isinstance(ends[0], Failed):
        assert ends[0].code in ERRORS
        assert ends[0].message
    return ends[0]


def said(events: list[GuardEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, Release) and event.channel == "content")


@pytest.mark.parametrize("name", DEATHS)
async def test_a_death_is_gone_on_from(shared: Path, name: str) -> None:
    recorded = Recorded(shared, name)
    events = await play(recorded, Reply(recorded.body, end=recorded.end), GOOD)
    end = honest(events)
    recoveries = [event for event in events if isinstance(event, Recovery)]
    assert recoveries, end
    assert recoveries[0].from_engine == "a"
    if isinstance(end, Finished):
        assert said(events).endswith(REST)
        assert end.reason == "stop"
        assert end.usage.prompt_tokens > 0
        assert end.attempts == 1 + len(recoveries)


@pytest.mark.parametrize("name", DEATHS)
async def test_with_nobody_left_it_is_an_error(shared: Path, name: str) -> None:
    recorded = Recorded(shared, name)
    end = honest(await play(recorded, Reply(recorded.body, end=recorded.end), DEAD))
    assert isinstance(end, Failed)
    assert end.usage.estimated or end.usage.prompt_tokens or not end.usage.completion_tokens


@pytest.mark.parametrize("name", CUT_IN)
async def test_cut_after_any_byte(shared: Path, name: str) -> None:
    """What was complete before the cut is an answer; everything else goes on elsewhere, or is an error."""
    recorded = Recorded(shared, name)
    for at in sorted(random.Random(name).sample(range(1, len(recorded.body)), 5)):
        events = await play(recorded, Reply(recorded.body[:at], end="close"), GOOD)
        end = honest(events)
        recoveries = [event for event in events if isinstance(event, Recovery)]
        if not recoveries and isinstance(end, Finished):
            assert b'"finish_reason":"' in recorded.body[:at], at
        calls = "".join(event.arguments for event in events if isinstance(event, ToolRelease))
        if isinstance(end, Finished) and calls:
            json.loads(calls)  # a call that was cut is never told as finished
        if isinstance(end, Finished) and recoveries and not calls and "response_format" not in recorded.asked:
            assert said(events).endswith(REST), at
