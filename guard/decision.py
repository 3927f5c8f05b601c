"""What is done about what was found: two tables, read from the top, the first row that fits decides.

``WHILE`` is read for every finding while an answer streams, ``AFTER`` when an attempt has ended. The rules behind them:

- What was delivered cannot be taken back. With nothing delivered an answer may start afresh on another engine; with
  text delivered it may only go on from there, or end in an error.
- The caller's own mistakes, deadline and cancellation are never retried.
- An error names what went wrong last, not that attempts ran out.
- A broken constraint is held against the engine from outside as long as that may be done: it costs no attempt.
- A second collapse at the same place is the model's own: other sampling is tried once, then it is an error.

``outguard policy explain`` prints them, and so does the README.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import cache
from typing import Final, Literal, NamedTuple

from guard.watch import CONSTRAINT_FAMILIES

Reaction = Literal["continue", "hold", "stop", "repair"]
Kind = Literal["finish", "retry", "resume", "vary", "enforce", "fail"]

# --- while it streams ------------------------------------------------------------------------------------------------


class Sight(NamedTuple):
    """``what``: doubt (a detector or a checker cannot tell yet), repairable, warn (info too) or error; ``code`` is the
    finding's. ``acts``: the policy enforces what is looked after here (detectors, constraints or repairs), instead of
    only observing it. ``at_limit``: the answer ended at the caller's own token limit."""

    what: Literal["doubt", "repairable", "warn", "error"]
    code: str = ""
    acts: bool = True
    at_limit: bool = False


class Watch(NamedTuple):
    """A row of ``WHILE``. ``code`` is a pattern, or ``constraint`` for all the families of constraints; None in a
    column means: does not matter."""

    what: str
    code: str
    then: Reaction
    why: str
    acts: bool | None = None
    at_limit: bool | None = None


CONSTRAINT: Final = "constraint"

WHILE: Final[tuple[Watch, ...]] = (
    Watch("doubt", "*", "hold", "what may still be taken back waits; what is clear leaves", acts=True),
    Watch("doubt", "*", "continue", "nothing is held for what is only observed", acts=False),
    Watch("repairable", "*", "repair", "a change that loses nothing is made, and recorded", acts=True),
    Watch("repairable", "*", "continue", "the policy makes no repairs: it stays what it is", acts=False),
    Watch("warn", "*", "continue", "it is recorded"),
    Watch("error", "stream.*", "stop", "a stream that broke cannot be called finished, whatever the policy"),
    Watch("error", "*.truncated", "continue", "cut by the caller's own max_tokens; the verdict says so", at_limit=True),
    Watch("error", CONSTRAINT, "stop", "the constraint can no longer be met by this attempt", acts=True),
    Watch("error", CONSTRAINT, "continue", "it is recorded, and the verdict says so", acts=False),
    Watch("error", "*", "stop", "the answer has collapsed: the rest of this attempt is not wanted", acts=True),
    Watch("error", "*", "continue", "it is recorded", acts=False),
)


@cache
def while_streaming(what: Sight) -> Reaction:
    return watch_for(what).then


def watch_for(what: Sight) -> Watch:
    """The first row that fits. The table ends with rows for everything."""
    constrains = what.code.partition(".")[0] in CONSTRAINT_FAMILIES
    return next(
        row
        for row in WHILE
        if row.what == what.what
        and (constrains if row.code == CONSTRAINT else fnmatchcase(what.code, row.code))
        and row.acts in (None, what.acts)
        and row.at_limit in (None, what.at_limit)
    )


# --- when an attempt has ended ---------------------------------------------------------------------------------------


class Action(NamedTuple):
    """``code`` is a key of guard.errors.ERRORS when the action is fail, else empty; ``why`` is the row's."""

    kind: Kind
    code: str = ""
    why: str = ""


