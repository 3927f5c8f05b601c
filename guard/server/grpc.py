"""The gRPC server: guard.v1.Guard over the service, with health and reflection.

Rules:

- A call whose only choice failed (or none of whose choices finished) ends with that failure's status and details; it is
  not also an event. With n > 1 each failed choice is an event, and the call is OK when at least one finished.
- A caller that goes away, or whose deadline passes, closes the service's iterator at once.
- What goes wrong inside is logged and is INTERNAL to the caller, without its cause.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final, NoReturn

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from grpc_health.v1 import health, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from grpc_status import rpc_status
from msgspec import structs

from guard.engines.openai_reader import OpenAIReader
from guard.events import CONTENT, Closed, Done, Failed, Finished, FinishReason, GuardEvent, StreamEvent, TextDelta
from guard.normalise import apply_headers
from guard.request import GenerationRequest, RequestError
from guard.server.grpc_error import failed_status, internal_status, request_error_status
from guard.server.grpc_events import Encoder, stream_events
from guard.server.grpc_health import HealthServicer
from guard.server.grpc_outbox import Outbox
from guard.server.grpc_request import generation_request, headers, own_error
from guard.service import CheckSession, Outcome, Service
from guard.v1 import guard_pb2 as pb

SERVICE: Final = pb.DESCRIPTOR.services_by_name["Guard"]
NAME: Final = SERVICE.full_name
DEFAULT_MAX_MESSAGE_BYTES: Final = 20_000_000
DEADLINE_MARGIN_S: Final = 0.02
"""The service's deadline is this much before the call's own, so that it can still say and record what passed."""
LEAVING_S: Final = 0.02
"""A caller that goes away looks as if it had half-closed, until its call is cancelled a moment later."""

_TRACE_ID: Final = re.compile("[0-9a-fA-F]{32}")

log = logging.getLogger(__name__)


def create_server(
    service: Service,
    *,
    address: str,
    api_keys: Sequence[str] = (),
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES,
    shared: bool = False,
) -> tuple[grpc.aio.Server, int]:
    """A server that is bound to ``address`` (host:port, port 0 for any free one) and not started, and its port.

    Call it where the event loop runs. With ``api_keys``, calls must carry one of them as ``authorization: Bearer KEY``;
    health and reflection ask for none. A larger message than ``max_message_bytes`` is RESOURCE_EXHAUSTED. ``shared``:
    other workers serve the port as well; else a second server on it is a mistake, not a share of the calls. Raises
    RuntimeError when the address cannot be had.
    """
    server = grpc.aio.server(
        options=[
            ("grpc.max_receive_message_length", max_message_bytes),
            ("grpc.max_send_message_length", max_message_bytes),
            ("grpc.so_reuseport", int(shared)),
            # a model may think for minutes before its first token; callers may ask meanwhile whether we are there
            ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
            ("grpc.keepalive_permit_without_calls", 1),
        ]
    )
    server.add_generic_rpc_handlers((_handlers(GuardServicer(service, api_keys)),))
    health_pb2_grpc.add_HealthServicer_to_server(HealthServicer(service.ready, (NAME,)), server)
    reflection.enable_server_reflection((NAME, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
    return server, server.add_insecure_port(address)


def _handlers(servicer: GuardServicer) -> grpc.GenericRpcHandler:
    """The generated registration but for one thing: bytes that are no message are the caller's mistake. gRPC itself
    would answer UNKNOWN."""
    handlers = {}
    for method in SERVICE.methods:
        shape = "_".join("stream" if many else "unary" for many in (method.client_streaming, method.server_streaming))
        handlers[method.name] = getattr(grpc, f"{shape}_rpc_method_handler")(
            getattr(servicer, method.name),
            request_deserializer=_reader(getattr(pb, method.input_type.name)),
            response_serializer=getattr(pb, method.output_type.name).SerializeToString,
        )
    return grpc.method_handlers_generic_handler(NAME, handlers)


def _reader(kind: Any) -> Callable[[bytes], Any]:
    def read(data: bytes) -> Any:
        try:
            return kind.FromString(data)
        except DecodeError as error:
            return RequestError(f"the message is no {kind.DESCRIPTOR.full_name}: {error}")

    return read


class GuardServicer:
    def __init__(self, service: Service, api_keys: Sequence[str] = ()) -> None:
        self._service = service
        self._keys = tuple(key.encode() for key in api_keys)

    async def Generate(self, message: pb.GenerateRequest, context: Any) -> None:
        try:
            self._authenticate(context)
            request = _request(_message(message), context)
        except RequestError as error:
            await _abort(context, request_error_status(error))
        encoder = Encoder(pb.GenerateResponse, request)
        outbox = Outbox(encoder.encode, context.write)
        ends: list[Finished | Failed] = []
        problem: Any = None
        stream = self._service.generate(request, outbox)
        try:
            async for batch in stream:
                ends.extend(event for event in batch if isinstance(event, Finished | Failed))
                if request.n == 1 and ends and isinstance(ends[-1], Failed):
                    batch = [event for event in batch if not isinstance(event, Failed)]
                await outbox.write(batch)
        except RequestError as error:
            problem = request_error_status(own_error(error))
        except Exception:
            if context.done():
                return  # the caller went away while we wrote
            log.exception("the generation of request %s ended in an exception", request.id)
            problem = internal_status(encoder.trace_id)
        finally:
            outbox.close()
            await _close(stream)
        if problem is None and not any(isinstance(end, Finished) for end in ends):
            # a service that gave no choice an end has broken its contract
            failed = next((end for end in ends if isinstance(end, Failed)), None)
            problem = (
                failed_status(failed, encoder.trace_id, request.n) if failed else internal_status(encoder.trace_id)
            )
        if problem is not None:
            await _abort(context, problem)

    async def Check(self, messages: AsyncIterator[pb.CheckRequest], context: Any) -> None:
        problem: Any = None
        try:
            self._authenticate(context)
            await self._check(messages, context)
        except RequestError as error:
            problem = request_error_status(own_error(error))
        except Exception:
            if context.done():
                return
            log.exception("a check ended in an exception")
            problem = internal_status()
        if problem is not None:
            await _abort(context, problem)

    async def _check(self, messages: AsyncIterator[pb.CheckRequest], context: Any) -> None:
        """The header opens the session, which goes on record however the call ends."""
        async for message in messages:
            if _message(message).WhichOneof("message") != "header":
                break
            request = _request(message.header.request, context, check=True)
            session = await self._service.check(request)
            try:
                await self._judge(session, request, messages, context)
            finally:
                session.abandon()
            return
        raise RequestError("the first message must be the header", "header", "missing_required_parameter")

    async def _judge(
        self, session: CheckSession, request: GenerationRequest, messages: AsyncIterator[pb.CheckRequest], context: Any
    ) -> None:
        encoder = Encoder(pb.CheckResponse, request)
        missing = set(range(request.n))
        seen: set[int] = set()
        told: set[int] = set()  # the choices that have a finish reason
        reader: OpenAIReader | None = None
        async for message in messages:
            kind = _message(message).WhichOneof("message")
            events: list[StreamEvent] = []
            match kind:
                case "header":
                    raise RequestError("a second header", "header")
                case "events":
                    events = stream_events(message.events, request.n)
                case "openai_sse":
                    reader = reader or OpenAIReader()
                    events = reader.feed(message.openai_sse)
                case _:
                    raise RequestError("one of header, events and openai_sse must be set", "message")
            if not events:
                continue
            seen |= _choices(events)
            told |= _choices([event for event in events if isinstance(event, FinishReason)])
            out = session.feed(events)
            await _write(context, encoder, out)
            missing -= _choices([event for event in out if isinstance(event, Finished | Failed)])
            if not missing:
                session.close()
                return
        if missing - told:
            await asyncio.sleep(LEAVING_S)  # ends in a cancellation where the caller did not half-close, but left
        # half-closing is this form's own end mark; an event stream has one of its own
        last: list[StreamEvent] = [Done()]
        if reader is not None:
            last = [event for event in reader.end() if not isinstance(event, Closed)]
        # a choice of which nothing came is one that did not finish, and is said to be
        silent = missing - seen - _choices(last)
        last = [*(TextDelta(choice, CONTENT, "") for choice in sorted(silent)), *last]
        out = session.feed(last) if last else []
        await _write(context, encoder, [*out, *session.close()])

    async def ReportOutcome(self, message: pb.ReportOutcomeRequest, context: Any) -> Any:
        return await self._once(context, self._report, message)

    async def ListEngines(self, message: pb.ListEnginesRequest, context: Any) -> Any:
        return await self._once(context, self._engines, message)

    async def _once(self, context: Any, answer: Callable[[Any], Awaitable[Any]], message: Any) -> Any:
        try:
            self._authenticate(context)
            return await answer(_message(message))
        except RequestError as error:
            problem = request_error_status(error)
        except Exception:
            log.exception("a call ended in an exception")
            problem = internal_status()
        return await _abort(context, problem)

    async def _report(self, message: pb.ReportOutcomeRequest) -> Any:
        if not message.trace_id:
            raise RequestError("is missing", "trace_id", "missing_required_parameter")
        if not _TRACE_ID.fullmatch(message.trace_id):
            raise RequestError("must have 32 hexadecimal digits", "trace_id")
        if message.execution not in (pb.VERDICT_OK, pb.VERDICT_FAILED):
            raise RequestError("must be VERDICT_OK or VERDICT_FAILED", "execution")
        ok = message.execution == pb.VERDICT_OK
        self._service.report_outcome(Outcome(message.trace_id.lower(), message.tool_call_id, ok, message.detail))
        return pb.ReportOutcomeResponse()

    async def _engines(self, message: pb.ListEnginesRequest) -> Any:
        model = message.model
        models = self._service.models()
        if model:
            models = [one for one in models if one.id == model]
            if not models:
                raise RequestError(f"the model {model!r} is not served here", "model", "model_not_found")
        wanted = {name for one in models for name in one.engines}
        engines = [one for one in await self._service.engines() if not model or one.name in wanted]
        return pb.ListEnginesResponse(
            engines=[pb.Engine(**structs.asdict(one)) for one in engines],
            models=[pb.Model(id=one.id, engines=one.engines) for one in models],
        )

    def _authenticate(self, context: Any) -> None:
        if not self._keys:
            return
        scheme, _, key = headers(context.invocation_metadata()).get(b"authorization", b"").partition(b" ")
        if scheme.lower() == b"bearer" and any(hmac.compare_digest(key.strip(), one) for one in self._keys):
            return
        raise RequestError("a valid key must be given as 'authorization: Bearer KEY'", "", "unauthenticated")


def _message(read: Any) -> Any:
    if isinstance(read, RequestError):
        raise read
    return read


def _request(message: pb.GenerateRequest, context: Any, *, check: bool = False) -> GenerationRequest:
    now = time.monotonic()
    request = generation_request(message, request_id=f"req-{uuid.uuid4().hex}", now=now, check=check)
    left = context.time_remaining()
    if left is not None:
        request.deadline = now + max(0.0, left - min(DEADLINE_MARGIN_S, left / 10))
    apply_headers(request, headers(context.invocation_metadata()), now)
    return request


def _choices(events: Sequence[StreamEvent] | Sequence[GuardEvent]) -> set[int]:
    """Those that the events are about; the protocol's own are about none."""
    return {event.choice for event in events if hasattr(event, "choice")}


async def _write(context: Any, encoder: Encoder, events: Sequence[GuardEvent]) -> None:
    for response in encoder.encode(events):
        await context.write(response)


async def _close(stream: Any) -> None:
    """The contract asks for an iterator only; one that holds work can be closed."""
    close = getattr(stream, "aclose", None)
    if close is not None:
        await close()


async def _abort(context: Any, status: Any) -> NoReturn:
    await context.abort_with_status(rpc_status.to_status(status))
    raise AssertionError("abort returned")
