"""What one very long answer costs the sidecar in memory: ``make bench-memory``.

A prompt of 200,000 tokens (four bytes each) and an answer of 100,000 go through one stream of a sidecar in a process of
its own; the engine is played, as fast as it is read. Printed is by how much the resident memory grew at most while that
went on, after small requests had warmed it up, beside the size of the request itself.

    python -m tests.bench.memory [--prompt 200000] [--answer 100000] [--logprobs] [--rounds 3]
"""

from __future__ import annotations

import argparse
import http.client
import importlib.util
import json
import random
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1]


def _helper(name: str, path: str) -> Any:
    """As the tests' own conftest does it: helpers are imported by their bare names."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, TESTS / path)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]


_helper("engine_process", "engine_process.py")
_replay = _helper("replay_server", "engines/replay_server.py")
_sidecar = _helper("sidecar_process", "integration/sidecar_process.py")


WORD = 4


def words(count: int, seed: int) -> list[str]:
    """Of ``WORD`` characters with their blank, no two neighbours alike."""
    rng = random.Random(seed)
    letters = "abcdefghijklmnopqrstuvwxyz"
    return [" " + "".join(rng.choices(letters, k=3)) for _ in range(count)]


def answer(tokens: int, logprobs: bool) -> bytes:
    pieces = []
    for word in words(tokens, 1):
        piece = _replay.chunk(word)
        if logprobs:
            piece["choices"][0]["logprobs"] = {
                "content": [{"token": word, "logprob": -0.5, "bytes": None, "top_logprobs": []}]
            }
        pieces.append(piece)
    usage = {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": tokens, "total_tokens": tokens + 1}}
    body: bytes = _replay.sse(*pieces, _replay.chunk(finish="stop"), usage)
    return body


def through(sidecar: Any, prompt: str, logprobs: bool) -> tuple[float, float, int]:
    """(resident MB before, at most meanwhile, tokens that came: several of them may come in one piece)."""
    body = {"model": "m", "messages": [{"role": "user", "content": prompt}], "stream": True, "logprobs": logprobs}
    data = json.dumps(body).encode()
    before = most = sidecar.resident_mb()
    over = threading.Event()

    def watch() -> None:
        nonlocal most
        while not over.wait(0.02):
            most = max(most, sidecar.resident_mb())

    watcher = threading.Thread(target=watch)
    watcher.start()
    connection = http.client.HTTPConnection(sidecar.http.removeprefix("http://"), timeout=600)
    try:
        connection.request("POST", "/v1/chat/completions", data)
        reply = connection.getresponse()
        came, line, last = 0, b"", b""
        while part := reply.read1(65536):
            *lines, line = (line + part).split(b"\n")
            for one in lines:
                if one.startswith(b"data: {"):
                    choices = json.loads(one[6:])["choices"]
                    came += len(choices[0]["delta"].get("content") or "") // WORD if choices else 0
                last = one or last
        if last != b"data: [DONE]":
            raise RuntimeError(f"the answer did not end: {last[-300:]!r}")
    finally:
        connection.close()
        over.set()
        watcher.join()
    return before, max(most, sidecar.resident_mb()), came


def grown(prompt: int, tokens: int, *, logprobs: bool = False, rounds: int = 1) -> list[tuple[float, float, int]]:
    """Of each round: MB by which the sidecar grew, MB of the request, tokens that came."""
    text = "".join(words(prompt, 2))
    small = _replay.Reply(answer(200, logprobs))
    out: list[tuple[float, float, int]] = []
    with tempfile.TemporaryDirectory() as folder, _sidecar.played(small) as engine:
        trace = {"store": "none"}
        with _sidecar.Sidecar(Path(folder), {"a": engine.url}, dialect="plain", trace=trace) as sidecar:
            for _ in range(30):
                through(sidecar, "Tell me.", logprobs)
            time.sleep(0.2)
            engine.play(_replay.Reply(answer(tokens, logprobs)))
            for _ in range(rounds):
                before, most, came = through(sidecar, text, logprobs)
                out.append((most - before, len(text) / 1e6, came))
    return out


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompt", type=int, default=200_000, help="tokens")
    parser.add_argument("--answer", type=int, default=100_000, help="tokens")
    parser.add_argument("--logprobs", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    for mb, request, came in grown(options.prompt, options.answer, logprobs=options.logprobs, rounds=options.rounds):
        print(f"{came} tokens: the sidecar grew by {mb:.1f} MB; the request has {request:.1f} MB", flush=True)
