"""Guard events as response messages, and the messages of a check as engine events. Pure.

Adjacent deltas of one batch that belong to the same choice and channel (or tool call) become one message; nothing else
is joined and nothing changes its place. What a message cannot hold (a lone surrogate in a text, a number out of range
that an engine made up) never fails a call: it is replaced, clamped or left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from google.protobuf.duration_pb2 import Duration
from google.protobuf.struct_pb2 import NULL_VALUE, ListValue, Struct, Value

from guard.events import (
    CONTENT,
    REASONING,
    REFUSAL,
    Failed,
    Fault,
    Finished,
    FinishReason,
    Found,
    GuardEvent,
    Recovery,
    Release,
    Repair,
    Started,
    StreamEvent,
    TextDelta,
    ToolDelta,
    ToolRelease,
    Usage,
    Verdicts,
)
from guard.request import GenerationRequest, RequestError
from guard.v1 import guard_pb2 as pb

UINT32: Final = 2**32 - 1
UINT64: Final = 2**64 - 1
INT32: Final = 2**31 - 1
INT64: Final = 2**63 - 1

_SEVERITIES: Final = {"info": pb.SEVERITY_INFO, "warn": pb.SEVERITY_WARN, "error": pb.SEVERITY_ERROR}
_VERDICTS: Final = {
    "none": pb.VERDICT_NONE,
    "ok": pb.VERDICT_OK,
    "failed": pb.VERDICT_FAILED,
    "unknown": pb.VERDICT_UNKNOWN,
}
_FAULTS: Final = {
    pb.CheckFault.KIND_ERROR_EVENT: "error_event",
    pb.CheckFault.KIND_CUT: "cut",
    pb.CheckFault.KIND_STALL: "stall",
}


class Encoder:
    """The messages of one call. ``response`` is GenerateResponse or CheckResponse; token ids and log probabilities are
    sent where ``request`` asked for them."""

    def __init__(self, response: Any, request: GenerationRequest) -> None:
        self._response = response
        self._ids = request.return_token_ids
        self._logprobs = request.sampling.logprobs
        self.trace_id = ""

    def encode(self, batch: Sequence[GuardEvent]) -> list[Any]:
        response = self._response
        out: list[Any] = []
        run: list[Any] = []
        for event in batch:
            kind = type(event)
            if kind is Release or kind is ToolRelease:
                if run and not _continues(run[-1], event):
                    out.append(response(delta=self._delta(run)))
                    run = []
                run.append(event)
                continue
            if run:
                out.append(response(delta=self._delta(run)))
                run = []
            out.append(self._other(event))
        if run:
            out.append(response(delta=self._delta(run)))
        return out

    def _delta(self, run: list[Any]) -> Any:
        first = run[0]
        if type(first) is ToolRelease:
            arguments = first.arguments if len(run) == 1 else "".join(piece.arguments for piece in run)
            call = pb.ToolCallDelta(index=_count(first.index, UINT32), arguments=_text(arguments))
            if first.id is not None:
                call.id = _text(first.id)
            if first.name is not None:
                call.name = _text(first.name)
            return pb.Delta(choice=first.choice, tool_call=call)
        text = first.text if len(run) == 1 else "".join(piece.text for piece in run)
        delta = pb.Delta(choice=first.choice)
        if first.channel == CONTENT:
            delta.content = _text(text)
        elif first.channel == REASONING:
            delta.reasoning = _text(text)
        elif first.channel == REFUSAL:
            delta.refusal = _text(text)
        if self._ids:
            for piece in run:
                delta.token_ids.extend(id_ for id_ in piece.token_ids or () if 0 <= id_ <= UINT32)
        if self._logprobs:
            for piece in run:
                delta.logprobs.extend(_logprob(entry) for entry in piece.logprobs or ())
        return delta

    def _other(self, event: GuardEvent) -> Any:
        response = self._response
        match event:
            case Started():
                self.trace_id = _text(event.trace_id)
                return response(
                    started=pb.Started(
                        request_id=_text(event.request_id),
                        trace_id=self.trace_id,
                        model=_text(event.model),
                        engine=_text(event.engine),
                    )
                )
            case Recovery():
                return response(recovery=_recovery(event))
            case Found():
                return response(finding=_finding(event))
            case Repair():
                return response(
                    repair=pb.Repair(choice=event.choice, code=_text(event.code), message=_text(event.message))
                )
            case Finished():
                return response(finished=self._finished(event))
            case Failed():
                return response(failed=self._failed(event))
        raise TypeError(f"{type(event).__name__} is no guard event")

    def _finished(self, event: Finished) -> Any:
        message = pb.Finished(
            choice=event.choice,
            finish_reason=_text(event.reason),
            usage=_usage(event.usage, event.wasted_tokens),
            verdicts=_verdicts(event.verdicts),
            attempts=_count(event.attempts, UINT32),
            trace_id=self.trace_id,
        )
        if isinstance(event.matched_stop, str):
            message.matched_stop_text = _text(event.matched_stop)
        elif event.matched_stop is not None:
            message.matched_stop_token = max(-INT64, min(event.matched_stop, INT64))
        return message

    def _failed(self, event: Failed) -> Any:
        message = pb.Failed(
            choice=event.choice,
            code=_text(event.code),
            message=_text(event.message),
            attempts=_count(event.attempts, UINT32),
            verdicts=_verdicts(event.verdicts),
            usage=_usage(event.usage),
            trace_id=self.trace_id,
        )
        if event.engine_status is not None:
            message.engine_status = max(-INT32, min(event.engine_status, INT32))
        if event.retry_after is not None:
            message.retry_after.CopyFrom(duration(event.retry_after))
        return message


def _continues(last: Any, event: Any) -> bool:
    if type(last) is not type(event) or last.choice != event.choice:
        return False
    if type(event) is Release:
        return bool(last.channel == event.channel)
    return last.index == event.index and event.id is None and event.name is None


def _recovery(event: Recovery) -> Any:
    return pb.Recovery(
        choice=event.choice,
        attempt=_count(event.attempt, UINT32),
        action=_text(event.action),
        from_engine=_text(event.from_engine),
        to_engine=_text(event.to_engine),
        reason=_text(event.reason),
        channel=_text(event.channel),
        offset=_count(event.offset, UINT64),
    )


def _finding(event: Found) -> Any:
    finding = event.finding
    return pb.Finding(
        choice=event.choice,
        code=_text(finding.code),
        severity=_SEVERITIES.get(finding.severity, pb.SEVERITY_UNSPECIFIED),
        message=_text(finding.message),
        channel=_text(finding.channel),
        onset=_count(finding.onset, UINT64),
        detected_at=_count(finding.detected_at, UINT64),
        confidence=finding.confidence,
        evidence=_struct(_for_callers(finding.evidence)) if finding.evidence else None,
        engine=_text(event.engine),
        attempt=_count(event.attempt, UINT32),
    )


def _usage(usage: Usage, wasted: int = 0) -> Any:
    return pb.Usage(
        prompt_tokens=_count(usage.prompt_tokens, UINT64),
        completion_tokens=_count(usage.completion_tokens, UINT64),
        total_tokens=_count(usage.total_tokens, UINT64),
        cached_tokens=_count(usage.cached_tokens, UINT64),
        reasoning_tokens=_count(usage.reasoning_tokens, UINT64),
        wasted_tokens=_count(wasted, UINT64),
        estimated=usage.estimated,
    )


def _verdicts(verdicts: Verdicts) -> Any:
    return pb.Verdicts(
        format=_VERDICTS.get(verdicts.format, pb.VERDICT_UNSPECIFIED),
        tool_choice=_VERDICTS.get(verdicts.tool_choice, pb.VERDICT_UNSPECIFIED),
        execution=_VERDICTS.get(verdicts.execution, pb.VERDICT_UNSPECIFIED),
    )


def _logprob(entry: Mapping[str, Any], *, nested: bool = False) -> Any:
    """An OpenAI entry. Engines leave out what they do not have, and send null or NaN for what they cannot compute."""
    token = entry.get("token")
    value = entry.get("logprob")
    message = pb.TokenLogprob(
        token=_text(token) if isinstance(token, str) else "",
        logprob=float(value) if isinstance(value, int | float) else math.nan,
    )
    raw = entry.get("bytes")
    if isinstance(raw, list) and all(isinstance(byte, int) and 0 <= byte <= 255 for byte in raw):
        message.token_bytes = bytes(raw)
    top = entry.get("top_logprobs")
    if not nested and isinstance(top, list):
        message.top.extend(_logprob(one, nested=True) for one in top if isinstance(one, Mapping))
    return message


def duration(seconds: float) -> Any:
    whole = max(0.0, min(seconds, 1e9)) if math.isfinite(seconds) else 0.0
    message = Duration()
    message.FromNanoseconds(round(whole * 1e9))
    return message


def _count(value: int, most: int) -> int:
    return 0 if value < 0 else min(value, most)


def _text(text: str) -> str:
    """UTF-8 has no lone surrogates: each becomes U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _for_callers(evidence: Mapping[str, Any]) -> dict[str, Any]:
    """Without what names another caller's request."""
    return {name: value for name, value in evidence.items() if name != "other_request"}


