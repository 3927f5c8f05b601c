"""Pages of layers above: where they are served, to whom, and that they only read."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import replayed
from replayed import DELIVERED, sources

from guard.config import parse_config
from guard.engines.scripted import ScriptedEngine, telling
from guard.server.openai import OpenAIApp
from guard.server.pages import Pages
from replay.matrix import Matrix
from replay.web.served import Served

ENGINE = {"name": "a", "url": "http://127.0.0.1:1"}


def app(folder: Path, *, page: str = "auto", http: str = "127.0.0.1:0", keys: tuple[str, ...] = ()) -> OpenAIApp:
    config = parse_config(
        json.dumps(
            {
                "listen": {"http": http},
                "engines": [ENGINE],
                "routes": [{"model": "m", "engines": ["a"]}],
                "triage": {"page": page, "runs": str(folder)},
            }
        )
    )
    return OpenAIApp(None, api_keys=keys, pages=Pages(config))  # type: ignore[arg-type]


async def get(
    served: OpenAIApp, path: str = "/triage", method: str = "GET", host: str = "127.0.0.1:8080", **headers: str
) -> tuple[int, dict[str, str], str]:
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(60)
        return {"type": "http.disconnect"}

    given = [(b"host", host.encode()), *((name.encode(), value.encode()) for name, value in headers.items())]
    await served({"type": "http", "method": method, "path": path, "headers": given}, receive, send)
    found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], found, b"".join(one.get("body", b"") for one in sent[1:]).decode()


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    """With one run in it."""
    engines = {"a": ScriptedEngine("a", telling(DELIVERED)), "b": ScriptedEngine("b", telling("The end."))}
    await replayed.run(tmp_path, Matrix(), engines, sources(3))
    return tmp_path


def stored(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


async def test_the_list_a_run_and_its_facts(folder: Path) -> None:
    served = app(folder)
    status, headers, body = await get(served)
    assert status == 200
    run = stored(folder).name.removesuffix(".run.jsonl")
    assert f'"href":"/triage/{run}"' in body
    assert '"answers":6,"planned":6' in body
    assert headers["cache-control"] == "no-store"
    assert headers["content-security-policy"].startswith("default-src 'none'")
    status, headers, body = await get(served, f"/triage/{run}")
    assert status == 200
    assert DELIVERED in body
    status, headers, body = await get(served, f"/triage/{run}.json")
    assert len(json.loads(body)["runs"]) == 6
    assert (await get(served, "/triage/", "HEAD"))[0] == 200


@pytest.mark.parametrize("path", ["/triage/nothing", "/triage/../../etc/passwd", "/triage/%2e%2e", "/triage/x.json"])
async def test_only_runs_of_the_folder_are_read(folder: Path, path: str) -> None:
    assert (await get(app(folder), path))[0] == 404


async def test_nothing_can_be_changed(folder: Path) -> None:
    before = stored(folder).read_bytes()
    for method in ("POST", "PUT", "DELETE"):
        status, headers, _ = await get(app(folder), method=method)
        assert (status, headers["allow"]) == (405, "GET, HEAD")
    assert stored(folder).read_bytes() == before


@pytest.mark.parametrize(
    ("page", "http", "host", "status"),
    [
        ("auto", "127.0.0.1:0", "127.0.0.1:8080", 200),
        ("auto", "[::1]:0", "[::1]:8080", 200),
        ("auto", "localhost:0", "localhost", 200),
        ("auto", "127.0.0.1:0", "evil.example:8080", 404),  # a name that leads here from elsewhere
        ("auto", "0.0.0.0:0", "127.0.0.1:8080", 404),
        ("auto", "10.0.0.7:0", "10.0.0.7", 404),
        ("on", "0.0.0.0:0", "triage.example", 200),
        ("off", "127.0.0.1:0", "127.0.0.1:8080", 404),
    ],
)
async def test_where_it_is_served(folder: Path, page: str, http: str, host: str, status: int) -> None:
    assert (await get(app(folder, page=page, http=http), host=host))[0] == status


async def test_a_key_is_asked_for_where_there_are_keys(folder: Path) -> None:
    served = app(folder, page="on", keys=("k",))
    assert (await get(served))[0] == 401
    assert (await get(served, authorization="Bearer k"))[0] == 200


async def test_a_run_that_is_being_written_is_shown_as_far_as_it_is(folder: Path) -> None:
    path = stored(folder)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:3]) + lines[3][:20])
    served = Served(folder)
    status, _, body = served(path.name.removesuffix(".run.jsonl") + ".json")
    assert status == 200
    assert (len(json.loads(body)["runs"]), json.loads(body)["not_run"]) == (2, 4)
    path.write_bytes(b"hello\n")
    assert served(path.name.removesuffix(".run.jsonl"))[0] == 500
    assert served("")[0] == 200


def test_no_folder_at_all(tmp_path: Path) -> None:
    assert Served(tmp_path / "none")("")[0] == 200


def test_a_wrong_word_in_the_configuration() -> None:
    from guard.checked_yaml import ConfigError

    with pytest.raises(ConfigError, match=r"c:2: triage.page: input should be 'auto', 'on' or 'off'"):
        parse_config(
            "triage:\n  page: maybe\nengines: [{name: a, url: 'http://h'}]\nroutes: [{model: m, engines: [a]}]", "c"
        )
