"""``/triage``: the stored runs, read only, as the same pages that ``outguard replay --html`` writes.

A run is looked up among the names that are there, never by a path that a caller gives. A run that is being written is
shown as far as it is. What was read of the latest runs is kept until their files change.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import msgspec

from guard.config import Config
from replay import journal
from replay.campaign import planned
from replay.journal import SUFFIX
from replay.report import Report, facts, reported
from replay.source import ReplayError
from replay.web.page import index_page, page, policy

Answer = tuple[int, list[tuple[bytes, bytes]], bytes]

KEPT: Final = 4
LISTED: Final = 200


def triage_pages(config: Config) -> Served:
    return Served(journal.folder_of(config))


class Served:
    """Called by several threads at once: what is kept is only ever replaced."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._reports: dict[tuple[str, int, int], Report] = {}

    def __call__(self, rest: str) -> Answer:
        name = rest.strip("/")
        if not name:
            return _html(200, index_page(self._runs()))
        run, json_ = (name.removesuffix(".json"), True) if name.endswith(".json") else (name, False)
        path = {p.name.removesuffix(SUFFIX): p for p in journal.stored(self._folder)}.get(run)
        if path is None:
            return _text(404, f"there is no run called {run[:100]}")
        try:
            report = self._report(path)
        except ReplayError as error:
            return _text(500, str(error))
        if json_:
            body = json.dumps(msgspec.to_builtins(facts(report)), ensure_ascii=False).encode("utf-8", "replace")
            return 200, [(b"content-type", b"application/json"), *_CLOSED], body
        return _html(200, page(report, home="/triage"))

    def _report(self, path: Path) -> Report:
        found = path.stat()
        key = (path.name, found.st_size, found.st_mtime_ns)
        if key not in self._reports:
            head, done = journal.read(path)
            report = reported(head, [one for observations in done.values() for one in observations])
            report.left = max(0, len(planned(head)[0].volleys()) - len(done)) if head.cells else 0
            report.scorecard = journal.card_of(path)
            latest = list(self._reports.items())[-KEPT + 1 :]
            self._reports = {**dict(latest), key: report}
        return self._reports[key]

    def _runs(self) -> list[dict[str, Any]]:
        found = []
        for path in list(journal.stored(self._folder))[:LISTED]:
            try:
                head = journal.read_head(path)
            except ReplayError:
                continue
            run = path.name.removesuffix(SUFFIX)
            found.append(
                {
                    "run": run,
                    "href": f"/triage/{run}",
                    "kind": head.kind,
                    "created_at": head.created_at,
                    "requests": len(head.sources),
                    "cells": len(head.cells),
                    # every observation names its request once, and in what engines said a quote is escaped
                    "answers": path.read_bytes().partition(b"\n")[2].count(b'"request_id":'),
                    "planned": planned(head)[1].answers,
                }
            )
        return found


_CLOSED: Final = [
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
]


def _html(status: int, text: str) -> Answer:
    headers = [(b"content-type", b"text/html; charset=utf-8"), (b"content-security-policy", policy().encode())]
    return status, [*headers, *_CLOSED], text.encode()


def _text(status: int, text: str) -> Answer:
    return status, [(b"content-type", b"text/plain; charset=utf-8"), *_CLOSED], text.encode("utf-8", "replace")
