"""Has the hot path grown? ``python -m tests.bench.gate`` (``make bench-gate``).

64 streams in turn, in this process: the bytes of one chunk in vLLM's shape -> OpenAIReader -> StreamGuard ->
StreamWriter. No socket, no event loop, no clock of the wall. The CPU of it is divided by that of a loop of plain Python
that never changes (``yardstick``), run in turns of a few milliseconds with it: a busy or a throttled machine slows
both, and what is left is a property of the code. The cost in yardsticks is held against baseline.json, committed with
the last release, and the gate fails where one has grown by more than ``TOLERANCE``.

Always on the Python sources: a compiled module would hide the one beside it. Another minor version of Python has other
costs, so it needs a baseline of its own.
"""

from __future__ import annotations

import gc
import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from guard.config import Policy
from guard.constraint.compile import CompiledConstraint, compile_constraint
from guard.delivered import Delivered
from guard.engines.openai_reader import OpenAIReader
from guard.normalise import chat_request
from guard.plan import plan_for
from guard.reading import Reading
from guard.server.openai_outcome import Outcome
from guard.server.openai_stream import StreamWriter
from guard.stream import StreamGuard

BASELINE = Path(__file__).with_name("baseline.json")
TOLERANCE = 0.15
STREAMS = 64
CHUNKS = 96
TURN = 4
"""Chunks of every stream between two turns of the yardstick."""
ROUNDS = 12
YARDSTICK_LOOPS = 8
ATTEMPTS = 3
"""A cost above the tolerance is measured again, this often in all."""
MAY_WAIT = 8
"""Characters that a healthy answer may hold in the middle of it."""

WORDS = [
    "the",
    "of",
    "and",
    "to",
    "in",
    "is",
    "that",
    "for",
    "it",
    "was",
    "on",
    "are",
    "as",
    "with",
    "they",
    "be",
    "at",
    "one",
    "have",
    "this",
    "from",
    "or",
    "had",
    "by",
    "but",
    "some",
    "what",
    "there",
    "we",
    "can",
    "out",
    "other",
    "were",
    "all",
    "your",
    "when",
    "up",
    "use",
    "word",
    "how",
    "said",
    "an",
    "each",
    "she",
    "which",
    "do",
    "their",
    "time",
    "if",
    "will",
    "way",
    "about",
    "many",
    "then",
    "them",
    "would",
    "write",
    "like",
    "so",
    "these",
    "her",
    "long",
    "make",
    "thing",
    "see",
    "him",
    "two",
    "has",
    "look",
    "more",
    "day",
    "could",
    "go",
    "come",
    "did",
    "sound",
    "number",
    "who",
    "over",
    "know",
    "water",
    "than",
    "call",
    "first",
    "people",
    "may",
    "down",
    "side",
    "been",
    "now",
    "find",
    "any",
    "new",
    "work",
    "part",
    "take",
    "get",
    "place",
    "made",
    "live",
    "where",
    "after",
    "memory",
    "kernel",
    "request",
    "latency",
    "through",
    "put",
    "distributed",
    "scheduler",
    "attention",
    "transformer",
    "deterministic",
    "little",
    "only",
    "round",
]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "rows": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"id": {"type": "integer", "minimum": 0}, "note": {"type": "string", "maxLength": 400}},
                "required": ["id", "note"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["rows"],
    "additionalProperties": False,
}


class GateError(Exception):
    """Why the gate cannot judge."""


def prose(seed: int) -> list[str]:
    """Pieces of plain sentences, about four characters each."""
    rng = random.Random(seed)
    pieces: list[str] = []
    while len(pieces) < CHUNKS:
        for at in range(rng.randint(5, 18)):
            word = rng.choice(WORDS)
            pieces.append(" " + (word if at else word.capitalize()))
        pieces.append(rng.choice((".", ".", "?", ".\n\n")))
    return pieces[:CHUNKS]


def document(seed: int) -> list[str]:
    """Pieces of a document under SCHEMA, not yet at its end."""
    rng = random.Random(seed)
    pieces = ['{"rows', '":[']
    rows = 0
    while len(pieces) < CHUNKS:
        pieces += [
            ',{"' if rows else '{"',
            "id",
            '":',
            str(rng.randrange(1000)),
            ',"',
            "note",
            '":"',
            rng.choice(WORDS),
        ]
        pieces += [" " + rng.choice(WORDS) for _ in range(rng.randint(4, 12))]
        pieces.append('"}')
        rows += 1
    return pieces[:CHUNKS]


