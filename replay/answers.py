"""Where the answers of a backtest come from: the trace store, an exported file, or plain lines; and how one is judged.

A plain line is a JSON object: ``text``, and where known ``id``, ``prompt``, ``json`` (the caller asked for a document),
``finish_reason``, ``token_ids``, ``policy`` and ``collapsed`` (true or false: somebody has looked at it).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from guard.config import Policy
from guard.events import CONTENT
from guard.normalise import chat_request
from guard.plan import plan_for
from guard.trace import export
from guard.trace.record import OutcomeRecord, RequestRecord
from guard.trace.store import RequestFilter, TraceReader
from replay.backtest import Answer, Stop
from replay.source import ReplayError, source_of

MOST: Final = 10_000
"""The most answers of one backtest: the newest."""


class Answers(Struct):
    """``skipped``: how many were left out, by reason."""

    found: list[Answer]
    skipped: dict[str, int]


class Line(Struct, forbid_unknown_fields=True):
    text: str
    id: str = ""
    prompt: str = ""
    json: bool = False
    finish_reason: str = ""
    token_ids: tuple[int, ...] = ()
    policy: str = ""
    collapsed: bool | None = None


def from_store(reader: TraceReader, since: float | None, most: int = MOST) -> Answers:
    """``since``: Unix seconds. Answers whose content was not kept are counted, not guessed at."""
    skipped: Counter[str] = Counter()
    recent, params = "1", {}
    if since is not None:
        recent, params = "started_at >= fromUnixTimestamp64Micro({since:Int64}, 'UTC')", {"since": round(since * 1e6)}
    for row in reader.query(f"SELECT retention, count() AS n FROM requests WHERE {recent} GROUP BY retention", params):
        if row["retention"] != "full":
            skipped[_not_kept(row["retention"])] += int(row["n"])
    heads = reader.list_requests(most, RequestFilter(since=since, retention="full"))
    worked = {
        row["trace_id"]: bool(row["ok"])
        for row in reader.query("SELECT trace_id, min(ok) AS ok FROM outcomes GROUP BY trace_id", limit=10_000_000)
    }
    return _answers(reader.get_requests(heads), worked, skipped)


def from_file(path: Path, most: int = MOST) -> Answers:
    """Raises ReplayError with the file and the line."""
    records: list[RequestRecord] = []
    outcomes: list[OutcomeRecord] = []
    plain: list[Answer] = []
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip() or len(records) + len(plain) >= most:
                    continue
                if b'"outguard_trace"' in line:
                    for exported in export.read([line], f"{path}, line {number}"):
                        records.append(exported.record)
                        outcomes += [msgspec.structs.replace(one) for one in exported.outcomes]
                else:
                    plain.append(_plain(line, f"{path}:{number}", number))
    except OSError as error:
        raise ReplayError(f"{path}: cannot be read: {error.strerror}") from error
    except export.ExportError as error:
        raise ReplayError(str(error)) from error
    worked: dict[str, bool] = {}
    for outcome in outcomes:
        worked[outcome.trace_id] = worked.get(outcome.trace_id, True) and outcome.ok
    stored = _answers(records, worked, Counter())
    return Answers([*plain, *stored.found], stored.skipped)


def stop(answer: Answer, policy: Policy) -> Stop | None:
    """Where the policy's detectors would stop the answer's content, were they enforced."""
    enforced = policy.model_copy(update={"detectors": "enforce"})
    panel = plan_for(answer.request, enforced, None).new_panel(CONTENT)
    for finding in (*panel.feed(answer.text), *panel.finish()):
        if finding.severity == "error":
            return Stop(finding.code, finding.onset, finding.detected_at)
    return None


def _plain(line: bytes, place: str, number: int) -> Answer:
    try:
        told = msgspec.json.decode(line, type=Line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ReplayError(f"{place}: is no answer: {error}") from error
    body: dict[str, Any] = {"model": "any", "messages": [{"role": "user", "content": told.prompt}]}
    if told.json:
        body["response_format"] = {"type": "json_object"}
    id_ = told.id or f"line {number}"
    request = chat_request(body, request_id=id_, protocol="replay")
    return Answer(
        id_, request, told.text, told.finish_reason, told.token_ids, told.policy, told.collapsed, "the file says so"
    )


def _answers(records: Sequence[RequestRecord], worked: dict[str, bool], skipped: Counter[str]) -> Answers:
    found: list[Answer] = []
    for record in records:
        try:
            request = source_of(record).request()
        except ReplayError:
            kept = record.request_body and record.retention == "full"
            skipped["the stored request cannot be read" if kept else _not_kept(record.retention)] += 1
            continue
        if not record.output_text:
            skipped["nothing was delivered"] += 1
            continue
        if "tool_calls" in record.finish_reason:
            skipped["it was tool calls"] += 1
            continue
        texts = [record.output_text] if record.choices == 1 else msgspec.json.decode(record.output_text, type=list[str])
        reasons = record.finish_reason.split(",")
        for choice, text in enumerate(texts):
            name = record.trace_id if len(texts) == 1 else f"{record.trace_id}:{choice}"
            ids = [a.output_token_ids for a in record.attempts if a.choice == choice and a.resumed_at < 0]
            found.append(
                Answer(
                    name,
                    request,
                    text,
                    reasons[choice] if choice < len(reasons) else "",
                    tuple(ids[-1]) if ids else (),
                    record.policy,
                    # that it worked says that it was sound; that it did not may have many reasons
                    False if worked.get(record.trace_id) else None,
                    "its caller reported that it worked",
                )
            )
    return Answers(found, dict(skipped))


def _not_kept(retention: str) -> str:
    return f"the content was not kept (retention {retention})"
