"""From records to the rows of each table: values in the order of ``COLUMNS``. Pure.

Rows are made column by column, of many records at once: that is how the store takes them, and a third of the price of
one tuple after the other. What a table has no column for is left out by the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter, is_
from typing import Any, Final, NamedTuple

from guard.trace.context import attempt_span_id
from guard.trace.packing import ARRAYS, Packed, Record, pack, unpacked
from guard.trace.record import (
    AttemptRecord,
    EngineSample,
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
FINDING_PLACE: Final = ("attempt", "choice", "engine")
"""What a finding's row has of its attempt, whatever the finding says."""

FINDING_ARRAYS: Final = {
    "finding_codes": "code",
    "finding_severities": "severity",
    "finding_channels": "channel",
    "finding_onsets": "onset",
    "finding_detected_at": "detected_at",
}
"""What an attempt's row says of its findings, one element each."""

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

Values = Sequence[Any]
"""Of one column, a row each."""


class Row(NamedTuple):
    """``offset`` and ``number`` tell it apart from every other row of its segment and table; ``values`` are in the
    order of the table's ``COLUMNS``."""

    offset: int
    number: int
    values: tuple[Any, ...]


def rows(records: Iterable[tuple[int, Record]], segment: str) -> dict[str, list[Row]]:
    """The rows of some records, each given with its offset in the segment."""
    found = columns(records, segment)
    return {table: each(found[table]) if table in found else [] for table in TABLES}


def transposed(some: Sequence[Row]) -> list[Values]:
    """The columns of some rows."""
    return list(zip(*(row.values for row in some), strict=True))


def each(values: Sequence[Values]) -> list[Row]:
    """The rows that some columns are made of."""
    return [Row(row[-2], row[-1], row) for row in zip(*values, strict=True)]


def named(table: str, row: Row) -> dict[str, Any]:
    """A row by the names of its columns, with its numbers unpacked."""
    values = dict(zip(COLUMNS[table], row.values, strict=True))
    for name, kind in ARRAYS.items():
        if name in values:
            values[name] = unpacked(kind, values[name])
    return values


def columns(records: Iterable[tuple[int, Record]], segment: str) -> dict[str, list[Values]]:
    """The columns of each table that some records, each given with its offset in the segment, have rows of."""
    requests = _Requests()
    samples: list[tuple[int, int, ScrapeRecord, EngineSample]] = []
    others: dict[str, tuple[list[Any], list[int]]] = {}
    for offset, record in records:
        if isinstance(record, Packed):
            requests.add(offset, record.request, record.numbers)
        elif isinstance(record, RequestRecord):
            requests.add(offset, record, pack(record))
        elif isinstance(record, ScrapeRecord):
            samples += [(offset, number, record, sample) for number, sample in enumerate(record.samples)]
        else:
            some, places = others.setdefault(_TABLE_OF[type(record)], ([], []))
            some.append(record)
            places.append(offset)
    found = requests.columns(segment)
    for table, (some, places) in others.items():
        fields = COLUMNS[table][: -len(SPOOL_COLUMNS)]
        found[table] = [*_of(some, fields), [segment] * len(some), places, [0] * len(some)]
    if samples:
        offsets, numbers, scrapes, told = zip(*samples, strict=True)
        about = [*_of(scrapes, ("at", "engine", "cluster")), *_of(told, ("metric", "labels", "value"))]
        found["engine_metrics"] = [*about, [segment] * len(samples), offsets, numbers]
    return found


_TABLE_OF: Final = {OutcomeRecord: "outcomes", SketchRecord: "sketches", LossRecord: "losses"}

_getters: Final[dict[str, Callable[[Any], Any]]] = {
    name: attrgetter(name)
    for kind in (RequestRecord, AttemptRecord, FindingRecord, *_TABLE_OF, ScrapeRecord, EngineSample)
    for name in kind.__struct_fields__
}


def _of(objects: Sequence[Any], names: Iterable[str]) -> list[Values]:
    return [list(map(_getters[name], objects)) for name in names]


class _Requests:
    """Requests as they come, their attempts and the findings of these, each with those that it belongs to."""

    def __init__(self) -> None:
        self._requests: list[RequestRecord] = []
        self._offsets: list[int] = []
        self._attempts: list[AttemptRecord] = []
        self._parents: list[RequestRecord] = []
        self._places: list[tuple[int, int]] = []
        self._numbers: list[bytes] = []
        self._findings: list[FindingRecord] = []
        self._found_in: list[int] = []
        self._found_at: list[tuple[int, int]] = []

    def add(self, offset: int, request: RequestRecord, numbers: list[bytes] | None) -> None:
        self._requests.append(request)
        self._offsets.append(offset)
        found = 0
        for number, attempt in enumerate(request.attempts):
            for finding in attempt.findings:
                self._findings.append(finding)
                self._found_in.append(len(self._attempts))
                self._found_at.append((offset, found))
                found += 1
            self._attempts.append(attempt)
            self._parents.append(request)
            self._places.append((offset, number))
        self._numbers += numbers if numbers is not None else [b""] * (len(ARRAYS) * len(request.attempts))

    def columns(self, segment: str) -> dict[str, list[Values]]:
        if not self._requests:
            return {}
        count = len(self._requests)
        known = dict(zip(_REQUEST_FIELDS, _of(self._requests, _REQUEST_FIELDS), strict=True))
        found: dict[str, list[Values]] = {"requests": [*known.values(), [segment] * count, self._offsets, [0] * count]}
        attempts = self._attempts
        if not attempts:
            return found
        alone = len(attempts) == count and all(map(is_, self._parents, self._requests))
        axes = [known[name] for name in _AXES] if alone else _of(self._parents, _AXES)
        own = dict(zip(_ATTEMPT_FIELDS, _of(attempts, _ATTEMPT_FIELDS), strict=True))
        own["started_at"] = [
            at or parent.started_at for at, parent in zip(own["started_at"], self._parents, strict=True)
        ]
        spans = [
            attempt_span_id(parent.span_id, attempt.choice, attempt.attempt)
            for parent, attempt in zip(self._parents, attempts, strict=True)
        ]
        codes: list[Values] = [
            [[get(finding) for finding in attempt.findings] if attempt.findings else _NONE for attempt in attempts]
            for get in map(_getters.__getitem__, FINDING_ARRAYS.values())
        ]
        numbers: list[Values] = [self._numbers[first :: len(ARRAYS)] for first in range(len(ARRAYS))]
        found["attempts"] = [*axes, spans, *codes, *own.values(), *numbers, *_placed(segment, self._places)]
        if self._findings:
            of, theirs = self._found_in, [self._parents[place] for place in self._found_in]
            made = dict(
                zip(FindingRecord.__struct_fields__, _of(self._findings, FindingRecord.__struct_fields__), strict=True)
            ) | {name: _taken(own[name], of) for name in FINDING_PLACE}
            found["findings"] = [
                *_of(theirs, FINDING_AXES),
                *(_taken(own[name], of) for name in (*FINDING_ATTEMPT_AXES, "started_at")),
                *made.values(),
                *_placed(segment, self._found_at),
            ]
        return found


_AXES: Final = (*REQUEST_AXES, "outcome", "span_id")
_NONE: Final[list[Any]] = []


def _taken(values: Values, places: list[int]) -> Values:
    return [values[place] for place in places]


def _placed(segment: str, places: Sequence[tuple[int, int]]) -> list[Values]:
    """The columns that name a row's place in the spool."""
    offsets, numbers = zip(*places, strict=True)
    return [[segment] * len(places), offsets, numbers]
