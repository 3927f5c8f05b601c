"""The judge of a tool's arguments: one compiled validator a distinct schema.

A schema is compiled under limits and never fetches anything from anywhere. A schema without properties of its own takes
no arguments, so for it nothing and ``{}`` say the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, cast

import jsonschema_rs
import msgspec

from detectors.finding import Finding

MAX_SCHEMA_BYTES: Final = 1_000_000
MAX_SCHEMA_DEPTH: Final = 120
MAX_PROBLEMS: Final = 8

_PATTERNS: Final = jsonschema_rs.FancyRegexOptions(backtrack_limit=100_000, size_limit=1 << 20, dfa_size_limit=1 << 21)


class SchemaError(Exception):
    """``path``: where in the schema, to be appended to the field's own path; ``code`` a request error's."""

    def __init__(self, message: str, path: str = "", code: str = "invalid_constraint") -> None:
        super().__init__(message)
        self.path = path
        self.code = code


class Validator:
    """Judges decoded arguments against one schema; ``takes_nothing``: the schema names no argument at all."""

    def __init__(self, schema: Any, compiled: Any) -> None:
        self._compiled = compiled
        self.takes_nothing = schema is None or (isinstance(schema, Mapping) and _names_nothing(schema))

    def problems(self, value: Any, channel: str) -> Iterator[Finding]:
        """What is wrong, as schema.KEYWORD findings; onset is left at 0."""
        if self._compiled is None:
            if not isinstance(value, dict):
                yield Finding("schema.type", "error", f"arguments are no object but {_kind(value)}", channel=channel)
            return
        for count, error in enumerate(self._compiled.iter_errors(value)):
            if count == MAX_PROBLEMS:
                return
            yield _finding(error, channel)


def validator(schema: Any) -> Validator:
    """Raises SchemaError. None (no schema given) takes any object."""
    if schema is None:
        return Validator(None, None)
    depth = _depth(schema)
    if depth > MAX_SCHEMA_DEPTH:
        message = f"is nested more than {MAX_SCHEMA_DEPTH} levels deep"
        raise SchemaError(message, code="constraint_too_complex")
    try:
        text = msgspec.json.encode(schema)
    except (TypeError, ValueError, OverflowError):
        text = json.dumps(schema).encode("utf-8", "surrogatepass")
    if len(text) > MAX_SCHEMA_BYTES:
        message = f"is {len(text)} bytes of JSON; the limit is {MAX_SCHEMA_BYTES}"
        raise SchemaError(message, code="constraint_too_complex")
    return _compiled(text)


@lru_cache(maxsize=512)
def _compiled(text: bytes) -> Validator:
    schema = json.loads(text)
    try:
        return Validator(schema, _build(schema))
    except SchemaError:
        # an $id that is no URI (a plain title, a fragment) names nothing; what refers to "#" goes on without it
        if not isinstance(schema, dict) or "$id" not in schema:
            raise
        unnamed = {key: value for key, value in schema.items() if key != "$id"}
        try:
            return Validator(schema, _build(unnamed))
        except SchemaError:
            pass
        raise


def _build(schema: Any) -> Any:
    try:
        return jsonschema_rs.validator_for(schema, offline=True, pattern_options=_PATTERNS)
    except jsonschema_rs.ValidationError as error:
        where = "".join(f".{step}" if isinstance(step, str) else f"[{step}]" for step in error.instance_path)
        raise SchemaError(f"is no valid JSON schema: {error.message}", where) from None
    except jsonschema_rs.ReferencingError as error:
        raise SchemaError(f"refers to what is not there: {error}") from None
    except ValueError as error:
        raise SchemaError(f"cannot be compiled: {error}", code="constraint_too_complex") from None


def _depth(value: Any) -> int:
    """Levels of nesting, counted without recursion; stops counting past the limit."""
    depth = 0
    level = [value]
    while level and depth <= MAX_SCHEMA_DEPTH:
        depth += 1
        deeper: list[Any] = []
        for item in level:
            if isinstance(item, Mapping):
                deeper += [v for v in item.values() if isinstance(v, dict | list)]
            elif isinstance(item, list):
                deeper += [v for v in item if isinstance(v, dict | list)]
        level = deeper
    return depth


def _names_nothing(schema: Mapping[str, Any]) -> bool:
    wants = ("properties", "required", "patternProperties", "$ref", "allOf", "anyOf", "oneOf", "minProperties")
    return not any(schema.get(keyword) for keyword in wants)


def _finding(error: Any, channel: str) -> Finding:
    schema_path = list(error.schema_path)
    keyword = next((step for step in reversed(schema_path) if isinstance(step, str)), "false")
    kind = type(error.kind).__name__
    code = f"schema.{_KEYWORDS.get(kind, keyword)}"
    pointer = "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in error.instance_path)
    message = cast(str, error.message)
    if len(message) > 300:
        message = message[:300] + "…"
    return Finding(
        code, "error", f"{pointer or 'the arguments'}: {message}", channel=channel, evidence={"pointer": pointer}
    )


_KEYWORDS: Final = {"FalseSchema": "false"}


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
