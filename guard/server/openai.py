"""The OpenAI-compatible HTTP server: a raw ASGI application over the Service.

Routes: POST /v1/chat/completions and /v1/completions; GET /v1/models, /v1/models/{id}, /healthz, /readyz, /metrics;
for callers on this machine what openai_admin.py has, and the pages of pages.py.

- The status line of a stream is sent with its first text, so that all that goes wrong before is a real HTTP status.
  What goes wrong afterwards is an ``error`` event, and then the transfer is cut short of its end: no [DONE], no final
  chunk. A caller, an SDK and a proxy all see that it failed.
- A client that goes away cancels its work at once, wherever that stands.
- A slow client slows its own stream: nothing is taken from the guard while the socket is full.
- What an answer says beyond the API (``outguard``: trace id, verdicts, attempts, findings, repairs, recoveries) is in
  the body, or in the last chunk.
- A stream of several choices goes on while one of them lives; the error of one that failed comes at the end. Whole, it
  is an error if any choice failed.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from guard.events import GuardEvent
from guard.normalise import apply_headers, chat_request, completion_request, includes_usage
from guard.request import GenerationRequest, RequestError
from guard.server.asgi import JSON, BodyTooLarge, ClientGone, Exchange, Receive, Scope, Send, Watch, read_body
from guard.server.direct import Delivery
from guard.server.openai_admin import PREFIX, admin
from guard.server.openai_answer import AnswerWriter
from guard.server.openai_body import BodyError, decode_object
from guard.server.openai_error import ErrorReply, encode, from_failed, from_request_error, reply
from guard.server.openai_outcome import Outcome
from guard.server.openai_stream import StreamWriter
from guard.server.pages import Pages
from guard.service import ModelInfo, Service

BODY_TIMEOUT_S: Final = 120.0
"""A body that has not come by then is given up."""

DEADLINE_GRACE_S: Final = 5.0
"""The guard itself ends an answer at its deadline; this much later a client that has stopped reading is left too."""

_REQUEST_ID: Final = re.compile(rb"[\x21-\x7e]{1,128}")
_POSTS: Final = {"/v1/chat/completions": chat_request, "/v1/completions": completion_request}
_GETS: Final = frozenset({"/v1/models", "/healthz", "/readyz", "/metrics"})
_log: Final = logging.getLogger("outguard.http")


class OpenAIApp:
    """``max_body_bytes``: bigger bodies are a 413. ``api_keys``: one of them must come as a bearer token on /v1; none
    given, none asked for. ``request_timeout``: seconds, the most that a caller can have. ``pages``: served as well."""

    def __init__(
        self,
        service: Service,
        *,
        max_body_bytes: int = 20_000_000,
        max_choices: int = 128,
        request_timeout: float | None = None,
        api_keys: tuple[str, ...] = (),
        pages: Pages | None = None,
    ) -> None:
        self._service = service
        self._pages = pages
        self._max_body_bytes = max_body_bytes
        self._max_choices = max_choices
        self._request_timeout = request_timeout
        self._api_keys = tuple(key.encode() for key in api_keys)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"only HTTP is served here, not {scope['type']}")
        headers: dict[bytes, bytes] = dict(scope["headers"])
        given = headers.get(b"x-request-id", b"")
        request_id = given.decode() if _REQUEST_ID.fullmatch(given) else f"req-{uuid.uuid4().hex}"
        exchange = Exchange(send, request_id)
        try:
            problem = await self._route(scope, headers, exchange, receive)
        except ClientGone:
            return
        except RequestError as error:
            problem = from_request_error(error)
        except Exception:
            _log.exception("request %s failed in the server", request_id)
            problem = reply("internal", "the server failed; its log says why")
        if problem is not None and not exchange.started:
            await exchange.respond(problem.status, problem.body, problem.headers)

    async def _route(
        self, scope: Scope, headers: dict[bytes, bytes], exchange: Exchange, receive: Receive
    ) -> ErrorReply | None:
        """Answer, or say which error is to be answered."""
        method: str = scope["method"]
        path: str = scope["path"].removeprefix(scope.get("root_path", "")).rstrip("/") or "/"
        if path.startswith(PREFIX):
            if self._api_keys and not self._authorised(headers):
                return _keyless()
            return await admin(self._service, scope, path, exchange)
        if self._pages is not None and self._pages.has(path):
            if self._api_keys and not self._authorised(headers):
                return _keyless()
            return await self._pages.respond(method, path, headers, exchange)
        normalise = _POSTS.get(path)
        if normalise is None and path not in _GETS and not path.startswith("/v1/models/"):
            return reply("not_found", f"there is nothing at {path[:200]}")
        allowed = ("GET", "HEAD", "OPTIONS") if normalise is None else ("POST", "OPTIONS")
        allow = (b"allow", ", ".join(allowed).encode())
        if method not in allowed:
            error = reply("method_not_allowed", f"{path} takes {' or '.join(allowed)}, not {method}")
            return error._replace(headers=[*error.headers, allow])
        if method == "OPTIONS":
            await exchange.respond(204, b"", [allow])
            return None
        if self._api_keys and path.startswith("/v1/") and not self._authorised(headers):
            return _keyless()
        if normalise is None:
            return await self._get(path, exchange)

        try:
            async with asyncio.timeout(BODY_TIMEOUT_S):
                raw = await read_body(receive, headers.get(b"content-length"), self._max_body_bytes)
            body = decode_object(raw, headers)
        except BodyTooLarge:
            return reply("request_too_large", f"the body is over the limit of {self._max_body_bytes} bytes")
        except BodyError as error:
            return reply("invalid_json", str(error))
        except TimeoutError:
            return reply("invalid_request", f"the body had not come after {BODY_TIMEOUT_S:.0f} seconds", status=408)
        now = time.monotonic()
        request = normalise(body, request_id=exchange.request_id, now=now, max_choices=self._max_choices)
        apply_headers(request, headers, now)
        if self._request_timeout is not None:
            latest = now + self._request_timeout
            request.deadline = latest if request.deadline is None else min(request.deadline, latest)
        left = None if request.deadline is None else request.deadline - now + DEADLINE_GRACE_S
        problem = None
        async with Watch(receive, left) as watch:
            if request.stream:
                problem = await self._stream(request, includes_usage(body), exchange, watch)
            else:
                problem = await self._whole(request, exchange, watch)
        if watch.expired:
            return reply("deadline_exceeded", "the answer was not there at its deadline")
        return problem

    def _authorised(self, headers: Mapping[bytes, bytes]) -> bool:
        scheme, _, key = headers.get(b"authorization", b"").partition(b" ")
        key = key.strip()
        matches = [hmac.compare_digest(key, one) for one in self._api_keys]  # all of them, whichever fits
        return scheme.lower() == b"bearer" and any(matches)

    # --- answers -----------------------------------------------------------------------------------------------------

    async def _stream(
        self, request: GenerationRequest, usage: bool, exchange: Exchange, watch: Watch
    ) -> ErrorReply | None:
        outcome = _outcome(request)
        writer = StreamWriter(outcome, request.kind, int(time.time()), usage=usage, token_ids=request.return_token_ids)
        data = b""
        feed = writer.feed

        events = self._service.generate(request, Delivery(exchange.direct, feed))
        try:
            async for batch in events:
                data += feed(batch)
                if data and not outcome.complete:  # what comes with the end goes out with the end
                    if exchange.started:
                        await exchange.send_body(data)
                    else:
                        await exchange.start_stream(outcome.trace_id, data)
                    data = b""
        except RequestError:
            if exchange.started or data:
                self._broken(outcome, request)
            else:
                raise
        except Exception:
            self._broken(outcome, request)
        finally:
            await self._close(events, request)
        outcome.close()
        failed = outcome.failure()
        if failed is not None and not exchange.started and not data:
            problem = from_failed(failed, outcome.choices, outcome.extension())
            return problem._replace(headers=[*problem.headers, (b"x-outguard-trace-id", outcome.trace_id.encode())])
        if not exchange.started:
            await exchange.start_stream(outcome.trace_id)
        watch.release()
        if failed is None:
            await exchange.send_body(data + writer.end(), more=False)
        else:
            await exchange.send_body(data + writer.error())  # and no end: the transfer is left incomplete
        return None

    async def _whole(self, request: GenerationRequest, exchange: Exchange, watch: Watch) -> ErrorReply | None:
        outcome = _outcome(request)
        writer = AnswerWriter(outcome, request.kind, int(time.time()), token_ids=request.return_token_ids)
        events = self._service.generate(request)
        try:
            async for batch in events:
                writer.feed(batch)
        except RequestError:
            raise
        except Exception:
            self._broken(outcome, request)
        finally:
            await self._close(events, request)
        outcome.close()
        trace = (b"x-outguard-trace-id", outcome.trace_id.encode())
        failed = outcome.failure()
        if failed is not None:
            problem = from_failed(failed, outcome.choices, outcome.extension())
            return problem._replace(headers=[*problem.headers, trace])
        watch.release()
        await exchange.respond(200, writer.body(), [(b"content-type", JSON), trace])
        return None

    def _broken(self, outcome: Outcome, request: GenerationRequest) -> None:
        """The guard itself failed, whose place the exception names; what it carried stays out of the log."""
        _log.exception("request %s (trace %s) failed in the guard", request.id, outcome.trace_id)
        outcome.close("the guard failed; its log says why")

    async def _close(self, events: AsyncIterator[list[GuardEvent]], request: GenerationRequest) -> None:
        aclose = getattr(events, "aclose", None)
        if aclose is None:
            return
        try:
            await aclose()
        except Exception:
            _log.exception("request %s: the answer could not be closed", request.id)

    # --- the rest ----------------------------------------------------------------------------------------------------

    async def _get(self, path: str, exchange: Exchange) -> ErrorReply | None:
        status, kind, body = 200, JSON, b""
        if path == "/healthz":
            body = encode({"status": "ok"})
        elif path == "/readyz":
            ready, why = self._service.ready()
            if not ready:
                return reply("engine_unavailable", f"not ready: {why}")
            body = encode({"status": "ready"})
        elif path == "/metrics":
            name, body = await self._service.metrics()
            kind = name.encode()
        else:
            models = self._service.models()
            wanted = path.removeprefix("/v1/models").removeprefix("/")
            if not wanted:
                body = encode({"object": "list", "data": [_model(one) for one in models]})
            else:
                found = next((one for one in models if one.id == wanted), None)
                if found is None:
                    return reply("model_not_found", f"the model {wanted[:200]!r} is not served here", "model")
                body = encode(_model(found))
        await exchange.respond(status, body, [(b"content-type", kind)])
        return None


def _keyless() -> ErrorReply:
    error = reply("unauthenticated", "a valid API key is needed: authorization: Bearer KEY")
    return error._replace(headers=[*error.headers, (b"www-authenticate", b"Bearer")])


def _model(model: ModelInfo) -> dict[str, Any]:
    return {
        "id": model.id,
        "object": "model",
        "created": model.created,
        "owned_by": "outguard",
        "outguard": {"engines": list(model.engines)},
    }


def _outcome(request: GenerationRequest) -> Outcome:
    custom = [tool.name for tool in request.tools if tool.is_custom]
    return Outcome(request.n, request.model, request.id, custom)
