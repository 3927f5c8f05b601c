"""The decision tables as people read them: the rows of decision.py, whole or as far as one policy leaves them. Pure.

A row that a policy can never reach is left out: without ``resume`` nothing goes on elsewhere, with one attempt nothing
is tried again, where detectors only observe nothing is stopped for a collapse.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from guard.config import Policy
from guard.decision import AFTER, CODES, CONSTRAINT, WHILE, Row, Watch

AFTER_COLUMNS: Final = (
    ("delivered", "released"),
    ("attempts_left", "attempts left"),
    ("budget_left", "budget left"),
    ("reachable", "an engine takes requests"),
    ("resumable", "one can go on from there"),
    ("enforceable", "constraint can be held"),
    ("again", "same place again"),
    ("variable", "other sampling allowed"),
)
"""Fields of a row and what they are called; the columns in which most rows say nothing are shown in the words of the
ones that do."""


class Table(NamedTuple):
    """``columns`` name the cells of every row."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def tables(policy: Policy | None = None) -> list[Table]:
    return [_while(policy), _after(policy), _codes()]


def as_data(policy: Policy | None = None) -> dict[str, list[dict[str, Any]]]:
    """For programs: the rows with the names of their fields; what does not matter is left out."""
    return {
        "while_streaming": [_said(row) for row in WHILE if policy is None or _seen(row, policy)],
        "after_an_attempt": [_said(row) for row in AFTER if policy is None or _reached(row, policy)],
        "error_codes": [{"cause": cause, "code": code} for cause, code in CODES],
    }


def markdown(policy: Policy | None = None) -> str:
    """As it stands in the README."""
    return "\n\n".join(_markdown(table) for table in tables(policy)[:2])


def _while(policy: Policy | None) -> Table:
    rows = []
    for row in WHILE:
        if policy is not None and not _seen(row, policy):
            continue
        conditions = []
        if row.acts is not None:
            conditions.append("enforced" if row.acts else "only observed, or off")
        if row.at_limit:
            conditions.append("ended at max_tokens")
        code = "of the constraint" if row.code == CONSTRAINT else "any" if row.code == "*" else row.code
        rows.append((row.what, code, ", ".join(conditions) or "any", row.then, row.why))
    return Table("While it streams", ("seen", "finding", "policy", "then", "why"), rows)


def _after(policy: Policy | None) -> Table:
    rows = []
    for row in AFTER:
        if policy is not None and not _reached(row, policy):
            continue
        cells = ["nothing" if row.cause == "" else "anything" if row.cause == "*" else row.cause]
        cells.append("any" if row.delivered is None else "some" if row.delivered else "nothing")
        conditions = [
            name if value else f"not: {name}"
            for field, name in AFTER_COLUMNS[1:]
            if (value := getattr(row, field)) is not None
        ]
        rows.append((*cells, "; ".join(conditions) or "any", row.then, row.why))
    return Table("When an attempt has ended", ("what ended it", "released", "and", "then", "why"), rows)


def _codes() -> Table:
    rows = [("anything else" if cause == "*" else cause, code) for cause, code in CODES]
    return Table("What a failure is called", ("what ended it", "error"), rows)


def _seen(row: Watch, policy: Policy) -> bool:
    if row.acts is None:
        return True
    if row.what == "repairable":
        return row.acts == policy.repairs
    constraints = policy.constraints == "enforce"
    detectors = policy.detectors == "enforce"
    if row.code == CONSTRAINT:
        return row.acts == constraints
    if row.what == "doubt":
        return row.acts in (constraints, detectors)
    return row.acts == detectors


def _reached(row: Row, policy: Policy) -> bool:
    again = policy.max_attempts > 1
    enforced = policy.resume and policy.constraints == "enforce" and policy.max_enforcements > 0
    return not (
        (row.enforceable and not enforced)
        or (row.then in ("retry", "resume", "vary") and not again)
        or (row.budget_left is False and not again)
        or (row.resumable and not policy.resume)
        or (row.then == "vary" and not policy.vary)
        or (row.again and not (again and policy.detectors == "enforce"))
        or (not again and row.reachable is False)
        or (not again and row.resumable is False)
    )


def _said(row: Watch | Row) -> dict[str, Any]:
    return {name: value for name, value in row._asdict().items() if value is not None}


def _markdown(table: Table) -> str:
    lines = [f"{table.title}:", "", _line(table.columns), _line(["---"] * len(table.columns))]
    return "\n".join([*lines, *map(_line, table.rows)])


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(f"`{cell}`" if "*" in cell else cell for cell in cells) + " |"
