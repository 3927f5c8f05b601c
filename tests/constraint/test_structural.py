"""Structural tags: the structure as xgrammar reads it, the JSON in it as its schema says."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guard.constraint.compile import CompiledConstraint, compile_constraint
from guard.constraint.spec import Constraint
from guard.constraint.tagged_json import MARK, marked
from guard.request import RequestError

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("xgrammar") is None, reason="xgrammar is not installed (outguard[torch])"
    ),
]

PAIR = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
}
CLOSED = {**PAIR, "additionalProperties": False}
OLD = {
    "type": "structural_tag",
    "structures": [{"begin": "<tool=f>", "schema": PAIR, "end": "</tool>"}],
    "triggers": ["<tool"],
}


def json_of(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": schema}


def tag(begin: str, content: Any, end: Any) -> dict[str, Any]:
    return {"type": "tag", "begin": begin, "content": content, "end": end}


FORMATS: dict[str, Any] = {
    "triggered": OLD,
    "sequence": {"type": "sequence", "elements": [
        {"type": "any_text"}, tag("<a>", json_of(CLOSED), ["</a>", "</A>"]), {"type": "const_string", "value": "."},
    ]},
    "separated": {"type": "tags_with_separator", "separator": ",", "at_least_one": True, "tags": [
        tag("<a>", json_of({"type": "integer", "minimum": 3}), "</a>"), tag("<b>", json_of(True), "</b>"),
    ]},
    "either": {"type": "or", "elements": [
        tag("<a>", json_of(PAIR), "</a>"), tag("<a>", json_of({"type": "string"}), "</a>"),
        {"type": "sequence", "elements": [{"type": "const_string", "value": one} for one in ("<a>", '{"no')]},
    ]},
    "two": {"type": "or", "elements": [
        tag("<a>", json_of(CLOSED), "</a>"), tag("<a>", json_of({"properties": {"c": {"type": "string"}}}), "</a>"),
    ]},
    "alone": json_of(CLOSED),
    "no JSON": tag("<a>", {"type": "any_text"}, "</a>"),
}  # fmt: skip

_COMPILED: dict[str, CompiledConstraint] = {}


def compiled(name: str) -> CompiledConstraint:
    if name not in _COMPILED:
        value = FORMATS[name]
        whole = value if "structures" in value else {"type": "structural_tag", "format": value}
        _COMPILED[name] = compile_constraint(Constraint("structural_tag", whole, param="response_format"))
    return _COMPILED[name]


def run(name: str, parts: list[str], release: Any = "streaming") -> tuple[list[tuple[str, int]], int, int]:
    check = compiled(name).checker(release)
    found = [one for part in parts for one in check.feed(part)]
    before = check.safe
    found += check.finish(False)
    assert release == "streaming" or before == 0
    return [(one.code, one.onset) for one in found if one.severity == "error"], check.good, check.safe


# (format, text, the error and where)
TABLE: list[tuple[str, str, tuple[str, int] | None]] = [
    ("triggered", "free text", None),
    ("triggered", 'so <tool=f>{"b": 1, "a": 2}</tool> and on', None),
    ("triggered", '<tool=f>\n{"b": 1,\r\n\t"a": 2}\n</tool>', None),
    ("triggered", '<tool=f>{"a": 1, "b": 2, "c": "</tool>"}</tool><tool=f>{"a": 1, "b": 2}</tool>', None),
    ("triggered", '<tool=f>{"a": "x"', ("schema.type", 14)),
    ("triggered", "<tool=g>", ("grammar.mismatch", 6)),
    ("triggered", '<tool=f>{"a": 1}</tool>', ("schema.required", 15)),
    ("triggered", "<tool=f>{'a'", ("json.invalid", 9)),
    ("triggered", '<tool=f>{"a"', ("json.truncated", 12)),
    ("triggered", '<tool=f>{"a": 1, "b": 2}</tool', ("grammar.truncated", 30)),
    ("triggered", '<tool=f>{"a": 1, "b": 2} x', ("grammar.mismatch", 25)),
    ("triggered", f"text {MARK}", ("grammar.mismatch", 5)),
    ("sequence", 'Hm. <a>{"b": 1, "a": 2}</A>.', None),
    ("sequence", 'Hm. <a>{"b": 1, "a": 2, "c"', ("grammar.truncated", 27)),  # it may yet be free text
    ("separated", "<a>7</a>,<b>[1, {}]</b>,<a>3</a>", None),
    ("separated", "<a>2</a>", ("schema.minimum", 3)),
    ("separated", "<a>3 </a>", None),
    ("either", '<a>{"b": 1, "a": 2}</a>', None),
    ("either", '<a>"x"</a>', None),
    ("either", '<a>{"no', None),
    ("either", "<a>1", ("schema.type", 3)),
    ("alone", '{"b": 1, "a": 2}', None),
    ("alone", ' {"b": 1, "a": 2}\n', None),
    ("alone", '{"b": 1, "a": true}', ("schema.type", 14)),
    ("no JSON", "<a>{</a>", None),
    ("no JSON", "<b>", ("grammar.mismatch", 1)),
]


@pytest.mark.parametrize(("name", "text", "error"), TABLE)
def test_tags_and_the_json_in_them(name: str, text: str, error: tuple[str, int] | None) -> None:
    whole = run(name, [text])
    assert whole[0] == ([error] if error else [])
    for size in (1, 2, 3, 7):
        assert run(name, [text[at : at + size] for at in range(0, len(text), size)]) == whole
    if error is None:
        assert run(name, [text], "on_complete")[2] == len(text)


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(list(FORMATS)),
    st.lists(
        st.sampled_from(
            [
                "<a>",
                "</a>",
                "<tool=f>",
                "</tool>",
                '{"a": 1, "b": 2}',
                '{"a": "',
                '{"c": 1',
                '{"c": "',
                "{",
                "3",
                '"',
                "x",
                ",",
                " ",
                ".",
            ]
        )
    ),
    st.data(),
)
def test_any_split_gives_the_same(name: str, words: list[str], data: st.DataObject) -> None:
    text = "".join(words)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=6)))
    parts = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert run(name, parts) == run(name, [text])


@pytest.mark.parametrize(
    ("name", "text", "forced"),
    [
        ("triggered", "so ", ""),
        ("triggered", "so <tool", "=f>"),
        ("triggered", "<tool=f>", '{"'),
        ("triggered", '<tool=f>{"a": 1, "b": 2}', "</tool>"),
        ("alone", '{"a": 1,', '"b":'),
    ],
)
def test_what_is_forced(name: str, text: str, forced: str) -> None:
    check = compiled(name).checker()
    check.feed(text)
    assert check.forced() == forced


def test_a_document_in_a_tag_never_looks_finished_before_it_is_valid() -> None:
    check = compiled("triggered").checker()
    check.feed('<tool=f>{"a": 1, "b": "')
    assert check.safe == 22
    check = compiled("triggered").checker()
    check.feed('<tool=f>{"a": 10')
    found = check.feed("}")
    assert (found[0].code, check.safe) == ("schema.required", 16)


def test_what_a_bad_tag_says() -> None:
    refuse: Callable[[Any], Any] = lambda value: compile_constraint(Constraint("structural_tag", value, param="p"))  # noqa: E731
    with pytest.raises(RequestError) as caught:
        refuse({"format": {"type": "nothing"}})
    assert (caught.value.param, caught.value.code) == ("p", "invalid_constraint")
    with pytest.raises(RequestError) as caught:
        refuse({"format": tag("<a>", json_of({"type": "nothing"}), "</a>")})
    assert (caught.value.param, caught.value.code) == ("p", "invalid_constraint")


def test_marks_stand_where_schemas_did() -> None:
    plain, schemas, before = marked(FORMATS["sequence"])
    assert schemas == [(CLOSED, "json")]
    assert before == {">", "."}
    assert plain["elements"][0]["excludes"] == [MARK]
    _, tagged, _ = marked({"type": "json_schema", "json_schema": {}, "style": "qwen_xml"})
    assert tagged == [({}, "qwen_xml")]
    other, none, _ = marked({"type": "json_schema", "json_schema": {}, "style": "gemma"})
    assert (other["any_order"], none) == (True, [])


# --- JSON that is written as tags -------------------------------------------------------------------------------------

CALL = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 20},
        "unit": {"enum": ["c", "f"]},
        "days": {"type": "integer", "minimum": 1},
        "box": {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False},
        "any": {},
        "note": {"type": ["string", "null"]},
    },
    "required": ["city"],
    "additionalProperties": False,
}
STYLED = {
    "qwen_xml": ("<parameter={}>", "</parameter>"),
    "minimax_xml": ('<parameter name="{}">', "</parameter>"),
    "deepseek_xml": ('<｜DSML｜parameter name="{}" string="{s}">', "</｜DSML｜parameter>"),
    "deepseek_v4_1_xml": ('<｜DSML｜ parameter name="{}" string="{s}">', "</｜DSML｜ parameter>"),
    "glm_xml": ("<arg_key>{}</arg_key>\n<arg_value>", "</arg_value>"),
    "kimi_k3_xml": ('<|open|>argument key="{}" type="{t}"<|sep|>', "<|close|>argument<|sep|>"),
}
for _style in STYLED:
    FORMATS[_style] = {
        "type": "triggered_tags",
        "triggers": ["<f>"],
        "tags": [tag("<f>\n", {**json_of(CALL), "style": _style}, "\n</f>")],
    }


def tagged(style: str, key: str, raw: str, *, is_text: bool) -> str:
    opening, closing = STYLED[style]
    begun = opening.replace("{s}", "true" if is_text else "false").replace("{t}", "string" if is_text else "number")
    return begun.replace("{}", key) + raw + closing


def written(style: str, *arguments: tuple[str, str]) -> str:
    told = [(key, raw, raw[:1] not in "[{0123456789" and raw not in ("null", "true")) for key, raw in arguments]
    return "\n".join(tagged(style, key, raw, is_text=is_text) for key, raw, is_text in told)


def written_by(style: str, value: Any) -> str | None:
    """None for what cannot be written like this."""
    if not isinstance(value, dict):
        return None
    out = []
    for key, one in value.items():
        raw = one if isinstance(one, str) else json.dumps(one, ensure_ascii=False)
        if STYLED[style][1] in raw or any(char in key for char in '<>"\n'):
            return None
        out.append(tagged(style, key, raw, is_text=isinstance(one, str)))
    return "\n".join(out)


# (arguments, what stands behind them, the code of the error)
TAGGED: list[tuple[list[tuple[str, str]], str, str]] = [
    ([("city", "Oslo")], "\n</f>", ""),
    ([("days", "3"), ("unit", "c"), ("city", "Oslo")], "\n</f>", ""),
    ([("city", "Oslo")], "\n \n\n</f> and on", ""),
    ([("city", 'a "x" \\<b></ \t\n</pa')], "\n</f>", ""),
    ([("city", "Oslo"), ("box", '{"a": "x"}'), ("any", "[1]")], "\n</f>", ""),
    ([("city", "Oslo"), ("note", "null"), ("any", "true")], "\n</f>", ""),
    ([("city", "12"), ("note", "12")], "\n</f>", ""),
    ([], "\n</f>", "schema.required"),
    ([("days", "3")], "\n</f>", "schema.required"),
    ([("city", "Oslo"), ("days", "0")], "\n</f>", "schema.minimum"),
    ([("city", "Oslo"), ("days", "1.5")], "\n</f>", "schema.type"),
    ([("city", "Oslo"), ("days", "x")], "\n</f>", "json.invalid"),
    ([("city", "Oslo"), ("unit", "k")], "\n</f>", "schema.enum"),
    ([("city", "Oslo"), ("town", "x")], "\n</f>", "schema.additionalProperties"),
    ([("city", "Oslo"), ("box", '{"a": 1}')], "\n</f>", "schema.type"),
    ([("city", "a" * 21)], "\n</f>", "schema.maxLength"),
    ([("city", "Oslo")], "", "grammar.truncated"),
    ([("city", "Oslo")], "</f>", "grammar.mismatch"),
]


@pytest.mark.parametrize("style", sorted(STYLED))
@pytest.mark.parametrize(("arguments", "behind", "code"), TAGGED)
def test_arguments_written_as_tags_are_judged_as_json_is(
    style: str, arguments: list[tuple[str, str]], behind: str, code: str
) -> None:
    if arguments[:1] == [("city", "12")] and style.startswith(("deepseek", "kimi")):
        return  # they say themselves what is text
    text = "<f>\n" + written(style, *arguments) + behind
    whole = run(style, [text])
    codes = [one for one, _ in whole[0]]
    assert codes[:1] == ([code] if code else []) or (code == "json.invalid" and codes[0].startswith(("json", "schema")))
    for size in (1, 2, 3, 7):
        assert run(style, [text[at : at + size] for at in range(0, len(text), size)]) == whole
    good = compiled(style).checker().feed(text[: whole[1]])
    assert not [one for one in good if one.severity == "error"]


@pytest.mark.parametrize("style", sorted(STYLED))
def test_arguments_never_look_finished_before_they_are_valid(style: str) -> None:
    text = "<f>\n" + written(style, ("days", "3"))
    check = compiled(style).checker()
    check.feed(text + "\n<")
    assert check.safe < len(text)
    check.feed("/f>")
    assert check.safe < len(text)


def test_a_value_on_a_line_of_its_own_may_be_meant_without_it() -> None:
    text = "<f>\n<parameter=city>\nOslo\n</parameter><parameter=unit>\nc\n</parameter>\n</f>"
    assert run("qwen_xml", [text])[0] == []


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from(sorted(STYLED)),
    st.lists(
        st.sampled_from(
            [
                "<f>\n",
                "\n</f>",
                "K",
                "city",
                "days",
                "box",
                "any",
                "N",
                "C",
                "Oslo",
                "3",
                "\n",
                '{"a": "',
                '"}',
                "x",
                "<",
                " ",
            ]
        ),
        max_size=14,
    ),
    st.data(),
)
def test_any_split_of_tags_gives_the_same(style: str, words: list[str], data: st.DataObject) -> None:
    opening, closing = STYLED[style]
    first, last = opening.replace("{s}", "true").replace("{t}", "string").split("{}")
    text = "".join({"K": first, "N": last, "C": closing}.get(word, word) for word in words)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=6)))
    parts = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert run(style, parts) == run(style, [text])
