"""Which engines an answer can still go to, and which of them is best. Pure; their health and load are the router's.

Afresh, to go on from what was delivered, or to be held to a constraint: each asks something else of an engine. Among
those that can, the least tried comes first, then one that constrains what is constrained, then as the route has it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from guard.delivered import Delivered
from guard.engines.contract import Capabilities
from guard.engines.remainder import KINDS as REMAINDERS
from guard.events import REASONING
from guard.request import GenerationRequest
from guard.routing import Router

JSON: Final = ("json_schema", "json_object")


class Candidates:
    """Of one answer. ``names`` are in the order of the route; ``here`` is always the engine that is being left."""

    def __init__(
        self,
        names: Sequence[str],
        request: GenerationRequest,
        capabilities: Mapping[str, Capabilities],
        router: Router,
    ) -> None:
        self._names = names
        self._request = request
        self._capabilities = capabilities
        self._router = router
        self.tried: Counter[str] = Counter()
        self.cannot_resume: set[str] = set()

    # --- which of them -----------------------------------------------------------------------------------------------

    def afresh(self, here: str, now: float) -> str | None:
        """The best engine to begin the answer again on; None: none takes requests."""
        return self._best([name for name in self._names if self._router.takes(name, now)], here, now)

    def onward(self, here: str, delivered: Delivered, now: float) -> str | None:
        """The best engine to go on from what was delivered; None: there is none."""
        names = [name for name in self._names if self._router.takes(name, now) and self.continues(name, delivered)]
        return self._best(names, here, now)

    def beside(self, here: str, now: float) -> str | None:
        """The best engine to ask as well, of those that have a place free."""
        return self._best([name for name in self._names if name != here and self._router.free(name, now)], here, now)

    def staying(self, here: str, other: str | None, now: float) -> str | None:
        """The engine to try other sampling on: ``other`` where it was not tried yet, else the one that spoke."""
        if other is None or not self.tried[other] or not self._router.takes(here, now):
            return other
        return here if here not in self.cannot_resume else other

    def enforcing(self, here: str, text: str, delivered: Delivered, now: float) -> str | None:
        """The engine to go on with behind ``text``, held to the constraint: one that is still constrained by itself
        there, else the one that spoke."""
        names = [name for name in self._names if not text or self.resumes(name)]
        return min(
            names,
            key=lambda name: (
                not self._router.takes(name, now),
                not (self.keeps_constraint(name, delivered) if text else self.natively(name)),
                name != here,
                self.tried[name],
                self._names.index(name),
            ),
            default=None,
        )

    def alike(self, engine: str, left: str, delivered: Delivered, *, begun: bool) -> list[str]:
        """The engine that was chosen, and behind it those that would do for the same attempt: not the one that has just
        failed (a dead engine always has a place), not tried more often, and constrained by themselves where it is.
        ``begun``: the attempt goes on from what was delivered or is put before it."""

        def worth(name: str) -> tuple[bool, bool]:
            if self._request.constraint is None:
                return True, True
            return not begun or self.keeps_constraint(name, delivered), self.natively(name)

        least = worth(engine)
        others = (
            name
            for name in self._names
            if name not in (engine, left)
            and self.tried[name] <= self.tried[engine]
            and (not begun or self.continues(name, delivered))
            and all(has or not wanted for has, wanted in zip(worth(name), least, strict=True))
        )
        return [engine, *others]

    def untried(self, now: float) -> list[str]:
        """Those that take requests and were not asked yet."""
        return [name for name in self._names if not self.tried[name] and self._router.takes(name, now)]

    def _best(self, names: Sequence[str], here: str, now: float) -> str | None:
        free = self._request.constraint is None
        return min(
            names,
            key=lambda name: (
                self.tried[name],
                not (free or self.natively(name)),
                self._router.rank(name, here, now),
            ),
            default=None,
        )

    # --- what they can -----------------------------------------------------------------------------------------------

    def natively(self, engine: str) -> bool:
        """Whether this engine can be asked for the constraint itself."""
        constraint = self._request.constraint
        return constraint is not None and constraint.kind in self._capabilities[engine].constraints

    def resumes(self, engine: str) -> bool:
        """A text completion goes on anywhere: its prompt is only longer."""
        text = self._request.kind == "completion" and isinstance(self._request.prompt, str)
        return engine not in self.cannot_resume and (text or self._capabilities[engine].resume != "no")

    def continues(self, engine: str, delivered: Delivered) -> bool:
        """Tool calls can be gone on with in tokens alone, and only in those that began them."""
        if not self.resumes(engine):
            return False
        spoken = delivered.spoken
        return not delivered.calls or (
            spoken is not None and self._capabilities[engine].vocabulary == spoken.vocabulary
        )

    def keeps_constraint(self, engine: str, delivered: Delivered) -> bool:
        """Whether a resume on this engine is still constrained by it."""
        return self.carries_constraint(engine) or self.takes_remainder(engine, delivered)

    def carries_constraint(self, engine: str) -> bool:
        """By itself: most start the grammar again at its root."""
        constraint = self._request.constraint
        if constraint is None:
            return True
        return constraint.kind in JSON and self._capabilities[engine].resume_constrained

    def takes_remainder(self, engine: str, delivered: Delivered) -> bool:
        """Behind reasoning there is no telling what a grammar would hold."""
        request, constraint = self._request, self._request.constraint
        return (
            constraint is not None
            and constraint.kind in REMAINDERS
            and self._capabilities[engine].remainder
            and not delivered.length(REASONING)
            and not (request.tools and request.tool_choice.mode != "none")
        )
