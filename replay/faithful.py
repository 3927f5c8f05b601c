"""How faithful a deployment is to a golden engine: measures, and the thresholds that they are held to. Pure.

- **Token match** is under forced decoding: the golden engine reads the candidate's answer and is asked, at every token,
  which one it would have taken. So one flip counts once, and does not spoil all that comes behind it.
- A mismatch within rounding (the golden margin is at most what the candidate's precision explains) is a near tie; what
  is beyond it no rounding explains, and is counted apart.
- **KL** is of the golden distribution from the candidate's, over the tokens that both give and one bucket for the rest:
  a lower bound of the whole, by the data processing inequality. None without log probabilities on both sides.
- **Tool-call trigger F1** and **schema accuracy** are as vendor verifiers publish them: an answer triggers when it ends
  with the finish reason ``tool_calls``; the golden's trigger is the truth; of the candidate's triggered answers those
  are right whose every call validates, an unknown tool being wrong. Not repeated are two of their mistakes: an answer
  without a finish reason is no "stop" but is counted as having none, and a call without an index is not taken for the
  first (the guard reads calls by their ids).
- What could not be measured is not measured: it neither passes nor fails.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from replay.margins import tolerance
from replay.observation import Observation

LONG_TOKENS: Final = 2048


class Step(Struct, frozen=True):
    """One token of a candidate's answer. ``best`` is the golden engine's own; ``short``: how much less likely it
    finds the candidate's token than its own (0 where they are one); ``margin``: how sure it is of its own.
    ``golden`` and ``candidate``: log probabilities by token id, as far as each gives them."""

    token: int
    best: int
    short: float
    margin: float
    golden: Mapping[int, float]
    candidate: Mapping[int, float]

    @property
    def same(self) -> bool:
        return self.token == self.best


class Forced(Struct, frozen=True):
    """An answer that the golden engine has read. ``prompt_tokens``: how long it is in the golden engine's own tokens;
    ``same_prompt``: None where nothing tells."""

    request_id: str
    steps: Sequence[Step]
    near: float
    prompt_tokens: int
    same_prompt: bool | None
    by_text: bool = False


class Match(Struct, frozen=True):
    """``matched`` of ``tokens``; ``near_ties`` and ``beyond`` are the mismatches. ``interval``: of the rate, 95 %, over
    requests (tokens of one answer are not independent). ``worst``: the least of any answer, and whose it is."""

    answers: int
    tokens: int
    matched: int
    near_ties: int
    beyond: int
    interval: tuple[float, float]
    worst: float
    worst_request: str
    kl_mean: float | None
    kl_p99: float | None

    @property
    def rate(self) -> float:
        return self.matched / self.tokens if self.tokens else 0.0


class Tools(Struct, frozen=True):
    """Of requests that offer tools. ``no_finish``: pairs in which an answer had no finish reason, left out of the F1.
    ``calls_right`` of ``triggered`` answers of the candidate; ``choice_kept`` of ``choice_asked``: tool_choice was
    obeyed."""

    pairs: int
    true_positive: int
    false_positive: int
    false_negative: int
    no_finish: int
    triggered: int
    calls_right: int
    choice_asked: int
    choice_kept: int

    @property
    def f1(self) -> float | None:
        """None where neither engine called a tool."""
        counted = 2 * self.true_positive + self.false_positive + self.false_negative
        return 2 * self.true_positive / counted if counted else None


def near_of(candidate: Observation) -> float:
    """What rounding in the candidate's precision explains, in nats; the golden engine's is not coarser."""
    return tolerance(candidate.cell.precision)


def match(answers: Sequence[Forced]) -> Match | None:
    """None where no answer could be read."""
    read = [answer for answer in answers if answer.steps]
    if not read:
        return None
    rates = {answer.request_id: _rate(answer) for answer in read}
    worst = min(rates, key=lambda name: rates[name])
    divergences = [kl for answer in read for step in answer.steps if (kl := kl_of(step)) is not None]
    tokens = sum(len(answer.steps) for answer in read)
    missed = [(step, answer.near) for answer in read for step in answer.steps if not step.same]
    near = sum(step.short <= limit for step, limit in missed)
    return Match(
        len(read),
        tokens,
        tokens - len(missed),
        near,
        len(missed) - near,
        _interval(read),
        rates[worst],
        worst,
        statistics.fmean(divergences) if divergences else None,
        sorted(divergences)[min(len(divergences) - 1, math.ceil(0.99 * len(divergences)) - 1)] if divergences else None,
    )


def kl_of(step: Step) -> float | None:
    """In nats, over the tokens that both give and the rest."""
    both = [token for token in step.candidate if token in step.golden]
    if not both:
        return None
    golden = [math.exp(step.golden[token]) for token in both]
    candidate = [math.exp(step.candidate[token]) for token in both]
    golden.append(max(0.0, 1.0 - sum(golden)))
    candidate.append(max(0.0, 1.0 - sum(candidate)))
    return max(0.0, sum(p * math.log(p / max(q, 1e-9)) for p, q in zip(golden, candidate, strict=True) if p > 1e-9))


def tools(pairs: Sequence[tuple[Observation, Observation]]) -> Tools | None:
    """``pairs`` of the golden and the candidate's answer to requests that offer tools. None where there are none."""
    answered = [(golden, candidate) for golden, candidate in pairs if golden.answered and candidate.answered]
    if not answered:
        return None
    known = [(g, c) for g, c in answered if g.finish_reason and c.finish_reason]
    both = [(triggers(golden), triggers(candidate)) for golden, candidate in known]
    triggered = [candidate for _, candidate in answered if triggers(candidate)]
    asked = [candidate for _, candidate in answered if candidate.verdict_tool_choice != "none"]
    return Tools(
        pairs=len(answered),
        true_positive=both.count((True, True)),
        false_positive=both.count((False, True)),
        false_negative=both.count((True, False)),
        no_finish=len(answered) - len(known),
        triggered=len(triggered),
        calls_right=sum(calls_right(one) for one in triggered),
        choice_asked=len(asked),
        choice_kept=sum(one.verdict_tool_choice == "ok" for one in asked),
    )


