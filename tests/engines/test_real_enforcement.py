"""A real llama.cpp whose own constraint is withheld, held to a schema from outside; and one whose chat template knows
no tools, which owes a call."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest

from guard.build import build_engine
from guard.config import parse_config
from guard.constraint.cache import ConstraintCache
from guard.constraint.spec import Constraint
from guard.constraint.tools import parse_tools
from guard.events import Finished, Release, ToolRelease
from guard.pipeline import Pipeline
from guard.request import GenerationRequest, Sampling, ToolChoice
from guard.trace.tracing import Tracing

pytestmark = pytest.mark.engine

CONFIG = """\
engines: [{{name: a, url: "{url}", dialect: llamacpp, constraints: guard}}]
routes: [{{model: m, engines: [a]}}]
"""
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "mood": {"enum": ["good", "bad"]},
        "old": {"type": "boolean"},
    },
    "required": ["name", "mood", "old"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("prompt", "sampling", "stream"),
    [
        ("Invent a person.", Sampling(max_tokens=80, temperature=0.0), True),
        ("Who wrote Hamlet? Answer as JSON.", Sampling(max_tokens=80, temperature=0.7, seed=4), False),
    ],
)
async def test_a_small_model_that_likes_prose(llamacpp_engine: str, prompt: str, sampling: Any, stream: bool) -> None:
    config = parse_config(CONFIG.format(url=llamacpp_engine))
    engines = {engine.name: build_engine(engine) for engine in config.engines}
    constraints = ConstraintCache()
    pipeline = Pipeline(config, engines, constraints, Tracing())
    request = GenerationRequest(
        id="r",
        kind="chat",
        model="m",
        messages=[{"role": "user", "content": prompt}],
        constraint=Constraint("json_schema", PERSON),
        sampling=sampling,
        stream=stream,
    )
    try:
        events = [event async for batch in pipeline.generate(request) for event in batch]
    finally:
        constraints.close()
        await engines["a"].aclose()
    (finished,) = [event for event in events if isinstance(event, Finished)]
    releases = [event for event in events if isinstance(event, Release)]
    assert jsonschema_rs.is_valid(PERSON, json.loads("".join(release.text for release in releases)))
    assert finished.verdicts.format == "ok"
    assert finished.attempts > 1
    assert not any(release.logprobs for release in releases)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_call_that_its_template_does_not_know(llamacpp_engine: str, stream: bool) -> None:
    config = parse_config(CONFIG.format(url=llamacpp_engine))
    engines = {engine.name: build_engine(engine) for engine in config.engines}
    constraints = ConstraintCache()
    pipeline = Pipeline(config, engines, constraints, Tracing())
    request = GenerationRequest(
        id="r",
        kind="chat",
        model="m",
        messages=[{"role": "user", "content": "Invent a person."}],
        tools=parse_tools({"tools": [{"name": "keep_person", "inputSchema": PERSON}]}),
        tool_choice=ToolChoice("required"),
        tool_choice_raw="required",
        sampling=Sampling(max_tokens=60, temperature=0.0),
        stream=stream,
    )
    try:
        events = [event async for batch in pipeline.generate(request) for event in batch]
    finally:
        constraints.close()
        await engines["a"].aclose()
    (finished,) = [event for event in events if isinstance(event, Finished)]
    calls = [event for event in events if isinstance(event, ToolRelease)]
    assert [call.name for call in calls if call.name] == ["keep_person"]
    assert jsonschema_rs.is_valid(PERSON, json.loads("".join(call.arguments for call in calls)))
    assert (finished.reason, finished.verdicts.tool_choice) == ("tool_calls", "ok")
    assert not any(isinstance(event, Release) and event.text for event in events)
