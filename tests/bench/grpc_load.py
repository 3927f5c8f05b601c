"""The load generator of the gRPC bench: a process of its own, one connection, many calls of Guard.Generate.

    python -m tests.bench.grpc_load PORT ENGINE_PORT MODEL STREAMS REQUESTS TOKENS

Messages are kept as bytes while the calls run, which costs as little as grpc.aio allows. Afterwards, off the account,
each answer is parsed and held against what the engine says to the same seed when it is asked directly: one that is
wrong, short or without its end, and there is no number. Prints one JSON line.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import urllib.request
from dataclasses import dataclass, field
from typing import Any

import grpc.aio

from guard.v1 import guard_pb2 as pb

METHOD = "/guard.v1.Guard/Generate"
PROMPT = "Tell me about lighthouses, at some length, and in plain words. " * 6


class WrongAnswer(Exception):
    pass


@dataclass
class Call:
    """One answer. ``first_s``: until its first delta."""

    seed: int
    messages: list[bytes] = field(default_factory=list)
    began: float = 0.0
    first_s: float = 0.0


def request(model: str, seed: int, tokens: int) -> bytes:
    asked = pb.GenerateRequest(
        model=model,
        chat=pb.ChatPrompt(messages=[pb.ChatMessage(role=pb.ROLE_USER, text=PROMPT)]),
        sampling=pb.Sampling(max_tokens=tokens, seed=seed, temperature=0.7),
    )
    return bytes(asked.SerializeToString())


async def run(port: int, model: str, streams: int, requests: int, tokens: int) -> tuple[list[Call], float, float]:
    """The calls, the seconds they took and the CPU."""
    calls = [Call(1_000_003 * number % 2_147_483_647) for number in range(1, requests + 1)]
    bodies = [request(model, call.seed, tokens) for call in calls]
    waiting = iter(zip(calls, bodies, strict=True))
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        generate = channel.unary_stream(METHOD)  # neither a serializer nor a deserializer: bytes

        async def one_after_another() -> None:
            for call, body in waiting:
                call.began = time.monotonic()
                keep = call.messages.append
                async for message in generate(body):
                    keep(message)
                    if len(call.messages) == 2:  # the first says that the request was accepted
                        call.first_s = time.monotonic() - call.began

        await channel.channel_ready()
        began, cpu = time.monotonic(), time.process_time()
        await asyncio.gather(*(one_after_another() for _ in range(streams)))
        return calls, time.monotonic() - began, time.process_time() - cpu


def text_of(call: Call) -> str:
    """The content of an answer that is whole; raises WrongAnswer."""
    parts: list[str] = []
    ends = 0
    for data in call.messages:
        message = pb.GenerateResponse.FromString(data)
        kind = message.WhichOneof("event")
        if kind == "delta":
            parts.append(message.delta.content)
        elif kind == "finished":
            ends += 1
        elif kind != "started":
            raise WrongAnswer(f"the answer to seed {call.seed} holds a {kind}: {str(message)[:300]}")
    if ends != 1:
        raise WrongAnswer(f"the answer to seed {call.seed} has {ends} ends after {len(parts)} deltas")
    return "".join(parts)


def asked_directly(engine_port: int, model: str, seed: int, tokens: int) -> str:
    body = json.dumps({"model": model, "seed": seed, "max_tokens": tokens, "messages": []}).encode()
    url = f"http://127.0.0.1:{engine_port}/v1/chat/completions"
    with urllib.request.urlopen(url, data=body, timeout=10) as reply:
        text: str = json.load(reply)["choices"][0]["message"]["content"]
        return text


def seen(calls: list[Call], wall_s: float, cpu_s: float) -> dict[str, Any]:
    firsts = sorted(call.first_s for call in calls)
    return {
        "requests": len(calls),
        "messages": sum(len(call.messages) for call in calls),
        "wall_s": wall_s,
        "cpu_s": cpu_s,
        "first_us_p50": firsts[len(firsts) // 2] * 1e6,
    }


def main(port: int, engine_port: int, model: str, streams: int, requests: int, tokens: int) -> None:
    calls, wall_s, cpu_s = asyncio.run(run(port, model, streams, requests, tokens))
    for call in calls:
        if text_of(call) != asked_directly(engine_port, model, call.seed, tokens):
            raise WrongAnswer(f"the text to seed {call.seed} is not the engine's")
    print(json.dumps(seen(calls, wall_s, cpu_s)))


if __name__ == "__main__":
    _, to, engine_at, of_model, *counts = sys.argv
    try:
        main(int(to), int(engine_at), of_model, *map(int, counts))
    except (WrongAnswer, grpc.aio.AioRpcError, OSError) as error:
        sys.exit(f"grpc_load: {error}")
