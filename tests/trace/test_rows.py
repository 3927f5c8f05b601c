"""Rows: each named by its place, with the axes of its request, arrays packed."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import msgspec
import pytest

from guard.trace.frames import LOSS, OUTCOME, PACKED, REQUEST, SCRAPE
from guard.trace.packing import ARRAYS, Packed, decode, pack, packed, unpacked, whole
from guard.trace.record import AttemptRecord, EngineSample, RequestRecord, ScrapeRecord
from guard.trace.rows import COLUMNS, TABLES, named, rows

Make = Callable[..., RequestRecord]


def test_a_record_becomes_rows(make: Make) -> None:
    found = rows([(100, make(1)), (200, make(2))], "segment-1")
    assert set(found) == set(TABLES)
    assert {table: len(some) for table, some in found.items() if some} == {"requests": 2, "attempts": 4, "findings": 4}
    assert [(row.offset, row.number) for row in found["findings"]] == [(100, 0), (100, 1), (200, 0), (200, 1)]
    lines = {table: [named(table, row) for row in some] for table, some in found.items()}
    for table in TABLES:
        assert all(line["spool_segment"] == "segment-1" for line in lines[table])
    first = lines["attempts"][0]
    assert (first["engine"], first["model"], first["request_outcome"], first["outcome"]) == (
        "primary",
        "small",
        "ok",
        "condemned",
    )
    logprobs = first["token_logprobs"]
    assert logprobs[0] == -0.5
    assert math.isnan(logprobs[1])
    assert logprobs[2] == -math.inf
    finding = lines["findings"][0]
    assert (finding["image"], finding["code"], finding["attempt"]) == ("img:1.2", "repetition.token", 1)


@pytest.mark.parametrize("table", TABLES)
def test_no_column_comes_twice(table: str) -> None:
    assert len(set(COLUMNS[table])) == len(COLUMNS[table])


def test_what_an_engine_said_becomes_a_row_a_sample() -> None:
    scrape = ScrapeRecord(5.0, "a", "east", [EngineSample("up", 1.0), EngineSample("x", 2.0, {"n": "0"})])
    found = rows([(7, decode(SCRAPE, msgspec.msgpack.encode(scrape)))], "s")["engine_metrics"]
    assert [(row.offset, row.number) for row in found] == [(7, 0), (7, 1)]
    told = named("engine_metrics", found[1])
    assert (told["at"], told["engine"], told["metric"], told["labels"], told["value"]) == (
        5.0,
        "a",
        "x",
        {"n": "0"},
        2.0,
    )


def test_packed_and_taken_apart_again(make: Make) -> None:
    """Whether the numbers of a record were packed makes no difference to its rows, nor to itself."""
    record = make(1)
    numbers = pack(record)
    assert numbers is not None
    bare = copy.deepcopy(record)
    bare.attempts = [msgspec.structs.replace(attempt, **{name: [] for name in ARRAYS}) for attempt in bare.attempts]
    through = decode(PACKED, msgspec.msgpack.encode(Packed(bare, numbers)))
    assert str(rows([(5, through)], "s")) == str(rows([(5, record)], "s"))
    assert str(whole(through)) == str(record)
    assert pack(make(1, attempts=[AttemptRecord(0, 1, "e")])) is None


def test_numbers_that_do_not_fit_their_attempts(make: Make) -> None:
    with pytest.raises(msgspec.ValidationError, match="do not fit"):
        decode(PACKED, msgspec.msgpack.encode(Packed(make(1), [b""])))


def test_numbers_that_an_older_version_has_spooled(make: Make) -> None:
    """It packed fewer lists: those that it did not know are empty, and the others are where they were."""
    record = make(2)
    record.attempts = record.attempts * 2
    numbers = pack(record)
    assert numbers is not None
    older = [one for at in range(0, len(numbers), len(ARRAYS)) for one in numbers[at : at + 3]]
    through = whole(decode(PACKED, msgspec.msgpack.encode(Packed(copy.deepcopy(record), older))))
    assert isinstance(through, RequestRecord)
    for attempt, was in zip(through.attempts, record.attempts, strict=True):
        assert attempt.output_token_ids == was.output_token_ids
        assert attempt.prompt_token_ids == []
    for wrong in (older[:-1], older[:2], [*numbers, b""]):
        with pytest.raises(msgspec.ValidationError, match="do not fit"):
            decode(PACKED, msgspec.msgpack.encode(Packed(copy.deepcopy(record), wrong)))


def test_ids_that_are_none_are_left_out_as_a_whole() -> None:
    assert packed("I", [1, 2]) == b"\x01\0\0\0\x02\0\0\0"
    assert packed("I", [1, -1]) == packed("I", [2**32]) == packed("I", []) == b""
    assert unpacked("f", packed("f", [1e300, -1e300, 0.5])) == [math.inf, -math.inf, 0.5]
    assert packed("f", ["a"]) == b""


@pytest.mark.parametrize("kind", [REQUEST, OUTCOME, LOSS, PACKED, 77])
def test_a_payload_that_is_no_record(kind: int) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode(kind, msgspec.msgpack.encode({"trace_id": 5}))
