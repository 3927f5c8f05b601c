"""Calls that wait for the answer's end, because only then is it clear whether they are calls at all.

A call that stood in the reasoning may be a draft. A call that came both as the engine framed it and as markup in the
text is one call, said twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from guard.constraint.formats.contract import TextCall
from guard.events import REASONING, ToolDelta


def in_reasoning(delta: ToolDelta) -> bool:
    return isinstance(delta, TextCall) and delta.source == REASONING


def grouped(deltas: Iterable[ToolDelta]) -> list[list[ToolDelta]]:
    """The pieces of each call, in the order in which the calls began."""
    calls: dict[tuple[str, int | None], list[ToolDelta]] = {}
    for delta in deltas:
        source = delta.source if isinstance(delta, TextCall) else "engine"
        calls.setdefault((source, delta.index), []).append(delta)
    return list(calls.values())


def said(pieces: Iterable[ToolDelta]) -> tuple[str, Any]:
    """The name and the arguments of a call, comparable with another's."""
    pieces = list(pieces)
    name = next((piece.name for piece in pieces if piece.name), "")
    raw = next((piece.raw_arguments for piece in pieces if piece.raw_arguments is not None), None)
    return name, raw if raw is not None else meaning("".join(piece.arguments for piece in pieces))


def meaning(arguments: str) -> Any:
    """What arguments say, however they are spaced; their text, if they are no JSON."""
    text = arguments.strip()
    try:
        return json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return text
