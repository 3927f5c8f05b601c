"""A JSON schema as a grammar in GBNF, for the remainder of a document that was begun. Pure.

The form is the one in which llama.cpp writes schemas (its json-schema-to-grammar), so that a document goes on as it
began: keys in the schema's order, those that are required first; at most two line feeds and twenty blanks between two
tokens, none behind the whole. What a grammar cannot say, or this one does not, is left out of it: then it allows more
than the schema, and the judge decides. Where the schema itself is of a kind that is not known, any JSON value is
allowed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from guard.constraint.regex_gbnf import Untranslatable, regex_to_gbnf

MOST_RULES: Final = 2_000

_BASE: Final = {
    "space": r'"" | " " | "\n"{1,2} [ \t]{0,20}',
    "char": r'[^"\\\x7F\x00-\x1F] | [\\] (["\\bfnrt] | "u" [0-9a-fA-F]{4})',
    "string": r'"\"" char* "\""',
    "integral": "[0] | [1-9] [0-9]{0,15}",
    "integer": '"-"? integral',
    "number": '"-"? integral ("." [0-9]{1,16})? ([eE] [-+]? integral)?',
    "boolean": '"true" | "false"',
    "null": '"null"',
    "value": "object | array | string | number | boolean | null",
    "object": '"{" space (string space ":" space value space ("," space string space ":" space value space)*)? "}"',
    "array": '"[" space (value space ("," space value space)*)? "]"',
}
_PLAIN: Final = ("string", "integer", "number", "boolean", "null", "object", "array")


def schema_gbnf(schema: Any) -> str:
    """The grammar; of any JSON object where ``schema`` is None. Raises Untranslatable when it would be too large."""
    writer = _Writer(schema if isinstance(schema, Mapping) else {})
    root = "object" if schema is None else writer.expression(schema)
    rules = {"root": root, **writer.rules, **_BASE}
    return "".join(f"{name} ::= {body}\n" for name, body in rules.items())


class _Writer:
    def __init__(self, document: Mapping[str, Any]) -> None:
        self.rules: dict[str, str] = {}
        self._document = document
        self._known: dict[str, str] = {}  # a reference and the rule that it became

    def expression(self, schema: Any) -> str:
        if not isinstance(schema, Mapping):
            return "value"
        if "$ref" in schema:
            return self._reference(schema["$ref"])
        if "const" in schema:
            return self._literals([schema["const"]])
        if isinstance(schema.get("enum"), list):
            return self._literals(schema["enum"])
        for key in ("anyOf", "oneOf"):
            if isinstance(schema.get(key), list) and schema[key]:
                return "(" + " | ".join(self._rule(one) for one in schema[key]) + ")"
        if isinstance(schema.get("allOf"), list) and len(schema["allOf"]) == 1 and "properties" not in schema:
            return self.expression(schema["allOf"][0])
        kind = schema.get("type")
        if isinstance(kind, list):
            return "(" + " | ".join(self._rule({**schema, "type": one}) for one in kind) + ")"
        if kind == "object" or (kind is None and "properties" in schema):
            return self._object(schema)
        if kind == "array" or (kind is None and ("items" in schema or "prefixItems" in schema)):
            return self._array(schema)
        if kind == "string":
            return self._string(schema)
        return kind if kind in _PLAIN else "value"

    def _rule(self, schema: Any) -> str:
        """The name of a rule for what is more than a name."""
        body = self.expression(schema)
        return body if re.fullmatch(r"[a-z0-9-]+", body) else self._named(body)

    def _named(self, body: str) -> str:
        if len(self.rules) >= MOST_RULES:
            raise Untranslatable("too many rules")
        name = f"s{len(self.rules)}"
        self.rules[name] = body
        return name

    def _reference(self, reference: Any) -> str:
        if not isinstance(reference, str):
            return "value"
        if reference not in self._known:
            target: Any = self._document
            for part in reference.removeprefix("#").split("/")[1:] if reference.startswith("#") else [None]:
                key = part.replace("~1", "/").replace("~0", "~") if part is not None else None
                target = target.get(key) if isinstance(target, Mapping) else None
            if target is None:
                return "value"
            name = self._known[reference] = self._named("value")  # it may lead to itself
            self.rules[name] = self.expression(target)
        return self._known[reference]

    def _object(self, schema: Mapping[str, Any]) -> str:
        properties = schema.get("properties")
        properties = properties if isinstance(properties, Mapping) else {}
        required = [key for key in schema.get("required") or () if isinstance(key, str)]
        more = schema.get("additionalProperties", not properties)
        patterns = schema.get("patternProperties")
        if (more is not False and more is not None and "additionalProperties" in schema) or patterns:
            others = self._rule(more) if isinstance(more, Mapping) and not patterns else "value"
        elif not properties:
            return "object"
        else:
            others = ""
        pairs = {key: f'{_json(key)} space ":" space {self._rule(value)} space' for key, value in properties.items()}
        pairs |= {key: f'{_json(key)} space ":" space value space' for key in required if key not in pairs}
        must = [self._named(pairs[key]) for key in pairs if key in required]
        may = [self._named(pairs[key]) for key in pairs if key not in required]
        if others:
            may.append(self._named(f'string space ":" space {others} space') + "+")
        body = ' "," space '.join(must)
        optional = self._optional(may)
        if optional and body:
            body += f' ("," space ({optional}))?'
        elif optional:
            body = f"({optional})?"
        return f'"{{" space {body} "}}"'.replace("  ", " ")

    def _optional(self, may: Sequence[str]) -> str:
        """Any of them, in their order: each alternative begins with another one. The last may be repeated
        (``name+``)."""
        tails: list[str] = []
        behind = ""
        for one in reversed(may):
            name, again = one.rstrip("+"), one.endswith("+")
            text = f'{name} ("," space {name})*' if again else name
            tails.insert(0, f"{text} {behind}".rstrip())
            following = self._named(f'("," space {text})?' if not behind else f'("," space ({" | ".join(tails)}))?')
            behind = following
        return " | ".join(tails)

    def _array(self, schema: Mapping[str, Any]) -> str:
        if "prefixItems" in schema or isinstance(schema.get("items"), list):
            return "array"
        item = self._rule(schema.get("items"))
        least, most = _count(schema.get("minItems"), 0), _count(schema.get("maxItems"), None)
        if most == 0:
            return '"[" space "]"'
        rest = _repeated(f'("," space {item} space)', max(0, (least or 0) - 1), None if most is None else most - 1)
        inside = f"{item} space {rest}" if least else f"({item} space {rest})?"
        return f'"[" space {inside} "]"'

    def _string(self, schema: Mapping[str, Any]) -> str:
        pattern = schema.get("pattern")
        if isinstance(pattern, str) and pattern.startswith("^") and pattern.endswith("$") and not _quotes(pattern):
            try:
                return f'"\\"" ({regex_to_gbnf(pattern).removeprefix("root ::= ")}) "\\""'
            except Untranslatable:
                return "string"
        least, most = _count(schema.get("minLength"), 0), _count(schema.get("maxLength"), None)
        if not least and most is None:
            return "string"
        return f'"\\"" {_repeated("char", least or 0, most)} "\\""'

    def _literals(self, values: Sequence[Any]) -> str:
        return "(" + " | ".join(_json(value) for value in values) + ")"


def _repeated(item: str, least: int, most: int | None) -> str:
    if most is None:
        return f"{item}*" if not least else f"{item}{{{least},}}"
    return f"{item}{{{least},{most}}}"


def _count(value: Any, default: int | None) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 10_000 else default


def _json(value: Any) -> str:
    """A JSON value as a literal of the grammar."""
    text = json.dumps(value, ensure_ascii=False)
    quoted = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{quoted}"'


def _quotes(pattern: str) -> bool:
    """Whether a string that fits may hold what JSON writes otherwise."""
    return '"' in pattern or "\\\\" in pattern or "." in pattern or "[^" in pattern
