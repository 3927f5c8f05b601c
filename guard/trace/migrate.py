"""Bringing a store's tables up to date by hand, or only saying what is missing.

A server is asked at once. An embedded store is opened by a process of its own (``python -m guard.trace.migrate``, see
``main``), since the engine allows one process a path and must run in a directory without configuration; where a writer
has it open, that one has brought it up to date when it started.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

import msgspec
from msgspec import Struct

from guard.trace import schema
from guard.trace.link import EXIT_LOCKED, ask, connect
from guard.trace.store import StoreError, Target, Unavailable, parse_dsn


class Migrated(Struct):
    """``version`` is what the store has now; ``names`` what was applied, or, after a dry run, what would be."""

    store: str
    version: int
    names: list[str]


def migrate(target: Target, *, dry_run: bool = False) -> Migrated:
    """Raises StoreError: WrongSchema where the store is newer than this program."""
    if not target.embedded:
        return _migrate(target, dry_run)
    command = [sys.executable, "-m", "guard.trace.migrate", *(["--dry-run"] if dry_run else [])]
    done = subprocess.run(
        command, env={**os.environ, "OUTGUARD_STORE": f"chdb://{target.path}"}, capture_output=True, text=True
    )
    if done.returncode == EXIT_LOCKED:
        return _asked(target)
    if done.returncode:
        raise Unavailable(done.stderr.strip().rpartition("\n")[2] or f"the migration ended with {done.returncode}")
    return msgspec.json.decode(done.stdout, type=Migrated)


def _migrate(target: Target, dry_run: bool) -> Migrated:
    from guard.trace.clickhouse import ClickHouseStore

    if dry_run and target.embedded and not (Path(target.path) / "store").is_dir():
        return Migrated(target.shown, 0, [migration.name for migration in schema.migrations()])
    store = ClickHouseStore(target, read_only=dry_run)
    try:
        if dry_run:
            applied = store.applied()
            names = [migration.name for migration in schema.pending(applied, target.shown)]
        else:
            names = store.migrate()
            applied = store.applied()
        return Migrated(target.shown, max(applied, default=0), names)
    finally:
        store.close()


def _asked(target: Target) -> Migrated:
    connection = connect(Path(target.path))
    if connection is None:
        raise Unavailable(f"another process has {target.shown} open and does not answer")
    with connection:
        status = ask(connection, {"op": "status"}, 10.0)["status"]
    version = int(status.get("schema", 0))
    missing = [migration.name for migration in schema.migrations() if migration.version > version]
    if status.get("error") or missing:
        why = status.get("error") or "it is an older program: start it again to have it apply " + ", ".join(missing)
        raise Unavailable(f"the sidecar with process id {status['pid']} has {target.shown} open: {why}")
    return Migrated(target.shown, version, [])


def main(argv: list[str] | None = None) -> int:
    """The DSN of an embedded store comes in OUTGUARD_STORE. Prints a Migrated as JSON; exit code 75: another process
    has the store."""
    from guard.trace.place import hold, settle

    parser = argparse.ArgumentParser(prog="python -m guard.trace.migrate", description=__doc__.split("\n")[0])
    parser.add_argument("--dry-run", action="store_true")
    options = parser.parse_args(argv)
    target = parse_dsn(os.environ["OUTGUARD_STORE"])
    os.umask(0o077)
    if not options.dry_run or Path(target.path).is_dir():
        if hold(Path(target.path), asking=True) is None:
            return EXIT_LOCKED
        settle(Path(target.path))
    try:
        print(msgspec.json.encode(_migrate(target, options.dry_run)).decode())
    except StoreError as error:
        print(error.message, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
