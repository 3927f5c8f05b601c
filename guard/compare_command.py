"""``outguard traces compare``: two requests side by side, by their texts where they were kept, or by their sketches."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import msgspec

from guard.options import as_json, config_option, reading
from guard.trace.record import RequestRecord, SketchRecord
from guard.trace.sketching import Likeness, likeness, sketches, texts
from guard.trace.store import TraceReader


@click.command(
    epilog="""\b
Examples:
  outguard traces compare 4bf92f35 00f067aa
  outguard traces compare 4bf92f35 00f067aa --json

Exit codes: 0 what both have is the same, 1 it is not, 2 there is nothing to compare them by, or the store cannot be
read."""
)
@click.argument("one")
@click.argument("other")
@config_option
@click.option("--json", "json_", is_flag=True, help="Print JSON instead of lines.")
def compare(one: str, other: str, config_path: Path, json_: bool) -> None:
    """How alike the prompts and outputs of two requests are, and where they part. Trace ids may be shortened."""
    with reading(config_path) as reader:
        a, b = (_request(reader, trace) for trace in (one, other))
        if a.retention == b.retention == "full":
            found = likeness(*(sketches(b"", record, texts(record)) for record in (a, b)))
        else:
            found = likeness(_sketches(reader, a), _sketches(reader, b))
    if not found:
        click.echo("outguard traces: they cannot be compared: both need retention full, or both hash", err=True)
        sys.exit(2)
    if json_:
        click.echo(as_json(found))
    else:
        for part in found:
            click.echo(_line(part))
    sys.exit(0 if all(part.same for part in found) else 1)


def _request(reader: TraceReader, trace: str) -> RequestRecord:
    record = reader.get_request(trace)
    if record is None:
        click.echo(f"outguard traces: there is no trace that begins with {trace}", err=True)
        sys.exit(2)
    return record


def _sketches(reader: TraceReader, record: RequestRecord) -> list[SketchRecord]:
    rows = reader.query(
        "SELECT * EXCEPT (started_at, spool_segment, spool_offset, spool_row), "
        "toUnixTimestamp64Micro(started_at) / 1e6 AS started_at FROM sketches "
        "WHERE trace_id = {trace_id:String} AND request_id = {request_id:String} ORDER BY part, choice, attempt",
        {"trace_id": record.trace_id, "request_id": record.request_id},
    )
    return [msgspec.convert(row, SketchRecord) for row in rows]


def _line(part: Likeness) -> str:
    if part.same:
        return f"{part.part}: the same, {part.lengths[0]:,} bytes"
    return (
        f"{part.part}: {part.similarity:.0%} alike, {part.lengths[0]:,} and {part.lengths[1]:,} bytes, the same up to "
        f"byte {part.differs_from:,} and not beyond {part.differs_before:,}"
    )
