"""Faults planted in scripted engines, and the whole way from the matrix to the ruling: nothing is told of the fault but
what the engines say."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import replayed

from guard.engines.contract import EngineRequest
from guard.engines.scripted import Play, ScriptedEngine, Step
from guard.events import CONTENT, Closed, Done, FinishReason, Opened, TextDelta, Usage
from replay.matrix import Asked, Matrix
from replay.report import reported
from replay.results import Triage

Said = list[tuple[str, float, str, float]]  # each word, its log probability, the next likely word, and that one's

WORDS = "harbour lantern winter keeper signal rowing barley candle meadow copper thistle orchard velvet marble".split()  # noqa: SIM905
GREEDY = Asked(temperature=0.0, max_tokens=64)


def asked(request: EngineRequest) -> str:
    return str((request.request.messages or [{}])[-1]["content"])


def right(request: EngineRequest) -> Said:
    """The one right answer: twenty words of which the model is sure."""
    draw = random.Random(zlib.crc32(asked(request).encode()))
    return [(word, -0.02, draw.choice(WORDS) + "s", -5.0) for word in draw.choices(WORDS, k=20)]


def play(said: Said, prompt_ids: tuple[int, ...] = (1, 2, 3)) -> Play:
    steps: list[Step] = [[Opened("s", "m", prompt_token_ids=prompt_ids)]]
    for word, logprob, other, below in said:
        text = word + " "
        best = sorted(((text, logprob), (other + " ", below)), key=lambda each: -each[1])
        entry = _entry(text, logprob) | {"top_logprobs": [_entry(*each) for each in best]}
        steps.append([TextDelta(0, CONTENT, text, logprobs=[entry])])
    usage = Usage(len(prompt_ids), len(said), len(prompt_ids) + len(said))
    return Play([*steps, [FinishReason(0, "stop"), usage, Done(), Closed(clean=True)]])


def _entry(token: str, logprob: float) -> dict[str, Any]:
    return {"token": token, "logprob": logprob, "bytes": list(token.encode())}


class Fault(ScriptedEngine):
    """``turn`` makes of the right answer what this engine says; ``busy`` is how many answers are under way, this one
    included."""

    def __init__(self, name: str, turn: Callable[[Fault, EngineRequest, Said], Said | Play]) -> None:
        self.rng = random.Random(zlib.crc32(name.encode()))
        self._turn = turn
        super().__init__(name, self._play)

    @property
    def busy(self) -> int:
        return len(self.requests) - sum(stream.finished or stream.closed_early for stream in self.streams)

    def _play(self, request: EngineRequest) -> Play:
        said = self._turn(self, request, right(request))
        return said if isinstance(said, Play) else play(said)


def sound(engine: Fault, request: EngineRequest, said: Said) -> Said:
    return said


def garbled(engine: Fault, said: Said) -> Said:
    place = engine.rng.randrange(3, 15)
    stray = (f"xq{engine.rng.randrange(1000)}", -0.01, "zz", -7.0)
    return [*said[:place], stray, *said[place + 2 :]]


def bad_image(engine: Fault, request: EngineRequest, said: Said) -> Said:
    return garbled(engine, said) if engine.rng.random() < 0.2 else said


def race(engine: Fault, request: EngineRequest, said: Said) -> Said:
    return garbled(engine, said) if engine.busy >= 4 and engine.rng.random() < 0.3 else said


def close_choice(engine: Fault, request: EngineRequest, said: Said) -> Said:
    """Under load a choice between two equally likely words falls the other way."""
    one, other = said[8][0], said[8][2]
    if engine.busy >= 2 and engine.rng.random() < 0.5:
        return [*said[:8], (other, -0.69, one, -0.75), *((word[::-1], -0.02, "s", -5.0) for word, *_ in said[9:])]
    return [*said[:8], (one, -0.69, other, -0.75), *said[9:]]


def temperature_unset(engine: Fault, request: EngineRequest, said: Said) -> Said:
    place = engine.rng.randrange(0, 10)
    word, _, other, _ = said[place]
    rest = [(each, -0.02, "s", -5.0) for each in engine.rng.choices(WORDS, k=10)]
    return [*said[:place], (f"{other}{engine.rng.randrange(100)}", -2.5, word, -0.3), *rest]


def other_template(engine: Fault, request: EngineRequest, said: Said) -> Play:
    return play([*said[:2], *((word[::-1], -0.02, "s", -5.0) for word, *_ in said[2:])], prompt_ids=(1, 1, 2, 3))


def mixed_up(engine: Fault, request: EngineRequest, said: Said) -> Said:
    """At times the prompt of a request that runs beside is gone on with."""
    beside = [asked(other) for other in engine.requests[-8:] if asked(other) != asked(request)]
    if engine.busy < 2 or not beside or engine.rng.random() > 0.3:
        return said
    theirs = engine.rng.choice(beside).split()
    return [*said[:6], *((word, -0.05, "s", -4.0) for word in theirs)]


async def found(folder: Path, matrix: Matrix, config: Mapping[str, Mapping[str, Any]], **turns: Any) -> Triage:
    """The triage of a matrix over engines of which each has a fault or none."""
    engines = {name: Fault(name, turn) for name, turn in turns.items()}
    chosen = [
        replayed.source_of(
            replayed.record(
                number,
                request_body='{"model": "m", "messages": [{"role": "user", "content": "%s"}]}' % prompt,  # noqa: UP031
            )
        )
        for number, prompt in enumerate(PROMPTS)
    ]
    outcome, journal = await replayed.run(
        folder, matrix, engines, chosen, config=replayed.configured(*engines, **config)
    )
    judged = reported(journal.head, outcome.observations).triage
    assert judged is not None
    return judged


PROMPTS = [
    "Summarise ticket 4471 about the broken crane",
    "Translate note 9120 on late ferries",
    "Describe parcel 3305 lost in Bergen",
    "Explain rule 7718 for night trains",
    "List the parts of pump 6642",
    "Answer letter 2093 from the miller",
]


def blamed(found: Triage) -> set[str]:
    return {str(condition) for condition in found.ruling.axes}


async def test_a_bad_image_on_one_cluster(tmp_path: Path) -> None:
    places = {"a11": ("1.1", "a"), "a12": ("1.2", "a"), "b11": ("1.1", "b"), "b12": ("1.2", "b")}
    config = {
        name: {"image": image, "cluster": cluster, "precision": "bf16"} for name, (image, cluster) in places.items()
    }
    turns = {name: bad_image if name == "b12" else sound for name in places}
    judged = await found(tmp_path, Matrix(repeats=20, sampling=GREEDY), config, **turns)
    assert judged.ruling.cause == "corruption"
    clause = next(
        each for each in (*judged.attribution.clauses, *(judged.differences.clauses if judged.differences else ()))
    )
    named = [{str(each) for each in name} for name in (clause.conditions, *clause.same_runs)]
    assert {"image 1.2", "cluster b"} in named  # and engine b12, which is the same runs
    assert {"engine b12"} in named


@pytest.mark.parametrize(
    ("turn", "cause"),
    [
        (race, "corruption"),
        (close_choice, "batch_dependent"),
        (mixed_up, "corruption.cross_request"),
        (sound, "agreement"),
    ],
)
async def test_what_only_load_brings_out(tmp_path: Path, turn: Any, cause: str) -> None:
    load = "others:6" if turn is mixed_up else "copies:6"
    matrix = Matrix(concurrency=("alone", load), repeats=8, sampling=GREEDY)
    judged = await found(tmp_path, matrix, {"one": {"precision": "bf16"}}, one=turn)
    assert judged.ruling.cause == cause
    if cause != "agreement":
        assert judged.ruling.confidence == "strong"
        assert any(value in blamed(judged) for value in ("6 at once", f"neighbours {load.partition(':')[0]}"))
    assert judged.ruling.claim == (cause != "agreement")


@pytest.mark.parametrize(("turn", "cause"), [(temperature_unset, "sampling"), (other_template, "template")])
async def test_what_sets_one_engine_apart(tmp_path: Path, turn: Any, cause: str) -> None:
    config = {name: {"precision": "bf16"} for name in ("one", "two", "three")}
    matrix = Matrix(repeats=6, sampling=GREEDY)
    judged = await found(tmp_path, matrix, config, one=sound, two=turn, three=sound)
    assert judged.ruling.cause == cause
    assert blamed(judged) == {"engine two"}
