"""The strictest wish holds, and what may not be kept is not there: by its place, and by a search for its bytes."""

from __future__ import annotations

import asyncio
import hmac
import itertools
import logging
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from guard.trace.record import AttemptRecord, FindingRecord, OutcomeRecord, RequestRecord
from guard.trace.retention import RetentionRules, fingerprint, prompt_of, reduce, reduce_outcome, strictest
from guard.trace.spans import spans
from guard.trace.spool import Spool
from guard.trace.store import open_store
from guard.trace.tracing import Tracing

Make = Callable[..., RequestRecord]
KEY = b"k" * 32
CANARY = "Canary-7f3a-\u00fc\u4e2d-Kanarie"

TEXT_FIELDS = {
    RequestRecord: {"request_body", "output_text", "error_message", "finish_reason", "error_code"},
    AttemptRecord: {"output_text", "error_message", "error_kind", "finish_reason", "unenforced", "contradictions"},
    FindingRecord: {"message", "code"},
}
"""Where words of a prompt, an answer or an error can come to stand. Every other text names something configured."""

CONFIGURED = {
    RequestRecord: {
        *("trace_id", "request_id", "span_id", "parent_span_id", "trace_state", "protocol", "kind", "tenant", "model"),
        *("policy", "retention", "outcome", "constraint_kind", "constraint_hash", "verdict_format"),
        *("verdict_tool_choice", "prompt_fingerprint", "output_fingerprint", "service", "guard_version"),
    },
    AttemptRecord: {
        *("engine", "dialect", "engine_model", "engine_version", "image", "cluster", "node", "precision", "endpoint"),
        *("tokenizer_hash", "template_hash", "outcome", "action", "output_fingerprint", "prefix_hint"),
    },
    FindingRecord: {"severity", "channel", "engine"},
}


def spoilt() -> RequestRecord:
    """A record whose every text that can quote holds the canary."""
    now = time.time()
    finding = FindingRecord(CANARY, "error", "content", 1, 2, f"the text {CANARY} repeats")
    attempt = AttemptRecord(
        choice=0,
        attempt=1,
        engine="primary",
        started_at=now,
        output_text=CANARY,
        error_message=f"engine said: {CANARY}",
        error_kind=f"{CANARY}",
        finish_reason=CANARY,
        unenforced=["pattern", CANARY, f"json_schema:{CANARY}"],
        contradictions=["json_schema:schema.required", f"json_schema:{CANARY}", f"schema.{CANARY}"],
        output_token_ids=[1, 2, 3],
        token_logprobs=[-0.5],
        runner_up_logprobs=[-1.0],
        findings=[finding],
    )
    return RequestRecord(
        trace_id="ab" * 16,
        span_id="cd" * 8,
        request_id="req-1",
        started_at=now,
        tenant="acme",
        model="small",
        retention="full",
        outcome="failed",
        error_code="collapsed",
        error_message=f"it repeated {CANARY}",
        finish_reason=f"stop,{CANARY}",
        request_body='{"messages":[{"role":"user","content":"' + CANARY + '"}]}',
        output_text=CANARY,
        attempts=[attempt],
    )


@pytest.mark.parametrize("length", [1, 32, 64, 65, 200])
def test_a_fingerprint_is_half_an_hmac_of_sha256(length: int) -> None:
    key = bytes(range(200))[:length]
    for text in ("a", "\u00e9" * 500):
        assert fingerprint(key, text) == hmac.new(key, text.encode(), "sha256").hexdigest()[:32]


def test_the_strictest_holds() -> None:
    order = ["none", "hash", "full"]
    for wishes in itertools.product(order, repeat=3):
        assert strictest(*wishes) == min(wishes, key=order.index)
    assert strictest("everything please", "full") == "none"
    assert strictest() == "none"


