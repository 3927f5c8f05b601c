"""What an operator asks of a running sidecar: GET /admin/engines, POST /admin/engines/NAME/drain and .../resume.

Only callers on this machine are heard, whatever address the server listens on; with API keys, a key is asked for as
well. A drained engine is given nothing new; what is under way on it goes on. The state is this process's: it is gone
with it, and ``drain: true`` in the configuration is what lasts.
"""

from __future__ import annotations

import ipaddress
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from guard.server.asgi import JSON, Exchange, Scope
from guard.server.openai_error import ErrorReply, encode, reply
from guard.service import Service

PREFIX: Final = "/admin/"
_ENGINES: Final = "/admin/engines"
_VERBS: Final = {"drain": True, "resume": False}


async def admin(service: Service, scope: Scope, path: str, exchange: Exchange) -> ErrorReply | None:
    """Answer, or say which error is to be answered."""
    if not _local(scope):
        return reply("not_found", "the admin routes are for callers on this machine")
    method: str = scope["method"]
    if path == _ENGINES:
        if method not in ("GET", "HEAD"):
            return _only(path, "GET", method)
        statuses = [msgspec.to_builtins(one) for one in await service.engines()]
        await exchange.respond(200, encode({"engines": statuses}), [(b"content-type", JSON)])
        return None
    name, _, verb = path.removeprefix(f"{_ENGINES}/").rpartition("/")
    if not path.startswith(f"{_ENGINES}/") or verb not in _VERBS:
        return reply("not_found", f"there is nothing at {path[:200]}")
    if method != "POST":
        return _only(path, "POST", method)
    name = unquote(name)
    if not service.drain(name, _VERBS[verb]):
        return reply("not_found", f"there is no engine called {name[:200]!r}")
    await exchange.respond(200, encode({"engine": name, "draining": _VERBS[verb]}), [(b"content-type", JSON)])
    return None


def _only(path: str, takes: str, method: str) -> ErrorReply:
    error = reply("method_not_allowed", f"{path[:200]} takes {takes}, not {method}")
    return error._replace(headers=[*error.headers, (b"allow", takes.encode())])


def _local(scope: Scope) -> bool:
    client: Any = scope.get("client")
    try:
        address = ipaddress.ip_address(client[0])
    except (TypeError, IndexError, ValueError):
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
