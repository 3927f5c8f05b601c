"""Requests through a whole sidecar while real engines die, freeze and are cut: ``python -m tests.chaos.real``.

Two llama.cpp engines with the same weights in float32 and temperature 0, each behind a proxy that breaks (proxy.py).
Meanwhile they are killed (SIGKILL) and started again, and stopped (SIGSTOP) and continued. Text, JSON documents held to
a schema and tool calls are asked for, streamed and not, in token ids and over the chat API, by callers of whom some
leave. What was answered once in calm weather is what every caller must hold in the storm, to the character, or an
honest error with a clean beginning of it; afterwards nothing may be left: no task, no descriptor, no place on an
engine, no request in an engine.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import engine_process
import jsonschema_rs
import tokenizer_files

from guard.build import build_engine
from guard.config import parse_config
from guard.constraint.cache import ConstraintCache
from guard.pipeline import Pipeline
from guard.server.asgi import serve_http
from guard.server.openai import OpenAIApp
from guard.trace.tracing import Tracing
from tests.bench.resume import BODIES
from tests.bench.weights import float32
from tests.chaos.proxy import Proxy
from tests.chaos.wire import open_sockets, unchunked

CONFIG: Final = """\
engines:
ENGINES
routes:
  - {model: tokens, engines: [t0, t1], balance: least_loaded}
  - {model: chat, engines: [c0, c1], balance: least_loaded}
