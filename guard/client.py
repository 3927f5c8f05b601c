"""A small client of the gRPC server, for scripts and services that do not speak OpenAI HTTP.

    >>> from guard.client import Client
    >>> with Client("127.0.0.1:9090") as client:                                             # doctest: +SKIP
    ...     answer = client.generate("qwen3", "Name three rivers.", regex=r"[A-Z]\\w+(, [A-Z]\\w+){2}", timeout=30)
    ...     print(answer.text())
    Rhine, Nile, Amazon

An answer can be read event by event, as it comes (the events are those of guard/events.py):

    >>> for event in client.generate("qwen3", "Tell me a story.", max_tokens=200):           # doctest: +SKIP
    ...     if isinstance(event, Release):
    ...         print(event.text, end="", flush=True)

A call that fails raises CallError; what had been received until then stays in the Generation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, Unpack

import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from guard.client_messages import Messages, Options, build_request, guard_event
from guard.events import CONTENT, Failed, Finished, Found, GuardEvent, Recovery, Release, Repair, Started, ToolRelease
from guard.service import EngineStatus
from guard.v1 import guard_pb2 as pb
from guard.v1 import guard_pb2_grpc

MAX_MESSAGE_BYTES: Final = 64_000_000


class CallError(Exception):
    """A call that ended in an error. ``code`` is the stable word (guard/errors.py), ``status`` gRPC's name of the kind;
    ``field`` the path of a field that was wrong; ``retry_after`` seconds."""

    def __init__(self, error: grpc.RpcError) -> None:
        self.status: str = error.code().name
        self.message: str = error.details() or ""
        self.code = self.status.lower()
        self.field = ""
        self.retry_after: float | None = None
        self.trace_id = ""
        rich = rpc_status.from_call(error)
        for detail in rich.details if rich is not None else ():
            info, bad, retry = (
                error_details_pb2.ErrorInfo(),
                error_details_pb2.BadRequest(),
                error_details_pb2.RetryInfo(),
            )
            if detail.Unpack(info):
                self.code, self.trace_id = info.reason, info.metadata.get("trace_id", "")
            elif detail.Unpack(bad) and bad.field_violations:
                self.field = bad.field_violations[0].field
            elif detail.Unpack(retry):
                self.retry_after = retry.retry_delay.ToTimedelta().total_seconds()
        super().__init__(f"{self.code}: {self.message}")


class ToolCall(NamedTuple):
    id: str
    name: str
    arguments: str


class Generation:
    """One answer. Iterating it gives its events as they come and raises CallError where the call fails; all else here
    describes what was received so far."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self._texts: dict[tuple[int, str], list[str]] = {}
        self._calls: dict[tuple[int, int], tuple[str, str, list[str]]] = {}
        self.request_id = ""
        self.trace_id = ""
        self.engine = ""
        self.finished: dict[int, Finished] = {}
        self.failed: dict[int, Failed] = {}
        self.recoveries: list[Recovery] = []
        self.findings: list[Found] = []
        self.repairs: list[Repair] = []

    def __iter__(self) -> Iterator[GuardEvent]:
        try:
            for response in self._call:
                event = guard_event(response)
                self._note(event, response)
                yield event
        except grpc.RpcError as error:
            failure = CallError(error)
            self.trace_id = self.trace_id or failure.trace_id
            raise failure from None

    def read(self) -> Self:
        """Read to the end."""
        for _ in self:
            pass
        return self

    def text(self, choice: int = 0, channel: str = CONTENT) -> str:
        """The whole text of a channel: reads to the end."""
        self.read()
        return self.received(choice, channel)

    def received(self, choice: int = 0, channel: str = CONTENT) -> str:
        """The text of a channel as far as it was received."""
        return "".join(self._texts.get((choice, channel), ()))

    def tool_calls(self, choice: int = 0) -> list[ToolCall]:
        """The calls as far as they were received, in order."""
        found = sorted((index, call) for (of, index), call in self._calls.items() if of == choice)
        return [ToolCall(id_, name, "".join(parts)) for _, (id_, name, parts) in found]

    def cancel(self) -> None:
        """Give the answer up: the engines' work is cancelled."""
        self._call.cancel()

    def _note(self, event: GuardEvent, response: Any) -> None:
        match event:
            case Release():
                self._texts.setdefault((event.choice, event.channel), []).append(event.text)
            case ToolRelease():
                key = event.choice, event.index
                call = self._calls.setdefault(key, (event.id or "", event.name or "", []))
                call[2].append(event.arguments)
            case Started():
                self.request_id, self.trace_id, self.engine = event.request_id, event.trace_id, event.engine
            case Finished():
                self.finished[event.choice] = event
                self.trace_id = self.trace_id or response.finished.trace_id
            case Failed():
                self.failed[event.choice] = event
                self.trace_id = self.trace_id or response.failed.trace_id
            case Recovery():
                self.recoveries.append(event)
            case Found():
                self.findings.append(event)
            case Repair():
                self.repairs.append(event)


