"""A scorecard: what was measured, what it is held to, and whether it passes. Pure.

What could not be measured says why, and neither passes nor fails; a card with nothing measured does not pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from msgspec import Struct

from replay.faithful import Forced, Match, Tools, long, match

State = Literal["pass", "fail", "not measured"]

THRESHOLDS: Final[Mapping[str, float]] = {
    "token_match": 0.95,
    "beyond_rounding": 0.001,
    "kl_mean": 0.05,
    "long_token_match": 0.93,
    "prompt_equality": 1.0,
    "tool_trigger_f1": 0.8,
    "schema_accuracy": 0.95,
    "tool_choice": 0.95,
    "sound": 1.0,
}
"""Least values, save of AT_MOST. Rounding alone costs 1 to 3 % of the matches (published for fp8; measured for bf16 on
a small model by ``make demo-triage``: 2 %), another model 20 % and more. They are ours, and meant to be set by who
knows the deployment; what no rounding explains is the strict one."""

AT_MOST: Final = frozenset({"beyond_rounding", "kl_mean"})


class Row(Struct, frozen=True):
    """``measured`` and ``bound`` as told; ``detail`` for who wants to know more; ``value`` is what was measured."""

    name: str
    state: State
    measured: str
    bound: str
    detail: str = ""
    value: float | None = None


class Scorecard(Struct, frozen=True):
    title: str
    rows: tuple[Row, ...]

    @property
    def passed(self) -> bool:
        states = [row.state for row in self.rows]
        return "pass" in states and "fail" not in states


def held(name: str, value: float | None, measured: str, detail: str, thresholds: Mapping[str, float]) -> Row:
    """A value against its threshold."""
    bound = thresholds[name]
    at_most = name in AT_MOST
    told = f"{'at most' if at_most else 'at least'} {bound:g}"
    if value is None:
        return Row(name, "not measured", measured, told, detail)
    fine = value <= bound if at_most else value >= bound
    return Row(name, "pass" if fine else "fail", measured, told, detail, value)


def faithfulness(
    title: str,
    forced: Sequence[Forced],
    called: Tools | None,
    unread: Sequence[str],
    sound: tuple[int, int],
    thresholds: Mapping[str, float] = THRESHOLDS,
) -> Scorecard:
    """``unread``: why answers could not be read by the golden engine. ``sound``: of how many of the candidate's answers
    none is condemned."""
    whole = match(forced)
    rows = [*_matches(whole, unread, thresholds), _long(forced, thresholds), _prompts(forced, thresholds)]
    rows += _tools(called, thresholds)
    good, answers = sound
    share = good / answers if answers else None
    rows.append(held("sound", share, f"{good} of {answers} answers", "", thresholds))
    return Scorecard(title, tuple(rows))


def _matches(whole: Match | None, unread: Sequence[str], thresholds: Mapping[str, float]) -> list[Row]:
    reasons = "; ".join(dict.fromkeys(unread))
    if whole is None:
        why = reasons or "no answer could be read"
        return [held(name, None, why, "", thresholds) for name in ("token_match", "beyond_rounding", "kl_mean")]
    low, high = whole.interval
    told = f"{whole.rate:.4f} of {whole.tokens} tokens in {whole.answers} answers, 95 % {low:.4f} to {high:.4f}"
    worst = f"least {whole.worst:.3f} ({whole.worst_request})" + (
        f"; {len(unread)} unread: {reasons}" if unread else ""
    )
    beyond = f"{whole.beyond} of {whole.tokens} tokens, besides {whole.near_ties} near ties"
    kl = "no log probabilities on both sides" if whole.kl_mean is None else f"{whole.kl_mean:.5f}"
    p99 = "" if whole.kl_p99 is None else f"99th percentile {whole.kl_p99:.4f}, nats, a lower bound"
    return [
        held("token_match", whole.rate, told, worst, thresholds),
        held("beyond_rounding", whole.beyond / whole.tokens, beyond, "", thresholds),
        held("kl_mean", whole.kl_mean, kl, p99, thresholds),
    ]


def _long(forced: Sequence[Forced], thresholds: Mapping[str, float]) -> Row:
    some = match(long(forced))
    if some is None:
        return held("long_token_match", None, "no request has a long prompt", "", thresholds)
    return held("long_token_match", some.rate, f"{some.rate:.4f} of {some.tokens} tokens", "", thresholds)


def _prompts(forced: Sequence[Forced], thresholds: Mapping[str, float]) -> Row:
    known = [answer for answer in forced if answer.same_prompt is not None]
    equal = sum(answer.same_prompt is True for answer in known)
    other = next((answer.request_id for answer in known if not answer.same_prompt), "")
    value = equal / len(known) if known else None
    told = f"{equal} of {len(known)} prompts" if known else "no engine counts its prompt's tokens"
    return held("prompt_equality", value, told, other and f"not that of {other}", thresholds)


def _tools(called: Tools | None, thresholds: Mapping[str, float]) -> list[Row]:
    names = ("tool_trigger_f1", "schema_accuracy", "tool_choice")
    if called is None:
        return [held(name, None, "no request offers tools", "", thresholds) for name in names]
    f1 = called.f1
    counts = f"{called.true_positive} both, {called.false_positive} only it, {called.false_negative} only the golden"
    left_out = f"{called.no_finish} without a finish reason left out" if called.no_finish else ""
    accuracy = called.calls_right / called.triggered if called.triggered else None
    choice = called.choice_kept / called.choice_asked if called.choice_asked else None
    return [
        held(names[0], f1, "no engine called a tool" if f1 is None else f"{f1:.3f}: {counts}", left_out, thresholds),
        held(names[1], accuracy, f"{called.calls_right} of {called.triggered} answers with calls", "", thresholds),
        held(names[2], choice, f"{called.choice_kept} of {called.choice_asked} answers", "", thresholds),
    ]
