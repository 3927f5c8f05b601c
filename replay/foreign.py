"""Another request's text in an answer: the sign of a cache or a batch mixed up between requests. Pure.

The rules:

- What is looked for are pairs of neighbouring words that stand in the answer and in the prompt of a request that ran at
  the same time, but neither in this request's own prompt, nor in its reference answer, nor in the prompt of any request
  that did not run then. So what all prompts say, and what the model says anyway, speaks for nobody.
- A pair with a number or an identifier in it (a digit) is enough. Plain words may meet by chance: three pairs of one
  other prompt are needed.
- Where nothing says what ran at the same time, nothing is found.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from replay.observation import Observation

PLAIN_PAIRS: Final = 3
_WORDS: Final = re.compile(r"[^\W_]+")
_STOP: Final = frozenset(
    "a an and are as at be by for from in is it of on or that the this to was what which with".split()  # noqa: SIM905
)


class Foreign(Struct, frozen=True):
    """``words`` are what the answer shares with the prompt of ``owner`` and with nothing else."""

    owner: str
    words: tuple[str, ...]
    certain: bool


def foreign_text(run: Observation, reference: str, prompts: Mapping[str, str]) -> Foreign | None:
    """``prompts``: request id -> the prompt's text, of every request of the matrix. ``reference`` is the answer that
    this request has elsewhere, empty when it has none."""
    others = [name for name in dict.fromkeys(run.in_flight) if name != run.request_id and name in prompts]
    if not others:
        return None
    own = pairs(prompts.get(run.request_id, "")) | pairs(reference)
    said = pairs(" ".join(run.text.values())) - own
    if not said:
        return None
    absent: set[tuple[str, str]] = set()
    for name, prompt in prompts.items():
        if name not in others and name != run.request_id:
            absent |= pairs(prompt)
    best: Foreign | None = None
    for name in others:
        shared = sorted((said & pairs(prompts[name])) - absent)
        numbered = [pair for pair in shared if any(map(str.isdigit, "".join(pair)))]
        if numbered or len(shared) >= PLAIN_PAIRS:
            certain = len(shared) >= 2 * PLAIN_PAIRS or (bool(numbered) and len(shared) > 1)
            found = Foreign(name, tuple(" ".join(pair) for pair in shared), certain)
            best = found if best is None or len(found.words) > len(best.words) else best
    return best


def pairs(text: str) -> set[tuple[str, str]]:
    """Neighbouring words in lower case, without pairs of two words that say nothing."""
    words = [match.group().lower() for match in _WORDS.finditer(text)]
    return {pair for pair in itertools.pairwise(words) if not (pair[0] in _STOP and pair[1] in _STOP)}
