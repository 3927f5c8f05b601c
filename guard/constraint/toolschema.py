"""The schemas of tools: each one a constraint on the arguments of its calls, compiled once a distinct schema.

A tool without a schema takes any object. One whose schema names no argument takes none, so for it nothing and ``{}``
say the same. Schemas of ordinary size are compiled where they are first met; larger ones are for whoever can compile
off the event loop (``constraint_of``), and are compiled here only if nobody did.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from guard.constraint.compile import CompiledConstraint, compile_constraint
from guard.constraint.spec import Constraint
from guard.request import RequestError, Tool

INLINE_BYTES: Final = 50_000
"""Canonical bytes of a schema up to which compiling takes a few milliseconds."""

INLINE_CHARS: Final = 1_000
"""The same of a regex or grammar without counted repetition."""

_ANY_OBJECT: Final = Constraint("json_object")
_NAMING: Final = ("properties", "required", "patternProperties", "$ref", "allOf", "anyOf", "oneOf", "minProperties")


def constraint_of(tool: Tool, param: str = "") -> Constraint | None:
    """What holds a call's arguments; None for a custom tool that takes any text."""
    if tool.is_custom:
        return _custom(tool.raw.get("custom", {}), param)
    if tool.parameters is None:
        return _ANY_OBJECT
    return Constraint("json_schema", tool.parameters, name=tool.name, param=param)


def compiled_schema(constraint: Constraint) -> CompiledConstraint:
    """Raises RequestError."""
    try:
        return _compiled(constraint.canonical)
    except RequestError as error:
        shown = f"{constraint.param}: {error.message}" if constraint.param else error.message
        raise RequestError(shown, constraint.param, error.code) from None


def takes_nothing(parameters: Any) -> bool:
    """Whether the schema names no argument at all."""
    return parameters is None or not any(parameters.get(keyword) for keyword in _NAMING)


@lru_cache(maxsize=512)
def _compiled(canonical: bytes) -> CompiledConstraint:
    kind, syntax, value = msgspec.json.decode(canonical)
    try:
        return compile_constraint(Constraint(kind, value, syntax))
    except RequestError:
        # an $id that is no URI (a plain title, a fragment) names nothing; what refers to "#" goes on without it
        if kind != "json_schema" or not isinstance(value, Mapping) or "$id" not in value:
            raise
        unnamed = {key: inner for key, inner in value.items() if key != "$id"}
        try:
            return compile_constraint(Constraint(kind, unnamed, syntax))
        except RequestError:
            pass
        raise


def _custom(custom: Mapping[str, Any], param: str) -> Constraint | None:
    form = custom.get("format") or {}
    if form.get("type") != "grammar":
        return None
    grammar = form.get("grammar", form)
    if grammar["syntax"] == "regex":
        return Constraint("regex", grammar["definition"], param=param)
    return Constraint("grammar", grammar["definition"], "lark", param=param)
