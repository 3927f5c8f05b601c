"""What an analysis concludes, as reports print it: comparisons, rulings, attributions. Pure data.

Every probability is a p-value of a test named beside it; ``p_adjusted`` has been corrected (Holm) over everything that
was tested with it. Intervals are 95 % unless ``level`` says otherwise. Margins are differences of log probabilities.
"""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

Cause = Literal[
    "agreement",
    "near_tie",
    "batch_dependent",
    "cache_dependent",
    "corruption",
    "corruption.cross_request",
    "sampling",
    "template",
    "quantisation_drift",
    "engine_diff.systematic",
    "model",
    "undetermined",
]

MEANING: Final[dict[Cause, str]] = {
    "agreement": "the answers agree and none is wrong",
    "near_tie": "two tokens were as good as equally likely, and rounding chose between them",
    "batch_dependent": "the answer changes with what else is in the batch",
    "cache_dependent": "the answer changes with what the prefix cache holds",
    "corruption": "the engine computed something else than the model: corruption or a race",
    "corruption.cross_request": "another request's data reached this answer",
    "sampling": "the tokens were drawn, not taken: sampling or its configuration",
    "template": "the engines were not asked the same thing: chat template or tokenizer",
    "quantisation_drift": "the weights were rounded, and the answers drift from the unrounded ones",
    "engine_diff.systematic": "one engine answers differently as a rule, not by rounding",
    "model": "the model itself answers so, wherever it runs",
    "undetermined": "the evidence does not tell yet",
}

CLAIMS: Final = frozenset(MEANING) - {"agreement", "model", "undetermined"}
"""The causes that blame something in the serving."""

Confidence = Literal["strong", "moderate", "weak"]

Unit = Literal["tokens", "characters", "fingerprint"]

MarginKind = Literal["near", "wide", "outside", "unknown"]
"""At a divergence: both margins within rounding; at least one beyond it; a token outside the other's best ones; no log
probabilities on one side or both."""


class Side(Struct, frozen=True):
    """One answer at the seam. ``token_index`` is -1 where tokens are not known; ``margin`` is its own token's log
    probability less the other's token's, in this answer's own distribution, None where it is not known; a negative one
    means that the token chosen was not the likeliest. ``rank`` is the chosen token's place in its own list from 0,
    ``other_rank`` that of the other answer's token; -1 is outside the list or unknown. ``list_floor`` is the margin to
    the last token of the list: a token outside it is at least so far off."""

    token_index: int
    token_id: int
    piece: bytes
    text: str
    logprob: float | None = None
    margin: float | None = None
    rank: int = -1
    other_rank: int = -1
    list_floor: float | None = None


class Divergence(Struct, frozen=True):
    """The first place where two answers differ. ``token`` is the index of the first differing token (-1 unknown),
    ``byte`` that of the first differing byte of the first differing channel (-1 on fingerprints alone)."""

    token: int
    byte: int
    channel: str
    left: Side
    right: Side
    kind: MarginKind


class Comparison(Struct, frozen=True):
    """Two answers to one request. ``agreed_tokens`` counts equal tokens position by position over the longer answer's
    length; ``edit_distance`` is Levenshtein's over tokens (``unit`` tokens) or characters, None on fingerprints alone.
    ``findings_both`` were found in both, ``findings_left`` only in the left one."""

    same: bool
    same_prompt: bool | None
    divergence: Divergence | None
    unit: Unit
    edit_distance: int | None
    length_left: int
    length_right: int
    agreed_tokens: float | None
    finish_left: str
    finish_right: str
    findings_both: tuple[str, ...] = ()
    findings_left: tuple[str, ...] = ()
    findings_right: tuple[str, ...] = ()


class Agreement(Struct, frozen=True):
    """Several answers to one request: how many there are, how many distinct ones, the commonest one's share."""

    runs: int
    distinct: int
    share: float
    errors: int


class Interval(Struct, frozen=True):
    low: float
    high: float
    level: float = 0.95


class Rate(Struct, frozen=True):
    """``failures`` of ``runs``, with an exact (Clopper-Pearson) interval."""

    failures: int
    runs: int
    interval: Interval

    @property
    def value(self) -> float:
        return self.failures / self.runs if self.runs else 0.0

    def __str__(self) -> str:
        return f"{self.failures}/{self.runs}"


