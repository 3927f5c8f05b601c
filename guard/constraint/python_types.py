"""Formats as a Python client writes them: Pydantic models and other types, patterns, and the output types of Outlines.

The rules:

- What has a JSON form is asked for as JSON: models, dataclasses, typed dicts, lists, numbers, booleans.
- What is words is asked for as words: Literal and Enum of strings, and Outlines' Choice, as they are, without quotes.
- Outlines need not be installed; its types are known when they come. Its other terms are regexes, which it writes.
"""

from __future__ import annotations

import enum
import re
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, PydanticUserError, TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError

from guard.constraint import spec
from guard.constraint.spec import Constraint, Said

_FLAGS = {re.IGNORECASE: "i", re.MULTILINE: "m", re.DOTALL: "s", re.VERBOSE: "x", re.ASCII: "a"}


def from_python(wanted: Any, param: str = "") -> Constraint:
    """Raises TypeError for what says nothing about a format, and RequestError for what says it wrongly."""
    if isinstance(wanted, Constraint):
        return wanted
    if isinstance(wanted, dict):
        return spec.schema((param, wanted))
    if isinstance(wanted, re.Pattern):
        return spec.regex((param, _pattern(wanted)))
    if isinstance(wanted, type) and issubclass(wanted, BaseModel):
        return _named(spec.schema((param, wanted.model_json_schema())), wanted.__name__)
    if type(wanted).__module__.partition(".")[0] == "outlines":
        return _outlines(wanted, param)
    words = _words(wanted)
    if words is not None:
        return spec.choice((param, words))
    if hasattr(wanted, "to_schema"):  # a genson builder
        return spec.schema((param, wanted.to_schema()))
    if wanted is str or wanted is Any:
        raise TypeError(f"{wanted} asks for no format: any text would do")
    return _typed(wanted, param)


def _words(wanted: Any) -> list[str] | None:
    """The words that a type allows, if it allows nothing else."""
    if get_origin(wanted) is Literal:
        values = list(get_args(wanted))
    elif isinstance(wanted, type) and issubclass(wanted, enum.Enum):
        values = [member.value for member in wanted]
    else:
        return None
    return values if values and all(isinstance(value, str) for value in values) else None


def _typed(wanted: Any, param: str) -> Constraint:
    try:
        schema = TypeAdapter(wanted).json_schema()
    except (PydanticUserError, PydanticSchemaGenerationError, PydanticInvalidForJsonSchema) as error:
        first = str(error).split("\n", 1)[0]
        raise TypeError(f"{wanted!r} has no JSON schema: {first}") from None
    return _named(spec.schema((param, schema)), getattr(wanted, "__name__", ""))


def _outlines(wanted: Any, param: str) -> Constraint:
    from outlines.types import dsl

    said: Said
    match type(wanted).__name__:
        case "JsonSchema":
            return spec.schema((param, wanted.schema))
        case "CFG":
            return spec.lark((param, wanted.definition))
        case "Regex":
            said = (param, wanted.pattern)
        case "Choice" if all(isinstance(item, str) for item in wanted.items):
            return spec.choice((param, list(wanted.items)))
        case _:
            said = (param, dsl.to_regex(wanted))
    return spec.regex(said)


def _pattern(wanted: re.Pattern[str]) -> str:
    letters = "".join(letter for flag, letter in _FLAGS.items() if wanted.flags & flag)
    return f"(?{letters}){wanted.pattern}" if letters else wanted.pattern


def _named(constraint: Constraint, name: str) -> Constraint:
    kept = re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:64]
    return Constraint(constraint.kind, constraint.value, name=kept, param=constraint.param)
