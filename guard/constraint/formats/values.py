"""Values of arguments that markup carries as bare text, typed by the tool's schema.

The rules:

- A value whose schema knows only strings is taken literally: nothing is stripped, unescaped or parsed.
- Else JSON of a type that the schema allows is taken as it was written. ``True``, ``None`` and Python's way of writing
  a list or an object are what chat templates render; they are re-encoded.
- A value that fits no allowed type stays what it says, for the judge to refuse: it is never bent to fit.
- Of a key that the schema does not describe only the text is known: what is JSON, but no JSON string, is that.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

Types = frozenset[str]
STRING_ONLY: Final[Types] = frozenset({"string"})
_ALL: Final[Types] = frozenset({"string", "integer", "number", "boolean", "object", "array", "null"})
_MOST_STEPS: Final = 64
_LONGEST_LITERAL: Final = 100_000


def quoted(text: str) -> str:
    """The text inside a JSON string, without its quotation marks."""
    return json.encoder.encode_basestring(text)[1:-1]


def types_at(schema: Any, key: str) -> Types | None:
    """The JSON types that the schema allows for the argument ``key``; None if it does not say."""
    found = subschema(schema, key)
    return None if found is None else types_of(found, schema)


def subschema(schema: Any, key: str, root: Any = None) -> Any:
    """The schema of one argument, looked for where tools put it: properties, through references and combinations."""
    root = schema if root is None else root
    for part in _parts(schema, root, _MOST_STEPS):
        properties = part.get("properties")
        if isinstance(properties, Mapping) and key in properties:
            return properties[key]
    for part in _parts(schema, root, _MOST_STEPS):
        rest = part.get("additionalProperties")
        if isinstance(rest, Mapping):
            return rest
    return None


def items_of(schema: Any, root: Any) -> Any:
    """The schema of a list's elements."""
    for part in _parts(schema, root, _MOST_STEPS):
        if isinstance(part.get("items"), Mapping):
            return part["items"]
    return None


def types_of(schema: Any, root: Any) -> Types | None:
    """The types that a schema allows. None where it says nothing about them."""
    if schema is None or isinstance(schema, bool):
        return None
    return _types(schema, root, _MOST_STEPS)


def _types(schema: Any, root: Any, steps: int) -> Types | None:
    if not isinstance(schema, Mapping) or steps <= 0:
        return None
    allowed: Types | None = None
    for said in (_own_types(schema), *_combined(schema, root, steps)):
        if said is not None:
            allowed = said if allowed is None else allowed & said
    return allowed


def _own_types(schema: Mapping[str, Any]) -> Types | None:
    kind = schema.get("type")
    if isinstance(kind, str):
        found = frozenset({kind})
    elif isinstance(kind, list):
        found = frozenset(one for one in kind if isinstance(one, str))
    elif "const" in schema:
        found = frozenset({type_name(schema["const"])})
    elif isinstance(schema.get("enum"), list):
        found = frozenset(type_name(one) for one in schema["enum"])
    elif "properties" in schema:
        found = frozenset({"object"})
    elif "items" in schema:
        found = frozenset({"array"})
    else:
        return None
    return found | {"null"} if schema.get("nullable") is True else found


def _combined(schema: Mapping[str, Any], root: Any, steps: int) -> Iterable[Types | None]:
    target = _resolve(schema.get("$ref"), root)
    if target is not None:
        yield _types(target, root, steps - 1)
    for keyword in ("anyOf", "oneOf"):
        options = schema.get(keyword)
        if isinstance(options, list) and options:
            each = [_types(option, root, steps // 2) for option in options]
            yield None if None in each else frozenset().union(*(one for one in each if one is not None))
    every = schema.get("allOf")
    if isinstance(every, list):
        for part in every:
            yield _types(part, root, steps // 2)


def _parts(schema: Any, root: Any, steps: int) -> Iterable[Mapping[str, Any]]:
    if not isinstance(schema, Mapping) or steps <= 0:
        return
    yield schema
    target = _resolve(schema.get("$ref"), root)
    if target is not None:
        yield from _parts(target, root, steps - 1)
    for keyword in ("allOf", "anyOf", "oneOf"):
        options = schema.get(keyword)
        if isinstance(options, list):
            for option in options:
                yield from _parts(option, root, steps // 2)


def _resolve(reference: Any, root: Any) -> Any:
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    target = root
    for step in reference[1:].split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if not isinstance(target, Mapping) or name not in target:
            return None
        target = target[name]
    return target


def type_name(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    for kind, name in ((int, "integer"), (float, "number"), (str, "string"), (list, "array"), (dict, "object")):
        if isinstance(value, kind):
            return name
    return "string"


def allows(types: Types, value: Any) -> bool:
    name = type_name(value)
    if name in types:
        return True
    return (name == "integer" and "number" in types) or (
        name == "number" and "integer" in types and float(value).is_integer()
    )


def encode(raw: str, types: Types | None) -> str:
    """The value as JSON text."""
    if types == STRING_ONLY:
        return json.dumps(raw, ensure_ascii=False)
    text = raw.strip()
    known = _ALL if types is None else types
    is_json, value = _parsed(text)
    if is_json and not isinstance(value, str) and allows(known, value):
        return text
    lowered = text.lower()
    if types is not None:
        if "boolean" in types and lowered in ("true", "false"):
            return lowered
        if "null" in types and lowered in ("null", "none"):
            return "null"
        if ("object" in types or "array" in types) and text[:1] in ("{", "[", "("):
            literal = python_literal(text)
            if literal is not None and allows(types, json.loads(literal)):
                return literal
        if "string" not in types and is_json:
            return text
    return json.dumps(raw, ensure_ascii=False)


def python_literal(text: str) -> str | None:
    """A Python literal as JSON text; None if it is none, or says what JSON cannot."""
    if len(text) > _LONGEST_LITERAL:
        return None
    try:
        return json.dumps(ast.literal_eval(text), ensure_ascii=False, allow_nan=False)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


def encoded_arguments(pairs: Iterable[tuple[str, str]], schema: Any) -> str:
    """A whole arguments object from bare values, in the order in which they came."""
    parts = [f"{json.dumps(key, ensure_ascii=False)}: {encode(raw, types_at(schema, key))}" for key, raw in pairs]
    return "{" + ", ".join(parts) + "}"


def _parsed(text: str) -> tuple[bool, Any]:
    try:
        return True, json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return False, None


def _no_constant(word: str) -> Any:
    raise ValueError(word)
