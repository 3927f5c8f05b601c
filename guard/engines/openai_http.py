"""Engines that speak the OpenAI HTTP API: vLLM, SGLang, TensorRT-LLM, llama.cpp, Dynamo and whatever resembles it.

The wire in both directions is pure code beside this (dialects.py, openai_reader.py); here is only the socket, and the
waiting for it. An engine that answers a stream request with one JSON object is read as well.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Mapping
from typing import Any, Final

from msgspec.structs import replace

from guard.engines.contract import Capabilities, EngineError, EngineRequest, Health, Raw, Taker
from guard.engines.dialects import WireRequest, capabilities, write_request
from guard.engines.error_body import read_error_body, retry_after_seconds
from guard.engines.http import MAX_ERROR_BYTES, MAX_WHOLE_BYTES, HttpPool, whole
from guard.engines.http_exchange import Exchange, TransferError
from guard.engines.intake import Intake, Reader, Wave
from guard.engines.openai_reader import OpenAIReader
from guard.engines.sse import MAX_EVENT_BYTES
from guard.events import Fault, StreamEvent

HEALTH_SECONDS: Final = 5.0
_NO_STREAM: Final = ("text/html", "application/xhtml", "text/xml", "application/xml", "image/", "application/pdf")


class HttpStream:
    """One answer being read. Its last event is a Closed or a Fault. ``wave``: that of the event loop; ``raw``: where it
    was asked for in tokens."""

    def __init__(
        self, exchange: Exchange, reader: Reader, unenforced: tuple[str, ...], wave: Wave, raw: Raw | None = None
    ) -> None:
        self.unenforced = unenforced
        self.raw = raw
        self._exchange = exchange
        self._reader = reader
        self._intake = Intake(exchange, reader, wave)
        self._whole = exchange.headers.get("content-type", "").lower().startswith("application/json")

    def relay(self, taker: Taker, hurries: bool = True) -> None:
        """See EngineStream."""
        self._intake.taker = taker
        self._intake.hurries = hurries

    def __aiter__(self) -> HttpStream:
        return self

    async def __anext__(self) -> list[StreamEvent]:
        intake = self._intake
        if intake.ended:
            raise StopAsyncIteration
        if self._whole:
            return await self._read_whole()
        while (events := intake.next()) is None:
            await self._more()
            if intake.ended:  # closed from this side meanwhile
                raise StopAsyncIteration
        return events

    async def _more(self) -> None:
        """Until there is something that the iterator must see."""
        exchange = self._exchange
        if self._intake.taker is None:
            await exchange.more()
            return
        self._intake.relay()
        try:
            await exchange.more()
        finally:
            exchange.relay = None

    async def _read_whole(self) -> list[StreamEvent]:
        try:
            body = await whole(self._exchange, MAX_WHOLE_BYTES + 1)
        except TransferError as error:
            if self._intake.ended:
                raise StopAsyncIteration from error
            return self._intake.fail(error)
        self._intake.ended = True
        if len(body) > MAX_WHOLE_BYTES:
            return [Fault("protocol", f"the engine's answer is longer than {MAX_WHOLE_BYTES} bytes")]
        return self._reader.whole(body)

    async def aclose(self) -> None:
        self._intake.ended = True
        self._exchange.close()


class OpenAIHttpEngine:
    """``model``: the name it serves under; the caller's own name is sent where it is None. ``constrains``: whether it
    is sent the formats that its answers must have. Timeouts are seconds: ``first_token`` from the sent request to the
    first event of the answer, ``between_tokens`` from then on, ``total`` over the whole attempt. ``wave``: that of the
    event loop, if others have one there."""

    def __init__(
        self,
        name: str,
        url: str,
        dialect: str = "plain",
        model: str | None = None,
        *,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        constrains: bool = True,
        connect_timeout: float = 2.0,
        first_token_timeout: float = 60.0,
        between_tokens_timeout: float = 20.0,
        total_timeout: float = 1800.0,
        ssl_context: ssl.SSLContext | None = None,
        wave: Wave | None = None,
    ) -> None:
        self.name = name
        self.dialect = dialect
        self.model = model or None
        self.capabilities: Capabilities = capabilities(dialect)
        if not constrains:
            self.capabilities = replace(
                self.capabilities, constraints=frozenset(), resume_constrained=False, remainder=False
            )
        self.constrains = constrains
        fixed = dict(headers or {})
        if api_key:
            fixed["authorization"] = f"Bearer {api_key}"
        url = url.rstrip("/")
        self._pool = HttpPool(
            url.removesuffix("/v1"), headers=fixed, connect_timeout=connect_timeout, ssl_context=ssl_context
        )
        self.wave = wave or Wave()
        self._first = first_token_timeout
        self._between = between_tokens_timeout
        self._total = total_timeout

    async def open(self, request: EngineRequest) -> HttpStream:
        """Send one attempt. Raises EngineError (ResumeUnsupported among them)."""
        if not self.constrains:
            request = replace(request, constrain=False)
        wire = write_request(self.dialect, request, self.model or request.request.model)
        exchange = await self.send(wire, request)
        reader = OpenAIReader(MAX_EVENT_BYTES, wire.drop_prefix, joins=True)
        return HttpStream(exchange, reader, wire.unenforced, self.wave)

    async def send(self, wire: WireRequest, request: EngineRequest) -> Exchange:
        """The answer to an attempt, once its head says that it is one. Raises EngineError."""
        headers = {"content-type": "application/json", "accept": "text/event-stream, application/json"}
        if request.request.traceparent:
            headers["traceparent"] = request.request.traceparent
            if request.request.tracestate:
                headers["tracestate"] = request.request.tracestate
        total = self._total
        if request.deadline is not None:
            total = min(total, request.deadline - asyncio.get_running_loop().time())
            if total <= 0:
                raise EngineError("total_timeout", "the deadline has passed")
        exchange = await self._pool.send(
            "POST", wire.path, wire.body, headers, first=self._first, between=self._between, total=total
        )
        if exchange.status != 200:
            raise await _refused(exchange)
        content_type = exchange.headers.get("content-type", "").lower()
        encoding = exchange.headers.get("content-encoding", "identity").lower()
        if content_type.startswith(_NO_STREAM) or encoding != "identity":
            what = content_type if encoding == "identity" else f"a {encoding} encoded body"
            exchange.close()
            raise EngineError("protocol", f"the engine answered with {what} instead of a stream")
        return exchange

    async def health(self) -> Health:
        """Whether the engine can take requests: /health where it has one, then the models it serves."""
        try:
            status, body = await self.get("/health")
            if status not in (200, 404, 405):
                said = read_error_body(body).message
                return Health(False, f"/health answers {status}" + (f": {said}" if said else ""))
            listed, body = await self.get("/v1/models")
            if listed != 200:
                if status == 200:
                    return Health(True, f"/v1/models answers {listed}", version=await self._version())
                said = read_error_body(body).message
                return Health(False, f"/v1/models answers {listed}" + (f": {said}" if said else ""))
            return Health(True, models=_model_ids(body), version=await self._version())
        except EngineError as error:
            return Health(False, error.message)

    async def aclose(self) -> None:
        await self._pool.aclose()

    async def _version(self) -> str:
        if self.dialect not in ("vllm", "trtllm"):
            return ""
        try:
            status, body = await self.get("/version")
        except EngineError:
            return ""
        version = _object(body).get("version") if status == 200 else None
        return version if isinstance(version, str) else ""

    async def get(self, path: str) -> tuple[int, bytes]:
        """Status and body of one of its other pages. Raises EngineError."""
        exchange = await self._pool.send(
            "GET", path, first=HEALTH_SECONDS, between=HEALTH_SECONDS, total=2 * HEALTH_SECONDS
        )
        try:
            return exchange.status, await whole(exchange, MAX_WHOLE_BYTES)
        except TransferError as error:
            raise EngineError(error.kind, error.message) from error
        finally:
            exchange.close()


async def _refused(exchange: Exchange) -> EngineError:
    try:
        body = await whole(exchange, MAX_ERROR_BYTES, partial=True)
    finally:
        exchange.close()
    said = read_error_body(body, exchange.headers.get("content-type", ""))
    message = said.message or f"the engine answered {exchange.status}"
    if exchange.status in (401, 403):
        # its own words are about the operator's key, and may quote it: no caller's business
        message = (
            f"the engine does not let this sidecar in (status {exchange.status}): its key is the operator's to mend"
        )
    if 300 <= exchange.status < 400:
        message = f"the engine redirects to {exchange.headers.get('location', 'nowhere')!r}, which is not followed"
    return EngineError(
        "status",
        message,
        status=exchange.status,
        retry_after=retry_after_seconds(exchange.headers.get("retry-after", "")),
        param=said.param,
    )


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _model_ids(body: bytes) -> tuple[str, ...]:
    data = _object(body).get("data")
    if not isinstance(data, list):
        return ()
    return tuple(item["id"] for item in data if isinstance(item, dict) and isinstance(item.get("id"), str))
