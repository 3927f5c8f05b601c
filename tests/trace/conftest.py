"""Records, a real ClickHouse server, and writer processes for the tests of the evidence."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from clickhouse_server import Server

from guard.trace.record import AttemptRecord, FindingRecord, RequestRecord

Make = Callable[..., RequestRecord]
Start = Callable[..., "subprocess.Popen[bytes]"]


def build(number: int = 0, **changes: Any) -> RequestRecord:
    """A full record; floats are such that four bytes hold them. ``number`` makes its ids."""
    draw = random.Random(number)
    now = round(time.time(), 3)
    made = RequestRecord(
        trace_id=f"{draw.getrandbits(128) | 1:032x}",
        request_id=f"req-{number}",
        started_at=now,
        span_id=f"{draw.getrandbits(64) | 1:016x}",
        protocol="http",
        kind="chat",
        tenant="acme",
        model="small",
        policy="default",
        retention="full",
        duration_ms=120.5,
        first_token_ms=12.25,
        outcome="ok",
        finish_reason="stop",
        temperature=0.5,
        seed=7,
        constraint_kind="json_schema",
        constraint_hash="abc123",
        prompt_tokens=11,
        completion_tokens=22,
        wasted_tokens=3,
        attempts_made=2,
        recovered=True,
        verdict_format="ok",
        released_chars=40,
        request_body='{"model":"small","messages":[{"role":"user","content":"Say \\"hi\\" \u2014 \U0001f600\\u0000"}]}',
        output_text='{"a": "b\n\x00c"}',
        attempts=[
            AttemptRecord(
                choice=0,
                attempt=1,
                engine="primary",
                dialect="vllm",
                engine_model="small-awq",
                engine_version="0.9",
                image="img:1.2",
                cluster="b",
                node="n1",
                precision="fp8",
                endpoint="10.0.0.1:8000",
                started_at=now,
                first_token_ms=12.25,
                duration_ms=50.0,
                chunks=9,
                concurrency_at_start=3,
                outcome="condemned",
                action="resume",
                error_kind="repetition.token",
                onset=20,
                completion_tokens=10,
                released_chars=20,
                held_chars=30,
                unenforced=["pattern"],
                contradictions=["json_schema:schema.required"],
                output_text="yes yes yes",
                output_token_ids=[draw.randrange(150_000) for _ in range(5)],
                token_logprobs=[-0.5, float("nan"), float("-inf")],
                runner_up_logprobs=[-1.5, -2.0, -3.0],
                findings=[
                    FindingRecord(
                        "repetition.token", "error", "content", 20, 60, "'yes' 14 times", 0.5, 1, 0, "primary"
                    ),
                    FindingRecord("json.truncated", "warn", "content", 60, 60, "cut", 1.0, 1, 0, "primary"),
                ],
            ),
            AttemptRecord(
                choice=0,
                attempt=2,
                engine="second",
                dialect="llamacpp",
                started_at=round(now + 0.063, 3),
                resumed_at=20,
                finish_reason="stop",
                released_chars=20,
            ),
        ],
    )
    return msgspec.structs.replace(made, **changes)


@pytest.fixture
def make() -> Make:
    return build


def same(one: Any, other: Any) -> bool:
    """Equal, where a number that is none equals itself."""
    return msgspec.msgpack.encode(one) == msgspec.msgpack.encode(other)


# --- processes -------------------------------------------------------------------------------------------------------


@pytest.fixture
def start_writer() -> Iterator[Start]:
    """Starts ``python -m guard.trace.writer`` with a pipe as its standard input; ends what is left."""
    started: list[subprocess.Popen[bytes]] = []

    def start(store: str, spool: Path | str = "", *more: str, log: Path | None = None) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "guard.trace.writer", "--store", store, *more]
        if spool:
            command += ["--spool", str(spool)]
        with open(log or os.devnull, "ab") as out:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=out)
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()
        if process.stdin:
            process.stdin.close()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Shared by all tests, which take a database each."""
    made = Server(tmp_path_factory.mktemp("clickhouse"))
    made.start()
    yield made
    made.stop()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    """For tests that stop it."""
    directory = tmp_path / "clickhouse"
    directory.mkdir()
    made = Server(directory)
    made.start()
    yield made
    made.stop()
