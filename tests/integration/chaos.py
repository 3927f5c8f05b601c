"""Callers that keep on asking while things are killed, and the reckoning afterwards.

    with Callers(sidecar) as callers: ...        # http streams and gRPC calls, on threads
    reckon(sidecar, callers.finished)            # is every answer that was seen to its end stored exactly once?

A caller notes a trace id only when it has seen the end of its answer: ``[DONE]`` of a stream, the last event of a call.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import secrets
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from replay_server import Reply, chunk, sse
from sidecar_process import ASK, MODEL, Sidecar, until

from guard.client import CallError

ANSWER = Reply(sse(*(chunk(f"word{i} ") for i in range(20)), chunk(finish="stop")))
BODY = json.dumps({"model": MODEL, "messages": ASK, "stream": True}).encode()
ID_CHUNK = 2_000


@dataclass
class Callers:
    """``http`` and ``grpc`` threads, each asking one thing after the other; ``pause`` seconds between. ``asked`` counts
    all, also those that were cut; ``seconds`` how long each that finished took."""

    sidecar: Sidecar
    http: int = 3
    grpc: int = 1
    pause: float = 0.0
    asked: int = 0
    finished: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> Self:
        for kind, count in ((self._over_http, self.http), (self._over_grpc, self.grpc)):
            for _ in range(count):
                thread = threading.Thread(target=self._go_on, args=(kind,), daemon=True)
                thread.start()
                self._threads.append(thread)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(30)

    def wait_for(self, more: int, seconds: float = 30.0) -> None:
        """Until so many more answers were finished."""
        goal = len(self.finished) + more
        assert until(lambda: len(self.finished) >= goal, seconds), f"callers get no answers: {self.faults}"

    def _go_on(self, ask: Any) -> None:
        while not self._stop.is_set():
            self.asked += 1
            began = time.monotonic()
            try:
                trace_id = ask()
            except (OSError, http.client.HTTPException, CallError, ValueError) as error:
                self.faults[type(error).__name__] += 1  # it was killed under this call
                time.sleep(0.02)
                continue
            self.finished.append(trace_id)
            self.seconds.append(time.monotonic() - began)
            if self.pause:
                self._stop.wait(self.pause)

    def _over_http(self) -> str:
        trace_id = secrets.token_hex(16)
        headers = {"content-type": "application/json", "traceparent": f"00-{trace_id}-{secrets.token_hex(8)}-01"}
        with contextlib.closing(http.client.HTTPConnection(self.sidecar.http.removeprefix("http://"), timeout=20)) as c:
            c.request("POST", "/v1/chat/completions", BODY, headers)
            body = c.getresponse().read()
        if not body.rstrip().endswith(b"data: [DONE]"):
            raise ValueError("the answer was cut")
        return trace_id

    def _over_grpc(self) -> str:
        with self.sidecar.client() as client:
            answer = client.generate(MODEL, ASK, timeout=20).read()
        if not answer.finished:
            raise ValueError("the answer was cut")
        return answer.trace_id


@dataclass(frozen=True)
class Reckoning:
    """Of ``finished`` answers, how many rows of requests the store has for none, one or more."""

    finished: int
    once: int
    missing: Sequence[str]
    doubled: Sequence[str]
    attempts_wrong: int
    verified: dict[str, Any]

    @property
    def kept(self) -> bool:
        return self.once == self.finished and not self.attempts_wrong and not self.verified["stored"]["differences"]


def reckon(sidecar: Sidecar, finished: Sequence[str]) -> Reckoning:
    """Drains what is left, has the store count, and asks it for each answer that was seen."""
    drained = sidecar.outguard("store", "drain", "--timeout", "120", seconds=180)
    assert drained.returncode == 0, drained.stderr
    rows: Counter[str] = Counter()
    attempts: Counter[str] = Counter()
    for first in range(0, len(finished), ID_CHUNK):
        some = {"ids": list(finished[first : first + ID_CHUNK])}
        for table, count in (("requests", rows), ("attempts", attempts)):
            found = sidecar.reader.query(
                f"SELECT trace_id, count() AS n FROM {table} WHERE trace_id IN {{ids:Array(String)}} GROUP BY trace_id",
                some,
            )
            count.update({row["trace_id"]: int(row["n"]) for row in found})
    verified = sidecar.outguard("store", "verify", "--json", seconds=180)
    assert verified.returncode in (0, 1), verified.stderr
    return Reckoning(
        finished=len(finished),
        once=sum(rows[one] == 1 for one in finished),
        missing=[one for one in finished if not rows[one]],
        doubled=[one for one in finished if rows[one] > 1],
        attempts_wrong=sum(attempts[one] != 1 for one in finished),
        verified=json.loads(verified.stdout),
    )
