"""The small calls: outcomes, engines, health, reflection, and the address a server is bound to."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from guard.request import RequestError
from guard.server.grpc import create_server
from guard.service import Outcome
from guard.v1 import guard_pb2 as pb

SERVING = health_pb2.HealthCheckResponse.SERVING
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


async def refused(call: Any) -> tuple[str, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code().name, caught.value.details() or ""


async def test_outcomes_reach_the_service(serve: Any) -> None:
    async with serve() as served:
        report = served.stub.ReportOutcome
        await report(pb.ReportOutcomeRequest(trace_id=TRACE, tool_call_id="c", execution=pb.VERDICT_OK))
        await report(pb.ReportOutcomeRequest(trace_id=TRACE, execution=pb.VERDICT_FAILED, detail="no such row"))
    assert served.service.outcomes == [Outcome(TRACE, "c", True), Outcome(TRACE, "", False, "no such row")]


async def test_outcomes_that_say_nothing_are_refused(serve: Any) -> None:
    async with serve() as served:
        report = served.stub.ReportOutcome
        status, message = await refused(report(pb.ReportOutcomeRequest(execution=pb.VERDICT_OK)))
        assert (status, message) == ("INVALID_ARGUMENT", "trace_id: is missing")
        for trace in ("t", TRACE[:-1], TRACE + "0", "'; drop table requests --"):
            status, message = await refused(report(pb.ReportOutcomeRequest(trace_id=trace, execution=pb.VERDICT_OK)))
            assert (status, message) == ("INVALID_ARGUMENT", "trace_id: must have 32 hexadecimal digits")
        for verdict in (pb.VERDICT_UNSPECIFIED, pb.VERDICT_NONE, pb.VERDICT_UNKNOWN, 77):
            status, message = await refused(report(pb.ReportOutcomeRequest(trace_id=TRACE, execution=verdict)))
            assert status == "INVALID_ARGUMENT"
            assert message.startswith("execution:")
        served.service.outcome_error = RequestError("no such trace", "trace_id", "not_found")
        status, _ = await refused(report(pb.ReportOutcomeRequest(trace_id=TRACE, execution=pb.VERDICT_OK)))
        assert status == "NOT_FOUND"
        assert served.service.outcomes == []


async def test_engines_and_models_are_listed(serve: Any) -> None:
    async with serve() as served:
        everything = await served.stub.ListEngines(pb.ListEnginesRequest())
        of_one = await served.stub.ListEngines(pb.ListEnginesRequest(model="other"))
        status, _ = await refused(served.stub.ListEngines(pb.ListEnginesRequest(model="nobody's")))
        served.service.engines_error = OSError("secret")
        broken = await refused(served.stub.ListEngines(pb.ListEnginesRequest()))
    assert [(one.name, one.ok) for one in everything.engines] == [("a", True), ("b", False), ("c", True)]
    assert everything.engines[0] == pb.Engine(name="a", dialect="vllm", url="http://a", model="m", ok=True, image="1.2")
    assert [(one.id, list(one.engines)) for one in everything.models] == [("m", ["a", "b"]), ("other", ["c"])]
    assert [one.name for one in of_one.engines] == ["c"]
    assert [one.id for one in of_one.models] == ["other"]
    assert status == "NOT_FOUND"
    assert broken == ("INTERNAL", "an internal error; it is logged")


async def test_health_says_what_the_service_says_without_a_key(serve: Any) -> None:
    async with serve(api_keys=("k",)) as served:
        stub = health_pb2_grpc.HealthStub(served.channel)
        for name in ("", "guard.v1.Guard"):
            request = health_pb2.HealthCheckRequest(service=name)
            served.service.is_ready = True
            assert (await stub.Check(request)).status == SERVING
            served.service.is_ready = False
            assert (await stub.Check(request)).status == NOT_SERVING
        listed = await stub.List(health_pb2.HealthListRequest())
        assert {name: status.status for name, status in listed.statuses.items()} == {
            "": NOT_SERVING,
            "guard.v1.Guard": NOT_SERVING,
        }
        status, _ = await refused(stub.Check(health_pb2.HealthCheckRequest(service="x")))
        assert status == "NOT_FOUND"


async def test_health_can_be_watched(serve: Any) -> None:
    async with serve() as served:
        stub = health_pb2_grpc.HealthStub(served.channel)
        watch = stub.Watch(health_pb2.HealthCheckRequest(service="guard.v1.Guard"))
        assert (await watch.read()).status == SERVING
        served.service.is_ready = False
        assert (await asyncio.wait_for(watch.read(), 2.0)).status == NOT_SERVING
        watch.cancel()
        unknown = stub.Watch(health_pb2.HealthCheckRequest(service="x"))
        assert (await unknown.read()).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
        unknown.cancel()


async def test_reflection_lists_the_services_and_gives_the_contract(serve: Any) -> None:
    ask = reflection_pb2.ServerReflectionRequest
    async with serve() as served:
        stub = reflection_pb2_grpc.ServerReflectionStub(served.channel)
        requests = [ask(list_services=""), ask(file_containing_symbol="guard.v1.Guard")]
        listed, contract = [one async for one in stub.ServerReflectionInfo(iter(requests))]
    assert {one.name for one in listed.list_services_response.service} == {
        "guard.v1.Guard",
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
    }
    files = [FileDescriptorProto.FromString(raw) for raw in contract.file_descriptor_response.file_descriptor_proto]
    assert "guard/v1/guard.proto" in {file.name for file in files}


async def test_an_address_in_use_is_an_error_at_once(serve: Any) -> None:
    async with serve() as served:
        with pytest.raises(RuntimeError):
            create_server(served.service, address=served.target)
