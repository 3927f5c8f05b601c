"""``outguard store status``, ``drain`` and ``verify``: what lies in the spool, and whether the store has it.

They look from outside, beside a running sidecar or without one. ``drain`` and ``verify`` start a writer where none
runs, and end it again.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from guard.options import as_json, config_option, reading, traced
from guard.trace.store import StoreError, default_spool, parse_dsn

_json_option: Final = click.option("--json", "json_", is_flag=True, help="Print JSON instead of lines.")
FLUSH_SECONDS: Final = 5.0


class Place(msgspec.Struct, frozen=True):
    """``home``: where the writer of this store listens."""

    dsn: str
    shown: str
    spool: Path
    home: Path


def _place(config_path: Path) -> Place:
    trace = traced(config_path)
    dsn = trace.dsn()
    target = parse_dsn(dsn)
    spool = (Path(trace.spool) if trace.spool else default_spool(dsn)).resolve()
    return Place(dsn, target.shown, spool, Path(target.path) if target.embedded else spool)


@contextmanager
def _told() -> Iterator[None]:
    """What goes wrong ends the process with 2."""
    try:
        yield
    except (StoreError, OSError) as error:
        click.echo(f"outguard store: {error}", err=True)
        sys.exit(2)


@click.command(
    epilog="""\b
Examples:
  outguard store status
  outguard store status --json | jq .waiting.records

Exit codes: 0 all is well, 1 something needs a look (no writer while records wait, an error, damage, rows set aside),
2 the configuration is wrong or the spool cannot be read."""
)
@config_option
@_json_option
def status(config_path: Path, json_: bool) -> None:
    """What waits for the store, and how its writer is. Starts nothing."""
    place = _place(config_path)
    from guard.trace.inventory import take
    from guard.trace.link import ask, connect

    with _told():
        writer: dict[str, Any] | None = None
        connection = connect(place.home)
        if connection is not None:
            with connection:
                writer = ask(connection, {"op": "status"}, 10.0)["status"]
        waiting = take(place.spool)
    troubles = []
    if writer is None and waiting.records:
        troubles.append("records wait and no writer runs: start the sidecar, or outguard store drain")
    if writer is not None and writer["error"]:
        troubles.append(str(writer["error"]))
    if waiting.damaged:
        troubles.append(f"{len(waiting.damaged)} stretches of the spool are damaged")
    if waiting.aside:
        troubles.append(f"{len(waiting.aside)} rows or records were set aside in {place.spool / 'aside'}")
    if json_:
        click.echo(
            as_json(
                {
                    "store": place.shown,
                    "spool": str(place.spool),
                    "writer": writer,
                    "waiting": waiting,
                    "troubles": troubles,
                }
            )
        )
    else:
        click.echo(f"store    {place.shown}")
        click.echo(f"spool    {place.spool}")
        click.echo(f"writer   {_writer(writer)}")
        age = f", the oldest {time.time() - waiting.oldest:,.0f} s" if waiting.oldest else ""
        click.echo(f"waiting  {waiting.records:,} records, {waiting.bytes:,} bytes in {waiting.segments} segments{age}")
        for one in waiting.damaged:
            click.echo(f"damaged  {one.worker}/{one.segment} bytes {one.start}-{one.end}: {one.reason}")
        for name in waiting.aside[:20]:
            click.echo(f"aside    {name}")
        if len(waiting.aside) > 20:
            click.echo(f"aside    and {len(waiting.aside) - 20} more")
        for trouble in troubles:
            click.echo(f"look at  {trouble}")
    sys.exit(1 if troubles else 0)


def _writer(status: dict[str, Any] | None) -> str:
    if status is None:
        return "none runs"
    state = "the store is open" if status["open"] else "the store is not open yet"
    return (
        f"process {status['pid']} for {time.time() - status['started_at']:,.0f} s, {state}; {status['delivered']:,} "
        f"records stored, {status['refused']:,} refused, {status['damaged']:,} damaged"
    )


@click.command(
    epilog="""\b
Examples:
  outguard store drain
  outguard store drain --timeout 600 && rm -r /var/lib/outguard/spool

Exit codes: 0 everything that was spooled is stored, 1 something is left (the store is away, or it took too long), 2 the
configuration is wrong or no writer can be started."""
)
@config_option
@click.option("--timeout", default=120.0, show_default=True, type=click.FloatRange(0.1), help="Seconds to try for.")
@_json_option
def drain(config_path: Path, timeout: float, json_: bool) -> None:
    """Store what is spooled now, by the running writer or by one for the occasion, and end."""
    place = _place(config_path)
    from guard.trace.inventory import take
    from guard.trace.link import WriterLink

    with _told():
        before = take(place.spool)
        left, error = before, ""
        if before.records or before.bytes:
            link = WriterLink(place.dsn, place.spool, place.home)
            try:
                error = _flush(link, timeout)
            finally:
                link.close()
            left = take(place.spool) if error else type(before)()
    if json_:
        click.echo(as_json({"before": before.records, "left": left.records, "error": error}))
    elif error:
        click.echo(f"{left.records:,} records are left of {before.records:,}: {error}", err=True)
    else:
        click.echo(f"stored: {before.records:,} records waited")
    sys.exit(1 if error else 0)


def _flush(link: Any, timeout: float) -> str:
    """Empty when everything is stored, else why it is not."""
    deadline = time.monotonic() + timeout
    while (left := deadline - time.monotonic()) > 0:
        step = min(left, FLUSH_SECONDS)
        if link.ask({"op": "flush", "timeout": step}, step + 10.0)["drained"]:
            return ""
    error = link.ask({"op": "status"}, 10.0)["status"]["error"]
    return str(error) or f"it was not done within {timeout:g} s"


@click.command(
    epilog="""\b
Examples:
  outguard store verify
  outguard store verify --json | jq .stored.differences

Exit codes: 0 every checksum holds and every stored row is there once, 1 one does not or is not, 2 the configuration is
wrong or the store cannot be read."""
)
@config_option
@_json_option
def verify(config_path: Path, json_: bool) -> None:
    """Check the spool's checksums, and count that each row the writer stored is in the store exactly once."""
    place = _place(config_path)
    from guard.trace import accounts
    from guard.trace.inventory import take

    with _told():
        waiting = take(place.spool)
    with reading(config_path) as reader:
        stored = accounts.verify(reader, place.spool)
    if json_:
        click.echo(as_json({"spool": waiting, "stored": stored}))
    else:
        click.echo(f"spool    {waiting.segments} segments, {waiting.records:,} records not stored yet")
        click.echo(
            f"store    {stored.rows:,} rows of {stored.requests:,} requests expected from {stored.segments:,} "
            f"segments; {stored.refused:,} were refused and set aside, {stored.damaged:,} stretches were damaged"
        )
        for one in waiting.damaged:
            click.echo(f"damaged  {one.worker}/{one.segment} bytes {one.start}-{one.end}: {one.reason}")
        for row in stored.differences:
            click.echo(
                f"differs  {row.table} of {row.segment}: {row.expected:,} expected, {row.missing:,} missing, "
                f"{row.doubled:,} doubled"
            )
        click.echo("differs" if waiting.damaged or stored.differences else "every row is there once")
    sys.exit(1 if waiting.damaged or stored.differences else 0)
