"""Sources, engines and runs for the tests of the replay."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from guard.config import Config, parse_config
from guard.engines.contract import Engine, EngineRequest
from guard.engines.scripted import Play, ScriptedEngine
from guard.normalise import to_openai_body
from guard.request import GenerationRequest
from guard.trace.record import AttemptRecord, FindingRecord, RequestRecord
from replay.campaign import Campaign, conduct
from replay.journal import Journal
from replay.lanes import Outcome, Progress
from replay.matrix import Matrix
from replay.select import Selection
from replay.source import Source, source_of

DELIVERED = "The keeper lit the lamp and waited for the ship."


def request(text: str = "Go on.", **more: Any) -> GenerationRequest:
    return GenerationRequest("r1", "chat", "m", messages=[{"role": "user", "content": text}], **more)


def record(number: int = 0, **more: Any) -> RequestRecord:
    """A trace whose answer collapsed once on ``primary`` and was DELIVERED."""
    attempt = AttemptRecord(
        0,
        1,
        "primary",
        image="1.2",
        cluster="b",
        started_at=100.0 + number,
        duration_ms=2000.0,
        prompt_tokens=10,
        completion_tokens=20,
        outcome="condemned",
        error_kind="repetition.token",
        findings=[FindingRecord("repetition.token", "error", "content", 3, 30, "'!' 14 times", attempt=1)],
    )
    made = RequestRecord(
        f"{number + 1:032x}",
        f"r{number}",
        100.0 + number,
        model="m",
        retention="full",
        request_body=msgspec.json.encode(to_openai_body(request(f"Go on, {number}."))).decode(),
        output_text=DELIVERED,
        attempts=[attempt],
    )
    return msgspec.structs.replace(made, **more)


def sources(count: int) -> list[Source]:
    return [source_of(record(number)) for number in range(count)]


def configured(*names: str, **more: Mapping[str, Any]) -> Config:
    """Engines by name, each at an address of its own; ``more``: further keys by name."""
    engines = [
        {"name": name, "url": f"http://127.0.0.1:{port}", "dialect": "vllm", **more.get(name, {})}
        for port, name in enumerate(names, 8001)
    ]
    return parse_config(json.dumps({"engines": engines, "routes": [{"model": "m", "engines": list(names)}]}))


def engine(name: str, script: Callable[[EngineRequest], Play]) -> ScriptedEngine:
    return ScriptedEngine(name, script)


async def run(
    folder: Path,
    matrix: Matrix,
    engines: Mapping[str, Engine],
    chosen: Sequence[Source],
    told: Callable[[Progress], None] = lambda _: None,
    config: Config | None = None,
) -> tuple[Outcome, Journal]:
    config = config or configured(*engines)
    campaign = Campaign(config, matrix, Selection(list(chosen), len(chosen), {}))
    with Journal.create(folder, campaign.head(1.0, "outguard replay")) as journal:
        return await conduct(config, journal, told, engines=dict(engines)), journal
