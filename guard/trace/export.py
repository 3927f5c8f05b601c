"""A replay file: requests with all that was recorded of them, to be run again or looked at where the store is not.

JSON lines, one a request, newest last or as the store gave them; nothing refers to anything outside its line:

    {"outguard_trace": 1,
     "request": {"model": ..., "messages": [...], ...} | null,    the body in the OpenAI shape; null: it was not kept
     "record": {"trace_id": ..., "model": ..., "outcome": ..., "output_text": ..., "attempts": [...]},
     "outcomes": [{"tool_call_id": ..., "ok": ..., ...}]}

``record`` has the fields of guard/trace/record.py (RequestRecord without its body; attempts with their axes, token ids,
logprobs and findings), times in Unix seconds, offsets in characters. ``outcomes`` are the execution verdicts, the last
of a call holds. JSON has no NaN and no infinity: a logprob that is missing is null, and one of minus infinity -9999.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
from msgspec import Struct

from guard.trace.record import OutcomeRecord, RequestRecord

VERSION: Final = 1
LEAST_LOGPROB: Final = -9999.0
"""What the OpenAI API says for minus infinity."""

_LOGPROBS: Final = ("token_logprobs", "runner_up_logprobs")


class ExportError(Exception):
    """Names the line."""


class Exported(Struct, frozen=True):
    """One line. ``record.request_body`` is the body as JSON again, empty where it was not kept."""

    record: RequestRecord
    outcomes: tuple[OutcomeRecord, ...] = ()


def line(exported: Exported) -> bytes:
    """Ends with a newline."""
    record: dict[str, Any] = msgspec.to_builtins(exported.record)
    body = record.pop("request_body")
    for attempt in record["attempts"]:
        for name in _LOGPROBS:
            attempt[name] = [None if math.isnan(p) else max(p, LEAST_LOGPROB) for p in attempt[name]]
    return (
        msgspec.json.encode(
            {
                "outguard_trace": VERSION,
                "request": msgspec.Raw(body.encode()) if body else None,
                "record": record,
                "outcomes": exported.outcomes,
            }
        )
        + b"\n"
    )


def read(lines: Iterable[bytes], name: str = "the file") -> Iterator[Exported]:
    """The requests of a replay file. Empty lines are passed over. Raises ExportError with the line's number."""
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            yield _parse(text)
        except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
            raise ExportError(f"{name}:{number}: is no exported trace: {error}") from error


class _Line(Struct):
    outguard_trace: int
    record: dict[str, Any]
    request: msgspec.Raw = msgspec.Raw(b"null")
    outcomes: tuple[OutcomeRecord, ...] = ()


def _parse(text: bytes) -> Exported:
    found = msgspec.json.decode(text, type=_Line)
    if found.outguard_trace != VERSION:
        raise ValueError(f"it has version {found.outguard_trace} of the format, and this Outguard reads {VERSION}")
    for attempt in found.record.get("attempts") or ():
        for name in _LOGPROBS:
            if isinstance(attempt, dict) and isinstance(attempt.get(name), list):
                attempt[name] = [math.nan if p is None else p for p in attempt[name]]
    body = bytes(found.request)
    record = msgspec.convert(found.record, RequestRecord)
    record.request_body = "" if body == b"null" else body.decode()
    return Exported(record, found.outcomes)