class Situation(NamedTuple):
    """``cause``: a finding's code, ``stream.KIND`` (the engine failed in mid-stream), ``open.KIND`` (it did not accept
    the request) or empty. ``delivered``: the caller holds a part of this answer. ``attempts_left``: another attempt is
    allowed by policy and time. ``budget_left``: and by the route's retry budget. ``reachable``: an engine takes
    requests. ``resumable``: one of them can go on from what was delivered, and what was delivered can still become a
    valid answer. ``enforceable``: the constraint was broken, and there is a way on from the last place where it was not
    (guard/enforce.py). ``again``: it collapsed where an attempt before it had. ``variable``: other sampling has not
    been tried, and the policy allows it."""

    cause: str
    delivered: bool = False
    attempts_left: bool = True
    budget_left: bool = True
    reachable: bool = True
    resumable: bool = False
    enforceable: bool = False
    again: bool = False
    variable: bool = False


class Row(NamedTuple):
    """A row of ``AFTER``. ``cause`` is a pattern; None in a column means: does not matter."""

    cause: str
    then: Kind
    why: str
    delivered: bool | None = None
    attempts_left: bool | None = None
    budget_left: bool | None = None
    reachable: bool | None = None
    resumable: bool | None = None
    enforceable: bool | None = None
    again: bool | None = None
    variable: bool | None = None


NO_BUDGET: Final = "the route's retry budget is spent"
"""Said to the caller as well: without it, the request would have been tried again."""

NOWHERE: Final = "no engine takes requests now"

AFTER: Final[tuple[Row, ...]] = (
    Row("", "finish", "the answer is whole and nothing condemns it"),
    Row("open.refused", "fail", "the engine says that the request itself is wrong: so would the others"),
    Row("deadline", "fail", "the caller's time is up"),
    Row("*", "enforce", "the answer goes on from its last valid character", enforceable=True),
    Row("*", "fail", "no attempt is left", attempts_left=False),
    Row("*", "fail", NO_BUDGET, budget_left=False),
    Row("*", "fail", "the model's own, and other sampling is not allowed or did not help", again=True, variable=False),
    Row("*", "vary", "the model's own: afresh with other sampling, once", delivered=False, reachable=True, again=True),
    Row("*", "vary", "the model's own: on with other sampling, once", delivered=True, resumable=True, again=True),
    Row("*", "retry", "nothing has left: the answer starts afresh elsewhere", delivered=False, reachable=True),
    Row("*", "fail", NOWHERE, delivered=False, reachable=False),
    Row("*", "resume", "the answer goes on elsewhere from the last clean character", delivered=True, resumable=True),
    Row("*", "fail", "no engine can go on from what was delivered", delivered=True, resumable=False),
)

CODES: Final[tuple[tuple[str, str], ...]] = (
    ("open.refused", "engine_rejected"),
    ("open.busy", "overloaded"),
    ("open.status", "engine_error"),
    ("open.protocol", "engine_error"),
    ("open.first_token_timeout", "engine_timeout"),
    ("open.total_timeout", "engine_timeout"),
    ("open.*", "engine_unavailable"),
    ("deadline", "deadline_exceeded"),
    ("queue.*", "overloaded"),
    ("stream.stall", "engine_timeout"),
    ("stream.error_event", "engine_error"),
    ("stream.protocol", "engine_error"),
    ("stream.aborted", "engine_error"),
    ("stream.*", "stream_cut"),
    ("json.*", "constraint_violated"),
    ("schema.*", "constraint_violated"),
    ("regex.*", "constraint_violated"),
    ("grammar.*", "constraint_violated"),
    ("constraint.*", "constraint_violated"),
    ("tool.*", "constraint_violated"),
    ("guard.*", "internal"),
    ("*", "collapsed"),
)


def decide(situation: Situation) -> Action:
    row = row_for(situation)
    return Action(row.then, error_code(situation.cause) if row.then == "fail" else "", row.why)


def row_for(situation: Situation) -> Row:
    """The first row that fits. The table ends with rows for everything."""
    return next(row for row in AFTER if _fits(row, situation))


def _fits(row: Row, situation: Situation) -> bool:
    """The columns behind the first three of a row are those of a situation behind its first."""
    return fnmatchcase(situation.cause, row.cause) and all(
        wanted is None or wanted == is_ for wanted, is_ in zip(row[3:], situation[1:], strict=True)
    )


def error_code(cause: str) -> str:
    """The stable word for a cause (a key of guard.errors.ERRORS)."""
    return next(code for pattern, code in CODES if fnmatchcase(cause, pattern))
