"""Generated schemas with documents that fit, nearly fit or do not: the streamed verdict is the judge's, in every split;
what is good is good; what is forced never hurts."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guard.constraint.compile import CompiledConstraint, compile_constraint
from guard.constraint.json_check import JsonChecker
from guard.constraint.spec import Constraint
from guard.request import RequestError
from tests.bench.schema_pairs import Schemas, pairs

Outcome = tuple[Any, ...]


def outcome(compiled: CompiledConstraint, pieces: list[str]) -> tuple[Outcome, bool, JsonChecker]:
    checker = compiled.checker()
    assert isinstance(checker, JsonChecker)
    found = [finding for piece in pieces for finding in checker.feed(piece)]
    before = checker.safe
    found.extend(checker.finish(False))
    valid = not any(finding.severity == "error" for finding in found)
    facts = (found, before, checker.safe, checker.good, checker.complete)
    return facts, valid, checker


def compiled_or_none(schema: Any) -> CompiledConstraint | None:
    """None for a definition that is only a reference to itself, which the generator may make."""
    try:
        return compile_constraint(Constraint("json_schema", schema))
    except RequestError as error:
        if error.code == "constraint_too_complex":
            return None
        raise


@pytest.mark.parametrize("seed", range(8))
def test_verdicts_splits_and_ways_on(seed: int) -> None:
    rng = random.Random(seed)
    schemas = Schemas(seed)
    for schema, documents in pairs(seed, 300):
        compiled = compiled_or_none(schema)
        if compiled is None:
            continue
        judge = jsonschema_rs.validator_for(schema, offline=True, validate_formats=False)
        for value, text in documents:
            if isinstance(value, dict) and value and rng.random() < 0.2:
                # a key that stands twice: its last value counts
                key = rng.choice(list(value))
                head, brace, rest = text.partition("{")
                text = f"{head}{brace}{json.dumps(key)}: {json.dumps(value[key])},{rest}"
            whole, valid, checker = outcome(compiled, [text])
            assert valid == judge.is_valid(value), (schema, text)
            assert outcome(compiled, list(text))[0] == whole, (schema, text)
            assert outcome(compiled, schemas.split(text))[0] == whole, (schema, text)
            assert checker.good <= len(text)
            if valid:
                assert checker.safe == len(text)
                self_consistent(compiled, text, rng.randrange(len(text)), schema)
            else:
                checker.rewind()
                assert not [one for one in checker.feed("") if one.severity == "error"]


def self_consistent(compiled: CompiledConstraint, text: str, cut: int, schema: Any) -> None:
    """At any place of a valid document nothing is wrong, and what is forced there keeps it so."""
    checker = compiled.checker()
    assert isinstance(checker, JsonChecker)
    assert not [one for one in checker.feed(text[:cut]) if one.severity == "error"]
    checker.rewind()
    forced = checker.forced()
    assert not [one for one in checker.feed(forced) if one.severity == "error"], (schema, text[:cut], forced)


_SCALARS = st.sampled_from(
    [
        {"type": "string"},
        {"type": "integer", "minimum": 0},
        {"enum": ["a", "ab", 1, None]},
        {"type": ["string", "null"], "maxLength": 2},
        {"pattern": "^a"},
        {"const": "x"},
        True,
        False,
    ]
)


def _grown(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    keys = st.sampled_from(["a", "b", "ab"])
    return (
        st.builds(
            lambda properties, required, closed: {
                "type": "object",
                "properties": properties,
                "required": required,
                "additionalProperties": not closed,
            },
            st.dictionaries(keys, inner, max_size=3),
            st.lists(keys, max_size=2, unique=True),
            st.booleans(),
        )
        | st.builds(lambda items, most: {"type": "array", "items": items, "maxItems": most}, inner, st.integers(0, 3))
        | st.builds(
            lambda keyword, branches: {keyword: branches},
            st.sampled_from(["anyOf", "oneOf", "allOf"]),
            st.lists(inner, min_size=1, max_size=3),
        )
        | st.builds(lambda one: {"not": one}, inner)
    )


_VALUES = st.recursive(
    st.sampled_from([None, True, 0, -1, 1.5, "", "a", "ab", "abc", "x"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "ab", "c"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(st.recursive(_SCALARS, _grown, max_leaves=8), _VALUES, st.integers(1, 5))
@settings(max_examples=400, deadline=None)
def test_any_schema_with_any_value(schema: Any, value: Any, size: int) -> None:
    compiled = compile_constraint(Constraint("json_schema", schema))
    judge = jsonschema_rs.Draft202012Validator(schema, offline=True)
    text = json.dumps(value)
    whole, valid, _ = outcome(compiled, [text])
    assert valid == judge.is_valid(value)
    assert outcome(compiled, [text[i : i + size] for i in range(0, len(text), size)])[0] == whole
