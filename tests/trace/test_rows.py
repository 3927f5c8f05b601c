"""Rows: each named by its place, with the axes of its request, arrays packed."""

from __future__ import annotations

import base64
import json
import math
from array import array
from collections.abc import Callable

import msgspec
import pytest

from guard.trace.frames import LOSS, OUTCOME, REQUEST
from guard.trace.record import RequestRecord
from guard.trace.rows import COLUMNS, TABLES, decode, packed, rows

Make = Callable[..., RequestRecord]


def test_a_record_becomes_rows(make: Make) -> None:
    found = rows([(100, make(1)), (200, make(2))], "segment-1")
    assert {table: len(some) for table, some in found.items()} == {
        "requests": 2,
        "attempts": 4,
        "findings": 4,
        "outcomes": 0,
        "losses": 0,
    }
    assert [(row.offset, row.number) for row in found["findings"]] == [(100, 0), (100, 1), (200, 0), (200, 1)]
    lines = {table: [json.loads(row.line) for row in some] for table, some in found.items()}
    for table in TABLES:
        for line in lines[table]:
            assert set(COLUMNS[table]) <= line.keys()
            assert line["spool_segment"] == "segment-1"
    first = lines["attempts"][0]
    assert (first["engine"], first["model"], first["request_outcome"], first["outcome"]) == (
        "primary",
        "small",
        "ok",
        "condemned",
    )
    logprobs = array("f", base64.b64decode(first["token_logprobs_le"])).tolist()
    assert logprobs[0] == -0.5
    assert math.isnan(logprobs[1])
    assert logprobs[2] == -math.inf
    finding = lines["findings"][0]
    assert (finding["image"], finding["code"], finding["attempt"]) == ("img:1.2", "repetition.token", 1)


def test_no_name_comes_twice_in_a_line(make: Make) -> None:
    """The store refuses a line that says one thing twice."""
    for some in rows([(0, make(1))], "s").values():
        for row in some:
            names = [name for name, _ in json.loads(row.line, object_pairs_hook=list)]
            assert len(names) == len(set(names))


def test_ids_that_are_none_are_left_out_as_a_whole() -> None:
    assert packed("I", [1, 2]) == b"\x01\0\0\0\x02\0\0\0"
    assert packed("I", [1, -1]) == packed("I", [2**32]) == packed("I", []) == b""
    assert packed("f", [1e300]) == array("f", [math.inf]).tobytes()


@pytest.mark.parametrize("kind", [REQUEST, OUTCOME, LOSS, 77])
def test_a_payload_that_is_no_record(kind: int) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode(kind, msgspec.msgpack.encode({"trace_id": 5}))
