"""What the commands print for people: engines, traces, one trace."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from guard.explain import Table as DecisionTable
from guard.service import EngineStatus
from guard.trace.contradictions import Contradiction
from guard.trace.overview import Overview
from guard.trace.record import AttemptRecord, OutcomeRecord, RequestRecord
from guard.trace.surroundings import Surroundings
from guard.trace.timeline import Moment, Seam, moments, reached, seams

_COLOURS = {"ok": "green", "failed": "red", "condemned": "red", "fault": "red", "refused": "red", "invalid": "yellow"}


_NUMBERS = frozenset(
    ("ms", "tries", "times", "of", "share", "tokens", "released", "held", "onset", "seen at", "resumed at", "attempt")
) | {"under way", "failures", "at ms", "seam at", "at once", "cached"}

LEAST_WIDTH = 110
"""Narrower, columns would be taller than wide; a terminal that is narrower wraps whole lines, which reads better."""


def show(view: RenderableType) -> None:
    console().print(view)


def console(least: int = LEAST_WIDTH) -> Console:
    found = Console(highlight=False)
    return found if found.width >= least else Console(highlight=False, width=least)


def engines_table(statuses: Sequence[EngineStatus]) -> RenderableType:
    live = any(status.state for status in statuses)
    load: tuple[str, ...] = ("under way", "failures") if live else ()
    view = _table("engine", "state", *load, "dialect", "url", "model", "version", "image", "cluster", "precision")
    for status in statuses:
        loads = (str(status.under_way), f"{status.failure_rate:.0%}") if live else ()
        facts = (
            status.dialect,
            status.url,
            status.model,
            status.version,
            status.image,
            status.cluster,
            status.precision,
        )
        view.add_row(status.name, _state(status), *loads, *(fact or "-" for fact in facts))
    return view


def _state(status: EngineStatus) -> Text:
    """What matters most of it: whether it is given requests, then whether it answers."""
    if status.draining:
        return Text("draining", "yellow")
    if status.state == "open":
        return Text(f"out ({status.cause}), tried again in {status.reopens_in:.1f} s", "red")
    if not status.ok:
        return Text(status.detail or "does not answer", "red")
    return Text("being tried", "yellow") if status.state == "half_open" else Text("ok", "green")


def contradictions_table(rows: Sequence[Contradiction]) -> RenderableType:
    """One line for each way in which an engine broke what it had been asked to enforce."""
    if not rows:
        return Text("no contradictions")
    view = _table("engine", "version", "constraint", "broken by", "times", "of", "share", "last", "trace")
    for row in rows:
        view.add_row(
            row.engine,
            row.version or "-",
            row.kind,
            row.code,
            str(row.broken),
            str(row.asked),
            f"{row.broken / row.asked:.1%}",
            _when(row.last_at),
            row.trace_id[:12],
        )
    return view


def decision_tables(found: Sequence[DecisionTable]) -> RenderableType:
    """The tables by which an answer goes on; the first row that fits decides."""
    parts: list[RenderableType] = []
    for one in found:
        view = _table(*one.columns)
        for row in one.rows:
            view.add_row(*row)
        parts += [Text(one.title, "bold"), view]
    return Group(*parts)


def traces_table(rows: Sequence[Overview]) -> RenderableType:
    """One line a request, the newest first."""
    if not rows:
        return Text("no traces")
    view = _table("trace", "when", "model", "outcome", "finish", "tries", "engines", "findings", "ms")
    for row in rows:
        request = row.request
        view.add_row(
            request.trace_id[:12],
            _when(request.started_at),
            request.model,
            _outcome(request.outcome, request.error_code),
            request.finish_reason or "-",
            str(request.attempts_made),
            " > ".join(row.engines) or "-",
            ", ".join(row.findings) or "-",
            f"{request.duration_ms:.0f}",
        )
    return view


def trace_line(row: Overview) -> str:
    """One request on one line, for following them."""
    request = row.request
    parts = [
        _when(request.started_at),
        request.trace_id[:12],
        request.model or "-",
        f"{request.outcome}: {request.error_code}" if request.error_code else request.outcome,
        " > ".join(row.engines) or "-",
        f"{request.duration_ms:.0f} ms",
        ", ".join(row.findings),
    ]
    return "  ".join(part for part in parts if part)


def trace_page(
    record: RequestRecord, outcomes: Sequence[OutcomeRecord], around: Sequence[Surroundings] = ()
) -> RenderableType:
    """One request, from top to bottom: what was asked, what each attempt did and what its engine went through
    meanwhile, what was found, what was delivered."""
    released = "delivered" if reached(record) else "released, and not delivered"
    facts = Table.grid(padding=(0, 2))
    for name, value in (
        ("trace", record.trace_id),
        ("request", record.request_id),
        ("when", _when(record.started_at)),
        ("model", f"{record.model} ({record.kind} over {record.protocol}, policy {record.policy or 'default'})"),
        ("outcome", _outcome(record.outcome, record.error_code)),
        ("error", record.error_message),
        ("finish", record.finish_reason),
        ("verdicts", f"format {record.verdict_format}, tool choice {record.verdict_tool_choice}"),
        ("constraint", f"{record.constraint_kind} {record.constraint_hash}".strip()),
        ("sampling", _sampling(record)),
        (
            "tokens",
            f"{record.prompt_tokens} prompt, {record.completion_tokens} {released}, {record.wasted_tokens} wasted",
        ),
        ("time", f"{record.first_token_ms:.0f} ms to the first token, {record.duration_ms:.0f} ms in all"),
        ("content", f"retention {record.retention}"),
    ):
        if value:
            facts.add_row(Text(name, "bold"), value)
    parts: list[RenderableType] = [facts, Text(), _attempts(record.attempts)]
    if record.attempts:
        parts.append(_places(record.attempts))
    if around:
        parts.append(_surroundings(around))
    if any(attempt.findings for attempt in record.attempts):
        parts.append(_findings(record.attempts))
    if found := seams(record):
        parts.append(_seams(found))
    if record.attempts:
        parts.append(_timeline(moments(record, outcomes), record.duration_ms))
    if outcomes:
        parts.append(_outcomes(outcomes))
    if record.output_text:
        parts += [Text(released, "bold"), Text(record.output_text)]
    return Group(*parts)


def _sampling(record: RequestRecord) -> str:
    """What the caller set of it."""
    names = ("temperature", "top_p", "top_k", "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty")
    given = {name: getattr(record, name) for name in (*names, "seed", "max_tokens")}
    return ", ".join(
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in given.items()
        if value is not None
    )


def _attempts(attempts: Sequence[AttemptRecord]) -> RenderableType:
    view = _table(
        "attempt", "engine", "outcome", "why", "then", "resumed at", "onset", "released", "held", "tokens", "ms"
    )
    for a in attempts:
        view.add_row(
            f"{a.attempt}" if all(b.choice == 0 for b in attempts) else f"{a.choice}.{a.attempt}",
            a.engine,
            _outcome(a.outcome, ""),
            a.error_kind or a.finish_reason or "-",
            a.action,
            _at(a.resumed_at),
            _at(a.onset),
            str(a.released_chars),
            str(a.held_chars),
            str(a.completion_tokens),
            f"{a.duration_ms:.0f}",
        )
    return view


def _surroundings(around: Sequence[Surroundings]) -> RenderableType:
    """What the engines said of themselves; a dash where one said nothing."""
    view = _table("engine meanwhile", "KV cache", "running", "waiting", "preempted", "KV transfers", "prefix hits")
    for one in around:
        use = "-"
        if one.kv_cache_low is not None and one.kv_cache_high is not None:
            use = f"{one.kv_cache_low:.0%} to {one.kv_cache_high:.0%}"
        moved = "-" if one.transfers is None else f"{one.transfers:.0f}"
        if one.transfers and one.transfer_seconds is not None:
            moved += f", {one.transfer_seconds / one.transfers * 1e3:.0f} ms each"
        if one.transfer_failures:
            moved += f", {one.transfer_failures:.0f} failed"
        counts = ("-" if count is None else f"{count:.0f}" for count in (one.running, one.waiting, one.preemptions))
        hits = "-" if one.prefix_hit_rate is None else f"{one.prefix_hit_rate:.0%}"
        view.add_row(f"{one.engine} ({one.choice}.{one.attempt})", use, *counts, moved, hits)
    return view


def _places(attempts: Sequence[AttemptRecord]) -> RenderableType:
    """The axes that a failure may depend on."""
    view = _table("attempt", "version", "image", "cluster", "node", "precision", "prefix cache", "cached", "at once")
    for a in attempts:
        view.add_row(
            str(a.attempt),
            *(part or "-" for part in (a.engine_version, a.image, a.cluster, a.node, a.precision, a.prefix_hint)),
            str(a.cached_tokens),
            str(a.concurrency_at_start),
        )
    return view


def _findings(attempts: Sequence[AttemptRecord]) -> RenderableType:
    view = _table("finding", "severity", "attempt", "engine", "channel", "onset", "seen at", "what")
    for attempt in attempts:
        for f in attempt.findings:
            view.add_row(
                f.code, f.severity, str(f.attempt), f.engine, f.channel, str(f.onset), str(f.detected_at), f.message
            )
    return view


def _seams(found: Sequence[Seam]) -> RenderableType:
    view = _table("seam at", "from", "to", "because of", "text on both sides")
    for seam in found:
        text = f"{seam.left!r} | {seam.right!r}" if seam.left or seam.right else "not kept"
        view.add_row(str(seam.offset), seam.before, seam.after, seam.why, text)
    return view


BAR: Final = 40
"""Characters of a timeline's bar."""


