"""Whatever a caller or an engine says: no call ends in INTERNAL or UNKNOWN, and every event can be encoded."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message_factory import GetMessageClass
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from detectors.finding import Finding
from guard.events import Failed, Finished, Found, Recovery, Release, Repair, Started, ToolRelease, Usage, Verdicts
from guard.request import GenerationRequest, Sampling
from guard.server.grpc_error import failed_status
from guard.server.grpc_events import Encoder
from guard.v1 import guard_pb2 as pb
from guard.v1 import guard_pb2_grpc

HINTS = (
    "",
    "m",
    "f",
    "{}",
    "true",
    '{"type":"object"}',
    '{"type":3}',
    "[1",
    "root ::= [a",
    "(?P<x",
    "\x00",
    "é\U0001f600",
)
INTEGERS = {
    FieldDescriptor.TYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.TYPE_UINT64: (0, 2**64 - 1),
    FieldDescriptor.TYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_ENUM: (-1, 8),
}


def values(field: FieldDescriptor, depth: int) -> st.SearchStrategy[Any]:
    if field.type in INTEGERS:
        low, high = INTEGERS[field.type]
        return st.one_of(st.sampled_from([low, 0, 1, 2, high]), st.integers(low, high))
    match field.type:
        case FieldDescriptor.TYPE_DOUBLE:
            return st.floats()
        case FieldDescriptor.TYPE_BOOL:
            return st.booleans()
        case FieldDescriptor.TYPE_STRING:
            return st.one_of(st.sampled_from(HINTS), st.text(max_size=20))
        case FieldDescriptor.TYPE_BYTES:
            return st.binary(max_size=20)
    return messages(field.message_type, depth + 1)


@st.composite
def messages(draw: st.DrawFn, kind: Descriptor, depth: int = 0) -> Any:
    """Any message of a kind: a few of its fields set, lists and maps short, nesting bounded."""
    message = GetMessageClass(kind)()
    chosen = st.lists(st.sampled_from(list(kind.fields)), max_size=3) if kind.fields else st.just([])
    for field in draw(chosen):
        nested = field.type == FieldDescriptor.TYPE_MESSAGE
        if nested and depth > 5:
            continue
        if nested and field.message_type.GetOptions().map_entry:
            key, value = field.message_type.fields_by_name["key"], field.message_type.fields_by_name["value"]
            for name, one in draw(st.dictionaries(values(key, depth), values(value, depth), max_size=2)).items():
                if value.message_type is not None:
                    getattr(message, field.name)[name].CopyFrom(one)
                else:
                    getattr(message, field.name)[name] = one
        elif field.is_repeated:
            getattr(message, field.name).extend(draw(st.lists(values(field, depth), max_size=2)))
        elif nested:
            getattr(message, field.name).CopyFrom(draw(values(field, depth)))
        else:
            setattr(message, field.name, draw(values(field, depth)))
    return message


async def test_no_request_breaks_the_server(serve: Any) -> None:
    statuses: dict[str, int] = {}

    def run(target: str) -> None:
        with grpc.insecure_channel(target) as channel:
            stub = guard_pb2_grpc.GuardStub(channel)

            @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), database=None)
            @given(messages(pb.GenerateRequest.DESCRIPTOR), st.booleans())
            def generate(request: Any, whole: bool) -> None:
                if whole:
                    request.model = "m"
                    if request.WhichOneof("prompt") is None:
                        request.text = "Once"
                _ends_well(stub.Generate(request, timeout=5), statuses)

            @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), database=None)
            @given(st.lists(messages(pb.CheckRequest.DESCRIPTOR), max_size=3), st.booleans())
            def check(requests: list[Any], headed: bool) -> None:
                header = pb.CheckRequest(header=pb.CheckHeader(request=pb.GenerateRequest()))
                _ends_well(stub.Check(iter([header, *requests] if headed else requests), timeout=5), statuses)

            generate()
            check()

    async with serve() as served:
        await asyncio.to_thread(run, served.target)
    assert statuses.keys() == {"OK", "INVALID_ARGUMENT"}


def _ends_well(call: Any, statuses: dict[str, int]) -> None:
    status = "OK"
    try:
        for _ in call:
            pass
    except grpc.RpcError as error:
        status = error.code().name
    statuses[status] = statuses.get(status, 0) + 1
    assert status in ("OK", "INVALID_ARGUMENT")


anything = st.text(st.characters(exclude_categories=()), max_size=12)
numbers = st.one_of(st.integers(), st.integers(-2, 2**33))
choices = st.integers(0, 3)
loose = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, st.floats(), anything, st.binary(max_size=4)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(anything, inner, max_size=3)),
    max_leaves=6,
)
entries = st.dictionaries(st.sampled_from(["token", "logprob", "bytes", "top_logprobs"]), loose, max_size=4)
usages = st.builds(Usage, numbers, numbers, numbers, numbers, numbers)
verdicts = st.builds(Verdicts, anything, st.sampled_from(["ok", "failed", "none"]), st.just("unknown"))
findings = st.builds(
    Finding,
    anything,
    st.sampled_from(["info", "warn", "error"]),
    anything,
    anything,
    numbers,
    numbers,
    st.floats(),
    st.dictionaries(anything, loose, max_size=3),
)
ids = st.one_of(st.none(), st.lists(numbers, max_size=3).map(tuple))
guard_events = st.one_of(
    st.builds(Started, anything, anything, anything, anything),
    st.builds(
        Release,
        choices,
        st.sampled_from(["content", "reasoning", "refusal"]),
        anything,
        ids,
        st.one_of(st.none(), st.lists(entries, max_size=2)),
    ),
    st.builds(ToolRelease, choices, choices, anything, st.one_of(st.none(), anything), st.one_of(st.none(), anything)),
    st.builds(Recovery, choices, numbers, anything, anything, anything, anything, anything, numbers),
    st.builds(Found, choices, findings, anything, numbers),
    st.builds(Repair, choices, anything, anything),
    st.builds(Finished, choices, anything, usages, verdicts, numbers, numbers, st.one_of(st.none(), anything, numbers)),
    st.builds(
        Failed,
        choices,
        anything,
        anything,
        numbers,
        st.one_of(st.none(), numbers),
        st.one_of(st.none(), st.floats()),
        verdicts,
        usages,
    ),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(guard_events, max_size=6))
def test_every_event_can_be_encoded(batch: list[Any]) -> None:
    request = GenerationRequest("r", "chat", "m", return_token_ids=True, sampling=Sampling(logprobs=True))
    encoded = Encoder(pb.GenerateResponse, request).encode(batch)
    assert len(encoded) <= len(batch)
    assert [one.WhichOneof("event") for one in encoded].count("finished") == sum(
        isinstance(event, Finished) for event in batch
    )
    for one in encoded:
        one.SerializeToString()
    for event in batch:
        if isinstance(event, Failed):
            assert failed_status(event, "t").code > 0
