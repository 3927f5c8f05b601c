"""What real engines answered when tools were on offer, read and judged: golden results per recording."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from guard.constraint.formats.content import ContentToolParser
from guard.constraint.formats.contract import TextCall
from guard.constraint.toolcall import ToolCallGuard
from guard.constraint.tools import parse_tool_choice, parse_tools
from guard.events import Finding, Repair, TextDelta, ToolDelta, ToolRelease

GOLDEN = json.loads(Path(__file__).with_name("recordings.json").read_text())


def deltas_of(body: str) -> Iterator[dict[str, Any]]:
    if body.startswith("data:"):
        for line in body.splitlines():
            if line.startswith("data: {"):
                for choice in json.loads(line[6:]).get("choices", []):
                    yield choice
    else:
        for choice in json.loads(body)["choices"]:
            yield {"delta": choice["message"], "finish_reason": choice["finish_reason"]}


def judge(folder: Path, name: str, size: int = 0) -> dict[str, Any]:
    """The calls, text and findings of one recording; ``size``: its text cut into pieces of so many characters."""
    request = json.loads((folder / f"{name}.request.json").read_text())["body_json"]
    body = (folder / f"{name}.response").read_bytes().partition(b"\r\n\r\n")[2].decode()
    tools = parse_tools(request)
    choice = parse_tool_choice(request, tools)
    guard = ToolCallGuard(tools, choice, mint=lambda index: f"minted{index}")
    parser = ContentToolParser("auto", tools, choice)
    calls: list[dict[str, str]] = []
    found: dict[str, Any] = {"text": "", "errors": [], "repairs": []}

    def take(pieces: list[Any]) -> None:
        for piece in pieces:
            if isinstance(piece, TextDelta):
                found["text"] += piece.text
            elif isinstance(piece, TextCall):
                take(guard.feed(piece))
            elif isinstance(piece, ToolRelease):
                if piece.name is not None:
                    calls.append({"name": piece.name, "arguments": ""})
                calls[piece.index]["arguments"] += piece.arguments
            elif isinstance(piece, Repair):
                found["repairs"].append(piece.code)
            elif isinstance(piece, Finding) and piece.severity == "error":
                found["errors"].append(piece.code)

    reason = None
    for part in deltas_of(body):
        delta = part["delta"]
        reason = part.get("finish_reason") or reason
        content = delta.get("content") or ""
        for text in [content[i : i + size] for i in range(0, len(content), size)] if size else [content]:
            take(parser.feed(TextDelta(0, "content", text)))
        for position, call in enumerate(delta.get("tool_calls") or []):
            function = call.get("function") or {}
            index = call.get("index", position)
            take(guard.feed(ToolDelta(0, index, call.get("id"), function.get("name"), function.get("arguments") or "")))
    take(parser.finish())
    take(guard.finish(reason == "length"))
    return {"calls": [[call["name"], call["arguments"]] for call in calls], **found, "verdict": guard.verdict()}


@pytest.mark.parametrize("recording", GOLDEN)
def test_recording(shared: Path, recording: str) -> None:
    engine, name = recording.split("/")
    folder = shared / "recordings" / engine
    for size in (0, 1, 5):
        assert judge(folder, name, size) == GOLDEN[recording]
