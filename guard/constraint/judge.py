"""The judge of whole JSON values: jsonschema-rs, and what it says in words of our own.

The verdict is cheap and bounded. Its reasons are not: listing errors of a schema that refers to itself under anyOf
takes time and memory that double with every level of the document (measured: 48 s and 4.8 GB at depth 18). So reasons
are asked for only where the estimate allows it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from msgspec import Struct

CLOSING: Final = frozenset(
    {"required", "minItems", "minProperties", "dependentRequired", "contains", "minContains", "dependencies"}
)
"""Keywords that a longer value may still satisfy: such a value went wrong where it was closed."""

_MOST_WORK: Final = 100_000
"""Evaluations that finding a reason may take, by estimate; about 0.1 s."""


class Reason(Struct):
    """``path`` leads to the value that is wrong."""

    keyword: str
    path: tuple[str | int, ...]
    message: str


class Judge:
    """``cost``: evaluations of subschemas that one leaf of a document may take; ``branches``: by how much that grows
    with each level of a document, where the schema is recursive (1 where it is not)."""

    def __init__(self, validator: Any, cost: int, branches: int) -> None:
        self._validator = validator
        self._cost = cost
        self.branches = branches
        self.is_valid = validator.is_valid

    def reason(self, value: Any) -> Reason:
        """Why a value that is not valid is not."""
        size, depth = _extent(value)
        if depth > 200 or self._cost * size * self.branches ** min(depth, 60) > _MOST_WORK:
            return Reason("schema", (), "the document breaks its schema")
        for error in self._validator.iter_errors(value):
            return Reason(_keyword(error), tuple(error.instance_path), _message(error))
        return Reason("schema", (), "the document breaks its schema")


def _keyword(error: Any) -> str:
    """The keyword as the schema has it: where the judge reports a false subschema, the one that holds it."""
    name = str(error.kind.name)
    if name == "falseSchema":
        words = [step for step in error.schema_path if isinstance(step, str)]
        return words[-1] if words else "false"
    return name


def _message(error: Any) -> str:
    message = str(error.message).split("\n", 1)[0]
    return message if len(message) <= 300 else message[:300] + "…"


def _extent(value: Any) -> tuple[int, int]:
    """How many values there are, and how deep they nest."""
    count = depth = 0
    level: list[Any] = [value]
    while level:
        count += len(level)
        depth += 1
        below: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                below.extend(one.values())
            elif isinstance(one, list):
                below.extend(one)
        level = below
    return count, depth


def pointer_of(path: Iterable[str | int]) -> str:
    """The JSON pointer of a path."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)