class Condition(Struct, frozen=True, order=True):
    """One axis and its value. ``at_least``: an ordered axis, from this value on."""

    axis: str
    value: str
    at_least: bool = False

    def __str__(self) -> str:
        if self.axis == "concurrency":
            return f"{'at least ' if self.at_least else ''}{self.value} at once"
        return f"{self.axis} {'from ' if self.at_least else ''}{self.value or '(not set)'}"


class Clause(Struct, frozen=True):
    """A set of axis values and how it fails. ``same_runs`` are other sets that select the very same runs: no test can
    tell them apart (confounded). ``rivals`` select other runs, but explain the failures about as well."""

    conditions: tuple[Condition, ...]
    inside: Rate
    outside: Rate
    difference: Interval
    p: float
    p_adjusted: float
    method: str
    same_runs: tuple[tuple[Condition, ...], ...] = ()
    rivals: tuple[tuple[Condition, ...], ...] = ()

    def __str__(self) -> str:
        """``image 1.2 on cluster b: 18/20, everywhere else 0/140, p=2e-19``."""
        p = f"p={self.p_adjusted:.2g}" if self.p_adjusted >= 1e-300 else "p<1e-300"
        return f"{phrase(self.conditions)}: {self.inside}, everywhere else {self.outside}, {p}"


class AxisTest(Struct, frozen=True):
    """Does the failure rate depend on this axis at all? ``rates`` by value, in the axis' order."""

    axis: str
    rates: tuple[tuple[str, Rate], ...]
    p: float
    p_adjusted: float
    method: str


class Step(Struct, frozen=True):
    """What to run next, and why. ``repeats`` are per arm, 0 where more repeats do not help."""

    action: str
    reason: str
    repeats: int = 0


class Attribution(Struct, frozen=True):
    """What the failures depend on. ``clauses`` are the smallest sets of axis values that explain them, the strongest
    first, none when nothing is significant; ``confounded`` are axes that never vary apart. ``unit`` says what was
    counted: single runs, or one outcome for each request and cell where repeats always agree."""

    runs: int
    failures: int
    strata: int
    unit: Literal["runs", "cells"]
    axes: tuple[AxisTest, ...]
    clauses: tuple[Clause, ...]
    confounded: tuple[tuple[str, ...], ...]
    candidates: int
    next_steps: tuple[Step, ...] = ()


class Evidence(Struct, frozen=True):
    """One fact. ``weight`` decisive: alone enough for or against; strong; or mere hint. ``name`` is a stable word."""

    name: str
    statement: str
    weight: Literal["decisive", "strong", "hint"] = "strong"
    p: float | None = None


class Ruling(Struct, frozen=True):
    """``scope`` is a request id, a contrast ("precision f32 / q4_1") or "matrix". ``mechanism`` is how, where the cause
    says when (a batch dependence by near ties); empty when it is not known. ``leaning`` is set on ``undetermined``:
    what it would be if the missing evidence bore it out. ``axes`` are the axis values that it goes with."""

    scope: str
    cause: Cause
    confidence: Confidence
    mechanism: str = ""
    leaning: str = ""
    evidence_for: tuple[Evidence, ...] = ()
    evidence_against: tuple[Evidence, ...] = ()
    axes: tuple[Condition, ...] = ()
    next_steps: tuple[Step, ...] = ()

    @property
    def claim(self) -> bool:
        """Blames something in the serving."""
        return self.cause in CLAIMS and not (self.cause == "sampling" and self.mechanism == "as asked")


class Triage(Struct, frozen=True):
    """The whole: one ruling for the matrix, one for each contrast of two cells and for each request; the attribution
    of wrong answers and, where answers differ though none is wrong, that of the differences."""

    ruling: Ruling
    contrasts: tuple[Ruling, ...]
    requests: tuple[Ruling, ...]
    attribution: Attribution
    differences: Attribution | None = None


def phrase(conditions: tuple[Condition, ...]) -> str:
    """``image 1.2 on cluster b``; ``at least 8 at once`` reads with either."""
    places = [str(each) for each in conditions if each.axis in ("cluster", "node", "engine")]
    others = [str(each) for each in conditions if each.axis not in ("cluster", "node", "engine")]
    return " on ".join(part for part in (", ".join(others), ", ".join(places)) if part)
