"""A text that repeats itself for ever: one token, a phrase, a paragraph of up to 2,000 characters.

The rules:

- What is found depends on the text alone. It is looked at in steps of fourteen or twenty-eight characters, and when a
  bar would be reached within a step, character by character; so any split gives the same findings and ``doubt``.
- A run of copies is judged once, by what repeats and by what stands before it (detectors/context.py). Its repeats are
  held from the second copy on where nothing explains them, and shortly before the bar where something does.
- Token ids, when they are known, are looked at as well: they show a token that has no text.
- A condemned text stays condemned: that it went on well afterwards does not clear it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from detectors.asked import Asked
from detectors.context import LATE_HOLD, LOOKED_BACK, judge
from detectors.finding import Finding
from detectors.lettered import Lettered
from detectors.near_context import judge_near, judge_plan
from detectors.nearloop import STEP as NEAR_STEP
from detectors.nearloop import Normalised, counts
from detectors.novelty import LOOKED_AT, Novelty
from detectors.periods import LONGEST, Run, Seeker, Window, agree, primitive
from detectors.policy import DEFAULT, Policy
from detectors.same_token import SameToken
from detectors.stutter import SHORT, Stutter
from detectors.verdict import circling, condemned, counted, stuttered

STEP: Final = 14
_NEVER: Final = 1 << 62
_WHOLE: Final = {
    "rule": 40,
    "brackets": 24,
    "margin": 24,
    "number": 129,
}  # an answer of nothing else; a hash is shorter
_ENDING: Final = 12  # of one character, and the answer ends in them
_PATIENT: Final = frozenset(" \t-=*#_~.+")  # rows of these are common and may be long: the seeker is early enough
_NEAR_SLACK: Final = 16  # characters by which a run and the same run normalised may begin apart
_NEAR_LEAST: Final = 48  # normalised characters; before that numbers do not show whether they count or are data


def _is_ordinary(text: str) -> bool:
    """Whether its first step ends in no beginning of a run of few characters; letters of other scripts say more each,
    so a step of them is never passed over."""
    last = text[STEP - 1]
    return (
        last != text[STEP - 2]
        and (last != text[STEP - 3] or last != text[STEP - 5])
        and text[STEP - 3 : STEP] != text[STEP - 6 : STEP - 3]
        and (text.isascii() or text[:STEP].isascii())
    )


class Repetition:
    """One channel. ``doubt`` is the offset up to which nothing can be condemned any more."""

    __slots__ = (
        "_alarm",
        "_asked",
        "_calm",
        "_channel",
        "_held",
        "_lettered",
        "_long",
        "_near",
        "_near_due",
        "_near_held",
        "_near_onset",
        "_next",
        "_novelty",
        "_parts",
        "_policy",
        "_row",
        "_same",
        "_seen",
        "_short",
        "_stride",
        "_stutter",
        "_window",
        "condemned",
        "doubt",
        "releases",
    )

    def __init__(
        self, *, channel: str = "content", prompt_text: str | None = None, json: bool = False, policy: Policy = DEFAULT
    ) -> None:
        self.doubt = 0
        self.condemned = False
        self.releases: list[tuple[int, int]] = []
        self._channel = channel
        self._policy = policy
        self._asked = Asked(prompt_text)
        self._window = Window()
        self._short = Seeker(12, 1, 112, STEP)
        self._long = Seeker(32, 97, LONGEST, 56, tries=4)
        self._near = Normalised()
        self._near_due = ""
        self._near_held = False
        self._near_onset = 0
        self._novelty = Novelty()
        self._stutter = Stutter()
        self._lettered = Lettered(policy)
        self._parts: list[str] = []
        self._next = STEP  # characters in all at which the parts are looked at
        self._stride = STEP
        self._row = ""  # the character in a row of which the last step ended
        self._calm = True  # nothing repeats, so two steps may be taken in one
        self._seen = 0  # characters in all
        self._held = False
        self._alarm = _NEVER  # the offset at which a run would be condemned, when that is before the next step
        self._same = SameToken(channel, policy)

    def feed(
        self, text: str, token_ids: Sequence[int] | None = None, logprobs: Sequence[float] | None = None
    ) -> Sequence[Finding]:
        if self.condemned:
            return ()
        self._parts.append(text)
        self._seen = seen = self._seen + len(text)
        if seen < self._next and not token_ids:
            if not self._held:
                self.doubt = seen
            return ()
        found = self._steps() if seen >= self._next else ()
        if not found and token_ids:
            found = self._same.feed(text, token_ids, seen)
        if found:
            self._latch(found[0])
        elif not self._held:
            self.doubt = seen
        return found

    def finish(self) -> Sequence[Finding]:
        if self.condemned:
            return ()
        found = self._steps(last_step=True)
        if not found:
            found = self._whole()
        if found:
            self._latch(found[0])
        else:
            self.doubt = self._seen
        return found

    def _latch(self, finding: Finding) -> None:
        """What was clear before the last character came, fed one by one, is clear; the rest never will be."""
        self.condemned = True
        if not self._held:
            self.doubt = max(self.doubt, finding.detected_at - 1)
        self._parts.clear()
        self._window = Window()

    def _whole(self) -> Sequence[Finding]:
        """The answer has ended, and it was one token from its beginning or from somewhere on to its end, or stuttered
        all the way: fewer copies are enough, as nothing followed that they could have set apart."""
        run = self._short.run
        if self._window.end <= SHORT and self._stutter.all_pairs(self._window) and not self._asked.asks:
            return (stuttered(self._stutter, self._window, self._channel),)
        if run is None or not run.bar or run.end != self._seen or run.why == "asked":
            return ()
        if run.start:
            if run.kind != "single_token" or run.period > 1 or run.why or run.copies < _ENDING:
                return ()
            run.bar = run.end
            return (condemned(run, self._window, self._channel),)
        if run.kind not in ("single_token_from_start", "newlines") or run.copies < self._policy.whole_copies:
            return ()
        if run.why and (self._asked.asks or run.copies < _WHOLE.get(run.why, _NEVER)):
            return ()
        run.bar = run.end
        return (condemned(run, self._window, self._channel),)

    # --- text --------------------------------------------------------------------------------------------------------

    def _steps(self, last_step: bool = False) -> Sequence[Finding]:
        """Two steps in one where nothing is going on: no run, and no beginning of a run of one or two characters.

        Where the step before ended in a few equal characters, this one is looked at as soon as they would be a row that
        is long enough to condemn; and where a run would reach its bar within a step, just there.
        """
        text = "".join(self._parts)
        size = len(text)
        if self._stride == STEP and self._calm and size >= STEP and _is_ordinary(text):
            self._stride = 2 * STEP
            if size < 2 * STEP and not last_step:
                self._parts = [text]
                self._next = self._window.end + 2 * STEP
                return ()
        at = 0
        while size - at >= self._stride:
            stride = self._stride
            block = text[at : at + stride]
            if stride == STEP:
                if self._calm and _is_ordinary(block):
                    self._stride = 2 * STEP
                    continue
            elif stride < STEP and (not block.startswith(self._row) or block.strip(block[0])):
                self._stride = STEP
                continue
            at += stride
            found = self._step(block)
            if found:
                return found
            self._stride = STEP
            if block[-1] == block[-2:-1]:
                self._row = block[-1]
                row = stride - len(block.rstrip(self._row))
                if row < self._policy.token_copies:
                    self._stride = self._policy.token_copies - row
        rest = text[at:]
        if last_step and rest:
            return self._step(rest)
        self._parts = [rest] if rest else []
        if self._seen >= self._alarm:
            found = self._exactly(rest)
            if found:
                return found
        self._next = min(self._window.end + self._stride, self._alarm)
        return ()

    def _step(self, block: str) -> Sequence[Finding]:
        window = self._window
        window.push(block)
        size = len(block)
        short, long, near = self._short, self._long, self._near
        run = short.step(window, size)
        if long.run is not None or window.end >= long.due:
            long.step(window, size)
        held = False
        alarm = _NEVER
        if short.broken is not None or long.broken is not None:
            for gone in (short.broken, long.broken):
                if gone is not None and gone.bar and gone.end >= gone.bar:
                    return (
                        condemned(gone, window, self._channel),
                    )  # it ended within the step, and was long enough before
            short.broken = long.broken = None
        last = block[-1]
        if run is None and last == block[-2:-1] == block[-3:-2] == block[-4:-3] and last not in _PATIENT:
            run = self._single(last)
        calm = run is None
        if run is not None and (run.bar or self._judge(run)):
            if run.end >= run.bar:
                return (condemned(run, self._window, self._channel),)
            held = run.end >= run.hold
            if run.bar < window.end + 2 * STEP:
                alarm = run.bar
        run = long.run
        if run is not None and (run.bar or (run.end - run.start >= 2 * run.period - 2 * STEP and self._judge(run))):
            calm = False
            if run.end >= run.bar:
                return (condemned(run, self._window, self._channel),)
            held = held or run.end >= run.hold
            if run.bar < window.end + 2 * STEP:
                alarm = min(alarm, run.bar)
        due = self._near_due + block
        waited = len(due)
        if (waited >= NEAR_STEP and (waited >= 2 * NEAR_STEP or counts(due))) or near.run is not None or size < STEP:
            self._near_due = ""
            found = self._step_near(due)
            if found:
                return found
            held = held or self._near_held
            calm = calm and near.run is None
        else:
            self._near_due = due
        if window.end >= self._stutter.due:
            hits = self._stutter.step(window)
            if hits >= 3:
                return (stuttered(self._stutter, window, self._channel),)
        lettered = self._lettered
        if "\n" in block and lettered.step(window, size) and not self._asked.asks:
            return (counted(lettered, window, self._channel),)
        if self._stutter.held or lettered.held:
            held = True
        # copies have judges of their own, and a song may grow by a line in every verse
        if (
            window.end >= self._novelty.due
            and self._novelty.step(window)
            and not (self._asked.asks or self._asked.sings)
        ):
            runs = (short.run, long.run, near.run)
            if not any(run is not None and run.copies >= 2 for run in runs):
                return (circling(self._novelty, window, self._channel),)
        if held is not self._held:
            if held:
                self.doubt = max(self.doubt, window.end - 1)
            else:
                self.releases = [*self.releases[-3:], (self.doubt, window.end)]
            self._held = held
        self._alarm = alarm
        self._calm = calm
        return ()

    def _step_near(self, block: str) -> Sequence[Finding]:
        near = self._near
        run = near.step(block)
        self._near_held = False
        if run is None or (not run.bar and not self._judge_near(run)):
            return ()
        if run.why == "plan":
            self._novelty.due = self._window.end + LOOKED_AT
        if run.end < run.hold:
            return ()
        onset = self._near_onset
        for exact in (self._short.run, self._long.run):
            if exact is not None and exact.bar and exact.start <= onset + _NEAR_SLACK:
                return ()  # copies that do not differ at all have been judged already
        if run.end >= run.bar and not self._raised(run):
            run.bar = run.end
            return (condemned(run, near.window, self._channel, onset, self._window.end),)
        self._near_held = run.end >= run.hold
        return ()

    def _raised(self, run: Run) -> bool:
        """Whether the run, which has reached its bar, turns out to be a plan: once, as its bar is raised then."""
        unit = self._near.window.text[-run.period :]
        window = self._window
        bar = run.start + judge_plan(unit, window.slice(self._near_onset, window.end), self._policy)
        if run.why == "plan" or bar <= run.end:
            return False
        run.bar = bar
        run.hold = bar - LATE_HOLD
        run.why = "plan"
        self._novelty.due = window.end + LOOKED_AT  # it says few new words, and is no circle
        return True

    def _judge_near(self, run: Run) -> bool:
        """Like _judge; short units are judged late, when their numbers show whether they count or are data."""
        if run.copies < (1.5 if run.period >= 64 else 2.5) or run.end - run.start < _NEAR_LEAST:
            return False
        near = self._near
        unit = near.window.slice(run.start, run.start + run.period) or near.window.text[-run.period :]
        start = self._near_onset = near.raw(run.start, self._window)  # later its place may be forgotten
        window = self._window
        before, text = window.slice(start - 4_000, start), window.slice(start, window.end)
        judgement = judge_near(unit, before, text, self._asked, self._policy)
        run.bar = run.start + judgement.bar
        run.hold = run.start + judgement.hold
        run.kind = judgement.kind
        run.why = judgement.why
        return True

    def _single(self, char: str) -> Run:
        """The step ended in four equal characters: too short for the seeker, long enough to be watched."""
        window = self._window
        count = len(window.text) - len(window.text.rstrip(char))
        run = Run(1, window.end - count, window.end)
        self._short.run = run
        return run

    def _judge(self, run: Run) -> bool:
        """Set the bar of a run. False while there is too little of it to judge by."""
        length = run.end - run.start
        window = self._window
        if length < 2 * run.period and run.period < 97:
            return False
        unit = window.slice(run.start, run.start + run.period)
        if not unit:
            unit = window.text[-run.period :]
        shortest = primitive(unit)
        if shortest < run.period:
            if run.period >= 97:  # several copies of what the other seeker follows
                run.bar = run.hold = _NEVER
                return True
            run.period = shortest
            unit = unit[:shortest]
        before = window.slice(run.start - LOOKED_BACK, run.start)
        first = run.start < 400 and not before.strip()
        judgement = judge(unit, before, first=first, asked=self._asked, policy=self._policy)
        run.bar = max(run.start + judgement.bar, window.end)
        run.hold = run.start + judgement.hold
        run.kind = judgement.kind
        run.why = judgement.why
        if run.kind == "single_token" and first:
            run.kind = "single_token_from_start"
        return True

    def _exactly(self, rest: str) -> Sequence[Finding]:
        """A bar lies within what has come since the last step."""
        text = self._window.text
        whole = text + rest
        n = len(text)
        for run in (self._short.run, self._long.run):
            if run is not None and run.bar and run.bar <= self._seen:
                need = run.bar - run.end
                if agree(whole, n, n - run.period, min(need, len(rest))) >= need:
                    return (condemned(run, self._window, self._channel),)
        self._alarm = _NEVER  # the run has ended, as the next step will see
        return ()
