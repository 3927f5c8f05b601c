"""JSON and schemas while they stream: what is found and where, what leaves and when, and how an answer goes on."""

from __future__ import annotations

import itertools
import json
from typing import Any

import jsonschema_rs
import pytest

from detectors.finding import Finding
from guard.constraint.compile import compile_constraint
from guard.constraint.json_check import JsonChecker, Release
from guard.constraint.spec import Constraint

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 5},
        "age": {"type": "integer", "maximum": 150},
        "role": {"enum": ["admin", "user"]},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2, "uniqueItems": True},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
SHAPES = {
    "anyOf": [
        {
            "type": "object",
            "properties": {"kind": {"const": "circle"}, "r": {"type": "number"}},
            "required": ["kind", "r"],
            "additionalProperties": False,
        },
        {
            "type": "object",
            "properties": {"kind": {"const": "square"}, "side": {"type": "number"}},
            "required": ["kind", "side"],
            "additionalProperties": False,
        },
        {"type": "null"},
    ]
}
TREE = {
    "$defs": {"node": {"type": "object", "properties": {"v": {"type": "integer"}, "kids": {"$ref": "#/$defs/nodes"}}},
              "nodes": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
    "$ref": "#/$defs/node",
}  # fmt: skip
ANY_OBJECT = None


def checker(schema: Any, release: Release = "streaming", repairs: bool = True) -> JsonChecker:
    constraint = Constraint("json_object") if schema is ANY_OBJECT else Constraint("json_schema", schema)
    made = compile_constraint(constraint).checker(release, repairs)
    assert isinstance(made, JsonChecker)
    return made


def run(check: JsonChecker, text: str, size: int = 10**6, truncated: bool = False) -> tuple[list[Finding], str]:
    """The findings, and what had left before the end was known."""
    found: list[Finding] = []
    for at in range(0, len(text), size):
        found.extend(check.feed(text[at : at + size]))
    left = text[: check.safe]
    found.extend(check.finish(truncated))
    return found, left


def everything(schema: Any, text: str, **options: Any) -> tuple[list[Finding], JsonChecker]:
    """The same in every split, or it is wrong."""
    results = []
    for size in (1, 2, 3, 4, 7, 10**6):
        check = checker(schema, **options)
        found, left = run(check, text, size)
        results.append((found, check, left, check.safe, check.good, check.drops, check.complete))
    first = results[0]
    for other in results[1:]:
        assert (other[0], *other[2:]) == (first[0], *first[2:])
    return first[0], first[1]


@pytest.mark.parametrize(
    ("schema", "text", "code", "pointer", "good"),
    [
        (PERSON, "[1]", "schema.type", "", 0),
        (PERSON, '{"name": 1}', "schema.type", "/name", 9),
        (PERSON, '{"name": "Alexander"}', "schema.maxLength", "/name", 15),
        (PERSON, '{"nick": "A"}', "schema.additionalProperties", "", 3),
        (PERSON, '{"na": "A"}', "schema.additionalProperties", "", 4),
        (PERSON, '{"role": "adult"}', "schema.enum", "/role", 12),
        (PERSON, '{"role": "adm"}', "schema.enum", "/role", 13),
        (PERSON, '{"age": 151}', "schema.maximum", "/age", 8),
        (PERSON, '{"age": 1.5}', "schema.type", "/age", 8),
        (PERSON, '{"name": "A"}', "schema.required", "", 12),
        (PERSON, '{"tags": ["a", "b", "c"]}', "schema.maxItems", "/tags", 18),
        (PERSON, '{"tags": ["a", "a"]}', "schema.uniqueItems", "/tags", 9),
        (PERSON, '{"name": "A", "age": 1, "role": "user", "tags": [], "x"', "schema.additionalProperties", "", 50),
        (SHAPES, '{"kind": "circle", "side": 1}', "schema.additionalProperties", "", 20),
        (SHAPES, '{"kind": "square"}', "schema.required", "", 17),
        (SHAPES, '{"kind": "tri', "schema.enum", "/kind", 10),
        (SHAPES, "7", "schema.anyOf", "", 0),
        (TREE, '{"kids": [{"v": 1}, {"kids": [{"v": "x"}]}]}', "schema.type", "/kids/1/kids/0/v", 36),
        ({"type": "object", "minProperties": 1}, "{}", "schema.minProperties", "", 1),
        ({"type": "object", "maxProperties": 0}, '{"a"', "schema.maxProperties", "", 1),
        ({"type": "array", "minItems": 2}, "[1]", "schema.minItems", "", 2),
        ({"prefixItems": [{"type": "null"}], "items": False}, "[null, 1]", "schema.items", "", 5),
        ({"properties": {"a": {"not": {"type": "string"}}}}, '{"a": "x"}', "schema.not", "/a", 6),
        ({"properties": {"a": {"pattern": "^x"}}}, '{"a": "yx"}', "schema.pattern", "/a", 6),
        ({"propertyNames": {"maxLength": 2}}, '{"abc": 1}', "schema.propertyNames", "", 1),
        ({"multipleOf": 2}, "3", "schema.multipleOf", "", 0),
        ({"contains": {"type": "integer"}}, '["a"]', "schema.contains", "", 4),
        ({"oneOf": [{"type": "integer"}, {"minimum": 2}]}, "3", "schema.oneOf", "", 0),
        ({"const": {"a": [1]}}, '{"a": [2]}', "schema.const", "", 0),
        ({"items": {"const": {"a": 1}}}, '[{"a": 2}]', "schema.const", "/0", 1),
        (False, "1", "schema.false", "", 0),
        (ANY_OBJECT, "[1]", "schema.type", "", 0),
        (ANY_OBJECT, "Sure! {}", "json.invalid", "", 0),
        (ANY_OBJECT, '{{"a": 1}', "json.invalid", "", 1),
        (ANY_OBJECT, '{"a": 1,}', "json.invalid", "/a", 8),
        (ANY_OBJECT, '{"a": NaN}', "json.invalid", "/a", 6),
        (ANY_OBJECT, '{"a": 1', "json.truncated", "/a", 7),
        (ANY_OBJECT, "", "json.truncated", "", 0),
        (ANY_OBJECT, " \n ", "json.truncated", "", 3),
        (ANY_OBJECT, '{"a": 1} and so on', "json.trailing_data", "", 9),
        (ANY_OBJECT, '{"a": 1}{"b": 2}', "json.trailing_data", "", 8),
        (ANY_OBJECT, '```json\n{"a": 1}\n``` see?', "json.trailing_data", "", 21),
        (ANY_OBJECT, "```json", "json.truncated", "", 0),
        (ANY_OBJECT, '`{"a": 1}`', "json.invalid", "", 0),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_where_it_is(schema: Any, text: str, code: str, pointer: str, good: int) -> None:
    found, check = everything(schema, text)
    errors = [one for one in found if one.severity == "error"]
    assert [one.code for one in errors] == [code]
    assert errors[0].evidence["pointer"] == pointer
    assert check.good == good
    if code.startswith("schema."):
        assert errors[0].evidence["keyword"] == code.partition(".")[2]
    assert errors[0].onset <= errors[0].detected_at <= len(text)


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (PERSON, '{"name":"A","age":1}'),
        (PERSON, ' \n{ "age" : 1 ,\t"name" : "A" }\r\n '),
        (PERSON, '{"n\\u0061me": "\\u0041", "age": 1e0, "role": "\\u0061dmin"}'),
        (SHAPES, '{"r": 2, "kind": "circle"}'),
        (SHAPES, "null"),
        (TREE, '{"kids": [{"v": 1, "x": []}, {}]}'),
        ({"enum": ["😀", 1]}, '"\\ud83d\\ude00"'),
        ({"maxLength": 2}, '"\\ud83d\\ude00é"'),
        ({"type": "integer"}, "12"),
        ({"type": "integer"}, " -1.0e1 "),
        ({"type": "number", "minimum": 1}, "1e400"),
        (True, "[]"),
        ({}, '"x"'),
        (ANY_OBJECT, "{}"),
    ],
)
def test_valid_documents_are_complete(schema: Any, text: str) -> None:
    found, check = everything(schema, text)
    assert not found
    assert check.complete
    assert check.safe == check.good == len(text)


def test_a_key_that_stands_twice_is_said_and_counts_once() -> None:
    found, check = everything({**PERSON, "maxProperties": 2}, '{"name": "A", "age": 1, "age": 2}')
    assert [(one.code, one.severity, one.onset) for one in found] == [("json.duplicate_key", "warn", 24)]
    assert check.complete


def test_half_a_surrogate_pair_is_said() -> None:
    found, check = everything({"type": "object"}, '{"a": "\\ud800"}')
    assert [(one.code, one.severity) for one in found] == [("json.lone_surrogate", "warn")]
    assert check.complete


# --- what leaves -----------------------------------------------------------------------------------------------------


def test_streaming_leaves_as_it_comes() -> None:
    check = checker(PERSON)
    for text, safe in (('{"na', 4), ('me": "Al', 12), ('", "age": 1', 22), ("2", 22), ("}", 25)):
        assert not check.feed(text)
        assert check.safe == safe
    assert check.complete


def test_the_last_character_of_an_invalid_document_never_leaves() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "not": {"required": ["b"]}}
    text = '{"a": 1, "b": 2}'
    for size in (1, 4, 100):
        check = checker(schema)
        found, left = run(check, text, size)
        assert [one.code for one in found] == ["schema.not"]
        assert left == text[:-1]