def test_config_tenant_and_caller() -> None:
    rules = RetentionRules(default="hash", most="full", tenants={"bank": "none", "lab": "full"})
    assert rules.effective() == "hash"
    assert rules.effective(asked="full") == "full"
    assert rules.effective("bank", "full") == "none"
    assert rules.effective("lab") == "hash"  # a tenant's line lowers, it does not raise
    assert RetentionRules(most="hash").effective("x", "full") == "hash"
    assert RetentionRules().effective() == "none"


def test_full_keeps_everything_and_adds_fingerprints(make: Make) -> None:
    record = make(1)
    kept = reduce(record, "full", KEY)
    assert kept.request_body == record.request_body
    assert kept.attempts[0].output_text == record.attempts[0].output_text
    assert kept.attempts[0].findings == record.attempts[0].findings
    hashed = reduce(record, "hash", KEY)
    assert kept.prompt_fingerprint == hashed.prompt_fingerprint != ""
    assert kept.output_fingerprint == hashed.output_fingerprint != ""
    assert kept.attempts[0].output_fingerprint == hashed.attempts[0].output_fingerprint != ""


def test_hash_compares_and_nothing_else() -> None:
    one = reduce(spoilt(), "hash", KEY)
    assert len(one.prompt_fingerprint) == len(one.output_fingerprint) == 32
    assert one.output_fingerprint == one.attempts[0].output_fingerprint
    assert one.output_fingerprint == reduce(spoilt(), "hash", KEY).output_fingerprint
    assert one.output_fingerprint != reduce(spoilt(), "hash", b"another key").output_fingerprint
    assert fingerprint(KEY, "") == ""


def test_equal_prompts_are_equal_however_they_were_written() -> None:
    body = '{"model":"a","temperature":0,"messages":[{"role":"user","content":"hi"}],"tools":[{"x":1,"y":2}]}'
    same = '{ "tools": [{"y": 2, "x": 1}], "messages": [{"content": "hi", "role": "user"}], "model": "b", "n": 2 }'
    assert prompt_of(body) == prompt_of(same)
    assert prompt_of(body) != prompt_of(body.replace("hi", "ho"))
    assert prompt_of("no json") == b"no json"
    assert prompt_of("[1]") == b"[1]"


@pytest.mark.parametrize("retention", ["hash", "none", "nonsense", ""])
def test_no_byte_of_content_is_left(retention: str) -> None:
    kept = reduce(spoilt(), retention, KEY)
    data = msgspec.msgpack.encode(kept)
    assert CANARY.encode() not in data
    assert b"Canary" not in data
    attempt = kept.attempts[0]
    assert (attempt.output_token_ids, attempt.token_logprobs, attempt.runner_up_logprobs) == ([], [], [])
    assert kept.finish_reason == "stop,other"
    assert attempt.contradictions == ["json_schema:schema.required", "other", "other"]
    assert attempt.unenforced == ["pattern", "other", "other"]
    assert kept.error_code == "collapsed"
    if retention != "hash":
        assert (kept.prompt_fingerprint, kept.output_fingerprint, attempt.output_fingerprint) == ("", "", "")
        assert kept.retention == "none"


def test_names_that_nobody_configured_are_a_callers_text() -> None:
    asked = RequestRecord("1" * 32, "r", 1.0, model="any-words", policy="more-words", error_code="model_not_found")
    kept = reduce(asked, "none", KEY)
    assert (kept.model, kept.policy) == ("other", "other")
    asked.error_code, asked.policy = "invalid_request", ""
    kept = reduce(asked, "none", KEY)
    assert (kept.model, kept.policy) == ("any-words", "")


def test_the_record_that_was_given_stays_as_it_was() -> None:
    record = spoilt()
    before = msgspec.msgpack.encode(record)
    reduce(record, "none", KEY)
    assert msgspec.msgpack.encode(record) == before


@pytest.mark.parametrize("kind", [RequestRecord, AttemptRecord, FindingRecord])
def test_every_text_is_known_to_be_content_or_not(kind: Any) -> None:
    """A field that is added must be sorted: into what is taken out, or into what names something configured."""
    texts = {
        field.name
        for field in msgspec.structs.fields(kind)
        if "str" in str(field.type) and "Record" not in str(field.type)
    }
    assert texts == TEXT_FIELDS[kind] | CONFIGURED[kind]


