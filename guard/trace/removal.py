"""Erasing as an operator asks for it: through the writer that has the store and the spool, or one for the occasion."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from guard.config import TraceConfig
from guard.trace.erase import Erased, Selection
from guard.trace.link import WriterLink
from guard.trace.store import Unavailable, default_spool, parse_dsn

FLUSH_SECONDS: Final = 60.0
ERASE_SECONDS: Final = 3_600.0
"""A store of months may take a while to be rewritten."""


def remove(trace: TraceConfig, selection: Selection, *, dry_run: bool = False) -> Erased:
    """What is spooled is stored first, so that it is erased as well. Raises StoreError; nothing was erased then, or (it
    says so) not all: starting again goes on."""
    dsn = trace.dsn()
    target = parse_dsn(dsn)
    spool = (Path(trace.spool) if trace.spool else default_spool(dsn)).resolve()
    if not target.embedded:
        spool.mkdir(parents=True, exist_ok=True, mode=0o700)  # where a writer for the occasion listens
    link = WriterLink(dsn, spool, Path(target.path) if target.embedded else spool)
    try:
        if not dry_run:
            done = link.ask({"op": "flush", "timeout": FLUSH_SECONDS}, FLUSH_SECONDS + 5.0)
            if not done["drained"]:
                raise Unavailable("what is spooled cannot be stored now, and so not be found: nothing was erased")
        asked = {"op": "erase", "selection": msgspec.to_builtins(selection), "dry_run": dry_run}
        return msgspec.convert(link.ask(asked, ERASE_SECONDS)["erased"], Erased)
    finally:
        link.close()
