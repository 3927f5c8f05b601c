"""The writer: a process of its own that brings the spool into the store, and answers for it.

    python -m guard.trace.writer --store chdb:///var/lib/outguard/store --spool /var/lib/outguard/spool

Workers never load the store's engine: it takes 260 MB and threads, and would hang in a forked child. One writer serves
a store and a spool, held by a lock in each directory; a second one ends with exit code 75. It ends when its standard
input ends (its parent has gone) or on SIGTERM, after storing what is left, unless the store is away: that stays on disk
for the next start. While the store is away it tries again as long as it lives, waiting up to five seconds between.

The password of a server's DSN does not belong on a command line: the DSN may come in the variable OUTGUARD_STORE. Which
engines have metrics pages comes in OUTGUARD_ENGINES (guard/trace/scrape.py).
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import logging
import os
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Final

import msgspec

from guard.logs import configure
from guard.trace.link import EXIT_LOCKED, MAX_QUESTION, SOCKET, address, encode, receive
from guard.trace.place import hold, settle
from guard.trace.store import parse_dsn
from guard.trace.writing import Writer

log: Final = logging.getLogger("outguard.writer")


def listen(writer: Writer, directory: Path) -> socket.socket:
    """Answer on a socket in the directory, whose lock this process holds."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with contextlib.suppress(FileNotFoundError):
        (directory / SOCKET).unlink()
    with address(directory) as where:
        listener.bind(where)
    listener.listen(16)
    threading.Thread(target=_accept, args=(writer, listener), daemon=True, name="accept").start()
    return listener


def _accept(writer: Writer, listener: socket.socket) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=_converse, args=(writer, connection), daemon=True, name="reader").start()


def _converse(writer: Writer, connection: socket.socket) -> None:
    with connection:
        try:
            while (message := receive(connection, MAX_QUESTION)) is not None:
                connection.sendall(encode(writer.answer(message)))
        except (OSError, ValueError) as error:
            log.debug("a reader went away: %s", error)
        except Exception:
            log.exception("a reader's question could not be answered")


def _parent_gone(writer: Writer) -> None:
    with contextlib.suppress(OSError):
        while os.read(0, 4096):
            pass
    writer.stop()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m guard.trace.writer", description=__doc__.split("\n")[0])
    parser.add_argument("--store", default=os.environ.get("OUTGUARD_STORE", "none"), help="DSN, or none")
    parser.add_argument("--spool", default="", help="directory of the workers' segments")
    parser.add_argument("--otlp", default="", help="base address of an OTLP/HTTP collector")
    parser.add_argument("--service", default="outguard", help="service.name in what goes there")
    parser.add_argument("--yielding", action="store_true", help="make place for a writer without this flag")
    options = parser.parse_args(argv)
    configure()
    try:
        target = None if options.store == "none" else parse_dsn(options.store)
    except ValueError as error:
        log.error("%s", error)
        return 2
    os.umask(0o077)  # the store, the socket and what is set aside are its user's alone
    spool = Path(options.spool).resolve() if options.spool else None
    home = Path(target.path) if target is not None and target.embedded else spool
    if home is None:
        log.error("a spool is needed, or an embedded store to answer for")
        return 2
    locks = []
    for directory in dict.fromkeys(place for place in (home, spool) if place is not None):
        lock = hold(directory, asking=not options.yielding)
        if lock is None:
            log.info("another process has %s", directory)  # its sidecar says what that means
            return EXIT_LOCKED
        locks.append(lock)
    if target is not None and target.embedded:
        settle(home)
    telemetry = None
    if options.otlp:
        from guard.trace.otel import Telemetry

        telemetry = Telemetry(options.otlp, options.service)
    scraper = None
    sources = os.environ.get("OUTGUARD_ENGINES", "")
    if sources and spool is not None and target is not None:
        from guard.trace.scrape import Scraper, Sources

        scraper = Scraper(msgspec.json.decode(sources, type=Sources), spool)
    writer = Writer(target, spool, yielding=options.yielding, telemetry=telemetry, scraper=scraper)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: writer.stop())
    threading.Thread(target=_parent_gone, args=(writer,), daemon=True, name="parent").start()
    gc.set_threshold(100_000, 50, 50)  # records come by the ten thousand, and have no cycles
    listener = listen(writer, home)
    try:
        writer.run()
    finally:
        with contextlib.suppress(FileNotFoundError):
            (home / SOCKET).unlink()
        listener.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
