"""The constraint on the rest of an answer, in the words of the engine that goes on with it. Pure.

Engines start a grammar at its root wherever they are asked to go on, so they are given one that begins where the answer
broke off (guard/constraint/remainder.py). It is made of the constraint's own grammar, or of a schema's.

Two grammars of one schema may still differ in what they leave open (order, spacing, how a word is cut into tokens), and
an answer that changes from one to the other in its middle can go another way. So where an answer may have to be gone on
with to the token, and the schema is all in our grammar, that one is sent from the beginning (``whole_grammar``).
"""

from __future__ import annotations

from typing import Final

from guard.constraint.regex_gbnf import Untranslatable
from guard.constraint.remainder import NoRemainder, remainder
from guard.constraint.schema_gbnf import schema_gbnf
from guard.constraint.spec import Constraint
from guard.engines.dialect_constraints import Body, dropped, gbnf

KINDS: Final = frozenset({"json_schema", "json_object", "regex", "choice", "grammar"})
"""Of constraints that most often have a grammar."""


def remainder_of(constraint: Constraint, beginning: str) -> str | None:
    """The grammar of what may follow ``beginning``; None where there is none, because the constraint has no grammar or
    its grammar does not have this beginning."""
    grammar = _grammar(constraint)
    try:
        return remainder(grammar, beginning) if grammar is not None else None
    except NoRemainder:
        return None


def whole_grammar(constraint: Constraint) -> str | None:
    """The grammar of which ``remainder_of`` makes the rest, where it says all that the constraint does."""
    drops = dropped(constraint, _DROPS) if constraint.kind == "json_schema" else ()
    return None if drops or constraint.kind not in KINDS else _grammar(constraint)


def write_remainder(dialect: str, grammar: str, body: Body) -> None:
    """For the dialects that take one (Capabilities.remainder)."""
    match dialect:
        case "vllm":
            body["structured_outputs"] = {"grammar": grammar}
        case "sglang":
            body["ebnf"] = grammar
        case _:
            body["grammar"] = grammar


_DROPS: Final = frozenset(
    {
        "additionalItems",
        "allOf",
        "contains",
        "dependentRequired",
        "dependentSchemas",
        "dependencies",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "if",
        "maximum",
        "maxProperties",
        "minimum",
        "minProperties",
        "multipleOf",
        "not",
        "pattern",
        "patternProperties",
        "prefixItems",
        "propertyNames",
        "unevaluatedItems",
        "unevaluatedProperties",
        "uniqueItems",
    }
)
"""What the grammar of a schema does not say (guard/constraint/schema_gbnf.py)."""

_MADE: Final[dict[str, str | None]] = {}
_MOST_MADE: Final = 64


def _grammar(constraint: Constraint) -> str | None:
    if constraint.key not in _MADE:
        if len(_MADE) >= _MOST_MADE:
            _MADE.pop(next(iter(_MADE)), None)
        _MADE[constraint.key] = _made(constraint)
    return _MADE[constraint.key]


def _made(constraint: Constraint) -> str | None:
    match constraint.kind:
        case "json_schema" | "json_object":
            try:
                return schema_gbnf(constraint.value)
            except (Untranslatable, RecursionError):
                return None
        case _:
            return gbnf(constraint)
