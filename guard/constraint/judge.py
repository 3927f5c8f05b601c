"""The judge of whole JSON values: jsonschema-rs, and what it says in words of our own.

The verdict is cheap and bounded. Its reasons are not: listing errors of a schema that refers to itself under anyOf
takes time and memory that double with every level of the document (measured: 48 s and 4.8 GB at depth 18). So reasons
are asked for only where the estimate allows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from msgspec import Struct

from guard.constraint.json_syntax import ARRAY, OBJECT, JsonError, JsonReader

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


# --- where a value stands in its text ------------------------------------------------------------------------------


def locate(text: str, base: int, path: Sequence[str | int]) -> tuple[int, int]:
    """The offsets of the first and the last character of the value that ``path`` leads to, in the document that begins
    at offset ``base`` of ``text``; of the document where there is no such value. Of a key that stands twice, the last
    value is meant."""
    finder = _Finder(tuple(path))
    reader = JsonReader(finder, base)
    try:
        reader.feed(text[base:])
        reader.finish()
    except JsonError:
        pass
    return finder.found


def syntax_error(text: str, base: int) -> tuple[int, str] | None:
    """Where the text from ``base`` on is no JSON, and why; None where it is, or breaks off in the middle."""
    reader = JsonReader(_Finder(()), base)
    try:
        used = reader.feed(text[base:])
    except JsonError as error:
        return error.at, error.message
    rest = text[base + used :]
    if rest.strip(" \t\r\n"):
        return base + used, "text follows the JSON value"
    return None


class _Finder:
    """A sink that knows where it is."""

    def __init__(self, path: tuple[str | int, ...]) -> None:
        self._path = path
        self._at: list[str | int] = []
        self._kinds: list[int] = []
        self._starts: list[int] = []
        self.found = (0, 0)

    def start(self, kind: int, at: int) -> None:
        if self._kinds and self._kinds[-1] == ARRAY:
            self._at[-1] = int(self._at[-1]) + 1
        self._starts.append(at)
        if kind in (OBJECT, ARRAY):
            self._kinds.append(kind)
            self._at.append("" if kind == OBJECT else -1)

    def text(self, piece: str, at: int) -> None:
        raise NotImplementedError("nothing is watched")

    def key_start(self, at: int) -> None:
        pass

    def key(self, key: str, at: int, end: int) -> None:
        self._at[-1] = key

    def scalar(self, kind: int, value: Any, at: int, end: int) -> None:
        self._ended(end - 1)

    def comma(self, at: int) -> None:
        pass

    def end(self, kind: int, at: int) -> None:
        self._kinds.pop()
        self._at.pop()
        self._ended(at)

    def _ended(self, last: int) -> None:
        start = self._starts.pop()
        if not self._starts and not self.found[1]:
            self.found = (start, last)
        if len(self._at) == len(self._path) and tuple(self._at) == self._path:
            self.found = (start, last)
