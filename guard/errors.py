"""Every way a request can fail, as one table: a stable code, and what it is called in HTTP, in the OpenAI API and in
gRPC."""

from __future__ import annotations

from typing import Final, NamedTuple


class ErrorKind(NamedTuple):
    http: int
    openai_type: str
    grpc: str


ERRORS: Final[dict[str, ErrorKind]] = {
    # the caller's
    "invalid_request": ErrorKind(400, "invalid_request_error", "INVALID_ARGUMENT"),
    "invalid_json": ErrorKind(400, "invalid_request_error", "INVALID_ARGUMENT"),
    "invalid_constraint": ErrorKind(400, "invalid_request_error", "INVALID_ARGUMENT"),
    "constraint_too_complex": ErrorKind(400, "invalid_request_error", "INVALID_ARGUMENT"),
    "engine_rejected": ErrorKind(400, "invalid_request_error", "INVALID_ARGUMENT"),
    "unauthenticated": ErrorKind(401, "authentication_error", "UNAUTHENTICATED"),
    "model_not_found": ErrorKind(404, "invalid_request_error", "NOT_FOUND"),
    "not_found": ErrorKind(404, "invalid_request_error", "NOT_FOUND"),
    "method_not_allowed": ErrorKind(405, "invalid_request_error", "UNIMPLEMENTED"),
    "request_too_large": ErrorKind(413, "invalid_request_error", "RESOURCE_EXHAUSTED"),
    "overloaded": ErrorKind(429, "rate_limit_error", "RESOURCE_EXHAUSTED"),
    "cancelled": ErrorKind(499, "cancelled", "CANCELLED"),
    # ours
    "internal": ErrorKind(500, "server_error", "INTERNAL"),
    # the engine's; an answer that collapsed or broke its constraint is lost data: not to be retried blindly
    "engine_error": ErrorKind(502, "server_error", "UNAVAILABLE"),
    "stream_cut": ErrorKind(502, "server_error", "UNAVAILABLE"),
    "collapsed": ErrorKind(502, "server_error", "DATA_LOSS"),
    "constraint_violated": ErrorKind(502, "server_error", "DATA_LOSS"),
    "engine_unavailable": ErrorKind(503, "server_error", "UNAVAILABLE"),
    "deadline_exceeded": ErrorKind(504, "timeout", "DEADLINE_EXCEEDED"),
    "engine_timeout": ErrorKind(504, "server_error", "UNAVAILABLE"),
}
