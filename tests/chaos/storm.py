"""Requests through a whole sidecar while its engines break: ``python -m tests.chaos.storm [--requests N] [--real N]``.

Three engines (engine.py), over both protocols, streamed and whole, with callers that leave. While they are asked,
engines die and come back, and freeze and thaw. Every caller must hold the whole story or an honest error with a clean
beginning of it; afterwards nothing may be left: no task, no descriptor, no place on an engine.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
import time
from collections import Counter
from random import Random
from typing import Any

import grpc
import grpc.aio

from guard.build import build_engine
from guard.config import parse_config
from guard.constraint.cache import ConstraintCache
from guard.pipeline import Pipeline
from guard.server.asgi import serve_http
from guard.server.grpc import create_server
from guard.server.openai import OpenAIApp
from guard.trace.tracing import Tracing
from guard.v1 import guard_pb2 as pb
from guard.v1 import guard_pb2_grpc
from tests.chaos.engine import STORY, ChaosEngine
from tests.chaos.wire import open_sockets, unchunked

NAMES = ("a", "b", "c")
CONFIG = """\
engines:
ENGINES
routes: [{model: m, engines: [a, b, c], balance: least_loaded}]
policies: {default: {max_attempts: 6, backoff_initial: 0.01, backoff_max: 0.1}}
health: {failures: 6, failure_rate: 0.8, open_initial: 0.1, open_max: 0.3, slow_start: 1}
limits: {retry_ratio: 2, retry_floor: 50, queue_seconds: 5}
"""
ENGINE = (
    '  - {name: NAME, url: "URL", dialect: vllm, max_concurrency: 8, '
    "timeouts: {connect: 0.3, first_token: 0.4, between_tokens: 0.4, total: 20}}\n"
)


class Storm:
    """``wrong``: what no caller may see. ``ends`` counts how requests ended."""

    def __init__(self, requests: int, seed: int, rate: float = 0.4) -> None:
        self._requests = requests
        self._dice = Random(seed)
        self.engines = [ChaosEngine(seed + i, rate) for i in range(len(NAMES))]
        self.ends: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.leaks: list[str] = []
        self.seconds = 0.0

    async def run(self) -> None:
        async with grpc.aio.insecure_channel("127.0.0.1:1"):  # what gRPC makes once and keeps
            tasks, sockets = asyncio.all_tasks(), open_sockets()
        async with contextlib.AsyncExitStack() as stack:
            for engine in self.engines:
                await engine.start()
                stack.push_async_callback(engine.die)
            urls = zip(NAMES, [engine.url for engine in self.engines], strict=True)
            text = "".join(ENGINE.replace("NAME", name).replace("URL", url) for name, url in urls)
            config = parse_config(CONFIG.replace("ENGINES\n", text))
            clients = {engine.name: build_engine(engine) for engine in config.engines}
            for client in clients.values():
                stack.push_async_callback(client.aclose)
            pipeline = Pipeline(config, clients, ConstraintCache(), Tracing())
            server = serve_http(OpenAIApp(pipeline), grace=1)
            serving = asyncio.ensure_future(server.serve())

            async def stop() -> None:
                server.stop()
                await serving

            stack.push_async_callback(stop)
            grpc_server, port = create_server(pipeline, address="127.0.0.1:0")
            await grpc_server.start()
            stack.push_async_callback(grpc_server.stop, 0)
            channel = await stack.enter_async_context(grpc.aio.insecure_channel(f"127.0.0.1:{port}"))
            stub = guard_pb2_grpc.GuardStub(channel)
            weather = asyncio.ensure_future(self._weather())
            began = time.monotonic()
            await self._callers(server.address, stub)
            self.seconds = time.monotonic() - began
            weather.cancel()
            await asyncio.gather(weather, return_exceptions=True)
            await self._settled(pipeline)
        await asyncio.sleep(0.1)
        left = {task for task in asyncio.all_tasks() - tasks if not task.done()}
        self.leaks += [f"a task: {task.get_coro()}" for task in left]
        if (more := open_sockets() - sockets) > 0:
            self.leaks.append(f"{more} sockets")

    async def _settled(self, pipeline: Pipeline) -> None:
        fleet = pipeline.traffic.fleet
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(5):
                while any(map(fleet.under_way, NAMES)) or pipeline.traffic.entrance.waiting:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        self.leaks += [f"{fleet.under_way(name)} places on {name}" for name in NAMES if fleet.under_way(name)]
        if pipeline.traffic.entrance.waiting:
            self.leaks.append(f"{pipeline.traffic.entrance.waiting} in the queue")

    async def _weather(self) -> None:
        while True:
            await asyncio.sleep(0.15 + self._dice.random() * 0.3)
            engine = self._dice.choice(self.engines)
            if self._dice.random() < 0.5:
                await engine.die()
                await asyncio.sleep(self._dice.random() * 0.4)
                await engine.start()
            else:
                engine.frozen = True
                await asyncio.sleep(self._dice.random() * 0.6)
                engine.frozen = False

    async def _callers(self, http: tuple[str, int], stub: Any) -> None:
        waiting = asyncio.Semaphore(16)

        async def one(number: int) -> None:
            async with waiting:
                how = self._dice.choice(("streamed", "streamed", "whole", "grpc", "leaves"))
                try:
                    async with asyncio.timeout(60):
                        if how == "grpc":
                            await self._over_grpc(stub, number)
                        else:
                            await self._over_http(http, number, how)
                except TimeoutError:
                    self.wrong.append(f"{how}: no end after a minute")

        await asyncio.gather(*map(one, range(self._requests)))

    async def _over_http(self, address: tuple[str, int], number: int, how: str) -> None:
        asked = [{"role": "user", "content": f"Tell the story, number {number}."}]
        body = json.dumps({"model": "m", "messages": asked, "stream": how != "whole"}).encode()
        reader, writer = await asyncio.open_connection(*address)
        try:
            head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n"
            writer.write(head.encode() + b"connection: close\r\n\r\n" + body)
            if how == "leaves":
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._dice.random() * 0.2):
                        await reader.read()
                self.ends["left"] += 1
                return
            said = await reader.read()
        finally:
            writer.transport.abort()
        status, _, rest = said.partition(b"\r\n\r\n")
        if how == "whole":
            self._whole(int(status.split()[1]), json.loads(rest))
        elif b" 200 " in status.partition(b"\r\n")[0]:
            self._stream(unchunked(rest), ended=rest.endswith(b"0\r\n\r\n"))
        else:
            self._error(json.loads(rest)["error"], "")

    def _whole(self, status: int, answer: Any) -> None:
        if status != 200:
            self._error(answer["error"], "")
            return
        self._told(answer["choices"][0]["message"]["content"], answer["choices"][0]["finish_reason"])

    def _stream(self, body: bytes, *, ended: bool) -> None:
        events = [line[6:] for line in body.decode().split("\n") if line.startswith("data: ")]
        parsed = [json.loads(event) for event in events if event != "[DONE]"]
        choices = [event["choices"][0] for event in parsed if event.get("choices")]
        text = "".join(choice["delta"].get("content") or "" for choice in choices)
        errors = [event["error"] for event in parsed if "error" in event]
        if errors:
            if ended or "[DONE]" in events:
                self.wrong.append("a failed stream that ends as if it were whole")
            self._error(errors[0], text)
        elif not ended or events[-1:] != ["[DONE]"]:
            self.wrong.append("a stream that ends without an end and without an error")
        else:
            self._told(text, next((c["finish_reason"] for c in reversed(choices) if c["finish_reason"]), None))

    async def _over_grpc(self, stub: Any, number: int) -> None:
        text, reason = "", None
        asked = pb.ChatMessage(role=pb.ROLE_USER, text=f"Tell the story, number {number}.")
        call = stub.Generate(pb.GenerateRequest(model="m", chat=pb.ChatPrompt(messages=[asked])), timeout=50)
        try:
            async for response in call:
                kind = response.WhichOneof("event")
                if kind == "delta":
                    text += response.delta.content
                elif kind == "finished":
                    reason = response.finished.finish_reason
        except grpc.aio.AioRpcError as error:
            self._error({"code": error.code().name, "message": error.details()}, text)
            return
        self._told(text, reason)

    def _told(self, text: str, reason: str | None) -> None:
        self.ends["whole"] += 1
        if text != STORY:
            self.wrong.append(f"finished ({reason}) with another story: {_difference(text)}")
        elif reason != "stop":
            self.wrong.append(f"the whole story, and its finish reason is {reason}")

    def _error(self, error: Any, text: str) -> None:
        self.ends[f"error: {error['code']}"] += 1
        if not error["message"]:
            self.wrong.append("an error that says nothing")
        if not STORY.startswith(text):
            self.wrong.append(f"an error behind another story: {_difference(text)}")


def _difference(text: str) -> str:
    at = next((i for i, pair in enumerate(zip(text, STORY, strict=False)) if pair[0] != pair[1]), len(STORY))
    return f"at {at} of {len(text)}: {text[max(0, at - 20) : at + 20]!r}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=500, help="Of them all.")
    parser.add_argument("--real", type=int, default=110, help="So many of them through real engines (real.py).")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=0.4, help="The share of attempts that meet a fault.")
    asked = parser.parse_args()
    scripted = asked.requests - asked.real
    storm = Storm(scripted, asked.seed, asked.rate)
    asyncio.run(storm.run())
    met = sum((Counter(engine.met) for engine in storm.engines), Counter[str]())
    attempts = sum(engine.requests for engine in storm.engines)
    print(f"scripted engines: {scripted} requests in {storm.seconds:.1f} s, {attempts} attempts")
    print("faults met: " + ", ".join(f"{name} {count}" for name, count in sorted(met.items())))
    print("ends: " + ", ".join(f"{name} {count}" for name, count in storm.ends.most_common()))
    print(f"wrong: {len(storm.wrong)}, left behind: {len(storm.leaks)}")
    for line in storm.wrong[:20] + storm.leaks:
        print(f"  {line}")
    failed = bool(storm.wrong or storm.leaks)
    if asked.real:
        from tests.chaos import real

        if reason := real.reason_not_to():
            print(f"real engines: none ({reason})")
            failed = True
        else:
            other = real.storm(asked.real, asked.seed, 0.3)
            failed = failed or bool(other.wrong or other.leaks)
    sys.exit(failed)


if __name__ == "__main__":
    main()
