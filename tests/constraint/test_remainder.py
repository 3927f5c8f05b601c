"""The grammar of what is left behind a beginning: it takes exactly what the whole grammar takes behind it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guard.constraint.gbnf import parse
from guard.constraint.pushdown import Pushdown, PushdownMatcher
from guard.constraint.regex_gbnf import regex_to_gbnf
from guard.constraint.remainder import NoRemainder, remainder
from guard.constraint.schema_gbnf import schema_gbnf
from guard.constraint.spec import Constraint
from guard.engines.remainder import remainder_of, whole_grammar


def takes(grammar: str, text: str) -> bool:
    matcher = PushdownMatcher(Pushdown(parse(grammar)))
    return matcher.push(text) == len(text) and matcher.accepts()


PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer"},
        "tags": {"type": "array", "items": {"enum": ["a", "b\n"]}, "minItems": 1, "maxItems": 3},
        "next": {"$ref": "#"},
        "sure": {"type": ["boolean", "null"]},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
OPEN = {"type": "object", "properties": {"a": {}}, "additionalProperties": {"type": "integer"}}
DOCUMENTS: list[tuple[Any, Any, bool]] = [
    (PERSON, {"name": "Al", "age": 3}, True),
    (PERSON, {"name": "Al", "age": 3, "tags": ["a", "b\n"], "sure": None}, True),
    (PERSON, {"name": "Al", "age": 3, "next": {"name": "B", "age": -1, "sure": True}}, True),
    (PERSON, {"name": "Al"}, False),
    (PERSON, {"name": "Al", "age": 3, "more": 1}, False),
    (PERSON, {"name": "much too long", "age": 3}, False),
    (PERSON, {"name": "Al", "age": 3, "tags": []}, False),
    ({"type": "object"}, {"a": [1, {"b": '"\\é'}], "c": 1.5e3}, True),
    ({"type": "array", "items": {"type": "number"}, "maxItems": 2}, [1.5, -2], True),
    ({"type": "array", "items": {"type": "number"}, "maxItems": 2}, [1, 2, 3], False),
    ({"type": "array", "maxItems": 0}, [], True),
    (
        {"type": "object", "properties": {"a": {}}, "additionalProperties": {"type": "integer"}},
        {"a": "x", "b": 1, "c": 2},
        True,
    ),
    ({"type": "object", "properties": {"a": {}}, "additionalProperties": {"type": "integer"}}, {"b": "x"}, False),
    ({"anyOf": [{"const": 1}, {"type": "string", "pattern": "^[a-z]+$"}]}, "abc", True),
    ({"anyOf": [{"const": 1}, {"type": "string", "pattern": "^[a-z]+$"}]}, "ABC", False),
    ({"type": "object", "properties": {"a": {"type": "null"}}, "required": ["b"]}, {"b": [1], "a": None}, True),
    (True, {"any": 1}, True),
    (None, {"any": 1}, True),
    (None, [1], False),
]


@pytest.mark.parametrize(("schema", "document", "valid"), DOCUMENTS)
def test_the_grammar_of_a_schema(schema: Any, document: Any, valid: bool) -> None:
    grammar = schema_gbnf(schema)
    for text in (json.dumps(document), json.dumps(document, indent=2, ensure_ascii=False)):
        assert takes(grammar, text) == valid, text


GRAMMARS = [
    'root ::= "ab" [0-9]{2,4} (" " | "x")* end\nend ::= "." | "!" root?',
    'root ::= [^a-c\\]-]+ "\\"\\\\\\n" .',
    'root ::= "(" root? ")" | "é🙂"{1,3}',
    regex_to_gbnf(r"\d{3}-(foo|bar)+[^x]?"),
    schema_gbnf(PERSON),
]
TEXTS = [
    "ab12 x.",
    "ab1234!ab99.",
    'xyz"\\\n?',
    "((é🙂é🙂))",
    "123-foobary",
    '{"name": "A\\u00e9", "age": -30, "tags": ["a" , "b\\n"], "sure": null}',
]


@given(st.sampled_from(GRAMMARS), st.sampled_from(TEXTS), st.data())
@settings(max_examples=80)
def test_what_is_taken_behind_it_is_what_the_whole_takes(grammar: str, text: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(text)))
    rest = text[at:]
    if data.draw(st.booleans()):
        rest = data.draw(st.text(alphabet=text or "a", max_size=6))
    try:
        left = remainder(grammar, text[:at])
    except NoRemainder:
        assert not rest or not takes(grammar, text[:at] + rest)
        return
    assert takes(left, rest) == takes(grammar, text[:at] + rest)


@given(st.sampled_from(TEXTS[:5]), st.data())
@settings(max_examples=50)
def test_in_two_steps_as_in_one(text: str, data: st.DataObject) -> None:
    grammar = GRAMMARS[{0: 0, 1: 0, 2: 1, 3: 2, 4: 3}[TEXTS.index(text)]]
    first = data.draw(st.integers(0, len(text) - 1))
    second = data.draw(st.integers(first, len(text) - 1))
    twice = remainder(remainder(grammar, text[:first]), text[first:second])
    assert takes(twice, text[second:])


def test_it_stays_small() -> None:
    text = json.dumps({"name": "Alice", "age": 3, "tags": ["a", "a"], "next": {"name": "B"}})[:-2]
    assert len(remainder(schema_gbnf(PERSON), text)) < 4_000


@pytest.mark.parametrize(
    ("constraint", "beginning"),
    [
        (Constraint("json_schema", PERSON), '{"age'),
        (Constraint("json_schema", PERSON), '{"name": "A", "age": 3}'),
        (Constraint("grammar", "start: /a+/", syntax="lark"), "a"),
        (Constraint("regex", r"(?=a)a+"), "a"),
        (Constraint("structural_tag", {"structures": []}), "a"),
        (Constraint("grammar", 'root ::= root root | "a"', syntax="gbnf"), "b"),
    ],
)
def test_where_there_is_none(constraint: Constraint, beginning: str) -> None:
    assert remainder_of(constraint, beginning) is None


def test_of_every_kind() -> None:
    for constraint, beginning, rest in [
        (Constraint("json_schema", PERSON), '{"name": "', 'A", "age": 1}'),
        (Constraint("json_object"), '{"a": [', "1]}"),
        (Constraint("regex", "[a-c]{4}"), "ab", "ca"),
        (Constraint("choice", ("yes", "yellow")), "ye", "llow"),
        (Constraint("grammar", 'root ::= "x" [0-9]+', syntax="gbnf"), "x1", "23"),
        (Constraint("grammar", 'root ::= "x" [0-9]+', syntax="ebnf"), "x", "23"),
    ]:
        left = remainder_of(constraint, beginning)
        assert left is not None
        assert takes(left, rest)
        assert not takes(left, beginning + rest)


def test_a_schema_that_says_more_than_its_grammar_is_left_to_the_engine() -> None:
    assert whole_grammar(Constraint("json_schema", PERSON)) is not None
    assert whole_grammar(Constraint("json_schema", {"type": "integer", "minimum": 3})) is None
    assert whole_grammar(Constraint("json_schema", {"properties": {"a": {"not": {"type": "null"}}}})) is None
    assert whole_grammar(Constraint("structural_tag", {})) is None
