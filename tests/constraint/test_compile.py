"""What a constraint may cost, and what is kept of it."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from guard.constraint.cache import ConstraintCache
from guard.constraint.compile import compile_constraint
from guard.constraint.limits import Limits
from guard.constraint.spec import Constraint
from guard.request import RequestError


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"not": schema}
    return schema


def doubling(levels: int, *, below: bool = False) -> dict[str, Any]:
    """A few lines that ask for 2^levels evaluations, at one value or at the end of a chain of them."""
    definitions: dict[str, Any] = {"d0": {"type": "integer"}}
    for level in range(1, levels):
        twice: Any = {"allOf": [{"$ref": f"#/$defs/d{level - 1}"}, {"$ref": f"#/$defs/d{level - 1}"}]}
        definitions[f"d{level}"] = {"properties": {"x": twice}} if below else twice
    return {"$defs": definitions, "$ref": f"#/$defs/d{levels - 1}"}


HOSTILE = {
    "5 MB": ({"properties": {f"p{i}": {"description": "x" * 100} for i in range(45_000)}}, "bytes"),
    "10,000 levels": (nested(10_000), "deep"),
    "300 levels": (nested(300), "deeper than 200 levels"),
    "a circle": ({"$ref": "#"}, "circle"),
    "a circle by way of alternatives": (
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"anyOf": [{"type": "null"}, {"not": {"$ref": "#/$defs/a"}}]}},
         "$ref": "#/$defs/a"},
        "circle",
    ),
    "2^40 evaluations": (doubling(41), "evaluations"),
    "2^40 evaluations further down": (doubling(41, below=True), "evaluations"),
    "a pattern of 10^9 states": ({"pattern": "((a{1,1000}){1,1000}){1,1000}"}, "pattern"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_schemas_are_refused_with_the_limit(name: str) -> None:
    schema, limit = HOSTILE[name]
    before = time.process_time()
    with pytest.raises(RequestError) as caught:
        compile_constraint(Constraint("json_schema", schema, param="response_format"))
    assert caught.value.code == "constraint_too_complex"
    assert caught.value.param == "response_format"
    assert limit in caught.value.message
    assert time.process_time() - before < 2.0


@pytest.mark.parametrize(
    "schema",
    [
        {"$defs": {"n": {"properties": {"next": {"$ref": "#/$defs/n"}}}}, "$ref": "#/$defs/n"},
        {"properties": {"a": {"$ref": "#"}, "b": {"items": {"$ref": "#"}}}},
        {"allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}], "$defs": {"a": {"type": "integer"}}},
        {"anyOf": [{"properties": {"l": {"$ref": "#"}, "r": {"$ref": "#"}}}, {"type": "integer"}]},
        {"$dynamicAnchor": "a", "properties": {"x": {"$dynamicRef": "#a"}}},
        {"$dynamicAnchor": "a", "allOf": [{"$dynamicRef": "#a"}]},
        nested(90),
    ],
)
def test_what_only_looks_hostile_is_accepted(schema: Any) -> None:
    check = compile_constraint(Constraint("json_schema", schema)).checker()
    check.feed('{"x": [1, {"a": {"b": []}}], "l": {"l": 1, "r": 2}, "next": {"next": {}}}')


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "strin"}, "type"),
        ({"properties": []}, "properties"),
        ({"minimum": "1"}, "minimum"),
        ({"pattern": "("}, "pattern"),
        ({"$ref": "#/$defs/nowhere"}, "nowhere"),
        ({"$ref": "https://example.com/schema.json"}, "example.com"),
        ({"$schema": "https://example.com/my-own"}, "example.com"),
        ({"required": "a"}, "required"),
    ],
)
def test_schemas_that_are_none(schema: Any, why: str) -> None:
    with pytest.raises(RequestError) as caught:
        compile_constraint(Constraint("json_schema", schema, param="guided_json"))
    assert (caught.value.param, caught.value.code) == ("guided_json", "invalid_constraint")
    assert why in caught.value.message


def test_a_schema_that_names_no_draft_may_be_of_an_older_one() -> None:
    for schema, draft, good, bad in (
        ({"prefixItems": [{"type": "null"}]}, 2020, "[null]", "[1]"),
        ({"items": [{"type": "null"}], "additionalItems": False}, 7, "[null]", "[null, 1]"),
        ({"minimum": 1, "exclusiveMinimum": True}, 4, "2", "1"),
    ):
        compiled = compile_constraint(Constraint("json_schema", schema))
        assert compiled.draft == draft
        for text, valid in ((good, True), (bad, False)):
            check = compiled.checker()
            found = [*check.feed(text), *check.finish(False)]
            assert (not found) == valid


def test_format_is_an_annotation() -> None:
    check = compile_constraint(Constraint("json_schema", {"format": "email"})).checker()
    assert not [*check.feed('"no address"'), *check.finish(False)]


async def test_compiled_constraints_are_kept_by_what_they_ask() -> None:
    cache = ConstraintCache(entries=2)
    one = await cache.compile(Constraint("json_schema", {"type": "object", "required": ["a"]}, param="x"))
    assert await cache.compile(Constraint("json_schema", {"required": ["a"], "type": "object"}, name="n")) is one
    assert (cache.hits, cache.misses, len(cache)) == (1, 1, 1)
    for pattern in ("a", "b"):
        await cache.compile(Constraint("regex", pattern))
    assert len(cache) == 2
    assert await cache.compile(Constraint("json_schema", {"type": "object", "required": ["a"]})) is not one
    cache.close()


async def test_the_cache_is_bounded_by_bytes() -> None:
    cache = ConstraintCache(total_bytes=1_000)
    for i in range(20):
        await cache.compile(Constraint("json_schema", {"description": "x" * 200, "const": i}))
    assert len(cache) < 5
    await cache.compile(Constraint("json_schema", {"description": "x" * 2_000}))
    assert len(cache) < 5
    cache.close()


async def test_the_same_constraint_is_compiled_once_for_all_who_wait() -> None:
    cache = ConstraintCache()
    constraint = Constraint("json_schema", {"properties": {f"p{i}": {"type": "string"} for i in range(500)}})
    first, *others = await asyncio.gather(*(cache.compile(constraint) for _ in range(5)))
    assert all(other is first for other in others)
    cache.close()


async def test_a_caller_that_goes_away_does_not_take_the_result_along() -> None:
    cache = ConstraintCache()
    constraint = Constraint("json_schema", {"properties": {f"p{i}": {"type": "string"} for i in range(2_000)}})
    leaving = asyncio.ensure_future(cache.compile(constraint))
    staying = asyncio.ensure_future(cache.compile(constraint))
    await asyncio.sleep(0)
    leaving.cancel()
    assert (await staying).key == constraint.key
    cache.close()


async def test_refusals_reach_every_caller_and_are_not_kept() -> None:
    cache = ConstraintCache()
    for _ in range(2):
        with pytest.raises(RequestError) as caught:
            await cache.compile(Constraint("regex", "(", param="regex"))
        assert caught.value.param == "regex"
    assert len(cache) == 0
    cache.close()


async def test_large_schemas_are_tried_in_a_process_of_their_own() -> None:
    cache = ConstraintCache()
    schema = {"properties": {f"p{i}": {"type": "string", "description": "x" * 40} for i in range(1_000)}}
    compiled = await cache.compile(Constraint("json_schema", schema))
    assert compiled.size > 64 << 10
    cache.close()


async def test_what_takes_too_much_is_refused_while_others_go_on() -> None:
    """Limits too small for anything stand for constraints too large for theirs."""
    cache = ConstraintCache(Limits(seconds=0.0, megabytes=1))
    schema = {"properties": {f"p{i}": {"pattern": f"^x{i}"} for i in range(8_000)}}
    hostile = asyncio.ensure_future(cache.compile(Constraint("json_schema", schema, param="p")))
    longest = 0.0
    while not hostile.done():
        before = time.perf_counter()
        await cache.compile(Constraint("json_object"))
        await asyncio.sleep(0.005)
        longest = max(longest, time.perf_counter() - before)
    with pytest.raises(RequestError) as caught:
        await hostile
    assert caught.value.code == "constraint_too_complex"
    assert "MB of memory" in caught.value.message
    assert longest < 1.0
    cache.close()