def test_a_number_at_the_root_waits_for_its_end() -> None:
    check = checker({"maximum": 10})
    check.feed(" 1")
    check.feed("0")
    assert check.safe == 1
    assert not check.finish(False)
    assert check.safe == 3


def test_on_complete_nothing_leaves_before_all_is_valid() -> None:
    check = checker(PERSON, release="on_complete")
    text = '{"name": "A", "age": 1}'
    for char in text + "\n":
        assert not check.feed(char)
        assert check.safe == 0
    assert not check.finish(False)
    assert check.safe == len(text) + 1
    check = checker(PERSON, release="on_complete")
    run(check, text + " or so")
    assert check.safe == 0


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ('```json\n{"a": 1}\n```', '{"a": 1}'),
        ('\n```\r\n{"a": 1}```\n', '\n{"a": 1}'),
        ('```JSON  \n\n {"a": 1}\n', '\n {"a": 1}'),
        ('{"a": 1}\n```', '{"a": 1}\n'),
    ],
)
def test_a_fence_around_the_answer_is_taken_off(text: str, kept: str) -> None:
    found, check = everything(ANY_OBJECT, text)
    assert [(one.code, one.severity) for one in found] == [("json.fenced", "warn")]
    assert check.safe == len(text)
    left = "".join(char for at, char in enumerate(text) if not any(low <= at < high for low, high in check.drops))
    assert left == kept
    assert json.loads(left) == {"a": 1}


