"""Judges recorded outputs with the very code that guards live traffic: ``outguard check --cases FILE.jsonl``.

A case is a JSON object: ``request`` (an OpenAI chat request), and either ``response`` (a ChatCompletion object) or
``stream`` (raw SSE text) with ``close`` clean, abrupt or open (never closed). ``token_ids`` may give the ids of the
output.

The action: block (the answer must not be delivered), repair (it may, changed without loss), warn, or pass.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec

from guard.check import Check
from guard.config import Policy
from guard.constraint.compile import compile_constraint
from guard.delivered import Delivered
from guard.engines.openai_reader import OpenAIReader, read_whole
from guard.events import CONTENT, REASONING, Fault, Found, Repair, StreamEvent, TextDelta
from guard.normalise import chat_request
from guard.plan import plan_for
from guard.request import RequestError


class CaseError(Exception):
    """A line that is no case: says which line and why."""


def read_cases(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                case = _decoded(line)
            except RecursionError as error:
                raise CaseError(f"{path}:{number}: is nested too deeply") from error
            except ValueError as error:
                raise CaseError(f"{path}:{number}: is not JSON: {error}") from error
            if not isinstance(case, dict):
                raise CaseError(f"{path}:{number}: must be a JSON object")
            yield case


def _decoded(line: bytes) -> Any:
    """JSON as Python reads it too: half a surrogate pair is one of the failures that are recorded in such files."""
    try:
        return msgspec.json.decode(line)
    except msgspec.DecodeError as error:
        try:
            return json.loads(line)
        except ValueError:
            raise error from None


def judge(case: dict[str, Any], policy: Policy | None = None) -> dict[str, Any]:
    """The verdict on one case, as it is printed. A case that cannot be read is blocked, with the reason as a
    finding."""
    policy = policy or Policy()
    id_ = case.get("id")
    try:
        request = chat_request(_request_body(case), request_id=_clean(str(id_)), protocol="check")
        compiled = compile_constraint(request.constraint) if request.constraint else None
        events = list(_events(case))
    except (RequestError, CaseError, RecursionError) as error:
        where = getattr(error, "param", "")
        said = "the request is nested too deeply" if isinstance(error, RecursionError) else str(error)
        finding = {
            "code": "guard.invalid_case",
            "severity": "error",
            "channel": "stream",
            "onset": 0,
            "detected_at": 0,
            "message": f"{where}: {said}" if where else said,
        }
        return {
            "id": id_,
            "action": "block",
            "findings": [finding],
            "verdicts": {"format": "none", "tool_choice": "none"},
            "repaired": None,
        }
    check = Check(msgspec.structs.replace(plan_for(request, policy, compiled), thorough=True))
    out = check.feed(events)
    guards = [judged.guard for judged in check.judged]
    repaired = any(isinstance(event, Repair) for event in out)
    blocked = any(guard.condemned is not None or guard.unsound for guard in guards)
    findings = [event.finding for event in out if isinstance(event, Found)]
    warned = any(finding.severity != "info" for finding in findings)
    verdicts = [guard.verdicts() for guard in guards]
    return {
        "id": id_,
        "action": "block" if blocked else "repair" if repaired else "warn" if warned else "pass",
        "findings": [
            {
                "code": finding.code,
                "severity": finding.severity,
                "channel": finding.channel,
                "onset": finding.onset,
                "detected_at": finding.detected_at,
                "message": finding.message,
            }
            for finding in findings
        ],
        "verdicts": {
            "format": _worst([v.format for v in verdicts]),
            "tool_choice": _worst([v.tool_choice for v in verdicts]),
        },
        "repaired": _repaired(case, check) if repaired and not blocked else None,
    }


def _request_body(case: dict[str, Any]) -> dict[str, Any]:
    body = case.get("request")
    if not isinstance(body, dict):
        raise CaseError("the case has no request object")
    return cast("dict[str, Any]", _clean({"model": "unnamed", **body}))


def _clean(value: Any) -> Any:
    """A request has no halves of surrogate pairs: no server would have taken it."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in value.items()}
    return value


def _as_sent(response: dict[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(response)
    except (UnicodeEncodeError, OverflowError):
        return json.dumps(response).encode()


def _events(case: dict[str, Any]) -> Iterator[StreamEvent]:
    if isinstance(stream := case.get("stream"), str):
        reader = OpenAIReader()
        yield from reader.feed(stream.encode("utf-8", "surrogatepass"))
        match case.get("close", "clean"):
            case "clean":
                yield from reader.end(clean=True)
            case "abrupt":
                yield from reader.end(clean=False)
            case "open":
                yield Fault("stall", "the stream was left open and nothing more came")
            case other:
                raise CaseError(f"close must be clean, abrupt or open, not {other!r}")
    elif isinstance(response := case.get("response"), dict):
        ids = case.get("token_ids")
        for event in read_whole(_as_sent(response)):
            if isinstance(ids, list) and isinstance(event, TextDelta) and event.channel == CONTENT:
                event.token_ids, ids = tuple(ids), None
            yield event
    else:
        raise CaseError("the case has neither a response object nor a stream text")


def _repaired(case: dict[str, Any], check: Check) -> dict[str, Any]:
    """The answer as it would be delivered, in the shape of a ChatCompletion."""
    base = dict(case.get("response") or {"id": "chatcmpl-checked", "object": "chat.completion", "created": 0})
    base.setdefault("model", case.get("request", {}).get("model", ""))
    base["choices"] = [
        {
            "index": judged.choice,
            "message": _message(judged.delivered),
            "finish_reason": judged.guard.reason,
        }
        for judged in check.judged
    ]
    return base


def _message(delivered: Delivered) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": delivered.text(CONTENT) or None}
    if reasoning := delivered.text(REASONING):
        message["reasoning_content"] = reasoning
    if delivered.calls:
        message["tool_calls"] = [
            {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}
            for id_, name, arguments in delivered.calls
        ]
    return message


def _worst(verdicts: list[str]) -> str:
    return max(verdicts, key=("none", "ok", "failed").index, default="none")
