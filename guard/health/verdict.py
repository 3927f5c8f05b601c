"""What the end of an attempt says about the engine that made it. Pure; one table.

The rules:

- An engine that did not answer, or not to its end, failed. So did one that answered 200 and collapsed.
- A collapse counts by its onset: from the first tokens on it is the replica's, late in a long answer more likely the
  model's own. ``EARLY`` characters in, it counts for half; below ``LEAST`` it says nothing.
- Nothing that is the caller's says anything: a 4xx, a deadline that was too short, a request that was cancelled.
- A broken constraint counts where the engine had accepted it, and only for half: its compiler may be narrower or wider
  than the schema for reasons of its own, which is no outage.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Final, NamedTuple

EARLY: Final = 160
"""Characters, about forty tokens."""

LEAST: Final = 0.1


class Verdict(NamedTuple):
    """``weight`` 0: the engine did well; else how much of a failure it was, up to 1. ``of_prompt``: the prompt may be
    to blame as well, which other engines can tell (origin.py)."""

    weight: float
    of_prompt: bool = False


WELL: Final = Verdict(0.0)

_ALWAYS: Final = "always"
_EARLY: Final = "by onset"
_BROKE: Final = "if accepted"
_NOTHING: Final = "nothing"

WEIGHTS: Final[tuple[tuple[str, str, float], ...]] = (
    ("deadline", _NOTHING, 0.0),
    ("open.refused", _NOTHING, 0.0),
    ("open.cannot_resume", _NOTHING, 0.0),
    ("*.total_timeout", _NOTHING, 0.0),  # a long answer; an engine that is silent has stalled
    ("open.*", _ALWAYS, 1.0),
    ("stream.*", _ALWAYS, 1.0),
    ("numeric.*", _ALWAYS, 1.0),
    ("leak.cross_request", _ALWAYS, 1.0),
    ("empty.reasoning_only", _EARLY, 0.25),  # models do that by themselves
    ("leak.special_token", _EARLY, 0.5),
    ("leak.*", _EARLY, 0.25),  # a parser that is not set up, or the model's own habit
    ("repetition.*", _EARLY, 1.0),
    ("whitespace.*", _EARLY, 1.0),
    ("empty.*", _EARLY, 1.0),
    ("encoding.*", _EARLY, 1.0),
    ("json.*", _BROKE, 0.5),
    ("schema.*", _BROKE, 0.5),
    ("regex.*", _BROKE, 0.5),
    ("grammar.*", _BROKE, 0.5),
    ("constraint.*", _BROKE, 0.5),
    ("*", _NOTHING, 0.0),  # tool calls are the model's, guard.* is ours
)
"""Cause, when it counts, how much at most; the first row that fits."""


def verdict(cause: str, *, status: int | None = None, onset: int = 0, accepted: bool = False) -> Verdict | None:
    """None: it says nothing. ``cause`` is as in decision.py, empty for an answer that stands. ``onset``: characters of
    this attempt's own answer before the trouble; ``accepted``: the engine had been asked to enforce what was broken."""
    if not cause:
        return WELL
    if status is not None and 400 <= status < 500:
        return None
    when, weight = next((when, most) for pattern, when, most in WEIGHTS if fnmatchcase(cause, pattern))
    if when == _NOTHING or (when == _BROKE and not accepted):
        return None
    if when == _EARLY:
        weight /= 1 + max(0, onset) / EARLY
        if weight < LEAST:
            return None
    return Verdict(weight, of_prompt=when != _ALWAYS)