def _struct(values: Mapping[str, Any]) -> Any:
    return Struct(fields={_text(str(name)): _value(value) for name, value in values.items()})


def _value(value: Any) -> Any:
    match value:
        case None:
            return Value(null_value=NULL_VALUE)
        case bool():
            return Value(bool_value=value)
        case int() | float() if math.isfinite(value):
            return Value(number_value=value)
        case str():
            return Value(string_value=_text(value))
        case Mapping():
            return Value(struct_value=_struct(value))
        case list() | tuple() | set() | frozenset():
            return Value(list_value=ListValue(values=[_value(one) for one in value]))
    return Value(string_value=_text(str(value)))


# --- the messages of a check -----------------------------------------------------------------------------------------


def stream_events(message: pb.CheckEvents, n: int) -> list[StreamEvent]:
    """What the caller's engine said, of ``n`` choices. Raises RequestError with the path of the wrong field."""
    events: list[StreamEvent] = []
    for i, one in enumerate(message.events):
        path = f"events.events[{i}]"
        event = _stream_event(one, path)
        if getattr(event, "choice", 0) >= n:
            raise RequestError(
                f"must be below n, which is {n}", f"{path}.{one.WhichOneof('event')}.choice", "out_of_range"
            )
        events.append(event)
    return events


def _stream_event(event: pb.CheckEvent, path: str) -> StreamEvent:
    match event.WhichOneof("event"):
        case "delta":
            return _stream_delta(event.delta, f"{path}.delta")
        case "finish":
            finish = event.finish
            if not finish.finish_reason:
                raise RequestError("is missing", f"{path}.finish.finish_reason", "missing_required_parameter")
            stop = finish.WhichOneof("matched_stop")
            return FinishReason(finish.choice, finish.finish_reason, getattr(finish, stop) if stop else None)
        case "usage":
            usage = event.usage
            return Usage(
                usage.prompt_tokens,
                usage.completion_tokens,
                usage.total_tokens or usage.prompt_tokens + usage.completion_tokens,
                usage.cached_tokens,
                usage.reasoning_tokens,
            )
        case "fault":
            kind = _FAULTS.get(event.fault.kind)
            if kind is None:
                raise RequestError("must be one of error_event, cut and stall", f"{path}.fault.kind")
            return Fault(kind, event.fault.message)
    raise RequestError("one of delta, finish, usage and fault must be set", path, "missing_required_parameter")