def triggers(answer: Observation) -> bool:
    return answer.finish_reason == "tool_calls"


def calls_right(answer: Observation) -> bool:
    """Every call was to a tool on offer, with arguments that its schema allows."""
    wrong = any(f.severity == "error" and f.code.split(".")[0] in ("tool", "json", "schema") for f in answer.findings)
    return not wrong and answer.verdict_format != "failed"


def long(answers: Sequence[Forced], tokens: int = LONG_TOKENS) -> list[Forced]:
    """Those whose prompt is at least so long."""
    return [answer for answer in answers if answer.prompt_tokens >= tokens]


def _rate(answer: Forced) -> float:
    return sum(step.same for step in answer.steps) / len(answer.steps)


def _interval(read: Sequence[Forced]) -> tuple[float, float]:
    """The jackknife over answers of the ratio of matched tokens to all, as wide as Student's t for so many answers."""
    matched = [sum(step.same for step in answer.steps) for answer in read]
    lengths = [len(answer.steps) for answer in read]
    rate, n = sum(matched) / sum(lengths), len(read)
    if n < 2:
        return (0.0, 1.0)
    without = [(sum(matched) - m) / (sum(lengths) - k) for m, k in zip(matched, lengths, strict=True)]
    spread = math.sqrt((n - 1) / n * sum((one - statistics.fmean(without)) ** 2 for one in without))
    wide = _student(n - 1) * spread
    return (max(0.0, rate - wide), min(1.0, rate + wide))


def _student(freedom: int) -> float:
    """The 97.5 % point of Student's t, by Cornish-Fisher's expansion; exact to two digits from 3 on."""
    if freedom < 3:
        return {1: 12.706, 2: 4.303}[freedom]
    z = 1.959964
    return (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    )
