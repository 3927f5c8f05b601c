"""The sidecar as an operator runs it: ``python -m guard serve --config``, a process of its own, and who talks to it.

    with Sidecar(folder, {"a": url_a, "b": url_b}) as sidecar:
        answer = sidecar.openai.chat.completions.create(model="m", messages=[...])
        with sidecar.client() as client: ...
        sidecar.trace(trace_id)              # what the store says of it, read through the live writer

``Played`` is an engine of recorded or broken replies (replay_server.py) in a thread, ``Relay`` a TCP port in front of
something else that can refuse and cut. Every process ends with the one that started it, by its own handle.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import openai
import yaml
from engine_process import free_port
from replay_server import ReplayServer, Reply

from guard.client import Client
from guard.trace.record import RequestRecord
from guard.trace.store import TraceReader, open_store

MODEL = "m"
ASK = [{"role": "user", "content": "Tell me about lighthouses."}]
START_SECONDS = 40.0


def until(what: Callable[[], Any], seconds: float = 10.0, *, every: float = 0.02) -> Any:
    """Waits for something to hold, and gives it; what it was last when it never did."""
    end = time.monotonic() + seconds
    while not (found := what()) and time.monotonic() < end:
        time.sleep(every)
    return found


class Sidecar:
    """``engines``: url or a whole engine section by name. One route ``m`` over all of them in order, and one named
    after each engine over it alone, unless ``routes`` says otherwise. ``sections`` replace those of the config."""

    def __init__(
        self,
        folder: Path,
        engines: Mapping[str, str | Mapping[str, Any]],
        *,
        dialect: str = "llamacpp",
        routes: Mapping[str, list[str]] | None = None,
        env: Mapping[str, str] | None = None,
        command: Sequence[str] = ("-m", "guard"),
        **sections: Any,
    ) -> None:
        self.folder = folder
        self.config_path = folder / "outguard.yaml"
        self.store = f"chdb://{folder}/store"
        named = {name: {"url": one} if isinstance(one, str) else dict(one) for name, one in engines.items()}
        routed = routes or {MODEL: list(named), **{name: [name] for name in named}}
        self.config: dict[str, Any] = {
            "listen": {"http": "127.0.0.1:0", "grpc": "127.0.0.1:0"},
            "engines": [{"name": name, "dialect": dialect, **one} for name, one in named.items()],
            "routes": [{"model": model, "engines": chosen} for model, chosen in routed.items()],
            "trace": {"store": self.store, "retention": {"default": "full"}},
            **sections,
        }
        self._env = {**os.environ, **(env or {})}
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: TraceReader | None = None
        self._sdk: openai.OpenAI | None = None
        self.http = ""
        self.grpc = ""

    # --- its life ----------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        self.config_path.write_text(yaml.safe_dump(self.config, sort_keys=False))
        self._announced: dict[str, str] = {}
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, *self._command, "serve", "--config", str(self.config_path)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self._env,
            )
        threading.Thread(target=self._listen, args=(self._process,), daemon=True).start()
        wanted = {name for name in ("http", "grpc") if self.config["listen"].get(name)}
        until(lambda: wanted <= self._announced.keys() or self._process.poll() is not None, START_SECONDS)
        if not wanted <= self._announced.keys():
            raise RuntimeError(f"the sidecar did not start:\n{self.log[-3000:]}")
        self.http = f"http://{self._announced.get('http', '')}"
        self.grpc = self._announced.get("grpc", "")
        return self

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                name, _, address = line.decode().strip().partition(" ")
                self._announced[name] = address

    @property
    def log_path(self) -> Path:
        return self.folder / "sidecar.log"

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    @property
    def faults(self) -> list[str]:
        """Lines of its log that no sidecar should write: our own mistakes, and processes forked under gRPC's feet."""
        signs = ("Traceback", "never retrieved", "never awaited", "fork() handlers")
        return [line for line in self.log.splitlines() if any(sign in line for sign in signs)]

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def wait(self, seconds: float = 40.0) -> int:
        """Its exit code."""
        assert self._process is not None
        return self._process.wait(seconds)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        """In order, as SIGTERM does it."""
        self._let_go()
        if self._process is None or self._process.poll() is not None:
            return self._process.returncode if self._process else 0
        self._process.terminate()
        try:
            return self.wait()
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def _let_go(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        if self._sdk is not None:
            self._sdk.close()
            self._sdk = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """At once: an orderly end takes a second, and has tests of its own. Its writer ends with it."""
        self._let_go()
        self.kill()

    # --- talking to it -----------------------------------------------------------------------------------------------

    @property
    def openai(self) -> openai.OpenAI:
        if self._sdk is None:
            self._sdk = openai.OpenAI(base_url=f"{self.http}/v1", api_key="none", max_retries=0, timeout=60)
        return self._sdk

    def client(self) -> Client:
        return Client(self.grpc)

    def get(self, path: str) -> Answered:
        return self.ask("GET", path)

    def post(self, body: Any = None, path: str = "/v1/chat/completions", **headers: str) -> Answered:
        """``body``: bytes as they are, else JSON, in which what is missing of a chat request is filled in."""
        if not isinstance(body, bytes):
            whole = {"model": MODEL, "messages": ASK} if path.endswith("/chat/completions") else {"model": MODEL}
            body = json.dumps({**whole, **(body or {})}).encode()
        return self.ask("POST", path, body, headers)

    def ask(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Answered:
        connection = http.client.HTTPConnection(self.http.removeprefix("http://"), timeout=60)
        try:
            connection.request(method, path, body or None, dict(headers or {}))
            answer = connection.getresponse()
            try:
                data, cut = answer.read(), False
            except http.client.IncompleteRead as error:
                data, cut = error.partial, True
            return Answered(answer.status, {name.lower(): value for name, value in answer.getheaders()}, data, cut)
        finally:
            connection.close()

    def metric(self, name: str) -> float:
        """The sum of a metric's series; zero when it has none."""
        lines = self.get("/metrics").text.splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.partition("{")[0].split()[:1] == [name])

    # --- what it left ------------------------------------------------------------------------------------------------

    @property
    def reader(self) -> TraceReader:
        if self._reader is None:
            self._reader = open_store(self.config["trace"]["store"], self.config["trace"].get("spool", ""))
        return self._reader

    def trace(self, trace_id: str, seconds: float = 10.0) -> RequestRecord:
        """Rows are written off the request's path: this waits for the one that is asked for."""

        def look() -> RequestRecord | None:
            self.reader.flush()
            return self.reader.get_request(trace_id)

        found = until(look, seconds)
        assert found is not None, f"there is no row of trace {trace_id}"
        return found

    def outguard(self, *arguments: str, seconds: float = 60.0) -> subprocess.CompletedProcess[str]:
        """An outguard command on this sidecar's configuration."""
        return outguard(*arguments, "--config", str(self.config_path), seconds=seconds)

    # --- what it holds -----------------------------------------------------------------------------------------------

    def open_files(self) -> list[str]:
        """What its descriptors point to."""
        held = []
        for fd in Path(f"/proc/{self.pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                held.append(os.readlink(fd))
        return held

    def resident_mb(self) -> float:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024

    def children(self) -> list[int]:
        """The pids of its own children: the trace writer."""
        return [int(pid) for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()]


@dataclass(frozen=True)
class Answered:
    """``cut``: the connection ended before the answer had."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    cut: bool = False

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> Any:
        """Of an error reply, or of the last event of a failed stream."""
        return self.events[-1]["error"] if self.body.startswith(b"data:") else self.json["error"]

    @property
    def events(self) -> list[Any]:
        """The data of an event stream, parsed; [DONE] as it is."""
        data = [line[6:] for line in self.text.split("\n") if line.startswith("data: ")]
        return [one if one == "[DONE]" else json.loads(one) for one in data]

    @property
    def content(self) -> str:
        """The text of its first choice, streamed or whole."""
        if not self.body.startswith(b"data:"):
            return str(self.json["choices"][0]["message"]["content"])
        choices = [one["choices"][0] for one in self.events if one != "[DONE]" and one.get("choices")]
        return "".join(choice["delta"].get("content") or "" for choice in choices if choice["index"] == 0)


def outguard(*arguments: str, seconds: float = 60.0) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "guard", *arguments], capture_output=True, text=True, check=False, timeout=seconds
    )


# --- what stands behind ----------------------------------------------------------------------------------------------


class Played:
    """An engine that plays replies, in a thread of its own. ``play`` sets what comes next; the last one stays."""

    def __init__(self, *replies: Reply) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.server = ReplayServer(*replies)
        self._do(self.server.__aenter__())
        self.url = self.server.url

    def _do(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)

    def play(self, *replies: Reply) -> None:
        self.server.replies[:] = replies
        self.server.requests.clear()

    @property
    def asked(self) -> list[Any]:
        """The bodies that came since ``play``."""
        return [request.json for request in self.server.requests if request.method == "POST"]

    @property
    def heads(self) -> list[dict[str, str]]:
        return [request.headers for request in self.server.requests if request.method == "POST"]

    def gone(self) -> bool:
        """Whether the client of the latest request has closed its connection."""
        return bool(self.server.requests) and self.server.requests[-1].gone.is_set()

    def close(self) -> None:
        self._do(self.server.__aexit__())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)


class Fault:
    """guard/demo/fault.py in front of an engine: after ``after`` pieces of an answer the same token for ever."""

    def __init__(self, engine_url: str, after: int) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        engine_port = engine_url.rpartition(":")[2]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "guard.demo.fault", str(self.port), engine_port, str(after)], stdin=subprocess.PIPE
        )
        if not until(lambda: answers(f"{self.url}/health"), 20):
            self.close()
            raise RuntimeError("the fault did not start")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@contextlib.contextmanager
def played(*replies: Reply) -> Iterator[Played]:
    engine = Played(*replies)
    try:
        yield engine
    finally:
        engine.close()
