"""Talking to the sidecar that runs with a configuration, over its admin routes (guard/server/openai_admin.py)."""

from __future__ import annotations

import http.client
import json
from urllib.parse import quote

import msgspec

from guard.config import Config
from guard.service import EngineStatus

SECONDS = 20.0


class NotRunning(Exception):
    """The sidecar could not be asked, or said no; the message says why."""


def running_engines(config: Config) -> list[EngineStatus]:
    return msgspec.convert(_ask(config, "GET", "/admin/engines")["engines"], list[EngineStatus])


def drain_engine(config: Config, name: str, draining: bool) -> None:
    _ask(config, "POST", f"/admin/engines/{quote(name, safe='')}/{'drain' if draining else 'resume'}")


def _ask(config: Config, method: str, path: str) -> dict[str, list[object]]:
    host, _, port = config.listen.http.rpartition(":")
    if not port or port == "0":
        raise NotRunning("listen.http names no port, so the running sidecar cannot be found")
    host = {"0.0.0.0": "127.0.0.1", "[::]": "::1", "": "127.0.0.1"}.get(host, host.strip("[]"))
    keys = config.listen.api_keys()
    connection = http.client.HTTPConnection(host, int(port), timeout=SECONDS)
    try:
        connection.request(method, path, headers={"authorization": f"Bearer {keys[0]}"} if keys else {})
        answer = connection.getresponse()
        body = answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise NotRunning(f"no sidecar answers at {config.listen.http}: {error}") from error
    finally:
        connection.close()
    try:
        said = json.loads(body)
        if answer.status != 200:
            raise NotRunning(f"the sidecar at {config.listen.http} says: {said['error']['message']}")
    except (ValueError, KeyError, TypeError) as error:
        raise NotRunning(f"what answers at {config.listen.http} is no sidecar (status {answer.status})") from error
    return said  # type: ignore[no-any-return]
