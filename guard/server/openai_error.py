"""Errors in the shape of the OpenAI API: {"error": {"message", "type", "param", "code"}}, with a status that the SDKs
turn into their own exceptions.

A status says whose fault it was and whether to try again: ``retry-after`` on 429 and 503, and ``x-should-retry: false``
where the guard has already tried what there was to try (the SDKs would repeat a 502 blindly).
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import msgspec

from guard.errors import ERRORS, ErrorKind
from guard.events import Failed
from guard.request import RequestError
from guard.server.asgi import JSON, Headers

FINAL: Final = frozenset({"collapsed", "constraint_violated"})
"""Codes after which the same request would only cost the same again."""

MAX_MESSAGE: Final = 500


class ErrorReply(NamedTuple):
    """``body`` is the whole JSON document; in a stream it is the data of the last event."""

    status: int
    body: bytes
    headers: Headers


def reply(
    code: str,
    message: str,
    param: str = "",
    *,
    status: int | None = None,
    retry_after: float | None = None,
    extension: dict[str, Any] | None = None,
) -> ErrorReply:
    """``code`` is looked up in the table of errors; one that is not there is the server's mistake (500)."""
    kind = ERRORS.get(code) or ERRORS["internal"]
    return _reply(kind, code, message, param, status=status, retry_after=retry_after, extension=extension)


def _reply(
    kind: ErrorKind,
    code: str,
    message: str,
    param: str = "",
    *,
    status: int | None = None,
    retry_after: float | None = None,
    extension: dict[str, Any] | None = None,
) -> ErrorReply:
    status = status or kind.http
    error: dict[str, Any] = {"message": message, "type": kind.openai_type, "param": param or None, "code": code}
    if extension is not None:
        error["outguard"] = extension
    headers: Headers = [(b"content-type", JSON)]
    if status in (429, 503):
        headers.append((b"retry-after", b"%d" % max(1, math.ceil(retry_after or 1))))
    if code in FINAL:
        headers.append((b"x-should-retry", b"false"))
    return ErrorReply(status, encode({"error": error}), headers)


def from_request_error(error: RequestError) -> ErrorReply:
    """A code that is not in the table (which field was wrong, and how) is the caller's mistake (400)."""
    kind = ERRORS.get(error.code) or ERRORS["invalid_request"]
    message = error.message
    if error.param and not message.startswith(error.param):
        message = f"{error.param}: {message}"
    told = {"trace_id": error.trace_id} if error.trace_id else None
    found = _reply(
        kind, error.code, _short(message), _short(error.param), retry_after=error.retry_after, extension=told
    )
    if told is None:
        return found
    return found._replace(headers=[*found.headers, (b"x-outguard-trace-id", error.trace_id.encode())])


def from_failed(failed: Failed, choices: int, extension: dict[str, Any]) -> ErrorReply:
    """An engine that refused the request keeps its own 4xx: it knows best what was wrong."""
    own = failed.engine_status
    status = own if failed.code == "engine_rejected" and own is not None and 400 <= own < 500 else None
    message = failed.message if choices == 1 else f"choice {failed.choice} of {choices}: {failed.message}"
    return reply(failed.code, message, status=status, retry_after=failed.retry_after, extension=extension)


def _short(text: str) -> str:
    """A caller's own words come back in errors, but not by the megabyte."""
    return text if len(text) <= MAX_MESSAGE else text[:MAX_MESSAGE] + "…"


def encode(value: Any) -> bytes:
    """JSON; a lone surrogate, which UTF-8 cannot carry, becomes U+FFFD."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_clean(value))


def _clean(value: Any) -> Any:
    match value:
        case str():
            return value.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
        case dict():
            return {_clean(key): _clean(item) for key, item in value.items()}
        case list() | tuple():
            return [_clean(item) for item in value]
    return value
