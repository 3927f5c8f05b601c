"""Errors as google.rpc.Status with details: ErrorInfo always, BadRequest where a field is wrong, RetryInfo where it
is known when to come again. Pure.

Status and details travel in trailers, which clients limit to 8 KiB in all: texts are cut to fit.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc import code_pb2, error_details_pb2, status_pb2

from guard.errors import ERRORS
from guard.events import Failed
from guard.request import RequestError
from guard.server.grpc_events import duration

DOMAIN: Final = "outguard"
MAX_MESSAGE_BYTES: Final = 1000
MAX_FIELD_BYTES: Final = 200


def request_error_status(error: RequestError) -> Any:
    """A code that the table does not have is a finer word for the caller's mistake."""
    kind = ERRORS.get(error.code) or ERRORS["invalid_request"]
    text = f"{error.param}: {error.message}" if error.param else error.message
    details: list[Any] = [_info(error.code, {"trace_id": error.trace_id})]
    if error.param:
        violation = error_details_pb2.BadRequest.FieldViolation(
            field=_cut(error.param, MAX_FIELD_BYTES), description=_cut(error.message), reason=_cut(error.code)
        )
        details.append(error_details_pb2.BadRequest(field_violations=[violation]))
    if error.retry_after is not None:
        details.append(error_details_pb2.RetryInfo(retry_delay=duration(error.retry_after)))
    return _status(kind.grpc, text, details)


def failed_status(failed: Failed, trace_id: str, choices: int = 1) -> Any:
    """A code that the table does not have is a mistake of ours."""
    kind = ERRORS.get(failed.code) or ERRORS["internal"]
    metadata = {"attempts": str(failed.attempts)}
    if trace_id:
        metadata["trace_id"] = trace_id
    if failed.engine_status is not None:
        metadata["engine_status"] = str(failed.engine_status)
    details: list[Any] = [_info(failed.code, metadata)]
    if failed.retry_after is not None:
        details.append(error_details_pb2.RetryInfo(retry_delay=duration(failed.retry_after)))
    text = failed.message if choices == 1 else f"choice {failed.choice} of {choices}: {failed.message}"
    return _status(kind.grpc, text, details)


def internal_status(trace_id: str = "") -> Any:
    """The cause stays in the log: it may hold what is nobody's business."""
    return _status("INTERNAL", "an internal error; it is logged", [_info("internal", {"trace_id": trace_id})])


def _info(code: str, metadata: dict[str, str]) -> Any:
    return error_details_pb2.ErrorInfo(
        reason=_cut(code), domain=DOMAIN, metadata={name: _cut(text) for name, text in metadata.items() if text}
    )


def _status(code: str, message: str, details: list[Any]) -> Any:
    packed = []
    for detail in details:
        packed.append(AnyMessage())
        packed[-1].Pack(detail)
    return status_pb2.Status(code=code_pb2.Code.Value(code), message=_cut(message), details=packed)


def _cut(text: str, most: int = MAX_MESSAGE_BYTES) -> str:
    raw = text.encode("utf-8", "replace")
    return raw.decode() if len(raw) <= most else raw[: most - 3].decode("utf-8", "ignore") + "..."
