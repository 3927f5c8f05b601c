"""Forced decoding: a golden engine reads a candidate's answer, and says at each token what it would have said. Edge.

Where the golden engine is the model in this process, an answer is one reading of it, and every log probability is
exact. Any other engine that takes token ids is asked for one token behind each beginning of the answer, ``AT_ONCE`` at
a time; it tells the log probabilities of its best tokens only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec

from guard.engines.contract import Engine, EngineError, EngineRequest
from guard.engines.torch_engine import TorchEngine
from guard.events import Fault, FinishReason, TextDelta
from guard.request import GenerationRequest, Sampling
from replay.faithful import Step
from replay.observation import Observation

AT_ONCE: Final = 4
ALTERNATIVES: Final = 10
END: Final = -1
"""The token of an engine that would have ended the answer here."""


class Unscored(Exception):
    """Why this golden engine cannot read this answer."""


class Read(msgspec.Struct):
    """``prompt``: the golden engine's own tokens of the prompt, empty where it does not tell. ``by_text``: the answer's
    tokens were not named by the candidate, and are the golden tokenizer's."""

    prompt: tuple[int, ...]
    steps: list[Step]
    by_text: bool = False


async def read(engine: Engine, request: GenerationRequest, answer: Observation) -> Read:
    """Raises Unscored."""
    if isinstance(engine, TorchEngine):
        return await _whole(engine, request, answer)
    return await _step_by_step(engine, request, answer)


async def _whole(engine: TorchEngine, request: GenerationRequest, answer: Observation) -> Read:
    said: Sequence[int] | str = answer.token_ids or answer.content
    wanted = [[one.token_id for one in best if one.token_id >= 0] for best in answer.top]
    try:
        prompt, ids, scores = await engine.score(request, said, wanted)
    except (EngineError, ValueError, IndexError) as error:
        raise Unscored(str(error)) from error
    steps = []
    for index, (token, score) in enumerate(zip(ids, scores, strict=False)):
        theirs = {one.token_id: one.logprob for one in answer.top[index]} if index < len(answer.top) else {}
        known = [one for one in theirs if one >= 0]
        steps.append(
            Step(
                token,
                score.best,
                score.best_logprob - score.chosen_logprob,
                score.best_logprob - score.second_logprob,
                dict(zip(known, score.wanted, strict=False)),
                {one: theirs[one] for one in known},
            )
        )
    return Read(tuple(prompt), steps, by_text=not answer.token_ids)


async def _step_by_step(engine: Engine, request: GenerationRequest, answer: Observation) -> Read:
    if not engine.capabilities.token_ids_in:
        raise Unscored(f"{engine.name} takes no token ids, so it cannot be put behind another's tokens")
    prompt = answer.prompt_ids or (request.prompt if isinstance(request.prompt, tuple) else ())
    if not prompt or not answer.token_ids:
        raise Unscored(f"{answer.cell.engine} did not name the token ids of its prompt and its answer")
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(index: int) -> Step | None:
        async with gate:
            best = await _next(engine, request, (*prompt, *answer.token_ids[:index]))
        return None if best is None else _step(answer, index, best)

    steps = await asyncio.gather(*(one(index) for index in range(len(answer.token_ids))))
    return Read(tuple(prompt), [step for step in steps if step is not None])


def _step(answer: Observation, index: int, best: dict[int, float]) -> Step:
    token = answer.token_ids[index]
    order = sorted(best.values(), reverse=True)
    first = max(best, key=lambda id_: best[id_])
    theirs = {one.token_id: one.logprob for one in answer.top[index]} if index < len(answer.top) else {}
    return Step(
        token,
        first,
        order[0] - best.get(token, order[-1]),
        order[0] - order[1] if len(order) > 1 else 0.0,
        best,
        {id_: logprob for id_, logprob in theirs.items() if id_ >= 0},
    )


async def _next(engine: Engine, request: GenerationRequest, ids: tuple[int, ...]) -> dict[int, float] | None:
    """The best next tokens with their log probabilities; END alone where the answer would end; None where the engine
    does not say."""
    asked = GenerationRequest(
        request.id,
        "completion",
        request.model,
        prompt=ids,
        sampling=Sampling(max_tokens=1, temperature=0, logprobs=True, top_logprobs=ALTERNATIVES),
        protocol="replay",
        return_token_ids=True,
    )
    entries: list[dict[str, object]] = []
    named: tuple[int, ...] = ()
    reason = ""
    try:
        stream = await engine.open(EngineRequest(asked, max_tokens=1))
        try:
            async for events in stream:
                for event in events:
                    if isinstance(event, TextDelta):
                        entries += event.logprobs or []
                        named += event.token_ids or ()
                    elif isinstance(event, FinishReason):
                        reason = event.reason
                    elif isinstance(event, Fault):
                        raise Unscored(event.message)
        finally:
            await stream.aclose()
    except EngineError as error:
        raise Unscored(error.message) from error
    if not entries:
        if named:
            return {named[0]: 0.0}
        return {END: 0.0} if reason == "stop" else None
    entry = entries[0]
    alternatives = entry.get("top_logprobs")
    found = {}
    for one in [entry, *(alternatives if isinstance(alternatives, list) else [])]:
        if isinstance(id_ := one.get("id"), int) and isinstance(logprob := one.get("logprob"), int | float):
            found[id_] = float(logprob)
    if named and not found:
        found[named[0]] = 0.0
    return found or None
