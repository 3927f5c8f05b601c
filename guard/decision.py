"""What to do when an attempt has ended: one table, read from the top, the first row that fits decides.

The rules behind the rows:

- What was delivered cannot be taken back. With nothing delivered an answer may start afresh on another engine; with
text delivered it may only go on from there, or end in an error.
- The caller's own mistakes, deadline and cancellation are never retried.
- An error names what went wrong last, not that attempts ran out.
- A broken constraint is held against the engine from outside as long as that may be done: it costs no attempt.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Final, Literal, NamedTuple

Kind = Literal["finish", "retry", "resume", "enforce", "fail"]


class Action(NamedTuple):
    """``code`` is a key of guard.errors.ERRORS when the action is fail, else empty."""

    kind: Kind
    code: str = ""


class Situation(NamedTuple):
    """``cause``: a finding's code, ``fault.KIND`` (the engine failed in mid-stream), ``open.KIND`` (it did not accept
    the request) or empty. ``delivered``: the caller holds a part of this answer. ``attempts_left``: another attempt is
    allowed by policy and time. ``reachable``: an engine takes requests. ``resumable``: one of them can go on from what
    was delivered, and what was delivered can still become a valid answer. ``enforceable``: the constraint was broken,
    and there is a way on from the last place where it was not (guard/enforce.py)."""

    cause: str
    delivered: bool = False
    attempts_left: bool = True
    reachable: bool = True
    resumable: bool = False
    enforceable: bool = False


class Row(NamedTuple):
    """``cause`` is a pattern; None in a column means: does not matter."""

    cause: str
    action: Kind
    why: str
    delivered: bool | None = None
    attempts_left: bool | None = None
    reachable: bool | None = None
    resumable: bool | None = None
    enforceable: bool | None = None


TABLE: Final[tuple[Row, ...]] = (
    Row("", "finish", "the answer is whole and nothing condemns it"),
    Row("open.refused", "fail", "the engine says that the request itself is wrong: so would the others"),
    Row("deadline", "fail", "the caller's time is up"),
    Row("*", "enforce", "the answer goes on from its last valid character", enforceable=True),
    Row("*", "fail", "no attempt is left", attempts_left=False),
    Row("*", "retry", "nothing left yet: the answer starts afresh on another engine", delivered=False, reachable=True),
    Row("*", "fail", "no engine takes requests now", delivered=False, reachable=False),
    Row("*", "resume", "the answer goes on from the last clean character", delivered=True, resumable=True),
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
    action = row_for(situation).action
    return Action(action, error_code(situation.cause) if action == "fail" else "")


def row_for(situation: Situation) -> Row:
    """The first row that fits. The table ends with rows for everything."""
    return next(
        row
        for row in TABLE
        if fnmatchcase(situation.cause, row.cause)
        and row.delivered in (None, situation.delivered)
        and row.attempts_left in (None, situation.attempts_left)
        and row.reachable in (None, situation.reachable)
        and row.resumable in (None, situation.resumable)
        and row.enforceable in (None, situation.enforceable)
    )


def error_code(cause: str) -> str:
    """The stable word for a cause (a key of guard.errors.ERRORS)."""
    return next(code for pattern, code in CODES if fnmatchcase(cause, pattern))
