"""The text of recorded streams."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def chunks(path: Path) -> list[dict[str, Any]]:
    _, _, body = path.read_bytes().partition(b"\r\n\r\n")
    lines = (line[6:] for line in body.decode("utf-8", "replace").split("\n") if line.startswith("data: {"))
    return [json.loads(line) for line in lines]


def chat_text(path: Path) -> str:
    deltas = (choice.get("delta", {}) for chunk in chunks(path) for choice in chunk.get("choices") or ())
    return "".join(delta.get("content") or "" for delta in deltas)
