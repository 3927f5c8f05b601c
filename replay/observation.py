"""One replayed answer, as everything that compares, rules and attributes reads it. Pure.

The rules:

- An observation is what was seen, never what was concluded. What was not seen is empty, None or 0, and is never filled
  in: a ruling that needs it is refused instead.
- A cell names where and how an answer was produced, one value an axis. Two answers to one request are compared when
  their cells differ in few axes; what was not set is the empty string and counts as one value like any other.
- Under ``hash`` retention only ``fingerprint``, counts, findings and reasons are there: equality can be asked, no more.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec
from msgspec import Struct

from guard.events import CONTENT

AXES: Final = (
    "engine",
    "version",
    "image",
    "cluster",
    "node",
    "precision",
    "concurrency",
    "neighbours",
    "cache",
    "kernels",
)

ORDERED: Final = frozenset({"concurrency", "prompt_length"})
"""Axes whose values are numbers, over which "from 8 on" is one condition."""


class Cell(Struct, frozen=True, order=True):
    """``concurrency``: requests in flight on the engine, this one included (1 is alone, 0 is not known).

    ``neighbours``: what ran at the same time: ``none``, ``copies`` of this request, ``recorded`` ones, ``others``
    of the selection, ``cancelled`` (others that were cancelled and tried again). ``cache``: cold or warm.
    ``kernels``: ``batch_invariant`` where the engine promises that a batch changes no answer. ``precision``: f32, bf16,
    f16, fp8, q4_1 and so on.
    """

    engine: str
    version: str = ""
    image: str = ""
    cluster: str = ""
    node: str = ""
    precision: str = ""
    concurrency: int = 0
    neighbours: str = ""
    cache: str = ""
    kernels: str = ""

    def axes(self) -> dict[str, str]:
        """Every axis and its value; an unknown concurrency is empty."""
        values = {axis: str(getattr(self, axis)) for axis in AXES}
        if not self.concurrency:
            values["concurrency"] = ""
        return values

    def name(self) -> str:
        """``engine=a precision=bf16 concurrency=8``: what was set, for people."""
        return " ".join(f"{axis}={value}" for axis, value in self.axes().items() if value)


class Sampling(Struct, frozen=True):
    """As sent to the engine. ``temperature`` None: nothing was sent, so the engine's own default held."""

    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    max_tokens: int | None = None

    @property
    def greedy(self) -> bool:
        return self.temperature == 0


class Alternative(Struct, frozen=True):
    """A token that could have stood here: its id (-1 where the engine names none), its bytes, its log probability."""

    token_id: int
    piece: bytes
    logprob: float


class Found(Struct, frozen=True):
    """A finding of the guard, by its code (``family.kind``), with the channel and the character where it begins."""

    code: str
    severity: str = "error"
    channel: str = CONTENT
    onset: int = 0


class Counts(Struct, frozen=True):
    """Tokens as the engine counted them; -1 where it did not say."""

    prompt: int = -1
    completion: int = -1
    cached: int = -1


class Timing(Struct, frozen=True):
    """Unix seconds of the start, milliseconds to the first token and in all."""

    started_at: float = 0.0
    first_token_ms: float = 0.0
    duration_ms: float = 0.0


class Observation(Struct, frozen=True, kw_only=True):
    """One answer to one request in one cell.

    ``request_id`` names the request that was replayed (a trace id, or a task of a suite): equal ids mean the same
    request. ``expected`` is the right answer of a known-answer task, None for all others. ``correct`` is what a grader
    or the caller said of the answer, None where nobody did.

    ``prompt_ids`` are the prompt's token ids, ``prompt_hash`` a hash of the prompt as the engine saw it (where the ids
    are not known or not kept). ``in_flight`` are the request ids that ran at the same time on the same engine.

    ``text`` is the answer by channel (``content``, ``reasoning``, ``tool:N``), ``fingerprint`` the keyed hash of the
    whole where text is not kept. ``token_ids``, ``pieces`` (each token's bytes), ``logprobs`` (the chosen tokens') and
    ``top`` (each step's best tokens, best first) run side by side over the answer's tokens; each is empty where the
    engine gave none. ``condemned`` is the code for which the guard would not have delivered the answer; ``error`` is
    set when there was no answer at all.
    """

    request_id: str
    cell: Cell
    repeat: int = 0
    expected: str | None = None
    correct: bool | None = None
    sampling: Sampling = Sampling()
    prompt_ids: tuple[int, ...] = ()
    prompt_hash: str = ""
    tokenizer_hash: str = ""
    template_hash: str = ""
    in_flight: tuple[str, ...] = ()
    text: dict[str, str] = msgspec.field(default_factory=dict)
    fingerprint: str = ""
    token_ids: tuple[int, ...] = ()
    pieces: tuple[bytes, ...] = ()
    logprobs: tuple[float, ...] = ()
    top: tuple[tuple[Alternative, ...], ...] = ()
    finish_reason: str = ""
    findings: tuple[Found, ...] = ()
    condemned: str = ""
    verdict_format: str = "none"
    verdict_tool_choice: str = "none"
    counts: Counts = Counts()
    error: str = ""
    timing: Timing = Timing()

    @property
    def content(self) -> str:
        return self.text.get(CONTENT, "")

    @property
    def answered(self) -> bool:
        """There is something to compare: words, ids, or their fingerprint."""
        return not self.error

    def wrong(self) -> str:
        """Why this answer is a failure (a stable word or a finding's code), empty when it is none.

        An engine that gave no answer is not in here: that is its availability, see ``error``.
        """
        if self.error:
            return ""
        if self.expected is not None and self.text and self.content.strip() != self.expected.strip():
            return "known_answer"
        if self.condemned:
            return self.condemned
        if self.verdict_format == "failed":
            return "format"
        if self.verdict_tool_choice == "failed":
            return "tool_choice"
        if self.correct is False:
            return "graded_wrong"
        return next((found.code for found in self.findings if found.severity == "error"), "")


Outcome = Literal["wrong", "error", "differs"]
"""What is counted as a failure: a wrong answer, no answer, or one that is not the reference's."""
