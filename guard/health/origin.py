"""Whose fault a collapse is: the engine's, or the model's own on this prompt. Pure bookkeeping.

- A prompt on which several engines collapse, and none is known to answer, is the model's own: nobody is blamed, and
  what was counted against the first of them is taken back.
- Once another engine has answered the prompt, those that collapsed on it are to blame after all.
- The same prompt again on the same engine says nothing new: one poisonous prompt, asked a hundred times, is not a
  hundred failures of an only engine.

Prompts are known by a hash; the ``REMEMBERED`` that collapsed last are kept, each for ``FRESH`` seconds.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from msgspec import Struct

REMEMBERED: Final = 1024
FRESH: Final = 600.0


class Mark(Struct, eq=False):
    """A failure as it was counted: against ``engine``, with ``weight``, at ``at``, in that ``turn`` of its breaker, for
    ``cause``."""

    engine: str
    weight: float
    at: float
    turn: int
    cause: str = ""


class _Prompt(Struct):
    since: float
    collapsed: dict[str, Mark] = {}
    absolved: bool = False
    answered_by: set[str] = set()


class Origins:
    def __init__(self) -> None:
        self._prompts: OrderedDict[int, _Prompt] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._prompts)

    def collapsed(self, prompt: int, mark: Mark) -> tuple[bool, list[Mark]]:
        """Whether the mark is to be counted, and those that are to be taken back."""
        known = self._prompts.get(prompt)
        if known is None or mark.at - known.since > FRESH:
            known = self._prompts[prompt] = _Prompt(mark.at)
            self._prompts.move_to_end(prompt)
            if len(self._prompts) > REMEMBERED:
                self._prompts.popitem(last=False)
        if known.answered_by - {mark.engine}:
            return True, []
        seen = mark.engine in known.collapsed
        known.collapsed.setdefault(mark.engine, mark)
        if len(known.collapsed) == 1:
            return not seen, []
        back = [] if known.absolved else [one for one in known.collapsed.values() if one is not mark]
        known.absolved = True
        return False, back

    def answered(self, prompt: int, engine: str) -> list[Mark]:
        """The prompt was answered by this engine. The marks that are to be counted after all."""
        known = self._prompts.get(prompt)
        if known is None:
            return []
        known.answered_by.add(engine)
        known.collapsed.pop(engine, None)  # it can do both, so it is chance
        if not known.absolved:
            return []
        known.absolved = False
        return list(known.collapsed.values())
