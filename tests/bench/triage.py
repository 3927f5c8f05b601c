"""The proof on real engines: one set of weights in four deployments, and what the matrix finds of them.

``python -m tests.bench.triage [--requests 6] [--tokens 64] [--html FILE] [--folder DIR]``: llama.cpp in float32 and
with the 4-bit weights as they are, the model in this process in float32 and bfloat16. The float32 cells must agree
token for token; the others part from them, and every seam is shown with the margins on both sides. Then each of the
three others is held against the float32 model: forced decoding, KL, prompts. Exit code 0: it came out like that.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from guard.build import build_engine
from guard.config import Config, parse_config
from guard.normalise import to_openai_body
from guard.request import GenerationRequest, Sampling
from guard.tables import show
from replay.campaign import Campaign, conduct
from replay.golden import pair, score
from replay.journal import Journal
from replay.matrix import Matrix
from replay.report import Report, reported, scorecard_table, terminal
from replay.scorecard import THRESHOLDS, Scorecard
from replay.select import Selection
from replay.source import Source
from replay.web.page import page

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import engine_process

from tests.bench.weights import float32

PROMPTS = (
    "What is the capital of France?",
    "Write a short poem about the sea.",
    "Name three colours.",
    "Explain why the sky is blue.",
    "Tell a story about a lighthouse keeper.",
    "How do I bake bread?",
    "What is a prime number?",
    "List five animals of the forest.",
    "Describe the city of Rome.",
    "Why do leaves fall in autumn?",
    "What does a carpenter do?",
    "Give me a proverb about patience.",
)
EXACT = ("llama-f32", "torch-f32")
CANDIDATES = ("llama-f32", "llama-q4", "torch-bf16")


@contextmanager
def deployments() -> Iterator[Config]:
    quantised = engine_process.model_path()
    whole = engine_process.start_engine(parallel=1, context=2048, threads=1, model=float32(quantised))
    small = engine_process.start_engine(parallel=1, context=2048, threads=1)
    slow = {"timeouts": {"first_token": 300, "between_tokens": 120}}
    try:
        engines = [
            {"name": "llama-f32", "url": whole.url, "dialect": "llamacpp", "precision": "f32"},
            {"name": "torch-f32", "url": f"torch://{quantised}", "dialect": "torch", "precision": "f32", **slow},
            {"name": "llama-q4", "url": small.url, "dialect": "llamacpp", "precision": "q4_1"},
            {"name": "torch-bf16", "url": f"torch://{quantised}?dtype=bf16", "dialect": "torch", **slow},
        ]
        engines[3]["precision"] = "bf16"
        routes = [{"model": "smollm2", "engines": [engine["name"] for engine in engines]}]
        yield parse_config(json.dumps({"engines": engines, "routes": routes}))
    finally:
        whole.stop()
        small.stop()


def asked(count: int, tokens: int) -> list[Source]:
    found = []
    for number in range(count):
        request = GenerationRequest(
            f"prompt-{number + 1}",
            "chat",
            "smollm2",
            messages=[{"role": "user", "content": PROMPTS[number % len(PROMPTS)]}],
            sampling=Sampling(max_tokens=tokens, temperature=0),
        )
        found.append(Source(request.id, "chat", to_openai_body(request)))
    return found


async def measure(config: Config, sources: list[Source], folder: Path) -> tuple[Report, list[Scorecard]]:
    campaign = Campaign(config, Matrix(), Selection(sources, len(sources), {}))
    engines = {engine.name: build_engine(engine) for engine in config.engines}
    try:
        for engine in engines.values():  # weights are loaded one after the other
            await engine.health()
        with Journal.create(folder, campaign.head(time.time(), "make demo-triage")) as journal:
            outcome = await conduct(config, journal, lambda _: None, engines=dict(engines))
        golden, seen = engines["torch-f32"], outcome.observations
        pairs = [pair(config, golden.name, name) for name in CANDIDATES]
        cards = [await score(one, golden, sources, seen, THRESHOLDS) for one in pairs]
    finally:
        await asyncio.gather(*(engine.aclose() for engine in engines.values()))
    return reported(journal.head, outcome.observations), cards


def parted(report: Report) -> dict[str, int]:
    """How many requests each engine answers other than torch-f32 does."""
    answers = {(one.cell.engine, one.request_id): one.content for one in report.observations}
    ids = [source.id for source in report.sources]
    engines = dict.fromkeys(one.cell.engine for one in report.observations)
    return {e: sum(answers.get((e, id_)) != answers.get(("torch-f32", id_)) for id_ in ids) for e in engines}


def as_it_should(report: Report, cards: list[Scorecard]) -> list[str]:
    """What did not come out as it should; nothing when all did."""
    problems = []
    differ = parted(report)
    if any(differ[name] for name in EXACT):
        problems.append(f"the float32 engines differ on {differ['llama-f32']} requests")
    parting = ("llama-q4", "torch-bf16")
    problems += [f"{name} parts from float32 on no request" for name in parting if not differ[name]]
    assert report.triage is not None
    causes = {one.scope: one.cause for one in report.triage.contrasts}
    wrong = {scope: cause for scope, cause in causes.items() if "corruption" in cause or "sampling" in cause}
    if wrong:
        problems.append(f"causes that are none here: {wrong}")
    seams = [seam.comparison.divergence for seam in report.summary.seams]
    if not any(seam is not None and seam.left.margin is not None and seam.right.margin is not None for seam in seams):
        problems.append("no seam shows the margins of both sides")
    kl = {card.title.split()[0]: next(row.value for row in card.rows if row.name == "kl_mean") for card in cards}
    exact, half, small = (kl[name] for name in ("llama-f32", "torch-bf16", "llama-q4"))
    if exact is None or half is None or small is None or not exact < 1e-5 < half < small:
        problems.append(f"the candidates are not in the order of their precision: {kl}")
    if not cards[0].passed:
        problems.append("llama-f32 is not faithful to torch-f32")
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=6)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--html", type=Path)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    if reason := engine_process.missing():
        print(reason)
        return 1
    folder = options.folder or Path(tempfile.mkdtemp(prefix="outguard-triage-"))
    with deployments() as config:
        report, cards = asyncio.run(measure(config, asked(options.requests, options.tokens), folder))
    show(terminal(report))
    for card in cards:
        show(scorecard_table(card))
    if options.html:
        options.html.write_text(page(report), encoding="utf-8")
        print(f"the page: {options.html}")
    print(f"requests answered other than by torch-f32: {parted(report)}")
    problems = as_it_should(report, cards)
    print("\n".join(problems) or "as it should be: float32 agrees, the others part by margins that are shown")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
