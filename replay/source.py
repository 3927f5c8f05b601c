"""Where the requests come from that are run again: one stored trace.

A request whose content was not kept cannot be run again; that is said, never guessed around.
"""

from __future__ import annotations

import msgspec

from guard.normalise import chat_request, completion_request
from guard.request import GenerationRequest, RequestError
from guard.trace.record import RequestRecord


class ReplayError(Exception):
    """Why there is nothing to run again."""


class Source(msgspec.Struct):
    """``output`` is what the caller got then, the first choice's text."""

    record: RequestRecord
    request: GenerationRequest
    output: str


def source_of(record: RequestRecord) -> Source:
    """Raises ReplayError."""
    if not record.request_body or record.retention != "full":
        raise ReplayError(
            f"the content of trace {record.trace_id} was not kept (retention {record.retention}): "
            "there is nothing to run again"
        )
    try:
        body = msgspec.json.decode(record.request_body)
        normalise = chat_request if record.kind == "chat" else completion_request
        request = normalise(body, request_id=record.request_id, protocol="replay")
    except (msgspec.DecodeError, RequestError) as error:
        raise ReplayError(f"the stored request of trace {record.trace_id} cannot be read: {error}") from error
    return Source(record, request, _first_output(record))


def _first_output(record: RequestRecord) -> str:
    if record.choices == 1:
        return record.output_text
    texts = msgspec.json.decode(record.output_text or "[]")
    return str(texts[0]) if texts else ""
