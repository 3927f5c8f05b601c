"""Which texts of a request are sketched when they may not be kept, and how two requests compare by that. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec import Struct

from guard.trace.record import RequestRecord, SketchRecord
from guard.trace.retention import prompt_of
from guard.trace.sketch import Sketch, Stretch, first_difference, similarity, sketch

PROMPT = "prompt"
OUTPUT = "output"
ATTEMPT = "attempt"


class Text(NamedTuple):
    part: str
    choice: int
    attempt: int
    text: str


class Likeness(Struct):
    """Of one part of two requests. ``similarity`` of their n-grams from 0 to 1; ``differs_from`` and
    ``differs_before``: the bytes between which they part, -1 where they are the same."""

    part: str
    lengths: tuple[int, int]
    same: bool
    similarity: float
    differs_from: int
    differs_before: int


def texts(record: RequestRecord) -> list[Text]:
    """The prompt, what was delivered, and of each attempt what it made where that is something else."""
    found = [Text(PROMPT, 0, 0, record.request_body), Text(OUTPUT, 0, 0, record.output_text)]
    found += [
        Text(ATTEMPT, attempt.choice, attempt.attempt, attempt.output_text)
        for attempt in record.attempts
        if attempt.output_text != record.output_text
    ]
    return [one for one in found if one.text]


def sketches(key: bytes, record: RequestRecord, wanted: Iterable[Text]) -> list[SketchRecord]:
    """The prompt is sketched in the form that its fingerprint is of."""
    made = []
    for part, choice, attempt, text in wanted:
        one = sketch(key, prompt_of(text) if part == PROMPT else text)
        made.append(
            SketchRecord(
                trace_id=record.trace_id,
                request_id=record.request_id,
                started_at=record.started_at,
                tenant=record.tenant,
                model=record.model,
                part=part,
                choice=choice,
                attempt=attempt,
                length=one.length,
                kinds=one.kinds,
                prefixes=list(one.prefixes),
                grams=list(one.grams),
            )
        )
    return made


def likeness(one: Sequence[SketchRecord], other: Sequence[SketchRecord]) -> list[Likeness]:
    """Of the parts that both have: the prompts, the outputs, and the attempts of the same place."""
    places = {(of.part, of.choice, of.attempt): of for of in other}
    found = []
    for record in one:
        match = places.get((record.part, record.choice, record.attempt))
        if match is None:
            continue
        a, b = _sketch(record), _sketch(match)
        parts: Stretch | None = first_difference(a, b)
        name = record.part if record.part != ATTEMPT else f"attempt {record.choice}.{record.attempt}"
        found.append(
            Likeness(
                part=name,
                lengths=(a.length, b.length),
                same=parts is None,
                similarity=1.0 if parts is None else similarity(a, b),
                differs_from=-1 if parts is None else parts.start,
                differs_before=-1 if parts is None else parts.end,
            )
        )
    return found


def _sketch(record: SketchRecord) -> Sketch:
    return Sketch(record.length, record.kinds, record.prefixes, record.grams)
