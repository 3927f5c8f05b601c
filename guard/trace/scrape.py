"""The engines' own metrics into the spool: every engine that has a page is asked at an interval, by the writer process.

It is the writer that asks, and not a worker: there is one, and nothing of this is worth a request's time. The samples
go through the spool like all else, under the worker name ``engines``, so that they outlive a store that is away; when
the spool is half full they are left out, since the room is for requests. An engine that does not answer has the sample
``up`` 0 instead, and is named in the log once.
"""

from __future__ import annotations

import logging
import threading
import time
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from msgspec import Struct

from guard.trace.engine_metrics import samples
from guard.trace.record import EngineSample, ScrapeRecord
from guard.trace.spool import Spool

log: Final = logging.getLogger("outguard.scrape")

WORKER: Final = "engines"
TIMEOUT_SECONDS: Final = 2.0
MAX_PAGE: Final = 4 * 1024 * 1024
THREADS: Final = 8


class Source(Struct, frozen=True):
    """An engine and the address of its page."""

    engine: str
    url: str
    cluster: str = ""


class Sources(Struct, frozen=True):
    """What the writer is told, as JSON: which pages, every so many seconds, into a spool of so many bytes."""

    pages: tuple[Source, ...] = ()
    seconds: float = 10.0
    spool_max_bytes: int = 1_000_000_000


class Scraper:
    """Asks on threads of its own from ``start`` to ``stop``. Raises OSError when the spool cannot be written."""

    def __init__(self, sources: Sources, spool: Path) -> None:
        self._sources = sources
        self._spool = Spool(spool, WORKER, max_bytes=sources.spool_max_bytes // 2)
        self._silent: dict[str, str] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="scrape")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(TIMEOUT_SECONDS + 1.0)
        self._spool.close()

    def _run(self) -> None:
        with ThreadPoolExecutor(min(THREADS, len(self._sources.pages)), "scrape") as pool:
            due = time.monotonic()
            while not self._stop.wait(max(0.0, due - time.monotonic())):
                due = max(due + self._sources.seconds, time.monotonic())
                for record in pool.map(self._ask, self._sources.pages):
                    self._spool.write_scrape(record)

    def _ask(self, source: Source) -> ScrapeRecord:
        at = time.time()
        try:
            found: Sequence[EngineSample] = samples(fetch(source.url))
            self._say(source, "")
        except (OSError, ValueError) as error:
            found = ()
            self._say(source, f"{type(error).__name__}: {error}")
        up = EngineSample("up", float(bool(found)), {})
        return ScrapeRecord(at, source.engine, source.cluster, [up, *found])

    def _say(self, source: Source, trouble: str) -> None:
        if trouble and not self._silent.get(source.engine):
            log.warning("the metrics of engine %s at %s cannot be had: %s", source.engine, source.url, trouble)
        elif not trouble and self._silent.get(source.engine):
            log.info("the metrics of engine %s are there again", source.engine)
        self._silent[source.engine] = trouble


def fetch(url: str) -> str:
    """A page. Raises OSError, and ValueError on one that is too long or no text."""
    with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as answer:
        body: bytes = answer.read(MAX_PAGE + 1)
    if len(body) > MAX_PAGE:
        raise ValueError(f"a page of more than {MAX_PAGE} bytes")
    return body.decode()
