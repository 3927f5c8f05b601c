"""A run as a program or a person at a terminal reads it: the plan before, the heat map, the rulings, the seams."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from replay.journal import Head
from replay.observation import AXES, Cell, Observation
from replay.results import MEANING, Ruling, Side, Triage
from replay.scorecard import Scorecard
from replay.source import Source
from replay.summary import Mark, Seam, Summary, from_delivered, summarise
from replay.triage import triage

SIGNS: Final[Mapping[Mark, tuple[str, str]]] = {
    "same": ("■", "green"),
    "differs": ("◆", "yellow"),
    "wrong": ("✗", "red"),
    "error": ("!", "magenta"),
    "none": (" ", "dim"),
}
MAP_WIDTH: Final = 60
SEAMS_SHOWN: Final = 8
RUNS_SHOWN: Final = 20
RULINGS_SHOWN: Final = 20
REPRODUCED_SHOWN: Final = 5


class Report(Struct):
    """Everything that is known of a run. ``left``: volleys that were not run; ``given_up``: lanes, and why;
    ``unsent``: requests that could not be sent."""

    head: Head
    observations: list[Observation]
    summary: Summary
    triage: Triage | None = None
    scorecard: Scorecard | None = None
    left: int = 0
    given_up: dict[str, str] = {}
    unsent: dict[str, str] = {}

    @property
    def sources(self) -> list[Source]:
        return self.head.sources

    @property
    def clean(self) -> bool:
        """Every answer is there, sound, and what the others and the caller got."""
        marks = self.summary.marks
        whole = not (self.left or self.given_up or self.unsent)
        sources = {source.id: source for source in self.sources}
        kept = all(from_delivered(sources[one.request_id], one) is None for one in self.observations)
        return whole and marks["same"] == marks.total() and kept


def reported(head: Head, observations: list[Observation]) -> Report:
    """A run judged."""
    prompts = {source.id: source.asked() for source in (*head.sources, *head.beside)}
    judged = triage(observations, prompts) if any(one.answered for one in observations) else None
    return Report(head, observations, summarise(observations, head.sources), judged)


# --- after it --------------------------------------------------------------------------------------------------------


def terminal(report: Report) -> RenderableType:
    head, summary = report.head, report.summary
    parts: list[RenderableType] = [_title(report)]
    parts += [Text(f"skipped: {count} ({reason})", style="yellow") for reason, count in head.skipped.items()]
    parts += [Text(f"left out: {one.what} on {one.engine}: {one.why}", style="yellow") for one in head.left_out]
    parts += [Text(f"{lane}: given up, {why}", style="red") for lane, why in report.given_up.items()]
    parts += [Text(f"{request}: not sent, {why}", style="red") for request, why in report.unsent.items()]
    if report.scorecard is not None:
        parts += [Text(""), scorecard_table(report.scorecard)]
    parts += [Text(""), heat_map(summary)]
    if len(report.observations) <= RUNS_SHOWN:
        parts.append(runs_table(report))
    parts += _reproduced(summary)
    if report.triage is not None:
        parts += [Text(""), rulings(report.triage), *attribution(report.triage)]
    if summary.seams:
        parts += [Text(""), seams(summary.seams)]
    return Group(*parts)


def _title(report: Report) -> Text:
    marks = report.summary.marks
    missing = f", {report.left} volleys not run" if report.left else ""
    told = ", ".join(f"{marks[mark]} {mark}" for mark in ("same", "differs", "wrong", "error") if marks[mark])
    return Text(
        f"run {report.head.id}: {len(report.observations)} answers to {len(report.sources)} requests in "
        f"{len(report.summary.rows)} cells{missing}: {told or 'nothing'}",
        style="bold",
    )


def scorecard_table(card: Scorecard) -> RenderableType:
    view = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("", "check", "measured", "needed", "detail"):
        view.add_column(name, overflow="fold")
    styles = {"pass": ("pass", "green"), "fail": ("FAIL", "red"), "not measured": ("-", "yellow")}
    for row in card.rows:
        view.add_row(Text(*styles[row.state]), row.name, row.measured, row.bound, row.detail)
    verdict = Text(f"{card.title}: {'passed' if card.passed else 'NOT PASSED'}", style="bold")
    return Group(view, verdict)


def _reproduced(summary: Summary) -> list[Text]:
    if len(summary.reproduced) <= REPRODUCED_SHOWN:
        return [
            Text(f"{one.request_id[:12]}: {one.found} is seen again in {one.again} of {one.runs} runs")
            for one in summary.reproduced
        ]
    again = [one for one in summary.reproduced if one.again]
    runs = f"{sum(one.again for one in again)} of {sum(one.runs for one in summary.reproduced)} runs"
    return [Text(f"of {len(summary.reproduced)} recorded failures {len(again)} are seen again, in {runs}")]


def heat_map(summary: Summary) -> RenderableType:
    """A row a cell, a sign a request; of more requests than there is room for, each sign is the worst of several."""
    labels = cell_labels(summary.rows)
    step = max(1, math.ceil(len(summary.columns) / MAP_WIDTH))
    marks = {(square.row, square.column): square.mark for square in summary.squares}
    view = _table("cell", "answers", "differ", "wrong", "none", right={"answers", "differ", "wrong", "none"})
    view.add_column("a sign for each request" if step == 1 else f"a sign for the worst of {step}", no_wrap=True)
    for row, label in enumerate(labels):
        total = summary.row_of(row)
        line = Text()
        for start in range(0, len(summary.columns), step):
            found: list[Mark] = [marks.get((row, c), "none") for c in range(start, start + step)]
            sign, style = SIGNS[min(found, key=_WORST.index)]
            line.append(sign, style=style)
        counts = (total.runs, total.differs, total.wrong, total.errors)
        view.add_row(label, *(str(count or "-") for count in counts), line)
    legend = Text()
    for mark, (sign, style) in SIGNS.items():
        if mark != "none":
            legend.append(f"{sign} ", style=style).append(f"{_MEANS[mark]}   ")
    return Group(view, legend)


_WORST: Final[tuple[Mark, ...]] = ("wrong", "error", "differs", "same", "none")
_MEANS: Final[Mapping[Mark, str]] = {
    "same": "the commonest answer",
    "differs": "another answer",
    "wrong": "an answer that must not stand",
    "error": "no answer",
}


def cell_labels(cells: Sequence[Cell]) -> list[str]:
    """Each cell by its engine and the axes that vary."""
    varying = [axis for axis in AXES[1:] if len({getattr(cell, axis) for cell in cells}) > 1]
    return [_label(cell, varying) for cell in cells]


def _label(cell: Cell, varying: Sequence[str]) -> str:
    parts = []
    for axis in varying:
        value = getattr(cell, axis)
        if axis == "concurrency":
            value = "alone" if value == 1 else f"{value} at once" if value else ""
        elif axis == "neighbours" and value == "none":
            value = ""
        elif axis in ("cluster", "node", "cache") and value:
            value = f"{axis} {value}"
        if value and value != cell.engine:
            parts.append(str(value))
    return ", ".join([cell.engine, *parts])


def runs_table(report: Report) -> RenderableType:
    """Every answer, and where it first differs from what the caller got."""
    sources = {source.id: source for source in report.sources}
    labels = dict(zip(report.summary.rows, cell_labels(report.summary.rows), strict=True))
    view = _table(
        "cell", "run", "outcome", "tokens", "ms", "findings", "from what was delivered", right={"run", "tokens", "ms"}
    )
    for one in report.observations:
        source = sources[one.request_id]
        difference = from_delivered(source, one)
        told = "-" if one.error or not source.answered else "none: the same text"
        if difference is not None:
            told = f"at {difference.offset}: {difference.left!r} became {difference.right!r}"
        view.add_row(
            labels[one.cell],
            str(one.repeat + 1),
            _outcome(one),
            str(max(one.counts.completion, 0)),
            f"{one.timing.duration_ms:.0f}",
            ", ".join(dict.fromkeys(found.code for found in one.findings)) or "-",
            told,
        )
    return view


def _outcome(one: Observation) -> Text:
    if one.error:
        return Text(f"no answer: {one.error[:60]}", style="magenta")
    if why := one.wrong():
        return Text(why, style="red")
    return Text(one.finish_reason or "no finish reason", style="green")


def rulings(triage: Triage) -> RenderableType:
    """The whole matrix in full, a line for each contrast, and the requests that are not in agreement, counted."""
    whole = triage.ruling
    lines = [Text.assemble("ruling: ", _ruling(whole), f", {whole.confidence}: {MEANING[whole.cause]}", style="bold")]
    for sign, evidence in (("+", whole.evidence_for), ("-", whole.evidence_against)):
        lines += [Text(f"  {sign} {one.statement}") for one in evidence]
    lines += [Text(f"  next: {step.action} ({step.reason})") for step in whole.next_steps]
    view = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name, ratio in (("of", 4), ("ruling", 3), ("because", 5), ("next", 3)):
        view.add_column(name, ratio=ratio, overflow="fold")
    shown = [*triage.contrasts, *_few([one for one in triage.requests if one.cause != "agreement"])]
    for one in shown[:RULINGS_SHOWN]:
        view.add_row(one.scope, _ruling(one).append(f", {one.confidence}"), _because(one), _next(one))
    counts = Counter(one.cause for one in triage.requests)
    if len(triage.requests) > 1:
        told = ", ".join(f"{count} {cause}" for cause, count in counts.most_common())
        lines.append(Text(f"requests: {told}"))
    return Group(*lines, view) if shown else Group(*lines)


def _few(requests: Sequence[Ruling]) -> Sequence[Ruling]:
    """Those that the terminal lists; of many it only says how many there are of each kind."""
    return requests if 1 < len(requests) <= 5 else ()


def _ruling(one: Ruling) -> Text:
    text = Text(one.cause, style="red" if one.claim else "yellow" if one.cause == "undetermined" else "green")
    if one.mechanism:
        text.append(f" ({one.mechanism})")
    if one.leaning:
        text.append(f", leaning to {one.leaning}")
    return text


def _because(one: Ruling) -> str:
    """The weightiest evidence, the last of equals: that is what sets this ruling apart."""
    order = {"decisive": 2, "strong": 1, "hint": 0}
    best = max(enumerate(one.evidence_for), key=lambda pair: (order[pair[1].weight], pair[0]), default=None)
    return best[1].statement if best is not None else MEANING[one.cause]


def _next(one: Ruling) -> str:
    return one.next_steps[0].action if one.next_steps else "-"


def attribution(triage: Triage) -> list[Text]:
    lines = []
    for found, what in ((triage.attribution, "wrong answers"), (triage.differences, "differing answers")):
        if found is None:
            continue
        lines += [Text(f"{what}: {clause}", style="bold") for clause in found.clauses]
        if found.failures and not found.clauses:
            lines.append(Text(f"{what}: {found.failures} of {found.runs}, and no axis explains them"))
        for axes in worth_saying(found.confounded):
            lines.append(Text(f"confounded: {' and '.join(axes)} never vary apart", style="yellow"))
    return lines


def worth_saying(confounded: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Without what is so by construction: who is beside a request, and how many are."""
    return [axes for axes in confounded if set(axes) != {"concurrency", "neighbours"}]


