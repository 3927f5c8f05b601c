"""What an operator on this machine may ask of a running sidecar, and nobody else."""

from __future__ import annotations

import http.client
import json
from typing import Any

import pytest

from guard.server.openai import OpenAIApp
from guard.service import EngineStatus
from tests.server.openai_scripted import OpenAIScript, serving


class Fleet(OpenAIScript):
    def __init__(self) -> None:
        super().__init__()
        self.drained: list[tuple[str, bool]] = []

    async def engines(self) -> list[EngineStatus]:
        return [EngineStatus("a", "vllm", "http://a", "m", ok=True, state="open", cause="stream.cut", reopens_in=2.5)]

    def drain(self, engine: str, draining: bool) -> bool:
        self.drained.append((engine, draining))
        return engine in ("a", "c/d")


async def asked(app: OpenAIApp, method: str, path: str, client: Any = ("127.0.0.1", 5), **headers: str) -> Any:
    sent: list[Any] = []

    async def receive() -> Any:
        raise AssertionError("nothing is read")

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "client": client}
    await app({**scope, "headers": [(k.encode(), v.encode()) for k, v in headers.items()]}, receive, send)
    return sent[0]["status"], json.loads(sent[1]["body"])


async def test_the_engines_as_the_guard_knows_them() -> None:
    status, said = await asked(OpenAIApp(Fleet()), "GET", "/admin/engines")
    assert status == 200
    assert [(e["name"], e["state"], e["cause"], e["reopens_in"]) for e in said["engines"]] == [
        ("a", "open", "stream.cut", 2.5)
    ]


@pytest.mark.parametrize(("verb", "draining"), [("drain", True), ("resume", False)])
@pytest.mark.parametrize(("path", "name"), [("a", "a"), ("c/d", "c/d"), ("c%2Fd", "c/d")])
async def test_an_engine_is_drained_and_given_requests_again(verb: str, draining: bool, path: str, name: str) -> None:
    fleet = Fleet()
    status, said = await asked(OpenAIApp(fleet), "POST", f"/admin/engines/{path}/{verb}")
    assert (status, said) == (200, {"engine": name, "draining": draining})
    assert fleet.drained == [(name, draining)]


@pytest.mark.parametrize(
    ("method", "path", "status", "told"),
    [
        ("POST", "/admin/engines/x/drain", 404, "there is no engine called 'x'"),
        ("POST", "/admin/engines/a/stop", 404, "there is nothing at /admin/engines/a/stop"),
        ("POST", "/admin/engines/a", 404, "there is nothing at"),
        ("GET", "/admin/secrets", 404, "there is nothing at /admin/secrets"),
        ("POST", "/admin/engines", 405, "/admin/engines takes GET, not POST"),
        ("GET", "/admin/engines/a/drain", 405, "takes POST, not GET"),
    ],
)
async def test_what_is_not_there(method: str, path: str, status: int, told: str) -> None:
    found, said = await asked(OpenAIApp(Fleet()), method, path)
    assert found == status
    assert told in said["error"]["message"]


@pytest.mark.parametrize("client", [("10.0.0.7", 5), ("::ffff:10.0.0.7", 5), ("fe80::1", 5), None, ("somewhere", 5)])
async def test_from_elsewhere_it_is_as_if_it_were_not_there(client: Any) -> None:
    fleet = Fleet()
    status, said = await asked(OpenAIApp(fleet), "POST", "/admin/engines/a/drain", client)
    assert (status, said["error"]["code"], fleet.drained) == (404, "not_found", [])


@pytest.mark.parametrize("client", [("127.0.0.1", 5), ("127.8.8.8", 5), ("::1", 5), ("::ffff:127.0.0.1", 5)])
async def test_this_machine_has_several_addresses(client: Any) -> None:
    assert (await asked(OpenAIApp(Fleet()), "GET", "/admin/engines", client))[0] == 200


async def test_with_keys_a_key_is_asked_for_here_too() -> None:
    app = OpenAIApp(Fleet(), api_keys=("secret",))
    assert (await asked(app, "GET", "/admin/engines"))[0] == 401
    assert (await asked(app, "GET", "/admin/engines", authorization="Bearer secret"))[0] == 200


async def test_over_a_socket() -> None:
    import asyncio

    def ask(host: str, port: int) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(host, port, timeout=5)
        connection.request("POST", "/admin/engines/a/drain")
        answer = connection.getresponse()
        return answer.status, answer.read()

    async with serving(Fleet()) as (host, port):
        status, body = await asyncio.to_thread(ask, host, port)
    assert (status, json.loads(body)) == (200, {"engine": "a", "draining": True})