def _stream_delta(delta: pb.Delta, path: str) -> StreamEvent:
    ids = tuple(delta.token_ids) or None
    piece = delta.WhichOneof("piece")
    if piece == "tool_call":
        call = delta.tool_call
        return ToolDelta(
            delta.choice,
            call.index,
            id=call.id if call.HasField("id") else None,
            name=call.name if call.HasField("name") else None,
            arguments=call.arguments,
            token_ids=ids,
        )
    if piece is None and not (ids or delta.logprobs):
        raise RequestError("must hold a piece", path, "missing_required_parameter")
    channel = {None: CONTENT, "content": CONTENT, "reasoning": REASONING, "refusal": REFUSAL}[piece]
    text = getattr(delta, piece) if piece else ""
    return TextDelta(delta.choice, channel, text, ids, logprob_entries(delta.logprobs))


def logprob_entries(messages: Iterable[pb.TokenLogprob]) -> list[dict[str, Any]] | None:
    """The OpenAI entries that ``_logprob`` was made from; None when there are none."""
    return [
        {
            "token": one.token,
            "logprob": one.logprob,
            "bytes": list(one.token_bytes) if one.HasField("token_bytes") else None,
            "top_logprobs": logprob_entries(one.top) or [],
        }
        for one in messages
    ] or None