policies: {default: {max_attempts: 10, backoff_initial: 0.5, backoff_max: 4}}
health: {failures: 30, failure_rate: 1, open_initial: 0.2, open_max: 1, slow_start: 1}
limits: {retry_ratio: 4, retry_floor: 100, queue_seconds: 400, queue_length: 1000, request_timeout: 400}
"""
ENGINE: Final = (
    '  - {name: NAME, url: "URL", dialect: llamacpp, max_concurrency: 1, tool_format: hermes, SPEECH, '
    "timeouts: {connect: 0.5, first_token: 30, between_tokens: 12, total: 120}}\n"
)


def _said(prompt: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": prompt}]}


SCHEMA: Final = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer"},
        "married": {"type": "boolean"},
    },
    "required": ["name", "age", "married"],
    "additionalProperties": False,
}
ASKED: Final[tuple[tuple[str, int, dict[str, Any]], ...]] = (
    ("text", 24, _said("Tell me about lighthouses and the people who keep them.")),
    ("text", 24, _said("Write a short story about a bottle with a letter in it.")),
    (
        "json",
        64,
        {
            **_said("Describe a person called Alice, 30 years old, as a JSON object."),
            "response_format": {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}},
        },
    ),
    ("tool", 64, BODIES["tool"]),
)
"""What is asked for, in so many tokens at most."""

CALLERS: Final = 6
LONGEST: Final = 500.0


class Said(NamedTuple):
    """An answer as a caller holds it. ``calls``: name and arguments of each."""

    content: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    reason: str | None = None

    def begins(self, whole: Said) -> bool:
        """Whether it is a beginning of ``whole``."""
        return (
            whole.content.startswith(self.content)
            and len(self.calls) <= len(whole.calls)
            and all(
                mine == its or (name == its_name and its.startswith(mine))
                for (name, mine), (its_name, its) in zip(self.calls, whole.calls, strict=False)
            )
        )


class Reply(NamedTuple):
    said: Said
    error: dict[str, Any] | None = None
    problem: str = ""
    recovered: bool = False


class RealStorm:
    """``recovered`` counts the whole answers that took more than one attempt, ``exact`` those of them that are what
    they are in calm weather."""

    def __init__(self, requests: int, seed: int, rate: float, model: Path | None, folder: Path) -> None:
        self._requests = requests
        self._dice = Random(seed)
        self._rate = rate
        self._model = model
        self._folder = folder
        self.proxies = [Proxy(seed + number, 0.0) for number in range(2)]
        self._known: dict[tuple[str, int], Said] = {}
        self.ends: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        self.done: Counter[str] = Counter()
        self.recovered = 0
        self.exact = 0
        self.wrong: list[str] = []
        self.leaks: list[str] = []
        self.seconds = 0.0

    def _start(self) -> engine_process.LlamaCpp:
        return engine_process.start_engine(2, 4096, 1, model=self._model, template=self._folder / "template.jinja")

    async def run(self) -> None:
        tokenizer = tokenizer_files.write_tokenizer(self._folder / "tokenizer", tokenizer_files.TOOLS_TEMPLATE)
        (self._folder / "template.jinja").write_text(tokenizer_files.TOOLS_TEMPLATE)
        tasks, sockets = asyncio.all_tasks(), open_sockets()
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(self._end_engines)
            for proxy in self.proxies:
                await proxy.open(await asyncio.to_thread(self._start))
                stack.push_async_callback(proxy.close)
            lines = ""
            for kind, speech in (("t", f"mode: tokens, tokenizer: '{tokenizer}'"), ("c", "mode: chat")):
                for number, proxy in enumerate(self.proxies):
                    line = ENGINE.replace("NAME", f"{kind}{number}").replace("URL", proxy.url)
                    lines += line.replace("SPEECH", speech)
            config = parse_config(CONFIG.replace("ENGINES\n", lines))
            clients = {engine.name: build_engine(engine) for engine in config.engines}
            for client in clients.values():
                stack.push_async_callback(client.aclose)
            constraints = ConstraintCache()
            stack.callback(constraints.close)
            pipeline = Pipeline(config, clients, constraints, Tracing())
            server = serve_http(OpenAIApp(pipeline), grace=1)
            serving = asyncio.ensure_future(server.serve())

            async def stop() -> None:
                server.stop()
                await serving

            stack.push_async_callback(stop)
            for route in ("tokens", "chat"):
                for number in self._asked(route):
                    self._known[route, number] = await self._calm(server.address, route, number)
            for proxy in self.proxies:
                proxy.rate = self._rate
                proxy.asked = 0
            weather = asyncio.ensure_future(self._weather())
            began = time.monotonic()
            # one way of asking after the other: an engine has one answer under way at a time, as in calm weather
            await self._callers(server.address, "tokens", self._requests - self._requests // 3)
            await self._callers(server.address, "chat", self._requests // 3)
            self.seconds = time.monotonic() - began
            weather.cancel()
            await asyncio.gather(weather, return_exceptions=True)
            await self._settled(pipeline)
        await asyncio.sleep(0.2)
        self.leaks += [f"a task: {task.get_coro()}" for task in asyncio.all_tasks() - tasks if not task.done()]
        if (more := open_sockets() - sockets) > 0:
            self.leaks.append(f"{more} sockets")

    def _end_engines(self) -> None:
        for proxy in self.proxies:
            if proxy.engine is not None:
                proxy.engine.stop()

    def _asked(self, route: str) -> list[int]:
        """Calls are asked for in token ids: over its chat API this engine makes none of its own."""
        return [number for number, (kind, *_) in enumerate(ASKED) if route == "tokens" or kind != "tool"]

    async def _calm(self, address: tuple[str, int], route: str, number: int) -> Said:
        reply = await self._ask(address, route, number, streamed=True)
        if reply.error or reply.problem or not reply.said.reason:
            raise RuntimeError(f"{route}, {ASKED[number][0]}: no answer in calm weather: {reply}")
        if ASKED[number][0] == "tool" and not reply.said.calls:
            raise RuntimeError(f"{route}: no call in calm weather: {reply}")
        return reply.said

    async def _settled(self, pipeline: Pipeline) -> None:
        fleet, entrance = pipeline.traffic.fleet, pipeline.traffic.entrance
        names = [state.name for state in fleet.states(0.0)]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(10):
                while any(map(fleet.under_way, names)) or entrance.waiting:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        self.leaks += [f"{fleet.under_way(name)} places on {name}" for name in names if fleet.under_way(name)]
        if entrance.waiting:
            self.leaks.append(f"{entrance.waiting} in the queue")
        if not pipeline.ready()[0]:
            self.leaks.append(f"not ready: {pipeline.ready()[1]}")
        for number, proxy in enumerate(self.proxies):
            engine = proxy.engine
            assert engine is not None
            busy = await asyncio.to_thread(lambda engine=engine: [time.sleep(0.3), engine.busy][1])
            if busy:
                self.leaks.append(f"{busy} requests in engine {number}")

    async def _weather(self) -> None:
        """One engine at a time, so that there is one to go on from; the proxies' faults come on both."""
        down: Proxy | None = None
        try:
            while True:
                await asyncio.sleep(3 + self._dice.random() * 7)
                down = self._dice.choice(self.proxies)
                engine = down.engine
                assert engine is not None
                if self._dice.random() < 0.5:
                    self.done["killed"] += 1
                    down.shut()
                    await asyncio.to_thread(engine.stop)  # SIGKILL, in the middle of whatever it does
                    await down.open(await asyncio.to_thread(self._start))
                else:
                    self.done["frozen"] += 1
                    os.kill(engine.pid, signal.SIGSTOP)
                    await asyncio.sleep(0.5 + self._dice.random() * 15)  # some are short of a stall
                    os.kill(engine.pid, signal.SIGCONT)
                down = None
        except asyncio.CancelledError:
            if down is not None and down.engine is not None and not down.engine.alive:
                await down.open(await asyncio.to_thread(self._start))
            elif down is not None and down.engine is not None:
                os.kill(down.engine.pid, signal.SIGCONT)
            raise

    async def _callers(self, address: tuple[str, int], route: str, requests: int) -> None:
        places = asyncio.Semaphore(CALLERS)

        async def one() -> None:
            async with places:
                number, streamed = self._dice.choice(self._asked(route)), self._dice.random() < 0.6
                leaves = self._dice.random() * 3 if self._dice.random() < 0.1 else None
                what = f"{ASKED[number][0]} over {route}, {'streamed' if streamed else 'whole'}"
                self.kinds[what] += 1
                try:
                    async with asyncio.timeout(LONGEST if leaves is None else leaves):
                        reply = await self._ask(address, route, number, streamed=streamed)
                    self._judge(what, reply, self._known[route, number])
                except TimeoutError:
                    if leaves is None:
                        self.wrong.append(f"{what}: no end after {LONGEST:g} s")
                    else:
                        self.ends["left"] += 1

        await asyncio.gather(*(one() for _ in range(requests)))

    def _judge(self, what: str, reply: Reply, whole: Said) -> None:
        if reply.problem:
            self.wrong.append(f"{what}: {reply.problem}")
        elif reply.error is not None:
            self.ends[f"error: {reply.error.get('code')}"] += 1
            if not reply.error.get("message"):
                self.wrong.append(f"{what}: an error that says nothing")
            if not reply.said.begins(whole):
                self.wrong.append(f"{what}: an error behind another answer: {reply.said} instead of {whole}")
        else:
            self.ends["whole"] += 1
            self.recovered += reply.recovered
            if reply.said == whole:
                self.exact += reply.recovered
            elif not (self._may_differ(what) and _stands(reply.said)):
                self.wrong.append(f"{what}: {reply.said} instead of {whole}")

    def _may_differ(self, what: str) -> bool:
        """Over the chat API a text is cut into tokens again where it goes on, in the middle of a word as well as
        between two. What is held to a schema is still a whole document then, and another one."""
        return what.startswith("json over chat")

    async def _ask(self, address: tuple[str, int], route: str, number: int, *, streamed: bool) -> Reply:
        _, most, body = ASKED[number]
        asked = {"model": route, "temperature": 0, "max_tokens": most, "stream": streamed, **body}
        data = json.dumps(asked).encode()
        reader, writer = await asyncio.open_connection(*address)
        try:
            head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(data)}\r\n"
            writer.write(head.encode() + b"connection: close\r\n\r\n" + data)
            came = await reader.read()
        finally:
            writer.transport.abort()
        head_, _, rest = came.partition(b"\r\n\r\n")
        status = int(head_.split()[1])
        if streamed and status == 200:
            return _streamed(unchunked(rest), ended=rest.endswith(b"0\r\n\r\n"))
        answer = json.loads(unchunked(rest) if b"chunked" in head_.lower() else rest)
        if status != 200:
            return Reply(Said(), answer["error"])
        choice = answer["choices"][0]
        calls = choice["message"].get("tool_calls") or []
        said = Said(
            choice["message"].get("content") or "",
            tuple((call["function"]["name"], call["function"]["arguments"]) for call in calls),
            choice["finish_reason"],
        )
        return Reply(said, recovered=answer.get("outguard", {}).get("attempts", 1) > 1)


