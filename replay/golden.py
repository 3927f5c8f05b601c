"""A candidate against a golden engine: the candidate answers, the golden engine reads its answers, and a scorecard says
how faithful they are. Edge.

The golden engine answers by itself only where that is needed: where requests offer tools (whether to call one is its to
say), and where it cannot read token ids in one go (its own count of the prompt's tokens is wanted).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from guard.build import build_engine
from guard.config import Config, EngineConfig
from guard.engines.contract import Engine
from guard.engines.torch_engine import address
from replay.campaign import conduct
from replay.faithful import Forced, Tools, near_of, tools
from replay.journal import Journal
from replay.lanes import Outcome, Progress
from replay.matrix import Matrix
from replay.observation import Observation
from replay.scorecard import Scorecard, faithfulness
from replay.scores import Read, Unscored, read
from replay.source import ReplayError, Source

GOLDEN = "golden"


class Pairing(Struct, frozen=True):
    """``config`` has the golden engine among its engines, also where it was named by its address alone."""

    config: Config
    golden: str
    candidate: str

    def matrix(self, declared: Matrix, sources: Sequence[Source]) -> Matrix:
        """Both greedy and alone, with as many log probabilities as engines give."""
        engine = next(one for one in self.config.engines if one.name == self.golden)
        needed = engine.dialect != "torch" or any(source.body.get("tools") for source in sources)
        return declared.model_copy(
            update={
                "engines": (self.golden, self.candidate) if needed else (self.candidate,),
                "sampling": declared.sampling.model_copy(update={"temperature": 0.0}),
                "concurrency": ("alone",),
                "repeats": 1,
                "echo": 0,
            }
        )


def pair(config: Config, golden: str, candidate: str) -> Pairing:
    """``golden``: the name of an engine, ``torch`` for the one of that dialect, or a torch:// address. Raises
    ReplayError."""
    names = [engine.name for engine in config.engines]
    if golden.startswith("torch:"):
        try:
            place = address(golden)
        except ValueError as error:
            raise ReplayError(f"--golden {golden}: {error}") from error
        engine = EngineConfig(name=GOLDEN, url=golden, dialect="torch", precision=place.dtype)
        config = config.model_copy(update={"engines": (*config.engines, engine)})
        golden = GOLDEN
    elif golden == "torch" and golden not in names:
        found = [engine.name for engine in config.engines if engine.dialect == "torch"]
        if len(found) != 1:
            told = f"{len(found) or 'no'} engines of the configuration have the dialect torch"
            raise ReplayError(f"--golden torch: {told}; name one, or give torch:///path/of/a/model")
        golden = found[0]
    known = ", ".join(names)
    for option, name in (("--golden", golden), ("--candidate", candidate)):
        if name not in [engine.name for engine in config.engines]:
            raise ReplayError(f"{option}: no such engine: {name} (there are: {known})")
    if golden == candidate:
        raise ReplayError(f"{golden} cannot be its own golden engine")
    return Pairing(config, golden, candidate)


async def verify(
    pairing: Pairing,
    journal: Journal,
    thresholds: Mapping[str, float],
    told: Callable[[Progress], None],
    stop: asyncio.Event | None = None,
) -> tuple[Outcome, Scorecard | None]:
    """No scorecard where the run was ended early."""
    by_name = {engine.name: engine for engine in pairing.config.engines}
    names = dict.fromkeys((pairing.golden, pairing.candidate))
    engines: dict[str, Engine] = {name: build_engine(by_name[name]) for name in names}
    try:
        outcome = await conduct(pairing.config, journal, told, engines=engines, stop=stop)
        if outcome.stopped:
            return outcome, None
        card = await score(pairing, engines[pairing.golden], journal.head.sources, outcome.observations, thresholds)
        return outcome, card
    finally:
        await asyncio.gather(*(engine.aclose() for engine in engines.values()))


async def score(
    pairing: Pairing,
    golden: Engine,
    sources: Sequence[Source],
    observations: Sequence[Observation],
    thresholds: Mapping[str, float],
) -> Scorecard:
    theirs = {one.request_id: one for one in observations if one.cell.engine == pairing.candidate}
    own = {one.request_id: one for one in observations if one.cell.engine == pairing.golden}
    forced: list[Forced] = []
    unread: list[str] = []
    for source in sources:
        answer = theirs.get(source.id)
        if answer is None or answer.error:
            unread.append(f"no answer: {answer.error}" if answer is not None else "not run")
            continue
        try:
            found = await read(golden, source.request(), answer)
        except Unscored as error:
            unread.append(str(error))
            continue
        forced.append(_forced(source, found, answer, own.get(source.id)))
    answers = list(theirs.values())
    sound = sum(not one.error and not one.wrong() for one in answers)
    title = f"{pairing.candidate} against {pairing.golden}"
    return faithfulness(title, forced, _tools(sources, own, theirs), unread, (sound, len(answers)), thresholds)


def _tools(
    sources: Sequence[Source], own: Mapping[str, Observation], theirs: Mapping[str, Observation]
) -> Tools | None:
    pairs = [(own[s.id], theirs[s.id]) for s in sources if s.body.get("tools") and s.id in own and s.id in theirs]
    return tools(pairs)


def _forced(source: Source, found: Read, answer: Observation, own: Observation | None) -> Forced:
    length = len(found.prompt) or (own.counts.prompt if own is not None else 0)
    return Forced(source.id, found.steps, near_of(answer), length, _same_prompt(found, answer, own), found.by_text)


def _same_prompt(found: Read, answer: Observation, own: Observation | None) -> bool | None:
    """By the ids where both are known, else by their number."""
    if answer.prompt_ids and found.prompt and answer.prompt_ids != found.prompt:
        return False
    golden = own.counts.prompt if own is not None and own.counts.prompt >= 0 else len(found.prompt) or -1
    if answer.counts.prompt < 0 or golden < 0:
        return True if answer.prompt_ids and found.prompt else None
    return answer.counts.prompt == golden
