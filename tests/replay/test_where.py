"""The language of ``--where``: what it becomes, and where it points when it makes no sense."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay.where import FIELDS, WhereError, parse


@pytest.mark.parametrize(
    ("text", "sql", "values"),
    [
        ("cluster = 'b'", "a.cluster = {w0:String}", ["b"]),
        ('cluster="b"', "a.cluster = {w0:String}", ["b"]),
        ("image = 'vllm:*'", "a.image LIKE {w0:String}", ["vllm:%"]),
        ("image = '100%_*'", "a.image LIKE {w0:String}", ["100\\%\\_%"]),
        ("cluster != 'b'", "NOT (a.cluster = {w0:String})", ["b"]),
        ("cluster <> 'b'", "NOT (a.cluster = {w0:String})", ["b"]),
        ("completion_tokens >= 10", "r.completion_tokens >= {w0:Float64}", [10.0]),
        ("temperature = null", "r.temperature IS NULL", []),
        ("recovered = true", "r.recovered = {w0:Bool}", [True]),
        ("engine in ('a', 'b')", "(a.engine = {w0:String} OR a.engine = {w1:String})", ["a", "b"]),
        ("engine not in ('a')", "NOT ((a.engine = {w0:String}))", ["a"]),
        ("finding='json.invalid'", "arrayExists(c -> c = {w0:String}, f.codes)", ["json.invalid"]),
        ("finding='repetition.*'", "arrayExists(c -> c LIKE {w0:String}, f.codes)", ["repetition.%"]),
        ("finding='json'", "arrayExists(c -> c = {w0:String} OR c LIKE {w1:String}, f.codes)", ["json", "json.%"]),
        (
            "not tools > 0 and (seed = 1 or seed = 2)",
            "(NOT (r.tools > {w0:Float64}) AND (r.seed = {w1:Float64} OR r.seed = {w2:Float64}))",
            [0.0, 1.0, 2.0],
        ),
        (r"model = 'it\'s'", "r.model = {w0:String}", ["it's"]),
    ],
)
def test_what_it_becomes(text: str, sql: str, values: list[object]) -> None:
    condition = parse(text)
    assert condition.sql == sql
    assert list(condition.params.values()) == values


@pytest.mark.parametrize(
    ("text", "says", "at"),
    [
        ("", "expected a field", 0),
        ("clutser='b'", "did you mean 'cluster'", 0),
        ("model='m' and clutser='b'", "did you mean 'cluster'", 14),
        ("zzzzz='b'", "known: ", 0),
        ("model", "expected =", 5),
        ("model=", "expected a text in quotes, and found 'the end'", 6),
        ("model=m", "expected a text in quotes, and found 'm'", 6),
        ("tools='1'", "expected a number", 6),
        ("recovered=1", "expected true or false", 10),
        ("model<'m'", "knows = and != only", 5),
        ("model=null", "only numbers can be null", 6),
        ("model='m", "a text is not closed", 6),
        ("model='m' model='n'", "expected 'and', 'or' or the end", 10),
        ("(model='m'", "expected ')'", 10),
        ("model in 'm'", "expected '('", 9),
        ("model in ('m'", "expected ',' or ')'", 13),
        ("model not like 'm'", "expected 'in'", 10),
        ("model='m'; drop table requests", "';' means nothing here", 9),
        ("(" * 60 + "model='m'", "within each other", 50),
    ],
)
def test_errors_point_at_the_place(text: str, says: str, at: int) -> None:
    with pytest.raises(WhereError) as caught:
        parse(text)
    assert says in caught.value.message
    assert caught.value.offset == at
    assert str(caught.value).endswith("\n  " + " " * at + "^")


@given(st.sampled_from([n for n, f in FIELDS.items() if f.kind in ("text", "codes")]), st.text())
def test_no_value_becomes_sql(name: str, value: str) -> None:
    """Whatever stands in quotes arrives as a parameter, and the statement has only what the language has."""
    quoted = value.replace("\\", "\\\\").replace("'", "\\'")
    condition = parse(f"{name} = '{quoted}'")
    assert re.fullmatch(r"[\w. ={}:>()\-,]*", condition.sql)
    if "*" not in value:
        assert condition.params["w0"] == value


@given(st.text(max_size=60) | st.text(alphabet="model='\" ()andor<>!,1.", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        read = bool(parse(text).sql)
    except WhereError as error:
        read = 0 <= error.offset <= len(text)
    assert read
