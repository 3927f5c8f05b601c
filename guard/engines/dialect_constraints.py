"""A constraint in the words of each kind of engine. Pure.

Each ``write_...`` puts its fields into the request body and returns what the engine was not asked to enforce: the
constraint's kind (with its syntax) when the dialect has no word for it, or the schema keywords that the engine's
grammar is known to drop in silence. Nothing is sent that an engine is known to ignore with a 200 or to refuse.

Whitespace: no dialect has a field that bounds whitespace under all of its grammar back ends (vLLM's whitespace_pattern
and disable_any_whitespace are read by none of them per request, its structural tags are refused by one), and llama.cpp
bounds it by itself. So a flood of whitespace is left to the guard's detectors.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from guard.constraint.regex_gbnf import Untranslatable, regex_to_gbnf
from guard.constraint.spec import Constraint
from guard.engines.ebnf_gbnf import ebnf_to_gbnf

Body = dict[str, Any]


class Asked(NamedTuple):
    """``kind`` of the request (chat or completion); ``tools``: tools are offered with it and may be called."""

    constraint: Constraint
    kind: str
    tools: bool


Writer = Callable[[Asked, Body], tuple[str, ...]]


def write_vllm(asked: Asked, body: Body) -> tuple[str, ...]:
    constraint = asked.constraint
    match constraint.kind:
        case "json_schema" if not isinstance(constraint.value, dict):
            return (named(constraint),)
        case "json_schema" | "json_object":
            body["response_format"] = response_format(constraint)
            return dropped(constraint, _VLLM_DROPS)
        case "regex":
            body["structured_outputs"] = {"regex": constraint.value}
        case "choice":
            body["structured_outputs"] = {"choice": list(constraint.value)}
        case "grammar":  # it tells Lark from EBNF by itself
            body["structured_outputs"] = {"grammar": constraint.value}
        case "structural_tag":
            body["structured_outputs"] = {"structural_tag": json_text(_tag(constraint))}
    return ()


def write_sglang(asked: Asked, body: Body) -> tuple[str, ...]:
    constraint = asked.constraint
    match constraint.kind:
        case "json_schema" if not isinstance(constraint.value, dict):
            return (named(constraint),)
        case "json_schema" if asked.kind == "completion":
            body["json_schema"] = json_text(constraint.value)
            return dropped(constraint, XGRAMMAR_DROPS)
        case "json_object" if asked.kind == "completion":
            body["json_schema"] = json_text({"type": "object"})
        case "json_schema" | "json_object":
            body["response_format"] = response_format(constraint)
            return dropped(constraint, XGRAMMAR_DROPS)
        case "regex":
            body["regex"] = constraint.value
        case "choice":
            body["regex"] = choice_regex(constraint)
        case "grammar" if constraint.syntax != "lark":
            body["ebnf"] = constraint.value
        case "structural_tag" if asked.kind == "chat":
            body["response_format"] = _tag(constraint)
        case _:
            return (named(constraint),)
    return ()


def write_trtllm(asked: Asked, body: Body) -> tuple[str, ...]:
    constraint = asked.constraint
    match constraint.kind:
        case "json_schema" if isinstance(constraint.value, dict):
            body["response_format"] = {"type": "json", "schema": constraint.value}
            return dropped(constraint, XGRAMMAR_DROPS)
        case "json_object":
            body["response_format"] = {"type": "json_object"}
        case "regex":
            body["response_format"] = {"type": "regex", "regex": constraint.value}
        case "choice":
            body["response_format"] = {"type": "regex", "regex": choice_regex(constraint)}
        case "grammar" if constraint.syntax != "lark":
            body["response_format"] = {"type": "ebnf", "ebnf": constraint.value}
        case "structural_tag" if "format" in constraint.value:  # it knows no older form, and refuses unknown fields
            body["response_format"] = {"type": "structural_tag", "format": constraint.value["format"]}
        case _:
            return (named(constraint),)
    return ()


def write_llamacpp(asked: Asked, body: Body) -> tuple[str, ...]:
    constraint = asked.constraint
    match constraint.kind:
        case "json_schema" if not isinstance(constraint.value, dict):
            return (named(constraint),)
        case "json_schema" if asked.kind == "completion":  # response_format is ignored there
            body["json_schema"] = constraint.value
            return dropped(constraint, _LLAMACPP_DROPS)
        case "json_object" if asked.kind == "completion":
            body["json_schema"] = {"type": "object"}
            return ()
        case "json_schema" | "json_object":
            body["response_format"] = response_format(constraint)
            return dropped(constraint, _LLAMACPP_DROPS)
        case _:
            grammar = None if asked.tools else gbnf(constraint)  # with tools a grammar is refused
            if grammar is None:
                return (named(constraint),)
            body["grammar"] = grammar
    return ()


def write_openai(asked: Asked, body: Body) -> tuple[str, ...]:
    """What every server of the API should know; whether it does is for the guard to see."""
    constraint = asked.constraint
    if asked.kind != "chat" or constraint.kind not in ("json_schema", "json_object"):
        return (named(constraint),)
    if constraint.kind == "json_schema" and not isinstance(constraint.value, dict):
        return (named(constraint),)
    body["response_format"] = response_format(constraint)
    return ()


def named(constraint: Constraint) -> str:
    """How a whole constraint is called in ``unenforced``."""
    return f"{constraint.kind}:{constraint.syntax}" if constraint.syntax else constraint.kind


def response_format(constraint: Constraint) -> Body:
    """The OpenAI form of a JSON constraint."""
    if constraint.kind == "json_object":
        return {"type": "json_object"}
    schema = {"name": constraint.name or "answer", "schema": constraint.value, "strict": constraint.strict}
    return {"type": "json_schema", "json_schema": schema}


def choice_regex(constraint: Constraint) -> str:
    return "|".join(f"({_quoted(choice)})" for choice in constraint.value)


def json_bytes(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (OverflowError, ValueError):  # an integer beyond 64 bits, half a surrogate pair
        return json.dumps(value, separators=(",", ":")).encode()


def json_text(value: Any) -> str:
    return json_bytes(value).decode()


def _tag(constraint: Constraint) -> Body:
    return {**constraint.value, "type": "structural_tag"}


def gbnf(constraint: Constraint) -> str | None:
    """The constraint as llama.cpp's kind of grammar, where it can be one."""
    try:
        match constraint.kind:
            case "regex":
                return regex_to_gbnf(constraint.value)
            case "choice":
                return "root ::= " + " | ".join(f'"{_in_gbnf(choice)}"' for choice in constraint.value)
            case "grammar" if constraint.syntax == "gbnf":
                return str(constraint.value)
            case "grammar" if constraint.syntax == "ebnf":
                return ebnf_to_gbnf(constraint.value)
    except Untranslatable:
        return None
    return None