def _streamed(body: bytes, *, ended: bool) -> Reply:
    events = [line[6:] for line in body.decode().split("\n") if line.startswith("data: ")]
    parsed = [json.loads(event) for event in events if event != "[DONE]"]
    content, reason, calls = "", None, dict[int, list[str]]()
    for event in parsed:
        for choice in event.get("choices") or ():
            reason = choice.get("finish_reason") or reason
            content += choice["delta"].get("content") or ""
            for call in choice["delta"].get("tool_calls") or ():
                said = calls.setdefault(call["index"], ["", ""])
                function = call.get("function", {})
                said[0] += function.get("name") or ""
                said[1] += function.get("arguments") or ""
    held = Said(content, tuple((name, arguments) for _, (name, arguments) in sorted(calls.items())), reason)
    errors = [event["error"] for event in parsed if "error" in event]
    recovered = any((event.get("outguard") or {}).get("attempts", 1) > 1 for event in parsed)
    if errors:
        problem = "a failed stream that ends as if it were whole" if ended or "[DONE]" in events else ""
        return Reply(held, errors[0], problem)
    if not ended or events[-1:] != ["[DONE]"]:
        return Reply(held, problem="a stream that ends without an end and without an error")
    return Reply(held, recovered=recovered)


def _stands(said: Said) -> bool:
    try:
        return said.reason == "stop" and bool(jsonschema_rs.is_valid(SCHEMA, json.loads(said.content)))
    except ValueError:
        return False


