"""The way on for an answer that has broken its constraint or its calls: what is put into it from outside, and what
engines are asked for so that there is something to put there. Pure; what may stand and what is added, enforce.py says.

The rules:

- As long as nothing has left, an engine that was not tried is better: for a constraint one that constrains by itself,
  for a call any.
- What was kept for a caller that does not stream can be taken back; what has left cannot, so then there is no way on.
- A call that broke, or that was owed and did not come, is made good as text (calling.py). One that was not to be made
  is no matter of text: the engine is asked again without the tools, once.
- An engine is asked for its likeliest tokens where the guard alone holds it to the constraint, or has had to; what it
  has refused to name it is not asked for again.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from detectors.finding import Finding
from guard.admission import Job
from guard.calling import FORBIDDEN, Calling, calling, mendable, withheld
from guard.candidates import JSON, Candidates
from guard.constraint.callform import call_form
from guard.delivered import Delivered
from guard.enforce import ALTERNATIVES, DEEP, Mend, Salvage, Seed, added_pieces
from guard.enforcement import Enforcement
from guard.engines.contract import Capabilities
from guard.events import CONTENT
from guard.request import GenerationRequest, ToolChoice
from guard.stream import StreamGuard
from guard.watch import Condemned


class Broken(Struct):
    """An attempt that must not stand. ``delivered`` is the answer's so far; ``attempts_left``: the policy and the time
    allow another attempt."""

    guard: StreamGuard
    why: Condemned
    engine: str
    delivered: Delivered
    attempts_left: bool
    now: float


class Way(Struct):
    """The way on: what the next attempt begins with. Of what is kept, the last ``taken_back`` characters do not stand;
    with ``anew`` nothing of it does."""

    seed: Seed
    taken_back: int = 0
    anew: bool = False


class Mending:
    """Of one answer. ``seed``: what the next attempt begins with when it holds the answer to its constraint.
    ``calling``: the call that it then makes good. ``has_called``: one ever was. ``alternatives``: how many of its
    likeliest tokens the engine was asked for."""

    def __init__(
        self,
        job: Job,
        request: GenerationRequest,
        choice: int,
        candidates: Candidates,
        capabilities: Mapping[str, Capabilities],
    ) -> None:
        self.seed: Seed | None = None
        self.calling: Calling | None = None
        self.has_called = False
        self.alternatives = 0
        self._job = job
        self._request = request
        self._choice = choice
        self._candidates = candidates
        self._capabilities = capabilities
        self._keeps = not request.stream
        policy = job.policy
        self._acts = policy.constraints == "enforce" and policy.resume
        compiled = job.compiled if self._acts else None
        self._enforcement = self._of_content = Enforcement(
            (lambda: compiled.checker("streaming", policy.repairs)) if compiled is not None else None,
            policy.max_enforcements,
            document=compiled is not None and compiled.kind in JSON,
        )
        self._most_alternatives: dict[str, int] = {}
        self._without_tools = False
        self._withheld: Finding | None = None

    # --- what an engine is asked for ---------------------------------------------------------------------------------

    def asked(self, request: GenerationRequest, engine: str, *, begun: bool, constrained: bool) -> GenerationRequest:
        """The request as this engine gets it. ``begun``: it goes on from something; ``constrained``: and is asked to
        hold itself to the constraint there."""
        self.alternatives = self._wanted(engine, begun, constrained)
        sampling = self._enforcement.sampling(
            request.sampling, again=self.seed is not None, alternatives=self.alternatives
        )
        if self._without_tools:
            none = ToolChoice("none")
            return msgspec.structs.replace(request, sampling=sampling, tools=(), tool_choice=none, tool_choice_raw=None)
        return msgspec.structs.replace(request, sampling=sampling)

    def asks_less(self, engine: str) -> bool:
        """The engine refused what it was asked for. Whether it can be asked for fewer of its tokens."""
        if not self.alternatives:
            return False
        self._most_alternatives[engine] = ALTERNATIVES if self.alternatives > ALTERNATIVES else 0
        return True

    @property
    def stopped_early(self) -> bool:
        """Whether the engine had ended the answer where it must go on, so that it should not be able to."""
        return self.seed is not None and self._enforcement.stopped_early

    def _wanted(self, engine: str, begun: bool, constrained: bool) -> int:
        if not self._enforcement.possible:
            return 0
        if self.seed is None and (constrained if begun else self._candidates.natively(engine)):
            return 0
        return min(self._enforcement.depth, self._most(engine))

    def _most(self, engine: str) -> int:
        """How many of its likeliest tokens an engine can be asked for, as far as is known."""
        return self._most_alternatives.get(engine, DEEP) if self._capabilities[engine].logprobs else 0

    # --- the way on --------------------------------------------------------------------------------------------------

    def way(self, broken: Broken) -> Way | None:
        """Where there is one and none better."""
        self._withheld = None
        why = broken.why
        if why.cause == FORBIDDEN:
            return self._toolless(broken)
        if self.calling is not None or mendable(why.cause, why.channel):
            return self._call(broken)
        return self._content(broken)

    def go_on(self, way: Way | None) -> None:
        """What the next attempt begins with has been decided: with nothing that was put there, where it is None."""
        self.seed = way.seed if way is not None else None
        if way is None:
            self.calling, self._enforcement = None, self._of_content

    @property
    def finding(self) -> Finding | None:
        """What was put into the answer for the next attempt; for the record."""
        return (self._withheld or self._enforcement.finding) if self.seed is not None else None

    def _content(self, broken: Broken) -> Way | None:
        why, delivered, engine, now = broken.why, broken.delivered, broken.engine, broken.now
        if why.channel != CONTENT or delivered.calls or not self._enforcement.helps(why.cause):
            return None
        afresh = (delivered.nothing or self._keeps) and broken.attempts_left
        if afresh and any(map(self._candidates.natively, self._candidates.untried(now))):
            return None
        salvage = broken.guard.salvage()
        if salvage is None or (salvage.taken_back and not self._keeps):
            return None
        said = delivered.text()
        text = said[: len(said) - salvage.taken_back] + "".join(piece.text for piece in salvage.held)
        seed = self._seed(self._enforcement, text, salvage, broken)
        if seed is None:
            return None
        if not seed.mend.whole and self._candidates.enforcing(engine, text + seed.mend.added, delivered, now) is None:
            return None
        return Way(seed, taken_back=salvage.taken_back)

    def _toolless(self, broken: Broken) -> Way | None:
        delivered, now = broken.delivered, broken.now
        if self._without_tools or not (self._acts and self._job.policy.max_enforcements):
            return None
        anew = delivered.nothing or self._keeps
        if anew and self._candidates.untried(now) and broken.attempts_left:
            return None
        if self._candidates.enforcing(broken.engine, "" if anew else delivered.text(), delivered, now) is None:
            return None
        self._without_tools = True
        self._withheld = withheld(0 if anew else delivered.length())
        return Way(Seed([], [], Mend("again")), anew=anew)

    def _call(self, broken: Broken) -> Way | None:
        job, why, delivered, now = self._job, broken.why, broken.delivered, broken.now
        made, enforcement = self.calling, self._enforcement
        anew = self._keeps and not delivered.calls
        salvage = None
        if made is None and self._acts:
            if self._candidates.untried(now) and (anew or delivered.nothing) and broken.attempts_left:
                return None
            form = call_form(job.tool_formats.get(broken.engine, ""))
            behind = "" if anew else delivered.text()
            made = calling(self._request, job.tools, form, broken.guard.standing(), why.cause, behind=behind)
            if made is not None:
                salvage = Salvage(added_pieces(self._choice, made.base), 0, None)
                enforcement = Enforcement(made.checker, job.policy.max_enforcements, document=True, call=True)
        elif made is not None:
            salvage = broken.guard.salvage()
        if made is None or salvage is None or not enforcement.helps(why.cause):
            return None
        text = "".join(piece.text for piece in salvage.held)
        seed = self._seed(enforcement, text, salvage, broken)
        if seed is None:
            return None
        if not seed.mend.whole and self._candidates.enforcing(broken.engine, text, delivered, now) is None:
            return None
        if self.calling is not None:
            return Way(seed)
        self.calling, self._enforcement, self.has_called = made, enforcement, True
        return Way(Seed([], seed.pieces, seed.mend), anew=anew)  # no engine has said its beginning like that

    def _seed(self, enforcement: Enforcement, text: str, salvage: Salvage, broken: Broken) -> Seed | None:
        told, most = self.alternatives, self._most(broken.engine)
        return enforcement.seed(text, salvage, broken.why.cause, self._choice, told=told, most=most)