_SPECIAL: Final = frozenset("\\.^$*+?()[]{}|")
_CONTROLS: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _quoted(text: str) -> str:
    """A literal in a regex of any of the engines' flavours."""
    return "".join(f"\\{c}" if c in _SPECIAL else _CONTROLS.get(c, c) for c in text)


def _in_gbnf(text: str) -> str:
    return "".join(
        f"\\{c}" if c in '"\\' else _CONTROLS.get(c) or (f"\\x{ord(c):02X}" if c < " " or c == "\x7f" else c)
        for c in text
    )


# --- schema keywords that a grammar drops -------------------------------------------------------------------------

_VLLM_DROPS: Final = frozenset({"oneOf", "allOf", "not", "if", "dependentRequired", "dependentSchemas"})
XGRAMMAR_DROPS: Final = _VLLM_DROPS | {
    "multipleOf",
    "uniqueItems",
    "contains",
    "pattern+minLength",
    "pattern+maxLength",
    "format+minLength",
    "format+maxLength",
}
_LLAMACPP_DROPS: Final = frozenset(
    {
        "not",
        "if",
        "dependentRequired",
        "dependentSchemas",
        "multipleOf",
        "uniqueItems",
        "contains",
        "minProperties",
        "maxProperties",
        "patternProperties",
        "propertyNames",
        "unevaluatedProperties",
        "unevaluatedItems",
        "number+minimum",  # an integer's bounds are kept
        "number+maximum",
        "number+exclusiveMinimum",
        "number+exclusiveMaximum",
    }
)
_MAPS: Final = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTS: Final = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_SINGLE: Final = (
    "items",
    "additionalProperties",
    "additionalItems",
    "contains",
    "not",
    "if",
    "then",
    "else",
    "propertyNames",
    "unevaluatedProperties",
    "unevaluatedItems",
)
MAX_SUBSCHEMAS: Final = 10_000


def dropped(constraint: Constraint, drops: frozenset[str]) -> tuple[str, ...]:
    """The keywords of the schema that this engine's grammar drops, sorted. ``a+b``: b is dropped beside a keyword or in
    a type called a."""
    found: set[str] = set()
    pairs = [key.split("+") for key in drops if "+" in key]
    for schema in _subschemas(constraint.value):
        found.update(drops & schema.keys() - ({"allOf"} if _short(schema.get("allOf")) else set()))
        types = schema.get("type")
        found.update(
            second
            for first, second in pairs
            if second in schema and (first in schema or first == types or (isinstance(types, list) and first in types))
        )
    return tuple(sorted(found))


def _short(value: Any) -> bool:
    return not isinstance(value, list) or len(value) < 2


def _subschemas(root: Any) -> Iterator[Body]:
    stack = [root]
    seen = 0
    while stack and seen < MAX_SUBSCHEMAS:
        schema = stack.pop()
        if not isinstance(schema, dict):
            continue
        seen += 1
        yield schema
        for key in _MAPS:
            if isinstance(inner := schema.get(key), dict):
                stack.extend(inner.values())
        for key in _LISTS:
            if isinstance(inner := schema.get(key), list):
                stack.extend(inner)
        stack.extend(schema[key] for key in _SINGLE if key in schema)