@dataclass(frozen=True)
class Workload:
    """``answer``: the pieces of one stream, of its seed."""

    name: str
    answer: Callable[[int], list[str]]
    response_format: dict[str, Any] | None = None


WORKLOADS = (
    Workload("text", prose),
    Workload("json", document, {"type": "json_schema", "json_schema": {"name": "rows", "schema": SCHEMA}}),
)


def chunks(answer: list[str], number: int) -> list[bytes]:
    """A whole answer as one event a chunk, as vLLM sends them."""
    head = (
        f'data: {{"id":"chatcmpl-{number:016x}","object":"chat.completion.chunk","created":1796001484,"model":"m",'
        f'"choices":[{{"index":0,"delta":'
    )
    tail = ',"logprobs":null,"finish_reason":null}]}\n\n'
    role = head + '{"role":"assistant","content":""}' + tail
    said = [f"{head}{json.dumps({'content': piece}, ensure_ascii=False)}{tail}" for piece in answer]
    return [event.encode() for event in (role, *said)]


class Stream:
    """One answer under way: everything of the hot path that is neither a socket nor the event loop."""

    def __init__(self, workload: Workload, number: int, compiled: CompiledConstraint | None) -> None:
        self.pieces = workload.answer(number)
        self.chunks = chunks(self.pieces, number)
        prompt = " ".join(random.Random(-number).choices(WORDS, k=80))
        body: dict[str, Any] = {"model": "m", "stream": True, "messages": [{"role": "user", "content": prompt}]}
        if workload.response_format is not None:
            body["response_format"] = workload.response_format
        request = chat_request(body, request_id=f"r{number}", now=0.0)
        plan = plan_for(request, Policy(), compiled)
        delivered = Delivered()
        self.delivered = delivered
        self.reader = OpenAIReader()
        self.guard = StreamGuard(plan, delivered, engine="e", reading=Reading(plan, delivered, model="m"))
        self.writer = StreamWriter(Outcome(1, "m", request.id), "chat", 1796001484)

    def check(self) -> None:
        """Nothing was condemned, and no more held than a number that may go on: else it was not the ordinary path."""
        text, sent = "".join(self.pieces), self.delivered.text("content")
        if self.guard.condemned is not None or not text.startswith(sent) or len(sent) < len(text) - MAY_WAIT:
            why = self.guard.condemned or f"{len(sent)} of {len(text)} characters left"
            raise GateError(f"the bench's own answer did not pass: {why}")


def constraint_of(workload: Workload) -> CompiledConstraint | None:
    if workload.response_format is None:
        return None
    asked = {"model": "m", "messages": [{"role": "user", "content": "-"}], "response_format": workload.response_format}
    constraint = chat_request(asked, request_id="r").constraint
    assert constraint is not None
    return compile_constraint(constraint)


class Counter:
    """What the yardstick works on: a little of everything that a hot path in Python does. Never to be changed, or every
    baseline is void."""

    def __init__(self, number: int) -> None:
        self.words = [WORDS[(number + at * 7) % 100] for at in range(12)]
        self.seen: dict[str, int] = {}
        self.size = 0

    def step(self) -> bytes:
        out: list[bytes] = []
        for word in self.words:
            self.seen[word] = self.seen.get(word, 0) + 1
            self.size += len(word)
            if word.startswith("t") or word[-1:] == "e":
                out.append(word.encode())
        return b" ".join(out)


def yardstick(counters: list[Counter]) -> None:
    for _ in range(YARDSTICK_LOOPS):
        for counter in counters:
            counter.step()


def one_round(workload: Workload, compiled: CompiledConstraint | None) -> list[tuple[int, int]]:
    """Nanoseconds of CPU of the path and of the yardstick, turn by turn."""
    running = [Stream(workload, 1 + number, compiled) for number in range(STREAMS)]
    counters = [Counter(number) for number in range(STREAMS)]
    for stream in running:  # the role chunk opens the answer; it is not ordinary
        stream.guard.feed(stream.reader.feed(stream.chunks[0]))
    turns: list[tuple[int, int]] = []
    gc.collect()
    gc.disable()
    try:
        for turn in range(1, CHUNKS + 1, TURN):
            before = time.process_time_ns()
            for at in range(turn, turn + TURN):
                for stream in running:
                    stream.writer.feed(stream.guard.feed(stream.reader.feed(stream.chunks[at])))
            between = time.process_time_ns()
            yardstick(counters)
            turns.append((between - before, time.process_time_ns() - between))
    finally:
        gc.enable()
    for stream in running:
        stream.check()
    return turns


