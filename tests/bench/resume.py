"""An answer that is resumed at any place, against the one that was not interrupted: ``make bench-resume``.

Two real llama.cpp engines with the same weights in float32 and temperature 0. Each kind of answer (text, a JSON
document, a tool call) is asked for once without a fault, and then once for each cut: the first engine's stream ends
after so many tokens, and the answer goes on from the second. ``the same`` counts the answers that are: text, call ids
and arguments, finish reason; ``usage too`` those of which the token counts are as well. ``gap`` is what the caller sees
of it: between the last piece before the cut and the first one behind. ``wasted`` are tokens that were made and thrown
away.

    python -m tests.bench.resume [--cuts 50] [--tokens 64] [--kinds text,json,tool] [--modes tokens,chat] [--quantised]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import engine_process
import tokenizer_files

from guard.build import build_engine
from guard.config import EngineConfig, parse_config
from guard.constraint.cache import ConstraintCache
from guard.engines.contract import Engine, EngineRequest, EngineStream, Health
from guard.events import Fault, Finished, GuardEvent, Recovery, Release, StreamEvent, TextDelta, ToolDelta, ToolRelease
from guard.normalise import chat_request
from guard.pipeline import Pipeline
from guard.request import GenerationRequest
from guard.trace.tracing import Tracing
from tests.bench.weights import float32

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 40},
        "age": {"type": "integer"},
        "hobbies": {"type": "array", "items": {"type": "string", "maxLength": 24}, "minItems": 3, "maxItems": 5},
        "married": {"type": "boolean"},
    },
    "required": ["name", "age", "hobbies", "married"],
    "additionalProperties": False,
}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "country": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


def _call(city: str, country: str, days: int) -> dict[str, Any]:
    arguments = json.dumps({"city": city, "country": country, "days": days})
    return {"id": f"call_{city}", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}


BODIES: dict[str, dict[str, Any]] = {
    "text": {"messages": [{"role": "user", "content": "Tell me about lighthouses and the people who keep them."}]},
    "json": {
        "messages": [{"role": "user", "content": "Describe a person called Alice, 30 years old, as a JSON object."}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}},
    },
    "tool": {
        "messages": [
            {
                "role": "user",
                "content": "What is the weather in Paris, France for 3 days and in Madrid, Spain for 4 days?",
            },
            {"role": "assistant", "tool_calls": [_call("Paris", "France", 3), _call("Madrid", "Spain", 4)]},
            {
                "role": "user",
                "content": "What is the weather in Rome, Italy for 5 days and in Oslo, Norway for 2 days?",
            },
        ],
        "tools": [WEATHER],
    },
}

CALM = "health: {mode: observe}\nlimits: {retry_floor: 1000}\n"
"""The first engine fails each time, is to be asked first all the same, and no answer is one too many to go on with."""


class Cutting:
    """An engine whose stream ends in mid-body after ``after`` deltas; never where that is None."""

    def __init__(self, engine: Engine) -> None:
        self.name = engine.name
        self.capabilities = engine.capabilities
        self.after: int | None = None
        self._engine = engine

    async def open(self, request: EngineRequest) -> EngineStream:
        stream = await self._engine.open(request)
        return stream if self.after is None else CutStream(stream, self.after)

    async def health(self) -> Health:
        return await self._engine.health()

    async def aclose(self) -> None:
        await self._engine.aclose()


class CutStream:
    def __init__(self, stream: EngineStream, after: int) -> None:
        self.unenforced = stream.unenforced
        self.raw = getattr(stream, "raw", None)
        self._stream = stream
        self._left = after

    def __aiter__(self) -> AsyncIterator[list[StreamEvent]]:
        return self._cut()

    async def _cut(self) -> AsyncIterator[list[StreamEvent]]:
        async for events in self._stream:
            kept: list[StreamEvent] = []
            for event in events:
                if isinstance(event, TextDelta | ToolDelta):
                    if not self._left:
                        yield [*kept, Fault("cut", "the connection ended in the middle of the answer")]
                        return
                    self._left -= 1
                kept.append(event)
            yield kept

    async def aclose(self) -> None:
        await self._stream.aclose()


@dataclass
class Run:
    """One answer as the caller saw it."""

    pieces: list[tuple[Any, ...]] = field(default_factory=list)
    end: GuardEvent | None = None
    recoveries: int = 0
    gap: float = 0.0
    deltas: int = 0

    @property
    def what(self) -> tuple[Any, ...]:
        """All of it, however it was cut into pieces."""
        texts: dict[str, str] = {}
        calls: dict[int, list[str]] = {}
        for kind, where, *said in self.pieces:
            if kind == "text":
                texts[where] = texts.get(where, "") + said[0]
            else:
                call = calls.setdefault(where, ["", "", ""])
                calls[where] = [old + (new or "") for old, new in zip(call, said, strict=True)]
        if not isinstance(self.end, Finished):
            return texts, calls, self.end
        return texts, calls, self.end.reason, self.end.verdicts.format

    @property
    def cost(self) -> tuple[int, int]:
        assert isinstance(self.end, Finished)
        return self.end.usage.prompt_tokens, self.end.usage.completion_tokens


async def ask(pipeline: Pipeline, body: dict[str, Any], tokens: int) -> Run:
    request: GenerationRequest = chat_request(
        {"model": "m", "temperature": 0, "max_tokens": tokens, "stream": True, **body}, request_id="bench"
    )
    run = Run()
    last = time.perf_counter()
    waits = False
    async for batch in pipeline.generate(request):
        now = time.perf_counter()
        for event in batch:
            if isinstance(event, Release):
                run.pieces.append(("text", event.channel, event.text))
                run.deltas += 1
            elif isinstance(event, ToolRelease):
                run.pieces.append(("call", event.index, event.id, event.name, event.arguments))
                run.deltas += 1
            elif isinstance(event, Recovery):
                run.recoveries += 1
                waits = True
                continue
            else:
                run.end = event
                continue
            if waits:
                run.gap, waits = now - last, False
            last = now
    return run


@dataclass
class Row:
    kind: str
    mode: str
    cuts: int
    same: int
    exact: int
    resumed: int
    gaps: list[float]
    wasted: int
    whole: Run
    wrong: list[tuple[int, Run]]

    def __str__(self) -> str:
        gaps = sorted(self.gaps) or [0.0]
        p50, p99 = statistics.median(gaps), gaps[min(len(gaps) - 1, int(len(gaps) * 0.99))]
        return (
            f"{self.kind:<5} {self.mode:<7} the same {self.same:>3} of {self.cuts:<3} usage too {self.exact:>3}"
            f"   resumed {self.resumed:>3}   gap p50"
            f" {p50 * 1e3:>6.0f} ms  p99 {p99 * 1e3:>6.0f} ms   wasted tokens {self.wasted}"
        )


async def measure(urls: Sequence[str], tokenizer: Path, kind: str, mode: str, *, cuts: int, tokens: int) -> Row:
    """``cuts`` places, spread over the whole answer."""
    speech = f"mode: {mode}, tokenizer: '{tokenizer}', tool_format: hermes"
    lines = "".join(f"  - {{name: e{i}, url: '{url}', dialect: llamacpp, {speech}}}\n" for i, url in enumerate(urls))
    config = parse_config(f"engines:\n{lines}routes:\n  - {{model: m, engines: [e0, e1]}}\n{CALM}")
    async with AsyncExitStack() as stack:
        engines: dict[str, Engine] = {}
        for section in config.engines:
            engine = _built(section)
            stack.push_async_callback(engine.aclose)
            engines[section.name] = engine
        first = engines["e0"] = Cutting(engines["e0"])
        constraints = ConstraintCache()
        stack.callback(constraints.close)
        pipeline = Pipeline(config, engines, constraints, Tracing())
        whole = await ask(pipeline, BODIES[kind], tokens)
        if not isinstance(whole.end, Finished):
            raise RuntimeError(f"{kind}, {mode}: the answer without a fault did not end well: {whole.end}")
        made = whole.end.usage.completion_tokens
        places = sorted({round(i * (made - 1) / cuts) for i in range(1, cuts + 1)} - {0})
        row = Row(kind, mode, len(places), 0, 0, 0, [], 0, whole, [])
        for place in places:
            first.after = place
            run = await ask(pipeline, BODIES[kind], tokens)
            row.resumed += run.recoveries
            row.gaps += [run.gap] if run.gap else []
            row.wasted += run.end.wasted_tokens if isinstance(run.end, Finished) else 0
            if run.what == whole.what:
                row.same += 1
                row.exact += run.cost == whole.cost
            else:
                row.wrong.append((place, run))
        return row


def _built(section: EngineConfig) -> Engine:
    return build_engine(section)


async def main(options: argparse.Namespace) -> int:
    if reason := tokenizer_files.missing():
        print(reason)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        tokenizer = tokenizer_files.write_tokenizer(place / "tokenizer", tokenizer_files.TOOLS_TEMPLATE)
        (place / "template.jinja").write_text(tokenizer_files.TOOLS_TEMPLATE)
        model = None if options.quantised else float32(engine_process.model_path())
        engines = [
            engine_process.start_engine(2, 4096, 1, model=model, template=place / "template.jinja") for _ in range(2)
        ]
        try:
            for kind in options.kinds.split(","):
                for mode in options.modes.split(","):
                    row = await measure(
                        [engine.url for engine in engines],
                        tokenizer,
                        kind,
                        mode,
                        cuts=options.cuts,
                        tokens=options.tokens,
                    )
                    print(row, flush=True)
                    for place_, run in row.wrong[: options.show]:
                        print(f"    cut at {place_}: {run.what}\n    whole:   {row.whole.what}")
        finally:
            for engine in engines:
                engine.stop()
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cuts", type=int, default=50)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--kinds", default="text,json,tool")
    parser.add_argument("--modes", default="tokens,chat")
    parser.add_argument("--quantised", action="store_true", help="the weights as they are shipped (Q4_1)")
    parser.add_argument("--show", type=int, default=0, help="print so many of the answers that differ")
    raise SystemExit(asyncio.run(main(parser.parse_args())))
