"""Columns in ClickHouse's native format: what says the same in every row is written once, and reads the same."""

from __future__ import annotations

from typing import Any

import pytest
from clickhouse_connect.datatypes.registry import get_from_name
from clickhouse_connect.driver.insert import InsertContext

from guard.trace.columns import _write

COLUMNS: list[tuple[str, list[Any]]] = [
    ("LowCardinality(String)", ["vllm", "sglang", ""]),
    ("Nullable(Float64)", [None, 0.5, float("nan")]),
    ("Nullable(Int64)", [None, 0, -1]),
    ("Nullable(Int128)", [None, 2**64, -1]),
    ("String", ["a", ""]),
    ("Bool", [True, False]),
    ("Array(LowCardinality(String))", [[], ["x"], ["x", "y"]]),
]


@pytest.mark.parametrize(("kind", "values"), COLUMNS)
@pytest.mark.parametrize("count", [1, 2, 300])
def test_a_column_is_what_the_client_would_have_written(kind: str, values: list[Any], count: int) -> None:
    type_ = get_from_name(kind)
    context = InsertContext("t", [], [])
    mixed = [values[n % len(values)] for n in range(count)]
    for column in (*([value] * count for value in values), mixed, [*mixed, values[0]], tuple(mixed)):
        theirs, ours = bytearray(), bytearray()
        type_.write_column(column, theirs, context)
        _write(type_, column, ours, context)
        assert ours == theirs
