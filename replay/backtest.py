"""What a changed policy would have done with answers that were given under another one.

The rules:

- Every answer is judged twice by the detectors that guard live traffic, under the policy that it was given under and
  under the new one. Nothing else differs.
- Whether an answer had collapsed is known where somebody said so: a label in the file, or a caller that reported that
  what came of it worked. Elsewhere it is presumed, and the report says from what: an answer that the policy in force
  stops, or that ran to its limit with a loop in its tokens, had collapsed; one that ended by itself had not. Where
  nothing speaks, it is open, and is counted apart.
- An answer that was stopped then is kept only as far as it was delivered, so such an answer may look sound: a policy is
  best tried on traffic that was observed, and on labelled files.

Pure: answers in, a report out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal

from msgspec import Struct

from detectors.token_loop import TokenRun
from guard.request import GenerationRequest

Truth = Literal["collapsed", "fine", "open"]
Change = Literal["newly caught", "newly missed", "newly wrong", "no longer wrong", "newly stopped", "no longer stopped"]

CHANGES: Final[Mapping[tuple[Truth, bool], Change]] = {
    ("collapsed", True): "newly caught",
    ("collapsed", False): "newly missed",
    ("fine", True): "newly wrong",
    ("fine", False): "no longer wrong",
    ("open", True): "newly stopped",
    ("open", False): "no longer stopped",
}
"""Of an answer on which the policies do not agree: what it was, whether the new one stops it."""

EXAMPLE_CHARS: Final = 80


class Answer(Struct):
    """``policy``: the name of the one it was given under. ``collapsed``: what somebody said of it; None: nobody did.
    ``said_by``: who that was."""

    id: str
    request: GenerationRequest
    text: str
    finish_reason: str = ""
    token_ids: tuple[int, ...] = ()
    policy: str = ""
    collapsed: bool | None = None
    said_by: str = ""


class Stop(Struct, frozen=True):
    """Why an answer is stopped, and where: characters of its content."""

    code: str
    onset: int
    detected_at: int


Judge = Callable[[Answer], Stop | None]


class Example(Struct, frozen=True):
    """``before`` and ``after``: None where that policy lets it pass. ``because``: what its truth is known or presumed
    from; ``excerpt`` is the text where the trouble begins, or began."""

    id: str
    change: Change
    truth: Truth
    because: str
    before: Stop | None
    after: Stop | None
    excerpt: str


class Tally(Struct):
    """Answers of one policy. ``open_stopped``: stopped, and nobody knows whether rightly."""

    caught: int = 0
    missed: int = 0
    wrongly_stopped: int = 0
    let_through: int = 0
    open_stopped: int = 0
    open_passed: int = 0

    def add(self, truth: Truth, stopped: bool) -> None:
        if truth == "collapsed":
            self.caught += stopped
            self.missed += not stopped
        elif truth == "fine":
            self.wrongly_stopped += stopped
            self.let_through += not stopped
        else:
            self.open_stopped += stopped
            self.open_passed += not stopped


class Backtest(Struct):
    """``changes`` counts all the answers on which the policies do not agree, ``examples`` shows some of each kind.
    ``presumed``: how many truths were presumed and not known. ``sooner``: by how many characters the new policy stops
    what both stop, in the median; negative: later."""

    answers: int
    before: Tally
    after: Tally
    changes: dict[Change, int]
    examples: list[Example]
    presumed: int
    sooner: int

    @property
    def safe(self) -> bool:
        """Nothing is newly missed or newly wrong."""
        return not (self.changes.get("newly missed") or self.changes.get("newly wrong"))


def backtest(
    answers: Sequence[Answer],
    new: Judge,
    old: Judge,
    loops: Sequence[TokenRun | None],
    *,
    most_examples: int = 3,
) -> Backtest:
    """``new`` and ``old`` say where a policy stops an answer; ``loops`` has the loop in the token ids of each answer,
    None where there is none or they are not known."""
    before, after = Tally(), Tally()
    changes: dict[Change, int] = {}
    examples: list[Example] = []
    sooner: list[int] = []
    presumed = 0
    for answer, loop in zip(answers, loops, strict=True):
        then, now = old(answer), new(answer)
        truth, because = truth_of(answer, then, loop)
        presumed += answer.collapsed is None and truth != "open"
        before.add(truth, then is not None)
        after.add(truth, now is not None)
        if then is not None and now is not None:
            sooner.append(then.detected_at - now.detected_at)
        if (then is None) == (now is None):
            continue
        change = CHANGES[truth, now is not None]
        changes[change] = changes.get(change, 0) + 1
        if changes[change] <= most_examples:
            place = now or then
            start = place.onset if place else 0
            excerpt = answer.text[max(0, start - EXAMPLE_CHARS // 4) : start + EXAMPLE_CHARS]
            examples.append(Example(answer.id, change, truth, because, then, now, excerpt))
    sooner.sort()
    median = sooner[len(sooner) // 2] if sooner else 0
    return Backtest(len(answers), before, after, changes, examples, presumed, median)


def truth_of(answer: Answer, then: Stop | None, loop: TokenRun | None) -> tuple[Truth, str]:
    """What the answer was, and what that is known or presumed from."""
    if answer.collapsed is not None:
        return "collapsed" if answer.collapsed else "fine", answer.said_by
    if loop is not None and answer.finish_reason == "length":
        return (
            "collapsed",
            f"presumed: it ran to its limit, with a loop of {loop.period} tokens from token {loop.onset} on",
        )
    if then is not None:
        return "collapsed", "presumed: the policy in force stops it"
    if answer.finish_reason and answer.finish_reason != "length":
        return "fine", f"presumed: it ended by itself ({answer.finish_reason})"
    return "open", "it ran to its limit" if answer.finish_reason else "how it ended is not known"
