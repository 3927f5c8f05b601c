"""From a constraint to what checks it.

Pure and synchronous, under limits: what is too large, too deep or too costly is refused before anything is built from
it. cache.py keeps what was compiled, and compiles off the event loop. A refusal is a RequestError: invalid_constraint
says what is wrong with the constraint, constraint_too_complex which limit it breaks.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct

from guard.constraint.automaton import TooLarge
from guard.constraint.contract import Checker
from guard.constraint.json_check import JsonChecker, Release
from guard.constraint.judge import Judge
from guard.constraint.limits import Limits, depth_of, invalid, shape_of, too_complex
from guard.constraint.regex_check import Unsupported, regex_automaton, regex_maker
from guard.constraint.schema_drafts import VALIDATORS, draft_of
from guard.constraint.schema_graph import SchemaGraph
from guard.constraint.spec import Constraint
from guard.constraint.text_check import choice_maker

DEFAULTS: Final = Limits()
_Maker = Callable[[Release, bool], Checker]


class CompiledConstraint(Struct, frozen=True):
    """``size``: bytes of the canonical form, for the cache's bound. ``draft``: of a schema, as its year or number."""

    constraint: Constraint
    make: _Maker
    size: int
    draft: int = 0

    @property
    def key(self) -> str:
        return self.constraint.key

    @property
    def kind(self) -> str:
        return self.constraint.kind

    def checker(self, release: Release = "streaming", repairs: bool = True) -> Checker:
        """A fresh checker of one answer. ``release`` and ``repairs`` are of JSON only."""
        return self.make(release, repairs)


def compile_constraint(constraint: Constraint, limits: Limits = DEFAULTS, registry: Any = None) -> CompiledConstraint:
    """Raises RequestError. ``registry`` (jsonschema_rs.Registry) holds the documents that a schema may refer to besides
    itself; nothing is ever fetched."""
    match constraint.kind:
        case "json_schema":
            return _schema(constraint, limits, registry)
        case "json_object":
            make = _json(SchemaGraph({"type": "object"}, 2020), None)
        case "regex":
            make = regex_maker(constraint, limits)
        case "choice":
            if len(constraint.value) > limits.choices:
                count = len(constraint.value)
                raise too_complex(constraint.param, f"there are {count} choices, and may be {limits.choices}")
            make = choice_maker(constraint.value)
        case "grammar":
            from guard.constraint.grammar_check import grammar_maker  # loads a native library

            make = grammar_maker(constraint, limits)
        case "structural_tag":
            from guard.constraint.structural_check import structural_tag_maker  # loads torch

            make = structural_tag_maker(constraint, limits)
        case _:
            raise invalid(constraint.param, f"{constraint.kind!r} is no kind of constraint")
    return CompiledConstraint(constraint, make, len(constraint.canonical))


def _json(graph: SchemaGraph, judge: Judge | None) -> _Maker:
    return lambda release, repairs: JsonChecker(graph, judge, release, repairs)


def _schema(constraint: Constraint, limits: Limits, registry: Any) -> CompiledConstraint:
    schema, param = constraint.value, constraint.param
    if not isinstance(schema, dict | bool):
        raise invalid(param, "a schema is an object, true or false")
    if depth_of(schema, limits.depth) > limits.depth:
        raise too_complex(param, f"the schema nests deeper than {limits.depth} levels")
    size = len(constraint.canonical)
    if size > limits.bytes:
        raise too_complex(param, f"the schema has {size} bytes, and may have {limits.bytes}")
    shape = shape_of(schema, param, limits)
    draft, validator = _validator(schema, param, registry)
    # every evaluation may branch again at each level of a document; what repeats is remembered by the judge
    judge = Judge(validator, shape.evaluations, shape.branches if shape.recursive else 1)
    if draft in VALIDATORS:
        graph = SchemaGraph(schema, draft, shape.evaluations, judge.branches)
    else:
        graph = SchemaGraph(True, 2020)
    return CompiledConstraint(constraint, _json(graph, judge), size, draft)


def _validator(schema: Any, param: str, registry: Any) -> tuple[int, Any]:
    """The judge's validator, and the draft. A schema that names no draft is read as 2020-12, or else as the newest
    older draft that takes it (lists as ``items``, ``exclusiveMinimum: true``)."""
    options = {"offline": True, "validate_formats": False, "registry": registry}
    said = draft_of(schema)
    if said:
        drafts = [said]
    elif said == 0:
        drafts = [2020, 7, 4]
    else:
        import jsonschema_rs

        try:  # a meta-schema of the caller's own, in the registry
            return 0, jsonschema_rs.validator_for(schema, **options)
        except Exception as failed:
            raise _unfit(failed, param) from None
    first: Exception | None = None
    for draft in drafts:
        try:
            return draft, VALIDATORS[draft](schema, **options)
        except Exception as failed:  # the library's own errors have several types
            first = first or failed
    assert first is not None
    raise _unfit(first, param) from None


def _unfit(error: Exception, param: str) -> Exception:
    message = str(getattr(error, "message", "") or error).split("\n", 1)[0][:300]
    if "ecursion limit" in message:
        return too_complex(param, "the schema nests too deeply")
    if "size limit" in message or "exceeds size" in message:
        return too_complex(param, f"a pattern compiles to more than may be ({message})")
    if message.endswith('is not a "regex"') and _is_large(getattr(error, "instance", None)):
        return too_complex(param, "a pattern expands to more than may be")
    path = "/".join(str(step) for step in getattr(error, "instance_path", []) or [])
    return invalid(param, f"no valid JSON schema: {message}" + (f" (at {path})" if path else ""))


def _is_large(pattern: Any) -> bool:
    """Whether a pattern that the judge does not take is well formed, but written out too large."""
    try:
        regex_automaton(str(pattern))
    except TooLarge:
        return True
    except (re.error, Unsupported):
        pass
    return False
