"""Columns as a table of ClickHouse takes them: its native format, which the server need not parse.

A column that the table lacks is left out: what the tables have is asked for once, and again after an insert that
failed. Blocks are made of some hundreds of rows at once, while these are still in the processor's cache, and on another
thread than the one that sends them.
"""

from __future__ import annotations

import logging
import struct
import sys
import threading
from array import array
from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple

from clickhouse_connect.datatypes.base import ClickHouseType, TypeDef
from clickhouse_connect.datatypes.container import Array
from clickhouse_connect.datatypes.registry import get_from_name
from clickhouse_connect.datatypes.temporal import DateTime64
from clickhouse_connect.driver.common import write_leb128
from clickhouse_connect.driver.compression import get_compressor
from clickhouse_connect.driver.exceptions import DataError
from clickhouse_connect.driver.insert import InsertContext

from guard.trace.packing import ARRAYS, unpacked
from guard.trace.rows import COLUMNS, Values

logging.getLogger("clickhouse_connect.driver.transform").disabled = True  # it quotes values that do not fit

UNFIT: Final = (struct.error, ArithmeticError, AttributeError, TypeError, ValueError, DataError)
"""What a value that its column cannot hold raises, before anything was stored."""

_COLUMNS_OF: Final = (
    "SELECT name, type FROM system.columns WHERE database = {database:String} AND table = {table:String}"
)


class Column(NamedTuple):
    """``place``: of its value in a row."""

    place: int
    name: str
    kind: ClickHouseType
    head: bytes


class Block(NamedTuple):
    """Some rows of a table, for the columns whose names are ``names``."""

    names: tuple[str, ...]
    data: bytes | bytearray


class Inserter:
    """Into the tables of one database, with a client of clickhouse-connect. ``compression``: of what is sent. Raises
    what the client raises."""

    def __init__(self, client: Any, database: str, compression: str | None = None) -> None:
        self._client = client
        self._database = database
        self._compression = compression
        self._columns: dict[str, list[Column]] = {}
        self._asking = threading.Lock()

    def encode(self, table: str, values: Sequence[Values]) -> Block:
        """Raises one of UNFIT."""
        with self._asking:
            columns = self._columns.get(table) or self._ask(table)
        out = bytearray()
        write_leb128(len(columns), out)
        write_leb128(len(values[0]), out)
        context = InsertContext(table, [], [])
        for place, name, kind, head in columns:
            out += head
            context.start_column(name)
            _write(kind, _shaped(name, kind, values[place]), out, context)
        data = get_compressor(self._compression).compress_block(out) if self._compression else out
        return Block(tuple(column.name for column in columns), data)

    def insert(self, table: str, blocks: Sequence[Block], settings: Mapping[str, Any]) -> None:
        """All of them as one. Blocks of different columns cannot go together: raises ValueError."""
        names = blocks[0].names
        try:
            if any(block.names != names for block in blocks):
                raise ValueError("the table was changed while rows of it were made")
            data = b"".join(block.data for block in blocks)
            self._client.raw_insert(table, names, data, dict(settings), "Native", self._compression)
        except Exception:
            self._columns.pop(table, None)
            raise

    def _ask(self, table: str) -> list[Column]:
        found = self._client.query(_COLUMNS_OF, {"database": self._database, "table": table}).result_rows
        types = {str(name): _type(str(name), str(kind)) for name, kind in found}
        columns = [
            Column(place, name, types[name], _text(name) + _text(types[name].insert_name))
            for place, name in enumerate(COLUMNS[table])
            if name in types
        ]
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


def _text(text: str) -> bytes:
    out = bytearray()
    encoded = text.encode()
    write_leb128(len(encoded), out)
    return bytes(out + encoded)


def _write(kind: ClickHouseType, values: Values, out: bytearray, context: InsertContext) -> None:
    """Most columns of words and of optional numbers say the same in every row of a block, and that is said once."""
    count = len(values)
    if not (kind.low_card or kind.nullable) or values[0] != values[-1] or values.count(values[0]) != count:
        kind.write_column(values, out, context)
        return
    one = bytearray()
    kind.write_column(values[:1], one, context)
    if kind.low_card:  # ends with how many keys there are, and those: a byte each where the dictionary is short
        out += one[:-9] + count.to_bytes(8, "little") + one[-1:] * count
    else:  # which are null, and then all of them
        out += one[:1] * count + one[1:] * count


def _shaped(name: str, kind: ClickHouseType, values: Values) -> Values:
    """As the client wants a column: points in time as whole ticks, numbers that are not packed as lists."""
    if isinstance(kind, DateTime64):
        ticks = 10**kind.scale
        return [round(value * ticks) for value in values]
    if name in ARRAYS and not isinstance(kind, PackedNumbers):
        return [unpacked(ARRAYS[name], value) for value in values]
    return values
