"""Read-only pages that layers above the guard hook into the HTTP server, through the entry point group
``outguard.pages``.

A hook's name is its path; it is loaded when it is first asked for, so that a sidecar nobody looks at carries none of
it. It is given the configuration and returns what answers: rest of the path in, status, headers and body out, called in
a thread. Pages show content, so with ``auto`` they are there only where the server listens on this machine alone, and
only under a name of this machine: one that leads here from elsewhere (DNS rebinding) would let other pages read them.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Final

from guard.config import Config
from guard.server.asgi import Exchange, Headers
from guard.server.openai_error import ErrorReply, reply

Answer = tuple[int, Headers, bytes]
Handler = Callable[[str], Answer]

GROUP: Final = "outguard.pages"


class Pages:
    def __init__(self, config: Config) -> None:
        self._config = config
        self._mode = config.triage.page
        self._handlers: dict[str, Handler] = {}
        host = config.listen.http.rpartition(":")[0]
        self._here = _this_machine(host)
        self._hooks = {hook.name: hook for hook in entry_points(group=GROUP)} if self._mode != "off" else {}

    def has(self, path: str) -> bool:
        return path.removeprefix("/").partition("/")[0] in self._hooks

    async def respond(
        self, method: str, path: str, headers: dict[bytes, bytes], exchange: Exchange
    ) -> ErrorReply | None:
        """Answer, or say which error is to be answered."""
        name, _, rest = path.removeprefix("/").partition("/")
        if self._mode == "auto" and not (self._here and _this_machine(_host(headers))):
            message = "this page is served where only this machine can connect, unless triage.page is on"
            return reply("not_found", message)
        if method not in ("GET", "HEAD"):
            error = reply("method_not_allowed", f"{path[:200]} takes GET, not {method}")
            return error._replace(headers=[*error.headers, (b"allow", b"GET, HEAD")])
        status, more, body = await asyncio.to_thread(self._answer, name, rest)
        await exchange.respond(status, body, more)
        return None

    def _answer(self, name: str, rest: str) -> Answer:
        handler = self._handlers.get(name)
        if handler is None:
            handler = self._handlers[name] = self._hooks[name].load()(self._config)
        return handler(rest)


def _host(headers: dict[bytes, bytes]) -> str:
    given = headers.get(b"host", b"").decode("latin-1")
    return given if given.endswith("]") else given.rpartition(":")[0] or given


def _this_machine(host: str) -> bool:
    name = host.strip("[]").lower()
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")
