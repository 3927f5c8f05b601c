"""What an answer goes on with after it broke its constraint, as tables; and what the engines are asked for then."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.constraint.compile import compile_constraint
from guard.constraint.contract import Checker
from guard.constraint.spec import Constraint
from guard.enforce import (
    Mend,
    Salvage,
    added_pieces,
    as_asked,
    enforceable,
    finding_of,
    is_whole,
    mend,
    proposals,
    varied,
)
from guard.enforcement import MOST_AGAIN, Enforcement
from guard.events import CONTENT, GuardEvent, Release, TextDelta
from guard.request import Sampling

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 5},
        "age": {"type": "integer", "maximum": 120},
        "ok": {"type": "boolean"},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}


def checkers(constraint: Constraint) -> Callable[[], Checker]:
    compiled = compile_constraint(constraint)
    return lambda: compiled.checker()


def schema(value: Any) -> Callable[[], Checker]:
    return checkers(Constraint("json_schema", value))


def entry(token: str, *others: str) -> dict[str, Any]:
    """``token`` was chosen; the others follow it, less and less likely."""
    top = [
        {"token": text, "logprob": -1.0 - i, "bytes": list(text.encode())} for i, text in enumerate((token, *others))
    ]
    return {"token": token, "logprob": -1.0, "bytes": list(token.encode()), "top_logprobs": top}


def said(token: str, *others: str) -> TextDelta:
    return TextDelta(0, CONTENT, token, logprobs=[entry(token, *others)])


CASES: list[tuple[str, Any, str, TextDelta | None, Mend]] = [
    ("prose for a document", PERSON, "", said("Sure"), Mend("forced", '{"')),
    ("the only key, its colon", NUMBER, "", said("Sure"), Mend("forced", '{"n":')),
    ("a wrong type", NUMBER, '{"n": ', said('"', "null", "4", "5"), Mend("proposed", "4")),
    ("a key that there is not", PERSON, '{"', said("title", "nom", "name", "age"), Mend("proposed", 'name":"')),
    ("a key that stands there", PERSON, '{"name": "x", "', said("title", "name", "age"), Mend("proposed", 'age":')),
    ("the end of a long string", PERSON, '{"name": "abcde', said("f", "g"), Mend("forced", '","')),
    ("a full object, after a number", NUMBER, '{"n": 1', said(", ", "2"), Mend("forced", "}", whole=True)),
    ("a number that goes on", NUMBER, '{"n": 1', said("x", "y", "2"), Mend("proposed", "2")),
    ("too much after the end", NUMBER, '{"n": 1}', said(" So", "\n"), Mend("whole", whole=True)),
    (
        "special tokens and halves of characters",
        PERSON,
        '{"name": "a',
        said("\n", "<|im_end|>", "�", "b"),
        Mend("proposed", "b"),
    ),
    ("white space is the last resort", NUMBER, '{"n":', said('"', " ", "\n", "7"), Mend("proposed", "7")),
    ("but better than nothing", NUMBER, '{"n":', said('"', "\n", "x"), Mend("proposed", "\n")),
    ("the valid part of a token", PERSON, '{"name": "a', said("\n", 'b"]'), Mend("proposed", 'b","')),
    ("nothing to go by", NUMBER, '{"n": ', said('"', "x"), Mend("again")),
    ("nothing at all", NUMBER, '{"n": ', None, Mend("again")),
]


@pytest.mark.parametrize(("name", "value", "text", "refused", "mended"), CASES, ids=[case[0] for case in CASES])
def test_how_a_document_goes_on(name: str, value: Any, text: str, refused: TextDelta | None, mended: Mend) -> None:
    assert mend(text, schema(value), refused, (), document=True) == mended


TEXTS: list[tuple[Constraint, str, TextDelta | None, Mend]] = [
    (Constraint("regex", r"ab-[0-9]{2}"), "", said("x"), Mend("forced", "ab-")),
    (Constraint("regex", r"[0-9]{2}x"), "1", said("a", "b", "7"), Mend("proposed", "7x")),
    (Constraint("regex", r"[0-9]+"), "12", said(" apples", "3"), Mend("whole", whole=True)),
    (Constraint("choice", ("left", "right")), "", said("The", "r"), Mend("proposed", "right")),
    (Constraint("choice", ("left", "right")), "le", said("g"), Mend("forced", "ft")),
]


@pytest.mark.parametrize(("constraint", "text", "refused", "mended"), TEXTS)
def test_how_other_answers_go_on(constraint: Constraint, text: str, refused: TextDelta | None, mended: Mend) -> None:
    assert mend(text, checkers(constraint), refused, (), document=False) == mended


def test_what_led_nowhere_is_not_put_there_again() -> None:
    refused = said('"', "4", "5")
    assert mend('{"n": ', schema(NUMBER), refused, {"4"}, document=True).added == "5"
    assert mend('{"n": ', schema(NUMBER), refused, {"4", "5"}, document=True) == Mend("again")
    assert mend("", schema(NUMBER), said("x", '{"'), {'{"n":'}, document=True).origin == "proposed"


def test_an_answer_that_was_ended_goes_on_where_it_ended() -> None:
    """The engine may have been about to say another digit, so it is asked."""
    assert mend('{"n": 1', schema(NUMBER), None, (), document=True) == Mend("again")
    assert mend('{"n": 1 ', schema(NUMBER), None, (), document=True) == Mend("forced", "}", whole=True)
    assert mend('{"name": "a', schema(PERSON), None, (), document=True) == Mend("again")


@given(st.text(alphabet='{}[]",: nameagok01.tr\n', max_size=25))
def test_what_is_added_never_breaks_the_schema(text: str) -> None:
    """Whatever stands there, and whatever is proposed."""
    new_checker = schema(PERSON)
    checker = new_checker()
    checker.feed(text)
    stands = text[: checker.good]
    mended = mend(stands, new_checker, said("Ω", '"', "1", "true", "}", "name", " "), (), document=True)
    again = new_checker()
    assert not [found for found in again.feed(stands + mended.added) if found.severity == "error"]
    if mended.whole:
        assert jsonschema_rs.is_valid(PERSON, json.loads(stands + mended.added))


# --- what an engine proposed ------------------------------------------------------------------------------------------

PROPOSED: list[tuple[str, TextDelta, list[str]]] = [
    ("one token", said("a", "b", "c"), ["b", "c"]),
    (
        "a part of it stands: others must begin like it",
        TextDelta(0, CONTENT, "b", logprobs=[entry("ab", "ac", "ad", "b")]),
        ["c", "d"],
    ),
    ("but a blank is no matter", TextDelta(0, CONTENT, '"', logprobs=[entry(' "', " 1", "2")]), ["1", "2"]),
    ("the second of two tokens", TextDelta(0, CONTENT, "b", logprobs=[entry("xa", "y"), entry("b", "c")]), ["c"]),
    ("the first of two tokens", TextDelta(0, CONTENT, "ab", logprobs=[entry("a", "y"), entry("b", "c")]), ["y"]),
    ("no log probabilities", TextDelta(0, CONTENT, "a"), []),
    ("tokens that are not the text", TextDelta(0, CONTENT, "abc", logprobs=[entry("a", "b")]), []),
    ("without alternatives", TextDelta(0, CONTENT, "a", logprobs=[{"token": "a", "logprob": -1.0}]), []),
]


@pytest.mark.parametrize(("name", "refused", "texts"), PROPOSED, ids=[case[0] for case in PROPOSED])
def test_proposals(name: str, refused: TextDelta, texts: list[str]) -> None:
    assert list(proposals(refused)) == texts


def test_the_likeliest_comes_first_in_whatever_order_they_stand() -> None:
    refused = said("a", "b", "c")
    assert refused.logprobs is not None
    refused.logprobs[0]["top_logprobs"].reverse()
    assert list(proposals(refused)) == ["b", "c"]


# --- other sampling ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "level", "seed", "temperature"),
    [
        (Sampling(temperature=0.7, seed=3), 0, 3, 0.7),
        (Sampling(temperature=0.7, seed=3), 1, 4, 0.7),
        (Sampling(temperature=0.7, seed=3), 2, 5, 1.0),
        (Sampling(temperature=1.4), 4, None, 1.5),
        (Sampling(temperature=1.9), 4, None, 1.9),
        (Sampling(), 1, None, None),
        (Sampling(), 2, None, 1.3),
        (Sampling(temperature=0.0), 1, 1, 0.3),
        (Sampling(temperature=0.0, seed=9), 2, 11, 0.6),
    ],
)
def test_sampling_varies_by_seed_and_then_by_temperature(
    asked: Sampling, level: int, seed: int | None, temperature: float | None
) -> None:
    found = varied(asked, level)
    assert found.seed == seed
    assert found.temperature == (None if temperature is None else pytest.approx(temperature))


# --- over several attempts --------------------------------------------------------------------------------------------


def nothing(text: str = "") -> Salvage:
    return Salvage([], 0, TextDelta(0, CONTENT, text) if text else None)


def test_one_place_is_given_up_after_some_tries_and_another_begins_anew() -> None:
    state = Enforcement(schema(NUMBER), 100, document=True)
    levels = []
    while state.seed('{"n": ', nothing('"'), "schema.type", 0, told=20, most=20) is not None:
        levels.append(state.sampling(Sampling(temperature=0.0), again=True, alternatives=0).seed)
    assert levels == list(range(1, MOST_AGAIN + 1))
    assert state.seed('{"n":  ', nothing('"'), "schema.type", 0, told=20, most=20) is None  # a blank is no progress
    assert state.seed('{"n": 4', nothing("x"), "json.invalid", 0, told=20, most=20) is not None


def test_more_tokens_are_asked_for_before_the_sampling_is_changed() -> None:
    state = Enforcement(schema(NUMBER), 100, document=True)
    asked = []
    told = 0
    for _ in range(4):
        assert state.seed('{"n": ', nothing('"'), "schema.type", 0, told=told, most=200) is not None
        sampling = state.sampling(Sampling(temperature=0.0), again=True, alternatives=min(state.depth, 200))
        told = sampling.top_logprobs or 0
        asked.append((told, sampling.temperature))
    assert asked == [(20, 0.0), (200, 0.0), (200, pytest.approx(0.3)), (200, pytest.approx(0.6))]


def test_the_bound_and_what_it_is_for() -> None:
    state = Enforcement(schema(NUMBER), 1, document=True)
    assert state.helps("schema.type")
    assert not state.helps("repetition.period")
    assert not state.helps("tool.bad_arguments")
    assert state.seed("", nothing("Sure"), "json.invalid", 0, told=0, most=20) is not None
    assert not state.possible
    assert state.seed('{"n":', nothing("Sure"), "json.invalid", 0, told=0, most=20) is None
    for _ in range(2):  # no engine is asked for an end
        assert state.seed('{"n": 1}', nothing("Sure"), "json.trailing_data", 0, told=0, most=20) is not None
    assert state.seed('{"n": 1}', nothing("Sure"), "json.trailing_data", 0, told=0, most=20) is None
    assert not Enforcement(schema(NUMBER), 0, document=True).helps("json.trailing_data")
    assert not Enforcement(None, 5, document=False).possible
    assert [enforceable(code) for code in ("regex.mismatch", "leak.role_marker")] == [True, False]


def test_white_space_without_end_is_cut_off_a_whole_document_and_from_nothing_else() -> None:
    state = Enforcement(schema(NUMBER), 5, document=True)
    seed = state.seed('{"n": 1}', nothing("\n\n"), "whitespace.flood", 0, told=0, most=0)
    assert seed is not None
    assert seed.mend == Mend("whole", whole=True)
    assert state.seed('{"n": ', nothing("\n\n"), "whitespace.flood", 0, told=0, most=0) is None


# --- what is told -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mended", [Mend("forced", "secret"), Mend("proposed", "secret"), Mend("again"), Mend("whole")])
def test_the_record_says_what_was_done_and_not_the_text(mended: Mend) -> None:
    found = finding_of(mended, 7)
    assert (found.code, found.severity, found.onset) == ("constraint.enforced", "info", 7)
    assert "secret" not in found.message + str(found.evidence)
    assert found.evidence["origin"] == mended.origin


def test_what_is_added_has_no_log_probabilities() -> None:
    pieces = added_pieces(2, '{"name":"')
    assert "".join(piece.text for piece in pieces) == '{"name":"'
    assert all(piece.logprobs is None and piece.token_ids is None and piece.choice == 2 for piece in pieces)


@pytest.mark.parametrize(
    ("sampling", "shown"),
    [
        (Sampling(), None),
        (Sampling(logprobs=True), []),
        (Sampling(logprobs=True, top_logprobs=2), ["a", "b"]),
    ],
)
def test_a_caller_sees_the_log_probabilities_that_it_asked_for(sampling: Sampling, shown: list[str] | None) -> None:
    release = Release(0, CONTENT, "a", logprobs=[entry("a", "b", "c")])
    events: list[GuardEvent] = [release]
    as_asked(events, sampling)
    if shown is None:
        assert release.logprobs is None
    else:
        assert release.logprobs is not None
        assert [top["token"] for top in release.logprobs[0]["top_logprobs"]] == shown


def test_whole() -> None:
    new_checker = schema(NUMBER)
    assert is_whole(' {"n": 1}\n', new_checker)
    assert not is_whole('{"n": 1', new_checker)
    assert not is_whole("", new_checker)