def test_what_a_caller_tells_of_a_tool_call() -> None:
    told = OutcomeRecord("t", "call_1", 1.0, False, CANARY)
    assert reduce_outcome(told, "full") == told
    assert reduce_outcome(told, "none") == OutcomeRecord("t", "call_1", 1.0, False, "")
    assert reduce_outcome(OutcomeRecord("t", CANARY, 1.0, True), "hash").tool_call_id == "other"


def test_spans_hold_no_text_even_of_full_records() -> None:
    record = spoilt()
    record.finish_reason, record.attempts[0].finish_reason, record.attempts[0].error_kind = "stop", "stop", "cut"
    record.attempts[0].unenforced, record.attempts[0].contradictions = [], []
    record.attempts[0].findings[0].code = "repetition.token"
    assert CANARY not in str(spans(record))


@pytest.mark.parametrize("retention", ["none", "hash", "full"])
async def test_the_canary_is_in_no_byte_that_is_kept(
    retention: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """The whole way: worker, spool, writer, store, metrics, logs. ``full`` shows that the search would find it."""
    rules = RetentionRules(default="full", most="full", tenants={"acme": retention})
    caplog.set_level(logging.DEBUG)
    tracing = Tracing(f"chdb://{tmp_path / 'store'}", tmp_path / "spool", retention=rules)
    tracing.write(spoilt())
    tracing.write_outcome(OutcomeRecord("ab" * 16, "call_1", time.time(), False, CANARY))
    tracing.write_outcome(OutcomeRecord("ef" * 16, "call_2", time.time(), False, CANARY))  # of a trace nobody knows
    spooled = _every_byte(tmp_path / "spool")
    page = tracing.metrics_page()[1]
    await tracing.start()
    stored = await asyncio.to_thread(_dump, f"chdb://{tmp_path / 'store'}", tmp_path / "spool")
    await tracing.aclose()
    needle = CANARY.encode()
    assert CANARY not in caplog.text
    assert CANARY not in capfd.readouterr().err  # the writer's own log
    assert (needle in spooled, CANARY in stored) == ((True, True) if retention == "full" else (False, False))
    if retention != "full":
        assert needle not in page
        assert b"Canary" not in _every_byte(tmp_path)


def _every_byte(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in directory.rglob("*") if path.is_file())


def _dump(dsn: str, spool: Path) -> str:
    with open_store(dsn, spool) as reader:
        assert reader.flush(30)
        tables = ("requests", "attempts", "findings", "outcomes")
        rows = {table: reader.query(f"SELECT * FROM {table}") for table in tables}
    assert len(rows["requests"]) == len(rows["attempts"]) == 1
    assert len(rows["outcomes"]) == 2
    assert next(row for row in rows["outcomes"] if row["tool_call_id"] == "call_2")["detail"] == ""
    return str(rows)


def test_a_refused_row_is_not_quoted_in_the_log(tmp_path: Path, server: Any) -> None:
    """The store's own words about a row it cannot parse quote the row."""
    spool = Spool(tmp_path / "spool")
    record = spoilt()
    record.released_chars = -5
    spool.write(record)
    spool.close()
    log = tmp_path / "log"
    with open(log, "wb") as out:
        command = [sys.executable, "-m", "guard.trace.writer", "--store", server.dsn("refusals")]
        subprocess.run([*command, "--spool", spool.root], stdin=subprocess.DEVNULL, stderr=out, timeout=30, check=True)
    said = log.read_text()
    assert "was set aside" in said
    assert "Canary" not in said
    aside = list((tmp_path / "spool" / "aside").glob("*-requests-0.row"))
    assert len(aside) == 1
    assert CANARY.encode() in aside[0].read_bytes()
    assert aside[0].stat().st_mode & 0o077 == 0
