"""The alarm for another running request's text in an answer, in the pipeline over a scripted engine."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from guard.config import parse_config
from guard.constraint.cache import ConstraintCache
from guard.cross_request import CrossRequestSettings, alarm_of
from guard.engines.contract import EngineRequest
from guard.engines.scripted import ALL, Pause, Play, ScriptedEngine
from guard.events import Closed, Done, Failed, Finished, FinishReason, Found, GuardEvent, Opened, TextDelta
from guard.pipeline import Pipeline
from guard.request import GenerationRequest
from guard.trace.record import RequestRecord
from guard.trace.retention import RetentionRules
from guard.trace.tracing import Tracing

CONFIG = """\
engines:
  - {name: a, url: "http://127.0.0.1:1", dialect: vllm}
routes:
  - {model: m, engines: [a]}
policies:
  default: {max_attempts: 1}
  blind: {detectors: off}
cross_request: {mode: MODE}
"""
SYSTEM = "You are the assistant of the harbour office, and you answer every question briefly, kindly and politely. "
ANNA = (
    "My name is Anna Lindqvist, I live behind the old bakery in the northern harbour, and the account that I lost "
    "sight of ends in four nine two; please tell me how I can get my savings back before the winter begins."
)
BORIS = "Please write a short speech for the opening of the new railway bridge between the two villages on Sunday."
SPEECH = "Dear guests, the bridge is open, and the two villages are neighbours at last. "


class Kept(Tracing):
    def __init__(self) -> None:
        super().__init__(retention=RetentionRules(default="full"))
        self.records: list[RequestRecord] = []

    def write(self, record: RequestRecord) -> None:
        self.records.append(record)


class Run:
    """Anna's answer takes its time; Boris's comes while she waits, and is ``answer``."""

    def __init__(self, mode: str, answer: str) -> None:
        def play(request: EngineRequest) -> Play:
            boris = any("railway" in str(message["content"]) for message in request.request.messages)
            text = answer if boris else "Your savings are safe."
            pieces = [text[i : i + 4] for i in range(0, len(text), 4)]
            first: list[Any] = [] if boris else [Pause(0.3)]
            steps: list[Any] = [[Opened("x", "m")], *first, *([TextDelta(0, "content", piece)] for piece in pieces)]
            return Play([*steps, [FinishReason(0, "stop"), Done(), Closed(True)]])

        self.tracing = Kept()
        config = parse_config(CONFIG.replace("MODE", f'"{mode}"'))
        engines = {"a": ScriptedEngine("a", play, capabilities=ALL)}
        self.pipeline = Pipeline(config, engines, ConstraintCache(), self.tracing)

    async def ask(self, id_: str, text: str, **more: Any) -> list[GuardEvent]:
        messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": text}]
        request = GenerationRequest(id=id_, kind="chat", model="m", messages=messages, **more)
        return [event async for batch in self.pipeline.generate(request) for event in batch]

    async def both(self, **more: Any) -> list[GuardEvent]:
        """What Boris gets, asked while Anna's request runs."""
        anna = asyncio.ensure_future(self.ask("anna", ANNA))
        await asyncio.sleep(0.05)
        events = await self.ask("boris", BORIS, **more)
        await anna
        return events

    def record(self, id_: str) -> RequestRecord:
        return next(record for record in self.tracing.records if record.request_id == id_)


async def test_observed_it_is_on_record_and_the_answer_goes_on() -> None:
    run = Run("observe", SPEECH + ANNA)
    events = await run.both()
    assert isinstance(events[-1], Finished)
    [finding] = run.record("boris").attempts[0].findings
    assert (finding.code, finding.severity, finding.channel) == ("leak.cross_request", "warn", "content")
    assert len(SPEECH) <= finding.onset < len(SPEECH) + 40
    assert f"(trace {run.record('anna').trace_id})" in finding.message
    shown = [event.finding for event in events if isinstance(event, Found)]
    assert [found.code for found in shown] == ["leak.cross_request"]
    assert run.record("anna").trace_id not in shown[0].message
    assert run.record("anna").attempts[0].findings == []


async def test_enforced_the_answer_ends() -> None:
    run = Run("enforce", SPEECH + ANNA)
    assert isinstance((await run.both())[-1], Failed)
    assert run.record("boris").attempts[0].error_kind == "leak.cross_request"


@pytest.mark.parametrize(
    ("mode", "answer", "more"),
    [
        ("observe", SPEECH, {}),
        ("observe", SPEECH + SYSTEM + BORIS, {}),  # its own prompt, and what everybody's holds
        ("observe", SPEECH + ANNA[:40], {}),
        ("observe", SPEECH + ANNA, {"policy": "blind"}),
        ("off", SPEECH + ANNA, {}),
    ],
)
async def test_no_alarm(mode: str, answer: str, more: dict[str, Any]) -> None:
    run = Run(mode, answer)
    assert isinstance((await run.both(**more))[-1], Finished)
    assert run.record("boris").attempts[0].findings == []


async def test_a_request_that_has_ended_is_forgotten() -> None:
    run = Run("observe", SPEECH + ANNA)
    await run.ask("anna", ANNA)
    await run.ask("boris", BORIS)
    assert run.record("boris").attempts[0].findings == []
    assert run.pipeline._cross_request is not None
    assert run.pipeline._cross_request.prompts.rows == 0


def test_the_key_is_made_or_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert alarm_of(CrossRequestSettings(), bytes) is None
    monkeypatch.setenv("KEY", "secret")
    words = ANNA.split()[:8]
    hashes = {
        alarm.prompts.hash(words)
        for settings in (CrossRequestSettings(mode="observe"), CrossRequestSettings(mode="observe", key_env="KEY"))
        for _ in range(2)
        if (alarm := alarm_of(settings, lambda size: b"r" * size))
    }
    assert len(hashes) == 2
