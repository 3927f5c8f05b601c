"""The subschemas of a schema, each read by itself as far as it is understood.

A keyword that is not understood here, or not in full, is left out: what is then said about a value is wider than the
schema, never narrower.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from guard.constraint.json_sink import ARRAY, FALSE, NULL, NUMBER, OBJECT, STRING, TRUE
from guard.constraint.schema_drafts import VALIDATORS, at, has, pointed_at

ALL: Final = 0b1111111
_TYPE_BITS: Final = {
    "object": 1 << OBJECT,
    "array": 1 << ARRAY,
    "string": 1 << STRING,
    "number": 1 << NUMBER,
    "integer": 1 << NUMBER,
    "boolean": 1 << TRUE | 1 << FALSE,
    "null": 1 << NULL,
}
PLAIN_KEYWORDS: Final = (
    "enum",
    "const",
    "minLength",
    "maxLength",
    "pattern",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "required",
    "minProperties",
    "maxProperties",
    "dependentRequired",
    "minItems",
    "maxItems",
    "uniqueItems",
)
"""Keywords without subschemas; ``type`` is one too where it says integer."""
_WHOLE: Final = frozenset(
    {
        "not",
        "if",
        "oneOf",
        "contains",
        "dependencies",
        "dependentSchemas",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)
"""Keywords for which a part is judged as a whole, once the value is."""


class Part:
    """One subschema, as far as it is understood. Children are Parts; ``None`` says nothing about them."""

    __slots__ = (
        "additional",
        "groups",
        "id",
        "inplace",
        "items",
        "max_items",
        "max_length",
        "max_properties",
        "min_items",
        "min_length",
        "min_properties",
        "never",
        "path",
        "patterns",
        "plain",
        "prefix",
        "properties",
        "property_names",
        "read",
        "required",
        "strings",
        "types",
        "whole",
    )

    def __init__(self, number: int, path: tuple[str | int, ...], never: bool) -> None:
        self.id = number
        self.path = path
        self.read = False
        self.never = never
        self.types = 0 if never else ALL
        self.strings: frozenset[str] | None = None
        self.inplace: list[Part] = []
        self.groups: list[tuple[str, list[Part]]] = []
        self.properties: dict[str, Part] = {}
        self.patterns: list[tuple[Any, Part]] = []
        self.additional: Part | None = None
        self.property_names: Part | None = None
        self.required: tuple[str, ...] = ()
        self.prefix: list[Part] = []
        self.items: Part | None = None
        self.min_items = 0
        self.max_items: int | None = None
        self.min_properties = 0
        self.max_properties: int | None = None
        self.min_length = 0
        self.max_length: int | None = None
        self.plain: dict[str, Any] = {}
        self.whole = False


class Parts:
    """The parts of one schema, made when they are first asked for. ``refers``: whether a reference within the document
    means what it looks like."""

    def __init__(self, schema: Any, draft: int) -> None:
        self.schema = schema
        self.draft = draft
        self.refers = not has(schema, "$id" if draft >= 6 else "id", below=True)
        self._parts: dict[tuple[str | int, ...], Part] = {}
        self._matchers: dict[str, Any] = {}

    def matcher(self, pattern: str) -> Any:
        """Whether a key matches, by the judge's own reading of the pattern."""
        found = self._matchers.get(pattern)
        if found is None:
            validator = VALIDATORS[self.draft]({"pattern": pattern}, offline=True)
            found = self._matchers[pattern] = validator.is_valid
        return found

    def part(self, path: tuple[str | int, ...]) -> Part:
        part = self._parts.get(path)
        if part is None:
            part = self._parts[path] = Part(len(self._parts), path, at(self.schema, path) is False)
        return part

    def read(self, part: Part) -> None:
        """Parts are read when a node first needs them, so that a schema may be large, deep or refer to itself."""
        part.read = True
        schema = at(self.schema, part.path)
        if not isinstance(schema, dict) or (part.path and "$schema" in schema):
            return
        reference = schema.get("$ref")
        if isinstance(reference, str):
            target = self._resolve(reference)
            if target is not None:
                part.inplace.append(self.part(target))
            if self.draft <= 7:
                return
        part.whole = not _WHOLE.isdisjoint(schema)
        self._read_plain(part, schema)
        self._read_applicators(part, schema)
        if isinstance(schema.get("properties"), dict):
            for key in schema["properties"]:
                part.properties[key] = self.part((*part.path, "properties", key))
        if isinstance(schema.get("patternProperties"), dict):
            for pattern in schema["patternProperties"]:
                part.patterns.append((self.matcher(pattern), self.part((*part.path, "patternProperties", pattern))))
        if "additionalProperties" in schema:
            part.additional = self.part((*part.path, "additionalProperties"))
        if self.draft >= 6 and "propertyNames" in schema:
            part.property_names = self.part((*part.path, "propertyNames"))
        self._read_items(part, schema)

    def _read_plain(self, part: Part, schema: dict[str, Any]) -> None:
        part.plain = {keyword: schema[keyword] for keyword in PLAIN_KEYWORDS if keyword in schema}
        said = schema.get("type")
        types = [said] if isinstance(said, str) else said
        if isinstance(types, list):
            part.types = 0
            for name in types:
                part.types |= _TYPE_BITS.get(name, ALL) if isinstance(name, str) else ALL
            if "integer" in types and "number" not in types:
                part.plain["type"] = said
        allowed = [schema["const"]] if self.draft >= 6 and "const" in schema else None
        if isinstance(schema.get("enum"), list):
            allowed = schema["enum"] if allowed is None else [one for one in schema["enum"] if one == allowed[0]]
        if allowed is not None:
            part.types &= kinds(allowed)
            part.strings = frozenset(one for one in allowed if isinstance(one, str))
        required = schema.get("required")
        if isinstance(required, list):
            part.required = tuple(name for name in required if isinstance(name, str))
        part.min_items = _count(schema.get("minItems")) or 0
        part.max_items = _count(schema.get("maxItems"))
        part.min_properties = _count(schema.get("minProperties")) or 0
        part.max_properties = _count(schema.get("maxProperties"))
        part.min_length = _count(schema.get("minLength")) or 0
        part.max_length = _count(schema.get("maxLength"))

    def _read_applicators(self, part: Part, schema: dict[str, Any]) -> None:
        if isinstance(schema.get("allOf"), list):
            part.inplace.extend(self.part((*part.path, "allOf", i)) for i in range(len(schema["allOf"])))
        for keyword in ("anyOf", "oneOf"):
            branches = schema.get(keyword)
            if isinstance(branches, list) and branches:
                group = [self.part((*part.path, keyword, i)) for i in range(len(branches))]
                part.groups.append((keyword, group))
        if self.draft >= 7 and all(keyword in schema for keyword in ("if", "then", "else")):
            part.groups.append(("if", [self.part((*part.path, keyword)) for keyword in ("then", "else")]))

    def _read_items(self, part: Part, schema: dict[str, Any]) -> None:
        first, rest = ("prefixItems", "items") if self.draft >= 2020 else ("items", "additionalItems")
        if isinstance(schema.get(first), list):
            part.prefix = [self.part((*part.path, first, i)) for i in range(len(schema[first]))]
            if rest in schema and not isinstance(schema[rest], list):
                part.items = self.part((*part.path, rest))
        elif "items" in schema and not isinstance(schema["items"], list):
            part.items = self.part((*part.path, "items"))

    def _resolve(self, reference: str) -> tuple[str | int, ...] | None:
        """The path that a reference within the document points to; None where that is not certain."""
        found = pointed_at(self.schema, reference) if self.refers else None
        return None if found is None else found[0]


def keyword_of(path: tuple[str | int, ...]) -> str:
    for step in reversed(path):
        if step in ("additionalProperties", "additionalItems", "items", "prefixItems", "patternProperties"):
            return str(step)
        if step == "properties":
            return "properties"
    return "false"


def kinds(values: Iterable[Any]) -> int:
    found = 0
    for value in values:
        match value:
            case True:
                found |= 1 << TRUE
            case False:
                found |= 1 << FALSE
            case None:
                found |= 1 << NULL
            case str():
                found |= 1 << STRING
            case dict():
                found |= 1 << OBJECT
            case list():
                found |= 1 << ARRAY
            case _:
                found |= 1 << NUMBER
    return found


def _count(said: Any) -> int | None:
    if isinstance(said, bool) or not isinstance(said, int | float):
        return None
    return int(said)
