"""The open containers of a walk, and what can be said of one when it is full or closed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from guard.constraint.json_sink import ARRAY, KINDS, OBJECT, STRING
from guard.constraint.schema_node import Node

Position = Node | list[tuple[Node, int]]
"""Where a value is to come: one node, or several, each with the set (as bits) of the alternatives around it that it
belongs to."""


class Violation(Exception):
    """No continuation is valid. ``at`` is the character with which that became certain (or where text is held from);
    ``good`` the end of what can still become valid, which is earlier where a whole value is at fault."""

    def __init__(self, keyword: str, pointer: str, at: int, good: int, message: str) -> None:
        self.keyword = keyword
        self.pointer = pointer
        self.at = at
        self.good = good
        self.message = message


class Frame:
    """An open object or array. Either ``node`` is certain, or ``many`` are possible, of which ``alive`` still are."""

    __slots__ = ("alive", "at", "count", "full", "full_at", "items", "key", "kind", "many", "node", "quiet", "value")

    def __init__(self, kind: int, at: int, node: Node | None, many: list[tuple[Node, int]] | None) -> None:
        self.kind = kind
        self.at = at
        self.node = node
        self.many = many
        self.alive = 1 if many is None else (1 << len(many)) - 1
        self.value: Any = {} if kind == OBJECT else []
        self.key: str | None = None
        self.count = 0
        self.full = ""
        self.full_at: int | None = None
        self.items: Node | None = None
        self.quiet = False
        if node is not None:
            self.quiet = node.quiet
            if kind == ARRAY:
                self.items = node.all_items()

    def settle(self, node: Node) -> None:
        """Only one alternative is left."""
        self.node = node
        self.many = None
        if self.kind == ARRAY:
            self.items = node.all_items()

    def nodes(self) -> list[Node]:
        if self.many is None:
            return [self.node] if self.node is not None else []
        return [node for i, (node, _) in enumerate(self.many) if self.alive >> i & 1]


def path_in(frames: Sequence[Frame]) -> list[str | int]:
    """Keys and indexes from the root to the value that is being read in the innermost of the open containers."""
    steps: list[str | int] = []
    for frame in frames:
        if frame.key is not None:
            steps.append(frame.key)
        elif frame.kind == ARRAY and frame.count:
            steps.append(frame.count - 1)
    return steps


def broken_at(node: Node, kind: int, keyword: str, value: Any, at: int, end: int) -> int:
    """The character with which a value went wrong, where that is not the whole of it."""
    begun = kind == STRING and node.strings is not None and keyword != "pattern" and node.strings.has_prefix(value)
    return end - 1 if begun or keyword == "minLength" else at


def full(frame: Frame, nodes: list[Node]) -> str | None:
    """The keyword for which nothing more fits in, whichever of the nodes the container is."""
    keyword: str | None = None
    for node in nodes:
        keyword = _full_as(frame, node)
        if keyword is None:
            return None
    return keyword


def _full_as(frame: Frame, node: Node) -> str | None:
    if frame.kind == ARRAY:
        child = node.item(frame.count)
        return child if isinstance(child, str) else None
    if node.max_properties is not None and len(frame.value) >= node.max_properties:
        return "maxProperties"
    if node.names is not None and node.names.words <= frame.value.keys():
        return "additionalProperties"
    return None


def lacking(frame: Frame, node: Node) -> tuple[str | None, str]:
    """What a container that is being closed breaks."""
    if frame.kind == OBJECT:
        missing = [key for key in node.required if key not in frame.value]
        if missing:
            return "required", "the object lacks " + ", ".join(short(key) for key in missing[:5])
        if len(frame.value) < node.min_properties:
            return "minProperties", f"the object has {len(frame.value)} properties, and needs {node.min_properties}"
        if node.max_properties is not None and len(frame.value) > node.max_properties:
            return "maxProperties", f"the object has {len(frame.value)} properties, and may have {node.max_properties}"
    elif len(frame.value) < node.min_items:
        return "minItems", f"the array has {len(frame.value)} items, and needs {node.min_items}"
    if node.unchecked[frame.kind]:
        return None, ""
    keyword = node.check(frame.kind, frame.value)
    return keyword, about(keyword, frame.kind) if keyword else ""


def about(keyword: str, kind: int) -> str:
    if keyword == "enum":
        return f"the {KINDS[kind]} is none of those that are allowed"
    if keyword == "type":
        return "the number is no integer"
    if keyword == "const":
        return f"the {KINDS[kind]} is not the one that is allowed"
    return f"the {KINDS[kind]} breaks {keyword}"


def a(kind: int) -> str:
    name = KINDS[kind]
    return name if name in ("true", "false", "null") else f"an {name}" if name[0] in "ao" else f"a {name}"


def short(text: str) -> str:
    shown = text if len(text) <= 60 else text[:60] + "…"
    return '"' + shown.encode("utf-8", "replace").decode() + '"'
