"""What the page shows of a run, as plain data. Pure.

Texts are the bulk of a run, so each is kept once and referred to by number, cut at TEXT_CHARS, and once TEXTS_CHARS are
spent the rest is left out: the page says so, and the JSON report has them all.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any, Final

from replay.observation import AXES, Observation
from replay.report import Report, cell_labels, scorecard_facts, worth_saying
from replay.results import MEANING, Attribution, Divergence, Ruling, Side, Triage
from replay.summary import Seam, whole

TEXT_CHARS: Final = 6_000
TEXTS_CHARS: Final = 4_000_000
SEAM_BEFORE: Final = 360
SEAM_AFTER: Final = 900
ALTERNATIVES: Final = 5
_WORD: Final = re.compile(rb"\s*\S{1,24}")


class Texts:
    """Distinct texts by number; -1 for one that no longer fits."""

    def __init__(self) -> None:
        self.kept: list[str] = []
        self._numbers: dict[str, int] = {}
        self._spent = 0

    def number(self, text: str) -> int:
        text = text if len(text) <= TEXT_CHARS else text[:TEXT_CHARS] + f"\n[{len(text) - TEXT_CHARS} characters more]"
        known = self._numbers.get(text)
        if known is not None:
            return known
        if self._spent + len(text) > TEXTS_CHARS:
            return -1
        self._spent += len(text)
        self._numbers[text] = len(self.kept)
        self.kept.append(text)
        return len(self.kept) - 1


def page_data(report: Report) -> dict[str, Any]:
    head, summary = report.head, report.summary
    texts = Texts()
    marks = summary.marks
    return {
        "run": head.id,
        "kind": head.kind,
        "created_at": head.created_at,
        "command": head.command,
        "counts": {
            "answers": len(report.observations),
            "requests": len(summary.columns),
            "cells": len(summary.rows),
            "volleys_left": report.left,
            **{mark: marks[mark] for mark in ("same", "differs", "wrong", "error")},
        },
        "notes": _notes(report),
        "cells": [
            {"label": label, "axes": {axis: value for axis, value in cell.axes().items() if value}}
            for cell, label in zip(summary.rows, cell_labels(summary.rows), strict=True)
        ],
        "requests": [_request(report, request_id, texts) for request_id in summary.columns],
        "squares": [
            [s.row, s.column, s.mark, s.runs, s.differs, s.wrong, s.errors, s.distinct] for s in summary.squares
        ],
        "answers": _answers(report, texts),
        "seams": [_seam(report, seam) for seam in summary.seams if seam.comparison.divergence is not None],
        "triage": _triage(report.triage),
        "scorecard": scorecard_facts(report.scorecard),
        "texts": texts.kept,
    }


def _notes(report: Report) -> list[str]:
    head = report.head
    notes = [f"skipped: {count} ({reason})" for reason, count in head.skipped.items()]
    notes += [f"left out: {one.what} on {one.engine}: {one.why}" for one in head.left_out]
    notes += [f"{lane}: given up, {why}" for lane, why in report.given_up.items()]
    notes += [f"{request}: not sent, {why}" for request, why in report.unsent.items()]
    notes += [
        f"{one.request_id}: the recorded {one.found} is seen again in {one.again} of {one.runs} runs"
        for one in report.summary.reproduced
    ]
    return notes


def _request(report: Report, request_id: str, texts: Texts) -> dict[str, Any]:
    source = next((one for one in report.sources if one.id == request_id), None)
    if source is None:
        return {"id": request_id, "asked": -1, "delivered": -1, "expected": None}
    return {
        "id": request_id,
        "asked": texts.number(source.asked()),
        "delivered": texts.number(source.output) if source.answered else -1,
        "expected": source.expected,
    }


def _answers(report: Report, texts: Texts) -> dict[str, list[list[Any]]]:
    """By ``row.column``: the distinct answers of a square, the most frequent first, each with its count of runs, its
    text, why it must not stand, its finish reason and its findings."""
    rows = {cell: index for index, cell in enumerate(report.summary.rows)}
    columns = {request_id: index for index, request_id in enumerate(report.summary.columns)}
    found: dict[str, dict[tuple[Any, ...], int]] = defaultdict(dict)
    for one in report.observations:
        square = found[f"{rows[one.cell]}.{columns.get(one.request_id, 0)}"]
        codes = ", ".join(dict.fromkeys(finding.code for finding in one.findings))
        answer = (texts.number(_shown(one)), one.error or one.wrong(), one.finish_reason, codes)
        square[answer] = square.get(answer, 0) + 1
    return {
        name: [[count, *answer] for answer, count in sorted(square.items(), key=lambda item: -item[1])]
        for name, square in found.items()
    }


def _shown(one: Observation) -> str:
    reasoning = one.text.get("reasoning", "")
    return (f"[reasoning] {reasoning}\n\n" if reasoning else "") + whole(one)


def _seam(report: Report, seam: Seam) -> dict[str, Any]:
    divergence = seam.comparison.divergence
    assert divergence is not None
    rows = {cell: index for index, cell in enumerate(report.summary.rows)}
    return {
        "request": report.summary.columns.index(seam.request_id),
        "kind": divergence.kind,
        "channel": divergence.channel,
        "token": divergence.token,
        "byte": divergence.byte,
        "edit": seam.comparison.edit_distance,
        "unit": seam.comparison.unit,
        "wrong": seam.right.wrong(),
        "left": {"cell": rows[seam.left.cell], **_half(seam.left, divergence.left, divergence)},
        "right": {"cell": rows[seam.right.cell], **_half(seam.right, divergence.right, divergence)},
    }


def _half(one: Observation, side: Side, divergence: Divergence) -> dict[str, Any]:
    """One answer around the seam: what both said before it, the token that stands there, what comes behind it."""
    data = one.text.get(divergence.channel, one.content).encode("utf-8", "surrogatepass")
    if not data and side.token_id >= 0:  # an answer of which the ids alone are known
        data = b" ".join(b"%d" % id_ for id_ in one.token_ids[side.token_index :])
    at, token = _token(one, side, data, max(divergence.byte, 0))
    before = data[max(0, at - SEAM_BEFORE) : at].decode("utf-8", "ignore")
    after = data[at + len(token) : at + len(token) + SEAM_AFTER].decode("utf-8", "ignore")
    top = one.top[side.token_index] if 0 <= side.token_index < len(one.top) else ()
    return {
        "cut": at > SEAM_BEFORE,
        "before": before,
        "at": token.decode("utf-8", "replace"),
        "after": after,
        "more": len(data) > at + len(token) + SEAM_AFTER,
        "finish": one.finish_reason,
        "margin": side.margin,
        "floor": side.list_floor,
        "rank": side.rank,
        "top": [
            [
                alternative.piece.decode("utf-8", "replace"),
                round(alternative.logprob, 4),
                alternative.piece == side.piece,
            ]
            for alternative in top[:ALTERNATIVES]
        ],
    }


def _token(one: Observation, side: Side, data: bytes, byte: int) -> tuple[int, bytes]:
    """Where the seam begins and what stands there: the token where it is known (it may have begun before the first
    differing byte), else the word."""
    start = sum(map(len, one.pieces[: side.token_index])) if side.token_index >= 0 else byte
    if side.piece and start <= byte and data.startswith(side.piece, start):
        return start, side.piece
    word = _WORD.match(data, byte)
    return byte, word[0] if word else b""


def _triage(triage: Triage | None) -> dict[str, Any] | None:
    if triage is None:
        return None
    found = [("wrong answers", triage.attribution), ("differing answers", triage.differences)]
    return {
        "ruling": _ruling(triage.ruling),
        "contrasts": [_ruling(one) for one in triage.contrasts],
        "requests": [_ruling(one) for one in triage.requests if one.cause != "agreement"],
        "attributions": [{"of": of, **_attribution(one)} for of, one in found if one is not None],
    }


def _ruling(one: Ruling) -> dict[str, Any]:
    return {
        "scope": one.scope,
        "cause": one.cause,
        "means": MEANING[one.cause],
        "claim": one.claim,
        "confidence": one.confidence,
        "mechanism": one.mechanism,
        "leaning": one.leaning,
        "for": [[e.statement, e.weight] for e in one.evidence_for],
        "against": [[e.statement, e.weight] for e in one.evidence_against],
        "axes": [str(condition) for condition in one.axes],
        "next": [[step.action, step.reason, step.repeats] for step in one.next_steps],
    }


def _attribution(found: Attribution) -> dict[str, Any]:
    order = {axis: index for index, axis in enumerate(AXES)}
    return {
        "runs": found.runs,
        "failures": found.failures,
        "unit": found.unit,
        "clauses": [
            {
                "text": str(clause),
                "method": clause.method,
                "same_runs": [" and ".join(map(str, names)) for names in clause.same_runs],
                "rivals": [" and ".join(map(str, names)) for names in clause.rivals],
            }
            for clause in found.clauses
        ],
        "axes": [
            {
                "axis": test.axis,
                "p": test.p_adjusted,
                "method": test.method,
                "rates": [
                    [value or "(not set)", rate.failures, rate.runs, rate.interval.low, rate.interval.high]
                    for value, rate in test.rates
                ],
            }
            for test in sorted(found.axes, key=lambda test: (test.p_adjusted, order.get(test.axis, 99)))
        ],
        "confounded": [list(axes) for axes in worth_saying(found.confounded)],
        "next": [[step.action, step.reason, step.repeats] for step in found.next_steps],
    }
