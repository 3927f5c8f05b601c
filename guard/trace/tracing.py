"""The one object that the pipeline holds: a sink that keeps a record's evidence and never makes a request wait.

``write`` reduces the record to what may be kept, appends it to this worker's spool and counts it for the metrics page.
Everything else (the store, spans and metrics over OTLP) is done by the writer process, which reads the spool; this
object starts it, starts it again when it dies, and ends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from guard.request import Retention
from guard.trace.drain import Drain
from guard.trace.link import EXIT_LOCKED, held
from guard.trace.metrics import Metrics
from guard.trace.record import OutcomeRecord, RequestRecord, SketchRecord
from guard.trace.retention import RetentionRules, reduce, reduce_outcome, strictest
from guard.trace.sketching import sketches, texts
from guard.trace.spool import Spool
from guard.trace.store import default_spool, parse_dsn

if TYPE_CHECKING:
    from guard.trace.scrape import Sources

log: Final = logging.getLogger(__name__)

REMEMBERED: Final = 20_000
"""Traces, at the least, whose retention is known for outcomes that are reported later; of an older one no detail is
kept."""

RESTART_SECONDS: Final = (0.2, 10.0)
"""The first and the longest wait before a writer that died is started again."""

STEADY_SECONDS: Final = 30.0
"""A writer that lived so long died of something else than the one before it."""

SKETCHES_AT_ONCE: Final = 200
"""Requests whose texts wait to be sketched; of more than these no sketch is made."""

STANDBY_SECONDS: Final = 2.0
"""How often a sidecar whose spool another one's writer drains looks whether that one is still there."""

STOP_SECONDS: Final = 12.0


