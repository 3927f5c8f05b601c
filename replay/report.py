"""A replay as a table for people, or as JSON for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from replay.compare import Difference, agreement, first_difference
from replay.run import RunResult
from replay.source import Source


def table(source: Source, results: Sequence[RunResult]) -> RenderableType:
    """One row a run: how it ended, what was found, and where it first differs from what the caller got."""
    view = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("engine", "run", "outcome", "tokens", "ms", "findings", "first difference from what was delivered"):
        view.add_column(name, justify="right" if name in ("run", "tokens", "ms") else "left", overflow="fold")
    for result in results:
        view.add_row(
            result.engine,
            str(result.repeat + 1),
            _outcome(result),
            str(result.completion_tokens),
            f"{result.duration_ms:.0f}",
            ", ".join(dict.fromkeys(result.findings)) or "-",
            "no answer" if result.error else _difference(first_difference(source.output, result.text)),
        )
    return Group(view, *_summary(results))


def facts(source: Source, results: Sequence[RunResult]) -> dict[str, Any]:
    return {
        "trace_id": source.record.trace_id,
        "model": source.record.model,
        "delivered_chars": len(source.output),
        "runs": [
            {
                "engine": result.engine,
                "repeat": result.repeat,
                "finish_reason": result.reason,
                "condemned": result.condemned,
                "error": result.error,
                "findings": result.findings,
                "completion_tokens": result.completion_tokens,
                "duration_ms": round(result.duration_ms, 1),
                "text": result.text,
                "first_difference": _plain(first_difference(source.output, result.text)) if not result.error else None,
            }
            for result in results
        ],
    }


def _outcome(result: RunResult) -> Text:
    if result.error:
        return Text(f"refused: {result.error[:60]}", style="red")
    if result.condemned:
        return Text(result.condemned, style="red")
    return Text(result.reason or "no finish reason", style="green")


def _difference(difference: Difference | None) -> str:
    if difference is None:
        return "none: the same text"
    return f"at {difference.offset}: {difference.left!r} became {difference.right!r}"


def _plain(difference: Difference | None) -> dict[str, Any] | None:
    if difference is None:
        return None
    return {"offset": difference.offset, "delivered": difference.left, "replayed": difference.right}


def _summary(results: Sequence[RunResult]) -> list[Text]:
    lines = []
    for engine in dict.fromkeys(result.engine for result in results):
        texts = [result.text for result in results if result.engine == engine and not result.error]
        bad = sum(bool(result.condemned or result.error) for result in results if result.engine == engine)
        distinct, share = agreement(texts)
        runs = sum(result.engine == engine for result in results)
        answers = (
            f"{distinct} distinct answer{'s' * (distinct != 1)}, the commonest {share:.0%}" if texts else "no answer"
        )
        lines.append(Text(f"{engine}: {runs} run{'s' * (runs != 1)}, {bad} condemned, {answers}"))
    return lines
