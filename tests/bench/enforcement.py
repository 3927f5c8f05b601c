"""What it costs to hold a real engine to a schema from outside, beside its own constraint.

``python -m tests.bench.enforcement [--requests 50] [--calls 20] [--max-enforcements 12] [--blind] [--show]``: the same
requests twice over one llama.cpp engine, once with its own constraint and once with the constraint withheld
(``constraints: guard``), so that only the guard holds it to the schema; and requests that demand a tool call of a
template that knows no tools (enforced_calls.py). Prompts, schemas, seeds and temperatures follow from the request's
number. Exit code 0: every answer was valid.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
from msgspec import Struct

from guard.build import build_engine
from guard.config import parse_config
from guard.constraint.cache import ConstraintCache
from guard.constraint.spec import Constraint
from guard.events import Failed, Finished, Release
from guard.pipeline import Pipeline
from guard.request import GenerationRequest, Sampling
from guard.trace.record import RequestRecord
from guard.trace.retention import RetentionRules
from guard.trace.tracing import Tracing

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import engine_process

from tests.bench.enforced_calls import calls

MAX_TOKENS = 120

CONFIG = """\
engines:
  - {{name: own, url: "{url}", dialect: llamacpp, model: m, version: llama.cpp}}
  - {{name: withheld, url: "{url}", dialect: llamacpp, model: m, version: llama.cpp, constraints: guard}}
routes:
  - {{model: own, engines: [own]}}
  - {{model: withheld, engines: [withheld]}}
policies:
  default: {{max_enforcements: {most}, backoff_initial: 0.001, backoff_max: 0.002}}