def measure(rounds: int = ROUNDS) -> dict[str, dict[str, float]]:
    """By workload ``us`` and ``yardsticks`` a chunk.

    Every round does the same work, so of each turn the least CPU of all rounds is taken, as timeit does: what is above
    it was somebody else's, on the other thread of the core or in its caches.
    """
    compiled = {workload.name: constraint_of(workload) for workload in WORKLOADS}
    taken: dict[str, list[list[tuple[int, int]]]] = {workload.name: [] for workload in WORKLOADS}
    for _ in range(rounds):
        for workload in WORKLOADS:
            taken[workload.name].append(one_round(workload, compiled[workload.name]))
    return {name: least(seen) for name, seen in taken.items()}


def least(rounds: list[list[tuple[int, int]]]) -> dict[str, float]:
    path, stick = (sum(min(turn[part] for turn in same) for same in zip(*rounds, strict=True)) for part in (0, 1))
    turns = len(rounds[0])
    return {
        "us": path / (turns * TURN * STREAMS) / 1e3,
        "yardsticks": (path / (turns * TURN * STREAMS)) / (stick / (turns * YARDSTICK_LOOPS * STREAMS)),
    }


def lowest(seen: list[dict[str, float]]) -> dict[str, float]:
    """Of several measurements: code that has grown is slower in every one of them."""
    return {name: min(each[name] for each in seen) for name in seen[0]}


def python_version() -> str:
    return "{}.{}".format(*sys.version_info)


def read_baseline(path: Path) -> dict[str, float]:
    """Yardsticks a chunk by workload, or GateError."""
    try:
        baseline = json.loads(path.read_text())
        by_version: dict[str, dict[str, float]] = baseline["yardsticks"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise GateError(f"{path}: no baseline can be read: {error!r}") from error
    if python_version() not in by_version:
        have = ", ".join(sorted(by_version)) or "none"
        raise GateError(
            f"{path}: there is no baseline for Python {python_version()} (there is for {have}); add: --write"
        )
    return by_version[python_version()]


def verdict(baseline: dict[str, float], now: dict[str, float], tolerance: float = TOLERANCE) -> list[str]:
    """What has grown too much, and what cannot be compared. Empty: the gate is open."""
    problems = [f"{name} is not in the baseline; add it with --write" for name in now if name not in baseline]
    for name, before in baseline.items():
        if name not in now:
            problems.append(f"{name} is in the baseline and was not measured")
        elif now[name] > before * (1 + tolerance):
            grown = (now[name] / before - 1) * 100
            problems.append(
                f"{name}: {now[name]:.2f} yardsticks a chunk, {grown:+.0f} % on the baseline's {before:.2f}"
            )
    return problems


def write_baseline(path: Path, now: dict[str, float]) -> None:
    """Those of other versions of Python stay."""
    kept = json.loads(path.read_text())["yardsticks"] if path.exists() else {}
    kept[python_version()] = {name: round(cost, 3) for name, cost in now.items()}
    path.write_text(json.dumps({"yardsticks": dict(sorted(kept.items()))}, indent=2) + "\n")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--write", is_flag=True, help="Make what is measured now the baseline: after a change that is worth it.")
@click.option("--rounds", default=ROUNDS, show_default=True, type=click.IntRange(1, 100))
def main(write: bool, rounds: int) -> None:
    """Fails when the CPU a chunk of reader, guard and writer has grown by more than 15 % over the committed baseline.

    \b
    Examples:
      python -m tests.bench.gate
      python -m tests.bench.gate --write
    """
    try:
        baseline = {} if write else read_baseline(BASELINE)
        click.echo(f"CPU a chunk of reader, guard and writer, {STREAMS} streams in turn, the best of {rounds} rounds")
        seen: list[dict[str, float]] = []
        while len(seen) < ATTEMPTS and (write or not seen or verdict(baseline, lowest(seen))):
            measured = measure(rounds)
            seen.append({name: cost["yardsticks"] for name, cost in measured.items()})
            for name, cost in measured.items():
                was = baseline.get(name)
                beside = f"   baseline {was:.2f} ({cost['yardsticks'] / was - 1:+.1%})" if was else ""
                click.echo(f"{name:6} {cost['us']:6.1f} us {cost['yardsticks']:6.2f} yardsticks{beside}")
        if write:
            write_baseline(BASELINE, {name: statistics.median(each[name] for each in seen) for name in seen[0]})
            return
        problems = verdict(baseline, lowest(seen))
    except GateError as error:
        click.echo(f"bench-gate: {error}", err=True)
        sys.exit(2)
    for problem in problems:
        click.echo(f"bench-gate: {problem}", err=True)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
