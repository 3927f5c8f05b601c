"""Random schemas with documents that fit them, nearly fit them, or do not fit them at all.

The schemas are of the kinds that callers write (objects with required keys, closed objects, enums, bounds, patterns,
unions, nullable types, references, recursion) and of kinds that they seldom do (not, if, contains, dependent keys,
unevaluated ones, several allOf that say something about the same key).
"""

from __future__ import annotations

import json
import random
import string
from collections.abc import Iterator
from typing import Any

KEYS = ("id", "name", "kind", "a", "ab", "abc", "x", "items", "child", "é", "a/b", "~t", "", "with space", '"q"')
WORDS = ("red", "green", "blue", "re", "on", "off", "héé", "😀", "", "a\nb", 'say "x"', "\\", "\u2028", "tab\t")
PATTERNS = ("^[a-z]+$", "^a", "b$", "^[0-9]{2,3}$", "[^x]", "^(foo|bar)", "^.{2}$", "^x-", "^$")


class Schemas:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self._names: list[str] = []

    def schema(self, draft: int = 2020) -> Any:
        rng = self.rng
        self.draft = draft
        self._names = [f"d{i}" for i in range(rng.randint(0, 3))]
        root = self._schema(rng.randint(1, 4))
        if self._names and isinstance(root, dict):
            key = "$defs" if draft >= 2019 else "definitions"
            root = {**root, key: {name: self._schema(2) for name in self._names}}
        if isinstance(root, dict):
            uri = (
                "https://json-schema.org/draft/2020-12/schema"
                if draft == 2020
                else "http://json-schema.org/draft-07/schema#"
            )
            root = {"$schema": uri, **root}
        return root

    def _schema(self, depth: int) -> Any:
        rng = self.rng
        roll = rng.random()
        if roll < 0.03:
            return rng.random() < 0.7
        if roll < 0.1 and self._names and depth < 4:
            return {"$ref": f"#/{'$defs' if self.draft >= 2019 else 'definitions'}/{rng.choice(self._names)}"}
        if depth <= 0 or roll < 0.45:
            return self._scalar()
        if roll < 0.7:
            return self._object(depth)
        if roll < 0.82:
            return self._array(depth)
        return self._combined(depth)

    def _scalar(self) -> Any:
        rng = self.rng
        match rng.randrange(10):
            case 0:
                return {
                    "type": "string",
                    **self._some({"minLength": rng.randint(0, 3), "maxLength": rng.randint(1, 6)}),
                }
            case 1:
                return {"type": "string", "pattern": rng.choice(PATTERNS)}
            case 2:
                return {"enum": [self.value(1) for _ in range(rng.randint(1, 4))]}
            case 3:
                return {"type": "string", "enum": rng.sample(WORDS, rng.randint(1, 4))}
            case 4:
                return {"const": self.value(1)}
            case 5:
                low = rng.randint(-5, 5)
                return {"type": rng.choice(("integer", "number")), **self._some({"minimum": low, "maximum": low + 5})}
            case 6:
                return {
                    "type": "number",
                    **self._some({"exclusiveMinimum": 0, "multipleOf": rng.choice((1, 2, 0.5, 0.1))}),
                }
            case 7:
                return {"type": rng.choice(("boolean", "null", "string", "integer"))}
            case 8:
                return {"type": rng.sample(("string", "null", "integer", "object", "array", "boolean"), 2)}
            case _:
                return {}

    def _some(self, keywords: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in keywords.items() if self.rng.random() < 0.6}

    def _object(self, depth: int) -> dict[str, Any]:
        rng = self.rng
        keys = rng.sample(KEYS, rng.randint(0, 5))
        out: dict[str, Any] = {"properties": {key: self._schema(depth - 1) for key in keys}}
        if rng.random() < 0.9:
            out["type"] = "object"
        if keys and rng.random() < 0.7:
            out["required"] = rng.sample(keys, rng.randint(0, len(keys)))
        roll = rng.random()
        if roll < 0.45:
            out["additionalProperties"] = False
        elif roll < 0.6:
            out["additionalProperties"] = self._schema(depth - 1)
        if rng.random() < 0.12:
            out["patternProperties"] = {rng.choice(PATTERNS): self._schema(depth - 1)}
        if rng.random() < 0.06:
            out["propertyNames"] = rng.choice(({"maxLength": 3}, {"pattern": "^[a-z]*$"}, {"enum": list(KEYS[:6])}))
        if rng.random() < 0.1:
            out.update(self._some({"minProperties": rng.randint(0, 2), "maxProperties": rng.randint(0, 3)}))
        if rng.random() < 0.06 and self.draft >= 2019:
            out["dependentRequired"] = {rng.choice(KEYS): [rng.choice(KEYS)]}
        if rng.random() < 0.05 and self.draft >= 2019:
            out["unevaluatedProperties"] = False
        if rng.random() < 0.05:
            out["required"] = list(dict.fromkeys([*out.get("required", []), rng.choice(KEYS)]))
        return out

    def _array(self, depth: int) -> dict[str, Any]:
        rng = self.rng
        out: dict[str, Any] = {"type": "array"} if rng.random() < 0.9 else {}
        if rng.random() < 0.25:
            prefix = [self._schema(depth - 1) for _ in range(rng.randint(1, 3))]
            out["prefixItems" if self.draft >= 2020 else "items"] = prefix
            if rng.random() < 0.6:
                rest = rng.choice((False, self._schema(depth - 1)))
                out["items" if self.draft >= 2020 else "additionalItems"] = rest
        else:
            out["items"] = self._schema(depth - 1)
        out.update(
            self._some({"minItems": rng.randint(0, 2), "maxItems": rng.randint(0, 4)}) if rng.random() < 0.5 else {}
        )
        if rng.random() < 0.1:
            out["uniqueItems"] = True
        if rng.random() < 0.06:
            out["contains"] = self._schema(depth - 1)
        return out

    def _combined(self, depth: int) -> dict[str, Any]:
        rng = self.rng
        below = [self._schema(depth - 1) for _ in range(rng.randint(1, 3))]
        match rng.randrange(8):
            case 0 | 1 | 2:
                out = {"anyOf": below}
            case 3:
                out = {"oneOf": below}
            case 4 | 5:
                out = {"allOf": below}
            case 6:
                out = {"not": below[0]}
            case _:
                out = {"if": below[0], "then": self._schema(depth - 1), "else": self._schema(depth - 1)}
        if rng.random() < 0.4:
            out = {**self._object(depth - 1), **out}
        return out

    # --- documents ---------------------------------------------------------------------------------------------------

    def document(self, schema: Any, root: Any, depth: int = 6) -> Any:
        """A value that means to fit."""
        rng = self.rng
        if not isinstance(schema, dict) or depth <= 0 or rng.random() < 0.02:
            return self.value(min(depth, 2))
        if "$ref" in schema:
            at = root
            for step in schema["$ref"].split("/")[1:]:
                at = at[step]
            return self.document(at, root, depth - 1)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return rng.choice(schema["enum"])
        for keyword in ("anyOf", "oneOf", "allOf"):
            if keyword in schema and rng.random() < 0.9:
                chosen = rng.choice(schema[keyword])
                if keyword == "allOf":
                    parts = [self.document(one, root, depth - 1) for one in schema["allOf"]]
                    if all(isinstance(part, dict) for part in parts):
                        merged: dict[str, Any] = {}
                        for part in parts:
                            merged.update(part)
                        return merged
                    return rng.choice(parts)
                value = self.document(chosen, root, depth - 1)
                if isinstance(value, dict) and "properties" in schema:
                    value = {**self._properties(schema, root, depth), **value}
                return value
        if "if" in schema:
            return self.document(schema[rng.choice(("if", "then", "else"))], root, depth - 1)
        said = schema.get("type")
        kind = rng.choice(said) if isinstance(said, list) else said
        if kind is None:
            kind = (
                "object"
                if "properties" in schema
                else "array"
                if "items" in schema or "prefixItems" in schema
                else None
            )
        match kind:
            case "object":
                return self._properties(schema, root, depth)
            case "array":
                return self._elements(schema, root, depth)
            case "string":
                return self._text(schema)
            case "integer" | "number":
                low = schema.get("minimum", schema.get("exclusiveMinimum", -3))
                number = rng.randint(low, schema.get("maximum", low + 8))
                return number if kind == "integer" or rng.random() < 0.6 else number + rng.choice((0.5, 0.25, 0.1))
            case "boolean":
                return rng.random() < 0.5
            case "null":
                return None
        return self.value(2)

    def _properties(self, schema: dict[str, Any], root: Any, depth: int) -> dict[str, Any]:
        rng = self.rng
        out: dict[str, Any] = {}
        for key, below in schema.get("properties", {}).items():
            if key in schema.get("required", ()) or rng.random() < 0.6:
                out[key] = self.document(below, root, depth - 1)
        for key in schema.get("required", ()):
            out.setdefault(key, self.value(1))
        if schema.get("additionalProperties", True) is not False and rng.random() < 0.2:
            out[rng.choice(KEYS)] = self.document(schema.get("additionalProperties", {}), root, depth - 1)
        return out

    def _elements(self, schema: dict[str, Any], root: Any, depth: int) -> list[Any]:
        rng = self.rng
        first = schema.get("prefixItems", schema["items"] if isinstance(schema.get("items"), list) else [])
        rest = schema.get("additionalItems", {}) if isinstance(schema.get("items"), list) else schema.get("items", {})
        count = rng.randint(schema.get("minItems", 0), max(schema.get("minItems", 0), schema.get("maxItems", 3)))
        return [self.document(first[i] if i < len(first) else rest, root, depth - 1) for i in range(count)]

    def _text(self, schema: dict[str, Any]) -> str:
        rng = self.rng
        if "pattern" in schema:
            return rng.choice(("abc", "a", "b", "ab", "12", "123", "foo", "bar!", "x-1", "zz", "", rng.choice(WORDS)))
        least = schema.get("minLength", 0)
        return "".join(
            rng.choice("abéx 😀\n") for _ in range(rng.randint(least, max(least, schema.get("maxLength", 8))))
        )

    def value(self, depth: int) -> Any:
        rng = self.rng
        match rng.randrange(11 if depth > 0 else 8):
            case 0 | 1:
                return rng.choice(WORDS)
            case 2:
                return rng.randint(-3, 12)
            case 3:
                return rng.choice((0.5, -1.25, 1e300, 2.0, 1e-7, 0.1, 10**20, -0.0))
            case 4:
                return rng.random() < 0.5
            case 5:
                return None
            case 6:
                return "".join(rng.choices(string.ascii_letters + " ", k=rng.randint(0, 12)))
            case 7:
                return rng.choice(({}, []))
            case 8 | 9:
                return {rng.choice(KEYS): self.value(depth - 1) for _ in range(rng.randint(0, 3))}
            case _:
                return [self.value(depth - 1) for _ in range(rng.randint(0, 3))]

    def mutated(self, value: Any) -> Any:
        """The same value with one thing changed somewhere."""
        rng = self.rng
        if isinstance(value, dict) and value and rng.random() < 0.75:
            key = rng.choice(list(value))
            match rng.randrange(6):
                case 0:
                    return {k: v for k, v in value.items() if k != key}
                case 1:
                    return {**value, rng.choice(KEYS): self.value(1)}
                case 2:
                    return {(k + "x" if k == key else k): v for k, v in value.items()}
                case _:
                    return {**value, key: self.mutated(value[key])}
        if isinstance(value, list) and value and rng.random() < 0.75:
            at = rng.randrange(len(value))
            match rng.randrange(5):
                case 0:
                    return value[:at] + value[at + 1 :]
                case 1:
                    return [*value[: at + 1], *value[at:]]
                case _:
                    return [*value[:at], self.mutated(value[at]), *value[at + 1 :]]
        if isinstance(value, str) and rng.random() < 0.7:
            return rng.choice((value + "a", value[:-1], value.upper(), value * 2, "x" + value))
        if isinstance(value, int) and not isinstance(value, bool) and rng.random() < 0.7:
            return value + rng.choice((-1, 1, 0.5, 10, -20))
        return self.value(2)

    def text(self, value: Any) -> str:
        """One of the ways to write a value down."""
        rng = self.rng
        value = self._shuffled(value)
        style: dict[str, Any] = rng.choice(
            ({}, {"indent": 2}, {"separators": (",", ":")}, {"separators": (" ,\n", "\t: ")}, {"indent": 0})
        )
        text = json.dumps(value, ensure_ascii=rng.random() < 0.5, **style)
        return rng.choice(("", "", "\n", "  ")) + text + rng.choice(("", "", "\n", " \t\r\n"))

    def _shuffled(self, value: Any) -> Any:
        if isinstance(value, dict):
            keys = list(value)
            self.rng.shuffle(keys)
            return {key: self._shuffled(value[key]) for key in keys}
        if isinstance(value, list):
            return [self._shuffled(one) for one in value]
        return value

    def split(self, text: str) -> list[str]:
        rng = self.rng
        if rng.random() < 0.3:
            return [text]
        size = rng.choice((1, 2, 3, 4, 4, 7))
        return [text[i : i + size] for i in range(0, len(text), size)]


def pairs(seed: int, count: int) -> Iterator[tuple[Any, list[tuple[Any, str]]]]:
    """Schemas, each with documents and their texts, ``count`` documents in all."""
    schemas = Schemas(seed)
    made = 0
    while made < count:
        schema = schemas.schema(2020 if schemas.rng.random() < 0.7 else 7)
        documents: list[tuple[Any, str]] = []
        for _ in range(4):
            value = schemas.document(schema, schema)
            documents.append((value, schemas.text(value)))
            for _ in range(2):
                value = schemas.mutated(value)
                documents.append((value, schemas.text(value)))
        made += len(documents)
        yield schema, documents