"""


def text(most: int) -> dict[str, Any]:
    return {"type": "string", "maxLength": most}


def closed(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def listed(item: Any, least: int, most: int) -> dict[str, Any]:
    return {"type": "array", "items": item, "minItems": least, "maxItems": most}


WHOLE = {"type": "integer", "minimum": 0, "maximum": 120}

SCHEMAS: list[tuple[dict[str, Any], list[str]]] = [
    (
        closed(name=text(20), age=WHOLE),
        [
            "Invent a person.",
            "Who is the hero of your story? Give name and age as JSON.",
            "Describe yourself as a person.",
            "Name a famous king.",
            "Make up a test user. Answer in JSON.",
        ],
    ),
    (
        closed(sentiment={"enum": ["positive", "neutral", "negative"]}, confidence={"type": "number"}),
        [
            "Classify the sentiment: I love this phone.",
            "Classify the sentiment: The train was late again.",
            "How does the reviewer feel? 'It is a chair.'",
            "Sentiment of: what a wonderful day!",
            "Rate this as JSON: the food was cold and the waiter rude.",
        ],
    ),
    (
        closed(city=text(16), country=text(16), capital={"type": "boolean"}),
        [
            "Tell me about Paris.",
            "Name a city in Japan.",
            "What is the largest city of Brazil?",
            "Give me a city as JSON with its country.",
            "Where is the Eiffel Tower?",
        ],
    ),
    (
        closed(colours=listed({"enum": ["red", "green", "blue", "yellow"]}, 1, 3)),
        [
            "Which colours has the flag of France?",
            "Name three colours.",
            "What colour is the sky? And grass?",
            "List your favourite colours as JSON.",
            "Which colours does a traffic light have?",
        ],
    ),
    (
        closed(answer={"type": "boolean"}, reason=text(40)),
        [
            "Is the earth flat?",
            "Can penguins fly?",
            "Is 7 a prime number?",
            "Do you like music?",
            "Is water wet? Answer in JSON.",
        ],
    ),
    (
        closed(item=text(20), price={"type": "number", "minimum": 0}, currency={"enum": ["EUR", "USD"]}),
        [
            "How much is a coffee?",
            "Offer me a used bicycle.",
            "Price of a loaf of bread, as JSON please.",
            "What does a cinema ticket cost?",
            "Sell me this pen.",
        ],
    ),
    (
        closed(title=text(24), author=closed(first=text(12), last=text(12))),
        [
            "Recommend a book.",
            "Who wrote Hamlet?",
            "Name a novel by Jane Austen.",
            "What should I read on the beach?",
            "A science book as JSON.",
        ],
    ),
    (
        closed(
            day={"enum": ["Mon", "Tue", "Wed", "Thu", "Fri"]},
            hour={"type": "integer"},
            note={"type": ["string", "null"], "maxLength": 20},
        ),
        [
            "When shall we meet?",
            "Book a meeting on Tuesday at 10.",
            "Plan a lunch for Friday.",
            "Which day is best for a haircut?",
            "Schedule the review, as JSON.",
        ],
    ),
    (
        closed(points=listed({"type": "integer"}, 2, 4)),
        [
            "Give me some even numbers.",
            "Count to four.",
            "The first primes, please.",
            "Random numbers as JSON.",
            "Lottery numbers?",
        ],
    ),
    (
        {
            "type": "object",
            "properties": {
                "kind": {"const": "weather"},
                "degrees": {"type": "integer"},
                "rain": {"type": "boolean"},
                "wind": text(12),
            },
            "required": ["kind", "degrees"],
            "additionalProperties": False,
        },
        [
            "What is the weather like?",
            "Forecast for Oslo in winter.",
            "Will it rain tomorrow?",
            "Weather report as JSON.",
            "How warm is it in the desert?",
        ],
    ),
]


class Kept(Tracing):
    """Keeps the records as they were given."""

    def __init__(self) -> None:
        super().__init__(retention=RetentionRules(default="full"))
        self.records: list[RequestRecord] = []

    def write(self, record: RequestRecord) -> None:
        self.records.append(record)


class Got(Struct):
    """One answer. ``attempts`` on engines; ``tokens`` delivered; ``extra``: spent and thrown away."""

    number: int
    text: str
    valid: bool
    end: Finished | Failed
    attempts: int
    enforcements: int
    origins: Counter[str]
    tokens: int
    extra: int
    seconds: float


def request(number: int, model: str) -> GenerationRequest:
    schema, prompts = SCHEMAS[number % len(SCHEMAS)]
    prompt = prompts[number // len(SCHEMAS) % len(prompts)]
    return GenerationRequest(
        id=f"{model}-{number}",
        kind="chat",
        model=model,
        messages=[{"role": "user", "content": prompt}],
        constraint=Constraint("json_schema", schema, name="answer"),
        sampling=Sampling(max_tokens=MAX_TOKENS, temperature=0.0 if number % 2 else 0.7, seed=number),
        stream=number % 3 != 0,
    )


@asynccontextmanager
async def over(url: str, most: int, *, blind: bool) -> AsyncIterator[tuple[Pipeline, Kept]]:
    config = parse_config(CONFIG.format(url=url, most=most))
    engines = {engine.name: build_engine(engine) for engine in config.engines}
    if blind:
        withheld = engines["withheld"]
        withheld.capabilities = msgspec.structs.replace(withheld.capabilities, logprobs=False)
    constraints, tracing = ConstraintCache(), Kept()
    try:
        yield Pipeline(config, engines, constraints, tracing), tracing
    finally:
        constraints.close()
        for engine in engines.values():
            await engine.aclose()


async def ask(pipeline: Pipeline, tracing: Kept, number: int, model: str) -> Got:
    asked = request(number, model)
    begun = time.monotonic()
    events = [event async for batch in pipeline.generate(asked) for event in batch]
    seconds = time.monotonic() - begun
    end = next(event for event in events if isinstance(event, Finished | Failed))
    said = "".join(event.text for event in events if isinstance(event, Release))
    attempts = next(record for record in tracing.records if record.request_id == asked.id).attempts
    assert asked.constraint is not None
    return Got(
        number,
        said,
        isinstance(end, Finished) and is_valid(said, asked.constraint.value),
        end,
        sum(attempt.engine == model for attempt in attempts),
        sum(attempt.action == "enforce" for attempt in attempts),
        Counter(
            finding.message.split(" ", 2)[-1]
            for attempt in attempts
            for finding in attempt.findings
            if finding.code == "constraint.enforced"
        ),
        end.usage.completion_tokens,
        end.wasted_tokens if isinstance(end, Finished) else 0,
        seconds,
    )


def is_valid(said: str, schema: Any) -> bool:
    try:
        return bool(jsonschema_rs.validator_for(schema).is_valid(json.loads(said)))
    except ValueError:
        return False


def report(name: str, answers: list[Got]) -> None:
    count = len(answers)
    print(
        f"{name:9} valid {sum(a.valid for a in answers)} of {count}"
        f"  attempts {sum(a.attempts for a in answers)} ({sum(a.attempts for a in answers) / count:.2f} an answer)"
        f"  enforcements {sum(a.enforcements for a in answers)} (most {max(a.enforcements for a in answers)})"
        f"  tokens delivered {sum(a.tokens for a in answers)}, thrown away {sum(a.extra for a in answers)}"
        f"  {sum(a.seconds for a in answers):.1f} s"
    )
    origins = sum((a.origins for a in answers), Counter[str]())
    for origin, times in origins.most_common():
        print(f"{'':11}{times:4} {origin}")


async def compare(url: str, requests: int, called: int, most: int, *, show: bool, blind: bool) -> bool:
    ok = True
    async with over(url, most, blind=blind) as (pipeline, tracing):
        for model in ("own", "withheld") if requests else ():
            answers = [await ask(pipeline, tracing, number, model) for number in range(requests)]
            report(model, answers)
            for answer in answers:
                if show or not answer.valid:
                    print(f"  {answer.number:3} {answer.attempts:3} {answer.text!r}")
                    if isinstance(answer.end, Failed):
                        print(f"      {answer.end.code}: {answer.end.message}")
            ok = ok and all(answer.valid for answer in answers)
        return await calls(pipeline, called, "withheld", show=show) and ok if called else ok


def main() -> int:
    parser = argparse.ArgumentParser(description="The cost of holding a real engine to a schema from outside.")
    parser.add_argument("--requests", type=int, default=50, help="how many, each way")
    parser.add_argument("--calls", type=int, default=20, help="how many requests that demand a tool call")
    parser.add_argument("--max-enforcements", type=int, default=12)
    parser.add_argument("--threads", type=int, default=1, help="of the engine")
    parser.add_argument("--blind", action="store_true", help="the engine held from outside names no other tokens")
    parser.add_argument("--show", action="store_true", help="print every answer")
    options = parser.parse_args()
    if reason := engine_process.missing():
        print(reason)
        return 2
    engine = engine_process.start_engine(parallel=1, context=2048, threads=options.threads)
    try:
        ok = asyncio.run(
            compare(
                engine.url,
                options.requests,
                options.calls,
                options.max_enforcements,
                show=options.show,
                blind=options.blind,
            )
        )
    finally:
        engine.stop()
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