def test_nothing_of_a_fence_leaves_before_it_is_known_to_be_one() -> None:
    check = checker(ANY_OBJECT)
    for piece in ("`", "``js", "on"):
        check.feed(piece)
        assert check.safe == 0
    check.feed('\n{"a"')
    assert (check.safe, check.drops) == (12, [(0, 8)])


def test_without_repairs_a_fence_is_an_error() -> None:
    found, check = everything(ANY_OBJECT, '```json\n{"a": 1}\n```', repairs=False)
    assert [(one.code, one.severity) for one in found] == [("json.fenced", "error")]
    assert check.safe == 0
    found, _ = everything(ANY_OBJECT, '{"a": 1}\n```', repairs=False)
    assert [one.code for one in found] == ["json.trailing_data"]


# --- going on --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "text", "forced"),
    [
        (PERSON, "", '{"'),
        (PERSON, "[", '{"'),
        (PERSON, '{"name": "Alexander"', '","'),
        (PERSON, '{"age": 1, "n', 'ame":"'),
        (PERSON, '{"role": "a', 'dmin","'),
        (PERSON, '{"name": "A", "age": 1', ""),
        (PERSON, '{"age": 1, "tags": ["a", "b", 1', '],"'),
        (PERSON, '{"name":"A","age":1,"role":"user","tags":[],', "}"),
        (SHAPES, '{"kind": "circle", ', '"r":'),
        (SHAPES, "{", ""),
        ({"const": {"a": 1}}, "", '{"a":1}'),
        ({"type": "object", "properties": {"a": {"type": "null"}, "b": {"const": "x"}}, "required": ["a", "b"],
          "additionalProperties": False}, "", '{"a":null,"b":"x"}'),
        ({"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 2}, "[true", ","),
        ({"type": "array", "items": {"const": 7}, "minItems": 2, "maxItems": 2}, "", "[7,7]"),
        ({"type": "string", "maxLength": 0}, "", '""'),
        ({"type": "null"}, "nu", "ll"),
        ({"type": "integer"}, "", ""),
        ({}, "", ""),
    ],
)  # fmt: skip
def test_text_that_is_forced(schema: Any, text: str, forced: str) -> None:
    check = checker(schema)
    check.feed(text)
    assert check.forced() == forced


def test_an_answer_goes_on_from_its_last_good_character() -> None:
    check = checker(PERSON)
    text = '{"name": "Al", "nickname": "Bo"}'
    found, _ = run(check, text)
    assert found[0].code == "schema.additionalProperties"
    kept = text[: check.good]
    assert kept == '{"name": "Al", "'
    check.rewind()
    forced = check.forced()
    rest = forced + 'age": 3}'
    assert not check.feed(rest)
    assert not check.finish(False)
    assert check.complete
    assert json.loads(kept + rest) == {"name": "Al", "age": 3}


def test_what_follows_a_whole_document_can_be_cut_off() -> None:
    check = checker(PERSON)
    run(check, '{"name": "Al", "age": 3}\nI hope this helps!')
    assert check.complete
    check.rewind()
    assert not check.finish(False)
    assert check.forced() == ""


def test_an_answer_can_go_on_inside_a_string() -> None:
    check = checker(PERSON)
    check.feed('{"age": 1, "name": "A')
    check.rewind()
    assert not check.feed('l"}')
    assert not check.finish(False)
    assert check.expecting == "the document is complete"


def test_reasons_are_bounded() -> None:
    """Listing the errors of this one takes a minute and gigabytes at this depth."""
    schema = {
        "type": "object",
        "anyOf": [
            {"properties": {"a": {"$ref": "#"}}, "required": ["b"]},
            {"properties": {"a": {"$ref": "#"}}, "not": {"required": ["c"]}},
        ],
    }
    text = '{"a": ' * 25 + '{"c": 1}' + "}" * 25
    found, _ = run(checker(schema), text)
    assert found
    assert found[0].family == "schema"


def test_deep_documents_are_judged() -> None:
    text = '{"kids": [' * 3_000 + '{"v": 1}' + "]}" * 3_000
    found, check = checker(TREE), None
    findings, _ = run(found, text, 4_096)
    assert not findings
    assert check is None
    findings, _ = run(checker(TREE), text.replace("1", '"x"'), 4_096)
    assert [one.code for one in findings] == ["schema.type"]


HALVES = ("\\ud83d", "\\ude00", "\\ud83d\\ude00", "x", '\\"', "\\u00e9", "�")


@pytest.mark.parametrize(
    "schema",
    [
        {"enum": ["", "x"]},
        {"enum": ["�", "x�"]},
        {"const": "�x"},
        {"type": "string", "minLength": 2, "maxLength": 2},
        {"items": {"maxLength": 1}},
        {"properties": {"�": {}, "x": {}}, "additionalProperties": False},
    ],
)
def test_half_a_surrogate_pair_is_one_character_in_every_split(schema: dict[str, Any]) -> None:
    judge = jsonschema_rs.validator_for(schema, offline=True)
    for parts in itertools.product(HALVES, repeat=3):
        said = json.loads('"' + "".join(parts) + '"').encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        text, value = f'"{"".join(parts)}"', said
        if "items" in schema:
            text, value = f"[{text}]", [said]
        elif "properties" in schema:
            text, value = f"{{{text}: 1}}", {said: 1}
        found, _ = everything(schema, text)  # in every split
        assert judge.is_valid(value) == (not any(one.severity == "error" for one in found)), text


def test_a_pair_of_surrogates_is_one_character_of_what_may_still_come() -> None:
    for text, forced in (('"\\ud83d\\ude00', ""), ('"\\ud83d\\ude00x', '"'), ('"\\ude00x', '"')):
        check = checker({"type": "string", "maxLength": 2})
        check.feed(text)
        assert check.forced() == forced
