"""From a record to the rows of each table, as lines of JSON. Pure.

The store reads JSON by name: a field that a table has no column for is skipped, and a column that a record lacks takes
its default, so that records which an older version left in the spool are still stored after an upgrade.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import msgspec

from guard.trace.context import attempt_span_id
from guard.trace.frames import LOSS, OUTCOME, REQUEST
from guard.trace.record import AttemptRecord, FindingRecord, LossRecord, OutcomeRecord, RequestRecord

TABLES: Final = ("requests", "attempts", "findings", "outcomes", "losses")
"""In the order in which a batch is stored: who sees a request's row and not yet its attempts asks again."""

REQUEST_AXES: Final = (
    "trace_id",
    "request_id",
    "service",
    "guard_version",
    "sampled",
    "protocol",
    "kind",
    "tenant",
    "model",
    "policy",
    "retention",
    "stream",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "stop_strings",
    "seed",
    "max_tokens",
    "constraint_kind",
    "constraint_hash",
    "tools",
)
"""What an attempt's row repeats of its request."""

FINDING_AXES: Final = ("trace_id", "request_id", "tenant", "model", "retention")
FINDING_ATTEMPT_AXES: Final = ("engine_model", "engine_version", "image", "cluster", "node", "precision")

FINDING_ARRAYS: Final = {
    "finding_codes": "code",
    "finding_severities": "severity",
    "finding_channels": "channel",
    "finding_onsets": "onset",
    "finding_detected_at": "detected_at",
}
"""What an attempt's row says of its findings, one element each."""

ARRAYS: Final = {"output_token_ids": "I", "token_logprobs": "f", "runner_up_logprobs": "f"}
"""What an attempt's row carries packed, in a column of that name and ``_le``."""

SPOOL_COLUMNS: Final = ("spool_segment", "spool_offset", "spool_row")

COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "requests": (*(name for name in RequestRecord.__struct_fields__ if name != "attempts"), *SPOOL_COLUMNS),
    "attempts": (
        *REQUEST_AXES,
        "request_outcome",
        "span_id",
        "request_span_id",
        *FINDING_ARRAYS,
        *(name for name in AttemptRecord.__struct_fields__ if name != "findings" and name not in ARRAYS),
        *(f"{name}_le" for name in ARRAYS),
        *SPOOL_COLUMNS,
    ),
    "findings": (
        *FINDING_AXES,
        *FINDING_ATTEMPT_AXES,
        "started_at",
        *FindingRecord.__struct_fields__,
        *SPOOL_COLUMNS,
    ),
    "outcomes": (*OutcomeRecord.__struct_fields__, *SPOOL_COLUMNS),
    "losses": (*LossRecord.__struct_fields__, *SPOOL_COLUMNS),
}
"""What a row of each table has. It may have more fields, which are skipped."""

Record = RequestRecord | OutcomeRecord | LossRecord

_encode: Final = msgspec.json.Encoder().encode
_decoders: Final[dict[int, msgspec.msgpack.Decoder[Any]]] = {
    REQUEST: msgspec.msgpack.Decoder(RequestRecord),
    OUTCOME: msgspec.msgpack.Decoder(OutcomeRecord),
    LOSS: msgspec.msgpack.Decoder(LossRecord),
}


class Row(NamedTuple):
    """``offset`` and ``number`` tell it apart from every other row of its segment and table."""

    offset: int
    number: int
    line: bytes


def decode(kind: int, payload: bytes | memoryview) -> Record:
    """Raises msgspec.DecodeError (ValidationError when it is well-formed and no record)."""
    decoder = _decoders.get(kind)
    if decoder is None:
        raise msgspec.ValidationError(f"there is no record of kind {kind}")
    record: Record = decoder.decode(payload)
    return record


def rows(records: Iterable[tuple[int, Record]], segment: str) -> dict[str, list[Row]]:
    """The rows of some records, each given with its offset in the segment. The records are taken apart by it."""
    out: dict[str, list[Row]] = {table: [] for table in TABLES}
    for offset, record in records:
        if isinstance(record, RequestRecord):
            _request(out, record, segment, offset)
        else:
            table = "outcomes" if isinstance(record, OutcomeRecord) else "losses"
            out[table].append(Row(offset, 0, _line(segment, offset, 0, {}, record)))
    return out


def _request(out: dict[str, list[Row]], record: RequestRecord, segment: str, offset: int) -> None:
    attempts, record.attempts = record.attempts, []
    out["requests"].append(Row(offset, 0, _line(segment, offset, 0, {}, record)))
    axes = {name: getattr(record, name) for name in REQUEST_AXES}
    axes["request_outcome"] = record.outcome
    axes["request_span_id"] = record.span_id
    finding_axes = {name: getattr(record, name) for name in FINDING_AXES}
    for number, attempt in enumerate(attempts):
        findings, attempt.findings = attempt.findings, []
        attempt.started_at = attempt.started_at or record.started_at
        arrays: dict[str, Any] = {f"{name}_le": packed(kind, getattr(attempt, name)) for name, kind in ARRAYS.items()}
        arrays["span_id"] = attempt_span_id(record.span_id, attempt.choice, attempt.attempt)
        for name, part in FINDING_ARRAYS.items():
            arrays[name] = [getattr(finding, part) for finding in findings]
        attempt.output_token_ids, attempt.token_logprobs, attempt.runner_up_logprobs = [], [], []
        out["attempts"].append(Row(offset, number, _line(segment, offset, number, axes | arrays, attempt)))
        if not findings:
            continue
        place = {name: getattr(attempt, name) for name in FINDING_ATTEMPT_AXES}
        place |= finding_axes
        place["started_at"] = attempt.started_at
        for finding in findings:
            finding.engine, finding.attempt, finding.choice = attempt.engine, attempt.attempt, attempt.choice
            row = len(out["findings"]) - _first(out["findings"], offset)
            out["findings"].append(Row(offset, row, _line(segment, offset, row, place, finding)))


def packed(kind: str, numbers: list[Any]) -> bytes:
    """Little-endian bytes, which JSON gets as base64. Ids that are none (negative, more than 32 bits) are left out as a
    whole."""
    try:
        found = array(kind, numbers)
    except (OverflowError, TypeError):
        return b""
    if sys.byteorder == "big":
        found.byteswap()
    return found.tobytes()


def _first(found: list[Row], offset: int) -> int:
    """The index of the first row of this offset: rows of one record follow one another."""
    index = len(found)
    while index and found[index - 1].offset == offset:
        index -= 1
    return index


def _line(
    segment: str,
    offset: int,
    number: int,
    axes: dict[str, Any],
    body: RequestRecord | AttemptRecord | FindingRecord | OutcomeRecord | LossRecord,
) -> bytes:
    head = {"spool_segment": segment, "spool_offset": offset, "spool_row": number} | axes
    return _encode(head)[:-1] + b"," + _encode(body)[1:] + b"\n"