class Tracing:
    """``store`` is a DSN or ``none``; ``spool`` a directory (the default place of the store when empty). With neither a
    store nor an OTLP endpoint nothing is spooled, and only the metrics page is fed.

    ``sources``: the engines' metrics pages, which the writer asks and stores as well. ``hash_key`` keys the
    fingerprints; without one a key is made and kept in the spool's directory, so that fingerprints compare within this
    machine only. Several workers, and several sidecars, may share a spool: each takes a name that is free, beginning
    with ``worker``, and the writer of one of them drains it for all; the others stand by and take over when that one
    goes. Raises ValueError on a DSN that is none, OSError when the spool's directory cannot be written.
    """

    def __init__(
        self,
        store: str = "none",
        spool: str | Path = "",
        *,
        retention: RetentionRules | None = None,
        hash_key: bytes = b"",
        spool_max_bytes: int = 1_000_000_000,
        sources: Sources | None = None,
        otlp_endpoint: str = "",
        service_name: str = "outguard",
        worker: str = "0",
        writer: bool = True,
    ) -> None:
        if store != "none":
            parse_dsn(store)
        self.retention = retention or RetentionRules()
        self.metrics = Metrics()
        self._store = store
        self._sources = sources
        self._otlp_endpoint = otlp_endpoint
        self._service_name = service_name
        self._runs_writer = writer
        self._spool: Spool | None = None
        self._directory = (Path(spool) if spool else default_spool(store)).resolve()
        if store != "none" or otlp_endpoint:
            self._spool = Spool(self._directory, worker, max_bytes=spool_max_bytes)
        self._key = hash_key or (_kept_key(self._directory) if self._spool is not None else secrets.token_bytes(32))
        self._retained: dict[str, Retention] = {}
        self._retained_before: dict[str, Retention] = {}
        self._sketcher = ThreadPoolExecutor(1, "sketch")
        self._sketching: set[asyncio.Future[list[SketchRecord]]] = set()
        self._supervisor: asyncio.Task[None] | None = None
        self._process: asyncio.subprocess.Process | None = None

    # --- the request's way: no waiting, no exceptions ----------------------------------------------------------------

    def write(self, record: RequestRecord) -> None:
        try:
            rules = self.retention
            kept = strictest(record.retention, rules.most, rules.tenants.get(record.tenant, "full"))
            self._remember(record.trace_id, kept)
            reduced = reduce(record, kept, self._key)
        except Exception:
            log.exception("a trace record could not be reduced to its retention, so it is not kept")
            self.metrics.dropped("retention")
            return
        if self._spool is not None:
            self._spool.write(reduced)
            if kept == "hash":
                self._sketch_later(record, reduced)
        try:
            self.metrics.observe(reduced)
        except Exception:
            log.exception("a record could not be counted")

    def _sketch_later(self, record: RequestRecord, reduced: RequestRecord) -> None:
        """Sketches take longer than a request may wait: they are made on a thread, after the record is safe, and are
        lost when this process is killed before they are."""
        wanted = texts(record)
        if not wanted or len(self._sketching) >= SKETCHES_AT_ONCE:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        made = loop.run_in_executor(self._sketcher, sketches, self._key, reduced, wanted)
        self._sketching.add(made)
        made.add_done_callback(self._sketched)

    def _sketched(self, made: asyncio.Future[list[SketchRecord]]) -> None:
        self._sketching.discard(made)
        if made.cancelled() or self._spool is None:
            return
        if error := made.exception():
            log.error("a text could not be sketched", exc_info=error)
            return
        for one in made.result():
            self._spool.write_sketch(one)

    def write_outcome(self, record: OutcomeRecord) -> None:
        """Of a trace whose retention this worker does not know (any more), only the verdict is kept."""
        self.metrics.outcome(record.ok)
        if self._spool is not None:
            known = self._retained.get(record.trace_id) or self._retained_before.get(record.trace_id, "none")
            self._spool.write_outcome(reduce_outcome(record, known))

    def metrics_page(self, in_flight: int | None = None) -> tuple[str, bytes]:
        """Content type and body. ``in_flight``: the requests under way, where the caller knows them."""
        if in_flight is not None:
            self.metrics.in_flight(in_flight)
        if self._spool is not None:
            self._spool.refresh()
            drain = Drain(self._directory)
            waiting = drain.passed(drain.tails())
            self.metrics.spool(self._spool.bytes, waiting, self._spool.written, self._spool.lost)
        alive = self._process is not None and self._process.returncode is None
        self.metrics.writer_alive(alive or self._elsewhere() is not None)
        return self.metrics.page()

    def _remember(self, trace_id: str, kept: Retention) -> None:
        """In two halves: the older is forgotten as a whole, which costs nothing when there are many."""
        known = self._retained.get(trace_id) or self._retained_before.get(trace_id, kept)
        self._retained[trace_id] = kept if known == kept else strictest(known, kept)
        if len(self._retained) > REMEMBERED:
            self._retained_before, self._retained = self._retained, {}

    # --- the writer process ------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the writer, and do not wait for it to be ready: records are safe in the spool meanwhile."""
        if self._spool is not None and self._runs_writer and self._supervisor is None:
            await self._spawn()
            self._supervisor = asyncio.create_task(self._supervise(), name="trace writer")

    async def aclose(self) -> None:
        """End the writer, which stores what is left as long as the store takes it; the rest stays on disk."""
        if self._sketching:
            await asyncio.wait(set(self._sketching), timeout=1.0)
            await asyncio.sleep(0)  # what is done is written by callbacks
        self._sketcher.shutdown(wait=False, cancel_futures=True)
        if self._spool is not None:
            self._spool.close()
        if self._supervisor is None:
            return
        supervisor, self._supervisor = self._supervisor, None
        process = self._process
        if process is None or process.returncode is not None:
            supervisor.cancel()
        else:
            _hang_up(process)
        done, _ = await asyncio.wait([supervisor], timeout=STOP_SECONDS)
        if not done:
            log.warning("the trace writer did not end within %g s", STOP_SECONDS)
            supervisor.cancel()
            if process is not None and process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        await asyncio.gather(supervisor, return_exceptions=True)

    async def _supervise(self) -> None:
        pause, longest = RESTART_SECONDS
        while True:
            began = time.monotonic()
            if self._process is not None:
                code = await self._process.wait()
                if self._supervisor is None:  # ended by aclose
                    return
                if code == EXIT_LOCKED:
                    await self._stand_by()
                    pause = RESTART_SECONDS[0]
                else:
                    log.warning("the trace writer ended (exit code %d) and is started again; records are spooled", code)
                    self.metrics.writer_restarted()
            if time.monotonic() - began > STEADY_SECONDS:
                pause = RESTART_SECONDS[0]
            await asyncio.sleep(pause)
            pause = min(pause * 2, longest)
            await self._spawn()

    async def _stand_by(self) -> None:
        """Until nobody has what this one's writer needs. One that has only the store drains another spool: then what
        is spooled here waits, which somebody should know."""
        place = self._elsewhere()
        if place == self._directory:
            log.info("another process drains %s; this one's writer stands by", place)
        elif place is not None:
            log.error(
                "another process has the store in %s and does not drain %s: records wait there. Sidecars that share an "
                "embedded store must share its spool",
                place,
                self._directory,
            )
        while self._elsewhere() is not None:  # noqa: ASYNC110  a file's lock has no event
            await asyncio.sleep(STANDBY_SECONDS)

    def _elsewhere(self) -> Path | None:
        """Of the directories that a writer needs, one that another process has; the spool's before the store's."""
        if self._spool is None:
            return None
        target = parse_dsn(self._store) if self._store != "none" else None
        places = [self._directory, *([Path(target.path)] if target is not None and target.embedded else [])]
        return next((place for place in places if held(place)), None)

    def _environment(self) -> dict[str, str]:
        told = {"OUTGUARD_STORE": self._store}
        if self._sources is not None and self._sources.pages:
            told["OUTGUARD_ENGINES"] = msgspec.json.encode(self._sources).decode()
        return told

    async def _spawn(self) -> None:
        """A pipe is its standard input: it ends when this process does, however that ends. The DSN goes through the
        environment, since a command line can be read by everyone on the machine."""
        command = [sys.executable, "-m", "guard.trace.writer", "--spool", str(self._directory)]
        if self._otlp_endpoint:
            command += ["--otlp", self._otlp_endpoint, "--service", self._service_name]
        try:
            self._process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                env={**os.environ, **self._environment()},
                start_new_session=True,  # a Ctrl-C is for the sidecar, which then ends its writer in order
            )
        except OSError as error:
            self._process = None
            log.error("the trace writer cannot be started: %s", error)


def _hang_up(process: asyncio.subprocess.Process) -> None:
    if process.stdin is not None:
        process.stdin.close()


def _kept_key(directory: Path) -> bytes:
    """The key of this spool; several workers may start at once, and all must have the same."""
    path = directory / "hash.key"
    fresh = directory / f"hash.key.{secrets.token_hex(4)}"
    if not path.exists():
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(fd, secrets.token_bytes(32))
        finally:
            os.close(fd)
        with contextlib.suppress(FileExistsError):
            os.link(fresh, path)
        fresh.unlink()
    return path.read_bytes()