class Client:
    """A connection to one server (host:port). Safe to share among threads. ``timeout`` is in seconds."""

    def __init__(
        self,
        target: str,
        *,
        api_key: str = "",
        tenant: str = "",
        credentials: grpc.ChannelCredentials | None = None,
    ) -> None:
        options = [("grpc.max_receive_message_length", MAX_MESSAGE_BYTES)]
        self._channel = (
            grpc.secure_channel(target, credentials, options) if credentials else grpc.insecure_channel(target, options)
        )
        self._stub = guard_pb2_grpc.GuardStub(self._channel)
        self._metadata = [("authorization", f"Bearer {api_key}")] if api_key else []
        if tenant:
            self._metadata.append(("x-outguard-tenant", tenant))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._channel.close()

    def generate(
        self,
        model: str,
        messages: Messages | None = None,
        *,
        text: str | None = None,
        token_ids: Sequence[int] | None = None,
        timeout: float | None = None,
        **options: Unpack[Options],
    ) -> Generation:
        """Ask for an answer to messages, or for the continuation of a raw text or of token ids."""
        request = build_request(model, messages, text=text, token_ids=token_ids, **options)
        return Generation(self._stub.Generate(request, timeout=timeout, metadata=self._metadata))

    def check(
        self,
        sse: Iterable[bytes],
        model: str = "",
        messages: Messages | None = None,
        *,
        timeout: float | None = None,
        **options: Unpack[Options],
    ) -> Generation:
        """Guard an OpenAI event stream that the caller has from an engine of its own, given as its bytes."""

        def requests() -> Iterator[Any]:
            header = build_request(model, messages, **options)
            yield pb.CheckRequest(header=pb.CheckHeader(request=header))
            for piece in sse:
                yield pb.CheckRequest(openai_sse=piece)

        return Generation(self._stub.Check(requests(), timeout=timeout, metadata=self._metadata))

    def report_outcome(self, trace_id: str, ok: bool, *, tool_call_id: str = "", detail: str = "") -> None:
        """Say what became of a tool call, or of a whole answer, when it was executed."""
        execution = pb.VERDICT_OK if ok else pb.VERDICT_FAILED
        request = pb.ReportOutcomeRequest(
            trace_id=trace_id, tool_call_id=tool_call_id, execution=execution, detail=detail
        )
        self._ask(self._stub.ReportOutcome, request)

    def engines(self, model: str = "", *, timeout: float | None = None) -> list[EngineStatus]:
        response = self._ask(self._stub.ListEngines, pb.ListEnginesRequest(model=model), timeout)
        names = EngineStatus.__struct_fields__
        return [EngineStatus(**{name: getattr(one, name) for name in names}) for one in response.engines]

    def _ask(self, method: Any, request: Any, timeout: float | None = None) -> Any:
        try:
            return method(request, timeout=timeout, metadata=self._metadata)
        except grpc.RpcError as error:
            raise CallError(error) from None
