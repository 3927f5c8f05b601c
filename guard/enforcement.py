"""Holding one answer to its constraint over its attempts: how often that was done, where it stands, what led nowhere
there. Pure bookkeeping; the rules are in enforce.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from detectors.finding import Finding
from guard.constraint.contract import Checker
from guard.enforce import ALTERNATIVES, DEEP, Salvage, Seed, added_pieces, enforceable, finding_of, mend, varied
from guard.request import Sampling

MOST_AGAIN: Final = 4
"""Tries at one place with other sampling, before it is given up: what four do not find is hardly there."""


ENDINGS: Final = 2
"""How often an answer may be ended once the bound is reached: what ends it can itself be condemned."""


class Enforcement:
    """``most``: how often at most. ``document``: the constraint is one on JSON. ``call``: it is a tool call.
    ``made`` counts, ``finding`` tells of
    the last one. ``stopped_early``: the engine ended the answer where it must go on, so it should not be able to."""

    def __init__(
        self, new_checker: Callable[[], Checker] | None, most: int, *, document: bool, call: bool = False
    ) -> None:
        self.made = 0
        self.finding: Finding | None = None
        self.stopped_early = False
        self._new_checker = new_checker
        self._most = most
        self._document = document
        self._call = call
        self._text: str | None = None
        self._tried: set[str] = set()
        self._level = 0
        self._depth = ALTERNATIVES

    @property
    def possible(self) -> bool:
        return self._new_checker is not None and self.made < self._most

    def helps(self, code: str) -> bool:
        """Whether it may be done about a finding: about a broken constraint, and about a document that was whole before
        white space without end followed it."""
        return (
            self._new_checker is not None
            and self._most > 0
            and (self._breaks(code) or (self._document and code.startswith("whitespace.")))
        )

    def seed(self, text: str, salvage: Salvage, code: str, choice: int, *, told: int, most: int) -> Seed | None:
        """What the next attempt begins with; None where there is no way on. ``text`` is all that may stand. ``told``:
        how many of its likeliest tokens the engine named in the attempt that failed; ``most``: how many it can."""
        assert self._new_checker is not None
        moved = self._moved(text)
        if moved:
            self._level, self._depth = 0, ALTERNATIVES
            self._tried.clear()
        self._text = text
        stopped = code.endswith(".truncated")
        mended = mend(
            text,
            self._new_checker,
            salvage.refused,
            self._tried,
            document=self._document,
            blanks=told >= most,
        )
        if not self._breaks(code) and mended.origin != "whole":
            return None
        # to end an answer asks nothing of an engine
        if self.made >= (self._most + ENDINGS if mended.whole else self._most):
            return None
        self.stopped_early = stopped and mended.origin == "again"
        if mended.added:
            self._tried.add(mended.added)
        elif mended.origin == "again" and not (moved and self.stopped_early) and not self._asks_more(told, most):
            self._level += 1
            if self._level > MOST_AGAIN:
                return None
        self.made += 1
        self.finding = finding_of(mended, len(text))
        return Seed(salvage.held, added_pieces(choice, mended.added), mended)

    def _breaks(self, code: str) -> bool:
        return enforceable(code) or (self._call and code.startswith("tool."))

    @property
    def depth(self) -> int:
        """How many of its likeliest tokens an engine should name."""
        return self._depth

    def sampling(self, asked: Sampling, *, again: bool, alternatives: int) -> Sampling:
        """Of one attempt. ``again``: it goes on from a seed; ``alternatives``: so many of the likeliest tokens are
        asked for."""
        sampling = varied(asked, self._level) if again else asked
        if not alternatives:
            return sampling
        most = max(alternatives, sampling.top_logprobs or 0)
        return msgspec.structs.replace(sampling, logprobs=True, top_logprobs=most)

    def _moved(self, text: str) -> bool:
        """White space in a document is no progress."""
        if self._text is None:
            return True
        return text.rstrip() != self._text.rstrip() if self._document else text != self._text

    def _asks_more(self, told: int, most: int) -> bool:
        """Whether the engine can be asked to name more tokens than it did, before anything else is tried."""
        if told >= self._depth and most > self._depth:
            self._depth = DEEP
        return told < min(self._depth, most)