def seams(found: Sequence[Seam]) -> RenderableType:
    view = _table("request", "commonest", "other", "token", "it says", "the other", "margins")
    for seam in found[:SEAMS_SHOWN]:
        divergence = seam.comparison.divergence
        if divergence is None:
            continue
        margins = f"{_margin(divergence.left)} / {_margin(divergence.right)} {divergence.kind}"
        view.add_row(
            seam.request_id[:12],
            seam.left.cell.engine,
            seam.right.cell.engine,
            str(divergence.token) if divergence.token >= 0 else "-",
            _said(divergence.left),
            _said(divergence.right),
            margins,
        )
    rest = len(found) - SEAMS_SHOWN
    return Group(view, Text(f"and {rest} more seams in the page and the JSON")) if rest > 0 else view


def _said(side: Side) -> str:
    return repr(side.text[:24]) if side.text or side.token_id < 0 else f"token {side.token_id}"


def _margin(side: Side) -> str:
    if side.margin is not None:
        return f"{side.margin:.3g}"
    return f">{side.list_floor:.3g}" if side.list_floor is not None else "?"


def facts(report: Report) -> dict[str, Any]:
    """The same and more for programs."""
    sources = {source.id: source for source in report.sources}
    first = report.sources[0] if len(report.sources) == 1 else None
    return {
        "run": report.head.id,
        "kind": report.head.kind,
        "command": report.head.command,
        "trace_id": first.id if first else None,
        "requests": [{"id": one.id, "model": one.model, "delivered_chars": len(one.output)} for one in report.sources],
        "skipped": report.head.skipped,
        "left_out": msgspec.to_builtins(report.head.left_out),
        "not_run": report.left,
        "given_up": report.given_up,
        "unsent": report.unsent,
        "cells": [cell.axes() for cell in report.summary.rows],
        "squares": msgspec.to_builtins(report.summary.squares),
        "reproduced": msgspec.to_builtins(report.summary.reproduced),
        "triage": msgspec.to_builtins(report.triage),
        "scorecard": scorecard_facts(report.scorecard),
        "seams": [
            {
                "request_id": s.request_id,
                "left": s.left.cell.axes(),
                "right": s.right.cell.axes(),
                "comparison": msgspec.to_builtins(s.comparison),
            }
            for s in report.summary.seams
        ],
        "runs": [_run(one, sources[one.request_id], report.summary.rows) for one in report.observations],
    }


def scorecard_facts(card: Scorecard | None) -> dict[str, Any] | None:
    return None if card is None else {**msgspec.to_builtins(card), "passed": card.passed}


def _run(one: Observation, source: Source, rows: Sequence[Cell]) -> dict[str, Any]:
    difference = from_delivered(source, one)
    return {
        "request_id": one.request_id,
        "engine": one.cell.engine,
        "cell": rows.index(one.cell),
        "repeat": one.repeat,
        "finish_reason": one.finish_reason,
        "condemned": one.condemned,
        "wrong": one.wrong(),
        "error": one.error,
        "findings": [found.code for found in one.findings],
        "completion_tokens": one.counts.completion,
        "cached_tokens": one.counts.cached,
        "duration_ms": round(one.timing.duration_ms, 1),
        "text": one.content,
        "channels": one.text,
        "first_difference": None
        if difference is None
        else {"offset": difference.offset, "delivered": difference.left, "replayed": difference.right},
    }


def _table(*columns: str, right: set[str] | None = None) -> Table:
    view = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        view.add_column(name, justify="right" if right and name in right else "left", overflow="fold")
    return view
