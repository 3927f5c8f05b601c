"""Rows into a table of ClickHouse, column by column in its native format.

The server parses nothing then, which is half of what an insert of JSON costs. A column that the table lacks is left
out: what the tables have is asked for once, and again after an insert that failed.
"""

from __future__ import annotations

import logging
import struct
import sys
from array import array
from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final

from clickhouse_connect.datatypes.base import ClickHouseType, TypeDef
from clickhouse_connect.datatypes.container import Array
from clickhouse_connect.datatypes.registry import get_from_name
from clickhouse_connect.datatypes.temporal import DateTime64
from clickhouse_connect.driver.exceptions import DataError

from guard.trace.rows import ARRAYS, COLUMNS, Row, unpacked

logging.getLogger("clickhouse_connect.driver.transform").disabled = True  # it quotes values that do not fit

UNFIT: Final = (struct.error, ArithmeticError, AttributeError, TypeError, ValueError, DataError)
"""What a value that its column cannot hold raises, before anything was stored."""

_COLUMNS_OF: Final = (
    "SELECT name, type FROM system.columns WHERE database = {database:String} AND table = {table:String}"
)

Columns = Sequence[tuple[int, str, ClickHouseType]]
"""Of a table: the place of each value in a row, and the name and type of its column."""


class Inserter:
    """Into the tables of one database, with a client of clickhouse-connect. Raises what the client raises."""

    def __init__(self, client: Any, database: str) -> None:
        self._client = client
        self._database = database
        self._columns: dict[str, Columns] = {}

    def insert(self, table: str, rows: Sequence[Row], settings: Mapping[str, Any]) -> None:
        columns = self._columns.get(table) or self._ask(table)
        values = list(zip(*(row.values for row in rows), strict=True))
        try:
            self._client.insert(
                table,
                [_shaped(name, kind, values[place]) for place, name, kind in columns],
                column_names=[name for _, name, _ in columns],
                column_types=[kind for _, _, kind in columns],
                column_oriented=True,
                settings=dict(settings),
            )
        except Exception:
            self._columns.pop(table, None)
            raise

    def _ask(self, table: str) -> Columns:
        found = self._client.query(_COLUMNS_OF, {"database": self._database, "table": table}).result_rows
        types = {str(name): _type(str(name), str(kind)) for name, kind in found}
        wanted = enumerate(COLUMNS[table])
        columns = [(place, name, types[name]) for place, name in wanted if name in types]
        if columns:
            self._columns[table] = columns
        return columns


class PackedNumbers(Array):  # type: ignore[misc]  # the client comes without types
    """Arrays of four-byte numbers that come as their little-endian bytes, which is how they are sent."""

    __slots__ = ()

    def _data_size(self, sample: Collection[bytes]) -> int:
        return sum(map(len, sample)) // max(1, len(sample)) + 8

    def write_column_data(self, column: Sequence[bytes], dest: bytearray, ctx: Any) -> None:
        ends = array("Q", accumulate(len(numbers) // 4 for numbers in column))
        if sys.byteorder == "big":
            ends.byteswap()
        dest += ends.tobytes()
        dest += b"".join(column)


def _type(name: str, kind: str) -> ClickHouseType:
    found = get_from_name(kind)
    if name in ARRAYS and kind in ("Array(UInt32)", "Array(Float32)"):
        return PackedNumbers(TypeDef(values=(found.element_type.name,)))
    return found


def _shaped(name: str, kind: ClickHouseType, values: Sequence[Any]) -> Sequence[Any]:
    """As the client wants a column: points in time as whole ticks, numbers that are not packed as lists."""
    if isinstance(kind, DateTime64):
        ticks = 10**kind.scale
        return [round(value * ticks) for value in values]
    if name in ARRAYS and not isinstance(kind, PackedNumbers):
        return [unpacked(ARRAYS[name], value) for value in values]
    return values
