"""From a record to the rows of each table: values in the order of ``COLUMNS``. Pure.

A record that an older version left in the spool lacks fields, which then have their defaults; what a table has no
column for is left out by the store. So records are still stored after an upgrade.

The long lists of numbers travel packed, from the spool to the store: taking 400 numbers apart and putting them together
again costs more than all the rest of a record.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec

from guard.trace.context import attempt_span_id
from guard.trace.frames import LOSS, OUTCOME, PACKED, REQUEST, SCRAPE, SKETCH
from guard.trace.record import (
    AttemptRecord,
    FindingRecord,
    LossRecord,
    OutcomeRecord,
    RequestRecord,
    ScrapeRecord,
    SketchRecord,
)

TABLES: Final = ("requests", "attempts", "findings", "outcomes", "losses", "engine_metrics", "sketches")
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
"""What a row of an attempt carries packed, four little-endian bytes a number."""

SPOOL_COLUMNS: Final = ("spool_segment", "spool_offset", "spool_row")

_REQUEST_FIELDS: Final = tuple(name for name in RequestRecord.__struct_fields__ if name != "attempts")
_ATTEMPT_FIELDS: Final = tuple(
    name for name in AttemptRecord.__struct_fields__ if name != "findings" and name not in ARRAYS
)

COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "requests": (*_REQUEST_FIELDS, *SPOOL_COLUMNS),
    "attempts": (
        *REQUEST_AXES,
        "request_outcome",
        "request_span_id",
        "span_id",
        *FINDING_ARRAYS,
        *_ATTEMPT_FIELDS,
        *ARRAYS,
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
    "engine_metrics": ("at", "engine", "cluster", "metric", "labels", "value", *SPOOL_COLUMNS),
    "sketches": (*SketchRecord.__struct_fields__, *SPOOL_COLUMNS),
}
"""What a row of each table has."""


class Packed(msgspec.Struct, array_like=True):
    """A request whose attempts' lists of numbers were taken out: ``numbers`` has one for each of ``ARRAYS`` of each
    attempt, in that order."""

    request: RequestRecord
    numbers: list[bytes]


Plain = RequestRecord | OutcomeRecord | LossRecord | ScrapeRecord | SketchRecord
Record = Plain | Packed

_decoders: Final[dict[int, msgspec.msgpack.Decoder[Any]]] = {
    REQUEST: msgspec.msgpack.Decoder(RequestRecord),
    PACKED: msgspec.msgpack.Decoder(Packed),
    OUTCOME: msgspec.msgpack.Decoder(OutcomeRecord),
    LOSS: msgspec.msgpack.Decoder(LossRecord),
    SCRAPE: msgspec.msgpack.Decoder(ScrapeRecord),
    SKETCH: msgspec.msgpack.Decoder(SketchRecord),
}
_Fields = Callable[[Any], tuple[Any, ...]]
_request_fields: Final[_Fields] = attrgetter(*_REQUEST_FIELDS)
_request_axes: Final[_Fields] = attrgetter(*REQUEST_AXES, "outcome", "span_id")
_attempt_fields: Final[_Fields] = attrgetter(*_ATTEMPT_FIELDS)
_finding_parts: Final[_Fields] = attrgetter(*FINDING_ARRAYS.values())
_finding_axes: Final[_Fields] = attrgetter(*FINDING_AXES)
_finding_place: Final[_Fields] = attrgetter(*FINDING_ATTEMPT_AXES, "started_at")
_finding_fields: Final[_Fields] = attrgetter(*FindingRecord.__struct_fields__)
_outcome_fields: Final[_Fields] = attrgetter(*OutcomeRecord.__struct_fields__)
_sketch_fields: Final[_Fields] = attrgetter(*SketchRecord.__struct_fields__)
_loss_fields: Final[_Fields] = attrgetter(*LossRecord.__struct_fields__)


class Row(NamedTuple):
    """``offset`` and ``number`` tell it apart from every other row of its segment and table; ``values`` are in the
    order of the table's ``COLUMNS``."""

    offset: int
    number: int
    values: tuple[Any, ...]


def named(table: str, row: Row) -> dict[str, Any]:
    """A row by the names of its columns, with its numbers unpacked."""
    values = dict(zip(COLUMNS[table], row.values, strict=True))
    for name, kind in ARRAYS.items():
        if name in values:
            values[name] = unpacked(kind, values[name])
    return values