def _timeline(found: Sequence[Moment], whole_ms: float) -> RenderableType:
    """A bar over the request's whole time shows where each attempt's moments lie."""
    view = _table("at ms", "timeline", "what happened")
    for moment in found:
        at = min(BAR - 1, max(0, round(moment.at_ms / whole_ms * (BAR - 1)))) if whole_ms else 0
        style = _COLOURS.get(moment.attempt.outcome, "") if moment.attempt is not None else "bold"
        view.add_row(f"{moment.at_ms:.0f}", Text("·" * at + "█" + "·" * (BAR - 1 - at), style), moment.what)
    return view


def _outcomes(outcomes: Sequence[OutcomeRecord]) -> RenderableType:
    view = _table("tool call", "execution", "detail", "reported")
    for o in outcomes:
        ok = Text("ok", "green") if o.ok else Text("failed", "red")
        view.add_row(o.tool_call_id or "(answer)", ok, o.detail or "-", _when(o.reported_at))
    return view


def _table(*columns: str) -> Table:
    view = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        right = name in _NUMBERS
        whole = right or name in ("trace", "when", "engine", "then")
        view.add_column(name, justify="right" if right else "left", overflow="fold", no_wrap=whole)
    return view


def _outcome(outcome: str, code: str) -> Text:
    return Text(f"{outcome}: {code}" if code else outcome, style=_COLOURS.get(outcome, ""))


def _at(offset: int) -> str:
    return "-" if offset < 0 else str(offset)


def _when(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%m-%d %H:%M:%S")
