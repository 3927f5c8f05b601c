"""What the writer process does: bring the spool into the store, batch after batch, and answer for it meanwhile.

One thread stores (and erases, between two rounds); another prepares the next batch; each reader that asks has one of
its own. The process around it is guard/trace/writer.py.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import tenacity

from guard.trace import schema
from guard.trace.delivery import Delivery, Prepared, Stored
from guard.trace.drain import Batch, Drain
from guard.trace.durable import Syncer, settle_disk
from guard.trace.erase import Erased, Selection, condition, parameters
from guard.trace.erasing import erase_aside, erase_spool
from guard.trace.follow import Follower
from guard.trace.inventory import ASIDE
from guard.trace.link import Closing
from guard.trace.packing import decode
from guard.trace.store import QueryError, Store, StoreError, Target, Unavailable

if TYPE_CHECKING:
    from guard.trace.otel import Telemetry
    from guard.trace.scrape import Scraper

log: Final = logging.getLogger("outguard.writer")

LINGER: Final = (1.0, 5.0)
"""The least and the most seconds between looks at the spool. A batch costs the store about the same whether it has ten
rows or a thousand, so the more one costs the rarer they come; a reader that cannot wait asks for a flush."""

SHARE: Final = 20.0
"""Between two looks it waits so many times what the last one cost in CPU: a trickle takes a twentieth of a core."""

STOP_SECONDS: Final = 10.0
"""How long it goes on storing after it was told to end."""


class Writer:
    """``target`` None: there is no store, and the spool is only emptied (for telemetry)."""

    def __init__(
        self,
        target: Target | None,
        spool: Path | None,
        *,
        yielding: bool = False,
        telemetry: Telemetry | None = None,
        scraper: Scraper | None = None,
    ) -> None:
        self._target = target
        self._yielding = yielding
        self._drain = Drain(spool, durable=True) if spool is not None else None
        self._syncer = Syncer(self._drain) if self._drain is not None else None
        self._telemetry = telemetry
        self._scraper = scraper
        self._follower = Follower(self._drain) if self._drain is not None and telemetry is not None else None
        self._aside = (spool or Path()) / ASIDE
        self._store: Store | None = None
        self._asked: Store | None = None
        self._asking = threading.Lock()
        self._opened = threading.Event()
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._turn = threading.Condition()
        self._error = ""
        self._schema = 0
        self._delivery: Delivery | None = None
        self._started = time.time()
        self._until = float("inf")
        self._errands: queue.SimpleQueue[tuple[Callable[[], Erased], Future[Erased]]] = queue.SimpleQueue()

    def stop(self) -> None:
        if not self._stop.is_set():
            self._until = time.monotonic() + STOP_SECONDS
        self._stop.set()
        self._wake.set()

    def run(self) -> None:
        """Until it is stopped."""
        try:
            if self._scraper is not None:
                self._scraper.start()
            if self._syncer is not None:
                self._syncer.start()
            self._retry(self._open)
            while True:
                stopping = self._stop.is_set()
                if stopping and self._scraper is not None:
                    self._scraper.stop()
                    self._scraper = None
                self._run_errands()
                began = time.process_time()
                idle = self._round()
                if stopping and (idle or time.monotonic() > self._until):
                    break
                if not stopping:
                    least, most = LINGER
                    self._wake.wait(min(most, max(least, SHARE * (time.process_time() - began))))
                    self._wake.clear()
        except tenacity.RetryError:
            log.warning("ending while the store is away: what is spooled stays for the next start")
        finally:
            self._stop.set()
            with self._turn:
                self._turn.notify_all()
            self._leave_errands()
            with self._asking:
                for store in (self._asked, self._store):
                    if store is not None:
                        store.close()
                self._asked = self._store = None
            if self._syncer is not None:
                self._syncer.stop()
            if self._drain is not None:
                self._drain.close()
            if self._telemetry is not None:
                self._telemetry.shutdown()
            if self._scraper is not None:
                self._scraper.stop()

    def _open(self) -> None:
        self._store = open_target(self._target)
        applied = self._store.migrate()
        self._schema = schema.latest()
        if applied:
            log.info("applied to %s: %s", self._target.shown if self._target else "none", ", ".join(applied))
        self._delivery = Delivery(self._store, self._aside)
        self._opened.set()

    def _round(self) -> bool:
        """Store what is there. True: nothing was."""
        idle = True
        if self._drain is None:
            return True
        self._tell()
        with ThreadPoolExecutor(1, "prepare") as pool:
            batches = self._drain.batches()
            coming = pool.submit(self._prepare, batches)
            while (prepared := coming.result()) is not None:
                idle = False
                coming = pool.submit(self._prepare, batches)  # while this one is being inserted
                self._tell()  # a batch's segment may be gone after it
                self._drain.begin(prepared.batch)
                self._drain.commit(prepared.batch, *self._send(prepared))
                with self._turn:
                    self._turn.notify_all()
                if time.monotonic() > self._until:
                    break
        return idle

    def _prepare(self, batches: Iterator[Batch]) -> Prepared | None:
        batch = next(batches, None)
        return None if batch is None or self._delivery is None else self._delivery.prepare(batch)

    def _send(self, prepared: Prepared) -> Stored:
        delivery = self._delivery
        assert delivery is not None
        tries = 0
        stored = Stored({}, 0)

        def once() -> None:
            nonlocal tries, stored
            tries += 1
            stored = delivery.send(prepared, again=tries > 1)
            if self._target is not None and self._target.embedded:
                settle_disk(Path(self._target.path))

        self._retry(once)
        return stored

    def _retry(self, function: Callable[[], None]) -> None:
        """Raises RetryError when it is told to end while the store is away."""
        tenacity.Retrying(
            retry=tenacity.retry_if_exception_type((Unavailable, OSError)),
            wait=tenacity.wait_exponential(multiplier=0.2, max=5.0) + tenacity.wait_random(0, 0.5),
            stop=lambda state: self._stop.is_set(),
            sleep=self._pause,
            before_sleep=self._note,
        )(function)
        if self._error:
            log.info("the store takes rows again")
            self._error = ""

    def _pause(self, seconds: float) -> None:
        self._stop.wait(seconds)

    def _tell(self) -> None:
        """Telemetry does not wait for the store."""
        if self._follower is None or self._telemetry is None:
            return
        for frame in self._follower.poll():
            try:
                self._telemetry.observe(decode(frame.kind, frame.payload))
            except msgspec.DecodeError:
                pass  # set aside, and named, when its batch is stored
            except Exception:
                log.exception("a record could not be told to the telemetry endpoint")

    def _note(self, state: tenacity.RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        text = error.message if isinstance(error, StoreError) else f"{type(error).__name__}: {error}"
        if text != self._error:
            log.warning("%s; trying again", text)
        self._error = text
        self._tell()

    # --- answering, on threads of their own --------------------------------------------------------------------------

    def answer(self, message: Mapping[str, Any]) -> dict[str, Any]:
        try:
            match message.get("op"):
                case "query":
                    return {"ok": True, "rows": self._query(message)}
                case "flush":
                    return {"ok": True, "drained": self._flush(float(message.get("timeout", 5.0)))}
                case "erase":
                    return {"ok": True, "erased": msgspec.to_builtins(self._erase(message))}
                case "status":
                    return {"ok": True, "status": self._status()}
                case "yield":
                    if self._yielding:
                        self.stop()
                    return {"ok": True, "yielding": self._yielding}
                case other:
                    raise QueryError(f"there is no operation {other!r}")
        except QueryError as error:
            return {"ok": False, "error": "query", "message": error.message, "code": error.code}
        except StoreError as error:
            kind = "closing" if isinstance(error, Closing) else "unavailable"
            return {"ok": False, "error": kind, "message": error.message, "code": error.code}

    def _query(self, message: Mapping[str, Any]) -> list[dict[str, Any]]:
        if not self._opened.wait(20.0):
            raise Unavailable(self._error or "the trace store is still being opened")
        with self._asking:
            if self._stop.is_set():
                raise Closing("the writer of the trace store is ending")
            if self._target is None:
                raise Unavailable("no trace store is configured")
            if self._asked is None:
                self._asked = open_target(self._target, read_only=True)
            return self._asked.query(str(message["sql"]), message.get("params") or {}, limit=int(message["limit"]))

    def _flush(self, timeout: float) -> bool:
        if self._drain is None:
            return True
        tails = self._drain.tails()
        deadline = time.monotonic() + min(timeout, 60.0)
        while left := self._drain.passed(tails):
            if self._stop.is_set():
                raise Closing("the writer of the trace store is ending")
            if time.monotonic() > deadline:
                log.debug("%d bytes were left when a flush ran out of time", left)
                return False
            self._wake.set()
            with self._turn:
                self._turn.wait(0.02)
        return True

    def _erase(self, message: Mapping[str, Any]) -> Erased:
        """By the main thread, between its rounds: nothing is read ahead or on its way to the store then."""
        try:
            selection = msgspec.convert(message["selection"], Selection)
        except (msgspec.ValidationError, KeyError) as error:
            raise QueryError(f"what is to be erased is not understood: {error}") from error
        if not self._opened.wait(20.0):
            raise Unavailable(self._error or "the trace store is still being opened")
        done: Future[Erased] = Future()
        self._errands.put((lambda: self._erased(selection, bool(message.get("dry_run"))), done))
        self._wake.set()
        while True:
            try:
                return done.result(1.0)
            except TimeoutError:
                if self._error and done.cancel():
                    raise Unavailable(f"{self._error}; nothing was erased") from None

    def _erased(self, selection: Selection, dry_run: bool) -> Erased:
        store = self._store
        assert store is not None
        spooled = 0
        if self._drain is not None:
            theirs = lambda traces: _with_requests(store, selection, traces)  # noqa: E731
            spooled = erase_spool(self._drain, selection, theirs, dry_run=dry_run)
        found = store.erase(selection, dry_run=dry_run)
        found.spooled, found.aside = spooled, erase_aside(self._aside, selection, dry_run=dry_run)
        return found

    def _run_errands(self) -> None:
        while True:
            try:
                errand, done = self._errands.get_nowait()
            except queue.Empty:
                return
            if not done.set_running_or_notify_cancel():
                continue
            try:
                done.set_result(errand())
            except Exception as error:
                done.set_exception(error)

    def _leave_errands(self) -> None:
        while True:
            try:
                _, done = self._errands.get_nowait()
            except queue.Empty:
                return
            if done.set_running_or_notify_cancel():
                done.set_exception(Closing("the writer of the trace store is ending"))

    def _status(self) -> dict[str, Any]:
        delivery = self._delivery
        return {
            "store": self._target.shown if self._target else "none",
            "open": self._opened.is_set(),
            "error": self._error,
            "schema": self._schema,
            "pid": os.getpid(),
            "started_at": self._started,
            "delivered": delivery.delivered if delivery else 0,
            "refused": delivery.refused if delivery else 0,
            "damaged": delivery.damaged if delivery else 0,
            "spooled_bytes": self._drain.passed(self._drain.tails()) if self._drain else 0,
        }


def _with_requests(store: Store, selection: Selection, traces: list[str]) -> set[str]:
    """Which of some traces have a request that is stored and meant."""
    if not traces or selection.trace:
        return set()
    found: set[str] = set()
    for first in range(0, len(traces), 1_000):
        rows = store.query(
            f"SELECT DISTINCT trace_id FROM requests WHERE ({condition('requests', selection)}) "
            "AND trace_id IN {some:Array(String)}",
            {**parameters(selection), "some": traces[first : first + 1_000]},
        )
        found.update(row["trace_id"] for row in rows)
    return found


def open_target(target: Target | None, *, read_only: bool = False) -> Store:
    if target is None:
        from guard.trace.memory import NoStore

        return NoStore()
    from guard.trace.clickhouse import ClickHouseStore  # loads the engine, so not before it is needed

    return ClickHouseStore(target, read_only=read_only)
