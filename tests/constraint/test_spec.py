"""What a request asks of the format, in every engine's dialect."""

from __future__ import annotations

from typing import Any

import pytest

from guard.constraint.spec import Constraint, from_openai, schema
from guard.request import RequestError

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
TAG = {"type": "structural_tag", "format": {"type": "any_text"}}
OLD_TAG = {"type": "structural_tag", "structures": [], "triggers": ["<f"]}


@pytest.mark.parametrize(
    ("body", "kind", "value", "param"),
    [
        ({"response_format": {"type": "json_object"}}, "json_object", None, "response_format"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}},
            "json_schema",
            SCHEMA,
            "response_format.json_schema.schema",
        ),
        (
            {"response_format": {"type": "json_schema", "schema": SCHEMA}},
            "json_schema",
            SCHEMA,
            "response_format.schema",
        ),
        (
            {"response_format": {"type": "json_object", "schema": SCHEMA}},
            "json_schema",
            SCHEMA,
            "response_format.schema",
        ),
        ({"response_format": {"type": "json", "schema": SCHEMA}}, "json_schema", SCHEMA, "response_format.schema"),
        ({"response_format": {"type": "regex", "regex": "a+"}}, "regex", "a+", "response_format.regex"),
        (
            {"response_format": {"type": "ebnf", "ebnf": 'root ::= "a"'}},
            "grammar",
            'root ::= "a"',
            "response_format.ebnf",
        ),
        ({"response_format": TAG}, "structural_tag", TAG, "response_format"),
        ({"response_format": OLD_TAG}, "structural_tag", OLD_TAG, "response_format"),
        ({"structured_outputs": {"json": SCHEMA}}, "json_schema", SCHEMA, "structured_outputs.json"),
        (
            {"structured_outputs": {"json": '{"type": "object"}'}},
            "json_schema",
            {"type": "object"},
            "structured_outputs.json",
        ),
        ({"structured_outputs": {"regex": "a", "json": None}}, "regex", "a", "structured_outputs.regex"),
        ({"structured_outputs": {"choice": ["a", "b", "a"]}}, "choice", ("a", "b"), "structured_outputs.choice"),
        ({"structured_outputs": {"grammar": "start: /a/"}}, "grammar", "start: /a/", "structured_outputs.grammar"),
        ({"structured_outputs": {"json_object": True}}, "json_object", None, "structured_outputs.json_object"),
        ({"guided_json": SCHEMA}, "json_schema", SCHEMA, "guided_json"),
        ({"guided_json": True}, "json_schema", True, "guided_json"),
        ({"guided_regex": "x"}, "regex", "x", "guided_regex"),
        ({"guided_choice": ["x"]}, "choice", ("x",), "guided_choice"),
        ({"guided_grammar": 'root ::= "x"'}, "grammar", 'root ::= "x"', "guided_grammar"),
        ({"guided_decoding": {"regex": "x", "backend": "outlines"}}, "regex", "x", "guided_decoding.regex"),
        ({"grammar": 'root ::= "x"'}, "grammar", 'root ::= "x"', "grammar"),
        ({"json_schema": '{"type": "null"}'}, "json_schema", {"type": "null"}, "json_schema"),
        ({"regex": "x"}, "regex", "x", "regex"),
        ({"ebnf": 'root ::= "x"'}, "grammar", 'root ::= "x"', "ebnf"),
    ],
)
def test_every_dialect_is_read(body: dict[str, Any], kind: str, value: Any, param: str) -> None:
    constraint = from_openai(body)
    assert constraint is not None
    assert (constraint.kind, constraint.value, constraint.param) == (kind, value, param)


@pytest.mark.parametrize(
    "body",
    [{}, {"response_format": None}, {"response_format": {"type": "text"}}, {"structured_outputs": {}}, {"regex": None}],
)
def test_nothing_asked(body: dict[str, Any]) -> None:
    assert from_openai(body) is None


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"response_format": "json"}, "response_format"),
        ({"response_format": {}}, "response_format.type"),
        ({"response_format": {"type": "yaml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format.json_schema.schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": 1, "schema": {}}}},
            "response_format.json_schema.name",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"strict": "yes", "schema": {}}}},
            "response_format.json_schema.strict",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": []}}},
            "response_format.json_schema.schema",
        ),
        ({"response_format": {"type": "structural_tag"}}, "response_format"),
        ({"structured_outputs": {"choice": []}}, "structured_outputs.choice"),
        ({"structured_outputs": {"choice": ["a", 1]}}, "structured_outputs.choice[1]"),
        ({"structured_outputs": {"colour": "red"}}, "structured_outputs.colour"),
        ({"structured_outputs": {"json": "{"}}, "structured_outputs.json"),
        ({"guided_regex": ""}, "guided_regex"),
        ({"guided_json": 7}, "guided_json"),
        ({"guided_regex": "a", "guided_choice": ["a"]}, "guided_choice"),
        ({"structured_outputs": {"json": {}, "regex": "a"}}, "structured_outputs.regex"),
        ({"response_format": {"type": "json_object"}, "grammar": 'root ::= "a"'}, "grammar"),
    ],
)
def test_what_is_wrong_is_named_by_its_path(body: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        from_openai(body)
    assert (caught.value.param, caught.value.code) == (param, "invalid_constraint")
    assert caught.value.message.startswith(param)


def test_the_same_format_said_twice_is_one() -> None:
    wanted = from_openai(
        {
            "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"a": 1, "b": 2}}},
            "guided_json": {"b": 2, "a": 1},
        }
    )
    assert wanted is not None
    assert wanted.name == "n"


def test_keys_do_not_depend_on_order_or_name() -> None:
    one = Constraint("json_schema", {"a": {"x": 1, "y": [1, 2]}, "b": 2}, name="one", strict=False, param="here")
    same = Constraint("json_schema", {"b": 2, "a": {"y": [1, 2], "x": 1}})
    other = Constraint("json_schema", {"b": 2, "a": {"y": [2, 1], "x": 1}})
    assert one.key == same.key != other.key
    assert len(one.key) == 64
    assert Constraint("regex", "a").key != Constraint("grammar", "a", syntax="lark").key


def test_keys_of_what_few_encoders_take() -> None:
    assert Constraint("json_schema", {"maximum": 10**30}).key != Constraint("json_schema", {"maximum": 10**31}).key
    assert Constraint("json_schema", {"const": "\ud800"}).key
    deep: dict[str, Any] = {}
    for _ in range(20_000):
        deep = {"not": deep}
    with pytest.raises(RequestError) as caught:
        _ = Constraint("json_schema", deep, param="p").key
    assert (caught.value.param, caught.value.code) == ("p", "constraint_too_complex")


@pytest.mark.parametrize(
    "text", [r'{"const": "a\ud800"}', r'{"properties": {"\udc00": {}}}', r'{"enum": [["\ud83d x"]]}']
)
def test_a_schema_as_text_has_no_half_characters(text: str) -> None:
    with pytest.raises(RequestError, match="half of a surrogate pair"):
        schema(("guided_json", text))


def test_a_schema_as_text_may_escape_whole_ones() -> None:
    assert schema(("guided_json", r'{"const": "\ud83d\ude00 \\ud800"}')).value == {"const": "\U0001f600 \\ud800"}
