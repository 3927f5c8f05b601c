"""What happened when in one request, and where its answer was sewn together. Pure, from its record alone.

Times are milliseconds from the request's start; offsets are characters of the choice's delivered content.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import msgspec
from msgspec import Struct

from guard.trace.record import AttemptRecord, OutcomeRecord, RequestRecord

AROUND: Final = 24
"""How much text is shown on either side of a seam."""


class Moment(Struct, frozen=True):
    """``attempt`` is None for what is not an attempt's."""

    at_ms: float
    what: str
    attempt: AttemptRecord | None = None


class Seam(Struct, frozen=True):
    """The answer of ``choice`` goes on from ``before`` to ``after`` at ``offset``; ``why`` ended the attempt before it.
    ``left`` and ``right`` are the text on both sides, where it was kept."""

    choice: int
    offset: int
    before: str
    after: str
    why: str
    left: str = ""
    right: str = ""


def reached(record: RequestRecord) -> bool:
    """Whether the caller got what was released: one that does not stream gets an answer whole, or none of it."""
    return record.stream or record.outcome == "ok"


def moments(record: RequestRecord, outcomes: Sequence[OutcomeRecord] = ()) -> list[Moment]:
    """In the order of time."""
    found = [Moment(0.0, "asked")]
    for attempt in record.attempts:
        began = max(0.0, (attempt.started_at - record.started_at) * 1e3)
        if attempt.resumed_at >= 0:
            found.append(Moment(began, f"{attempt.engine} goes on from character {attempt.resumed_at}", attempt))
        else:
            found.append(Moment(began, f"{attempt.engine} is asked", attempt))
        if attempt.first_token_ms:
            found.append(Moment(began + attempt.first_token_ms, f"{attempt.engine} begins to answer", attempt))
        found.append(Moment(began + attempt.duration_ms, _end(attempt), attempt))
    if record.first_token_ms:
        what = "the caller gets the first text" if record.stream else "the first text is released, for the whole answer"
        found.append(Moment(record.first_token_ms, what))
    ended = f"{record.outcome}: {record.error_code}" if record.error_code else record.outcome
    found.append(Moment(record.duration_ms, f"the caller hears the end ({ended})"))
    for outcome in outcomes:
        ran = "ran" if outcome.ok else "failed"
        what = f"tool call {outcome.tool_call_id} {ran}" if outcome.tool_call_id else f"the answer's use {ran}"
        found.append(Moment((outcome.reported_at - record.started_at) * 1e3, f"reported: {what}"))
    return sorted(found, key=lambda moment: round(moment.at_ms, 3))


def _end(attempt: AttemptRecord) -> str:
    if attempt.outcome == "ok":
        return f"{attempt.engine} is done ({attempt.finish_reason or 'no finish reason'})"
    where = f" from character {attempt.onset} on" if attempt.onset >= 0 else ""
    return f"{attempt.engine} {attempt.outcome}: {attempt.error_kind or attempt.finish_reason or 'cut off'}{where}"


def seams(record: RequestRecord) -> list[Seam]:
    """By choice, in the order of the answer."""
    texts = delivered(record)
    found = []
    for choice in sorted({attempt.choice for attempt in record.attempts}):
        text = texts[choice] if choice < len(texts) else ""
        attempts = [attempt for attempt in record.attempts if attempt.choice == choice]
        for one, other in pairwise(attempts):
            at = other.resumed_at
            if at < 0:
                continue  # it started afresh: nothing of the attempt before it was delivered
            kept = at <= len(text)
            found.append(
                Seam(
                    choice=choice,
                    offset=at,
                    before=one.engine,
                    after=other.engine,
                    why=one.error_kind or one.outcome,
                    left=text[max(0, at - AROUND) : at] if kept else "",
                    right=text[at : at + AROUND] if kept else "",
                )
            )
    return found


def delivered(record: RequestRecord) -> list[str]:
    """The text of each choice; empty where it was not kept."""
    if not record.output_text:
        return []
    if record.choices == 1:
        return [record.output_text]
    try:
        return msgspec.json.decode(record.output_text, type=list[str])
    except msgspec.DecodeError:
        return []
