"""Bare values, typed by the schema of their place, and never bent to fit it."""

from __future__ import annotations

from typing import Any

import pytest

from guard.constraint.formats.values import encode, encoded_arguments, items_of, subschema, types_at, types_of

STRING = frozenset({"string"})


@pytest.mark.parametrize(
    ("raw", "schema", "expected"),
    [
        ("5", {"type": "string"}, '"5"'),
        (" a ", {"type": "string"}, '" a "'),
        ("&lt;b&gt;", {"type": "string"}, '"&lt;b&gt;"'),
        ("5", {"type": "integer"}, "5"),
        (" 5\n", {"type": "integer"}, "5"),
        ("5.0", {"type": "integer"}, "5.0"),
        ("5.5", {"type": "integer"}, "5.5"),
        ("five", {"type": "integer"}, '"five"'),
        ("", {"type": "integer"}, '""'),
        ("1e400", {"type": "number"}, "1e400"),
        ("12345678901234567890123", {"type": "integer"}, "12345678901234567890123"),
        ("NaN", {"type": "number"}, '"NaN"'),
        ("True", {"type": "boolean"}, "true"),
        ("false", {"type": "boolean"}, "false"),
        ("yes", {"type": "boolean"}, '"yes"'),
        ("None", {"type": ["integer", "null"]}, "null"),
        ("null", {"type": ["string", "null"]}, "null"),
        ("nullify", {"type": ["string", "null"]}, '"nullify"'),
        ("null", {"type": "string"}, '"null"'),
        ("[1, 2]", {"type": "array"}, "[1, 2]"),
        ("['a', True, None]", {"type": "array"}, '["a", true, null]'),
        ("{'a': (1, 2)}", {"type": "object"}, '{"a": [1, 2]}'),
        ("{1, 2}", {"type": "object"}, '"{1, 2}"'),
        ("[1", {"type": "array"}, '"[1"'),
        ('"quoted"', {"type": ["string", "integer"]}, '"\\"quoted\\""'),
        ("007", {"type": ["string", "integer"]}, '"007"'),
        ("7", {"type": ["string", "integer"]}, "7"),
        ("red", {"enum": ["red", 3]}, '"red"'),
        ("3", {"enum": ["red", 3]}, "3"),
        ("3", {"enum": ["3"]}, '"3"'),
        ("x", {"const": "x"}, '"x"'),
        ("5", {"$ref": "#/$defs/n"}, "5"),
        ("5", {"anyOf": [{"type": "string"}, {"type": "null"}]}, '"5"'),
        ("5", {"allOf": [{"type": ["string", "integer"]}, {"type": "integer"}]}, "5"),
        ("5", {"oneOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]}, "5"),
        ("5", {"type": "integer", "nullable": True}, "5"),
        ("5", {}, "5"),
        ("a b", {}, '"a b"'),
        ('"5"', {}, '"\\"5\\""'),
        ("5", {"$ref": "#/$defs/loop"}, "5"),
    ],
)
def test_encode(raw: str, schema: dict[str, Any], expected: str) -> None:
    root = {"properties": {"k": schema}, "$defs": {"n": {"type": "integer"}, "loop": {"$ref": "#/$defs/loop"}}}
    assert encode(raw, types_at(root, "k")) == expected


def test_where_the_schema_of_a_key_stands() -> None:
    schema = {
        "$ref": "#/$defs/base",
        "$defs": {"base": {"properties": {"a": {"type": "string"}}}},
        "allOf": [{"properties": {"b": {"type": "integer"}}}],
        "additionalProperties": {"type": "boolean"},
    }
    assert types_at(schema, "a") == STRING
    assert types_at(schema, "b") == {"integer"}
    assert types_at(schema, "c") == {"boolean"}
    assert types_at({}, "c") is None
    assert types_at(None, "c") is None
    assert types_at(True, "c") is None
    assert items_of({"items": {"type": "string"}}, {}) == {"type": "string"}
    assert subschema({"properties": {"a": {"properties": {"b": True}}}}, "a") == {"properties": {"b": True}}
    assert types_of({"properties": {}}, {}) == {"object"}


def test_arguments_in_the_order_in_which_they_came() -> None:
    schema = {"properties": {"n": {"type": "integer"}, "s": {"type": "string"}}}
    assert encoded_arguments([("s", '"1'), ("n", "1"), ("x", "y")], schema) == '{"s": "\\"1", "n": 1, "x": "y"}'