def decode(kind: int, payload: bytes | memoryview) -> Record:
    """Raises msgspec.DecodeError (ValidationError when it is well-formed and no record)."""
    decoder = _decoders.get(kind)
    if decoder is None:
        raise msgspec.ValidationError(f"there is no record of kind {kind}")
    record: Record = decoder.decode(payload)
    if isinstance(record, Packed) and len(record.numbers) != len(ARRAYS) * len(record.request.attempts):
        raise msgspec.ValidationError("its attempts and their numbers do not fit together")
    return record


def pack(record: RequestRecord) -> list[bytes] | None:
    """The lists of numbers of a request's attempts, packed; None where there are none."""
    numbers = [packed(kind, getattr(attempt, name)) for attempt in record.attempts for name, kind in ARRAYS.items()]
    return numbers if any(numbers) else None


def whole(record: Record) -> Plain:
    """With its numbers where they were before it was packed."""
    if not isinstance(record, Packed):
        return record
    numbers = iter(record.numbers)
    for attempt in record.request.attempts:
        for name, kind in ARRAYS.items():
            setattr(attempt, name, unpacked(kind, next(numbers)))
    return record.request


def packed(kind: str, numbers: Sequence[Any]) -> bytes:
    """Little-endian bytes. Ids that are none (negative, more than 32 bits) are left out as a whole, and what is too
    large for a float is infinite."""
    if not numbers:
        return b""
    try:
        return struct.pack(f"<{len(numbers)}{kind}", *numbers)
    except struct.error:
        return b""
    except OverflowError:
        return struct.pack(f"<{len(numbers)}{kind}", *map(_narrowed, numbers))


def unpacked(kind: str, data: bytes) -> list[Any]:
    return list(struct.unpack(f"<{len(data) // 4}{kind}", data))


def _narrowed(number: float) -> float:
    return number if not abs(number) > _LARGEST else float("inf") if number > 0 else float("-inf")


_LARGEST: Final = 3.4028234663852886e38


def rows(records: Iterable[tuple[int, Record]], segment: str) -> dict[str, list[Row]]:
    """The rows of some records, each given with its offset in the segment."""
    out: dict[str, list[Row]] = {table: [] for table in TABLES}
    for offset, record in records:
        place = (segment, offset, 0)
        if isinstance(record, Packed):
            _request(out, record.request, record.numbers, segment, offset)
        elif isinstance(record, RequestRecord):
            _request(out, record, pack(record), segment, offset)
        elif isinstance(record, OutcomeRecord):
            out["outcomes"].append(Row(offset, 0, _outcome_fields(record) + place))
        elif isinstance(record, SketchRecord):
            out["sketches"].append(Row(offset, 0, _sketch_fields(record) + place))
        elif isinstance(record, ScrapeRecord):
            about = (record.at, record.engine, record.cluster)
            for number, sample in enumerate(record.samples):
                values = (*about, sample.metric, sample.labels, sample.value, segment, offset, number)
                out["engine_metrics"].append(Row(offset, number, values))
        else:
            out["losses"].append(Row(offset, 0, _loss_fields(record) + place))
    return out


def _request(
    out: dict[str, list[Row]], record: RequestRecord, numbers: list[bytes] | None, segment: str, offset: int
) -> None:
    out["requests"].append(Row(offset, 0, (*_request_fields(record), segment, offset, 0)))
    axes = _request_axes(record)
    found = 0
    for number, attempt in enumerate(record.attempts):
        attempt.started_at = attempt.started_at or record.started_at
        arrays = numbers[number * len(ARRAYS) : (number + 1) * len(ARRAYS)] if numbers else _NO_NUMBERS
        span = attempt_span_id(record.span_id, attempt.choice, attempt.attempt)
        parts = [*zip(*map(_finding_parts, attempt.findings), strict=True)] or _NO_FINDINGS
        values = (*axes, span, *parts, *_attempt_fields(attempt), *arrays, segment, offset, number)
        out["attempts"].append(Row(offset, number, values))
        for finding in attempt.findings:
            finding.engine, finding.attempt, finding.choice = attempt.engine, attempt.attempt, attempt.choice
            about = _finding_axes(record) + _finding_place(attempt) + _finding_fields(finding)
            out["findings"].append(Row(offset, found, (*about, segment, offset, found)))
            found += 1


_NO_NUMBERS: Final = [b""] * len(ARRAYS)
_NO_FINDINGS: Final[list[tuple[Any, ...]]] = [()] * len(FINDING_ARRAYS)