def storm(requests: int, seed: int, rate: float, *, quantised: bool = False) -> RealStorm:
    """Run one, and print what became of it."""
    with tempfile.TemporaryDirectory() as folder:
        model = None if quantised else float32(engine_process.model_path())
        one = RealStorm(requests, seed, rate, model, Path(folder))
        asyncio.run(one.run())
    met = sum((Counter(proxy.met) for proxy in one.proxies), Counter[str]())
    attempts = sum(proxy.asked for proxy in one.proxies)
    print(f"real engines: {requests} requests in {one.seconds:.1f} s, {attempts} attempts")
    print("asked for: " + ", ".join(f"{count} {what}" for what, count in sorted(one.kinds.items())))
    print("engines: " + ", ".join(f"{name} {count} times" for name, count in sorted(one.done.items())))
    print("faults met: " + ", ".join(f"{name} {count}" for name, count in sorted(met.items())))
    print("ends: " + ", ".join(f"{name} {count}" for name, count in one.ends.most_common()))
    print(f"whole after more than one attempt: {one.recovered} of {one.ends['whole']}; {one.exact} as in calm weather")
    print(f"wrong: {len(one.wrong)}, left behind: {len(one.leaks)}")
    for line in one.wrong[:20] + one.leaks:
        print(f"  {line}")
    return one


def reason_not_to() -> str:
    return engine_process.missing() or tokenizer_files.missing()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=110)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=0.3, help="The share of attempts that meet a fault.")
    parser.add_argument("--quantised", action="store_true", help="the weights as they are shipped (Q4_1)")
    options = parser.parse_args()
    ended = storm(options.requests, options.seed, options.rate, quantised=options.quantised)
    raise SystemExit(bool(ended.wrong or ended.leaks))
