"""The reader against the standard library's, over documents, damaged documents and every way to split them."""

from __future__ import annotations

import json
import random
import sys
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guard.constraint import json_syntax
from guard.constraint.json_number import number
from guard.constraint.json_sink import ARRAY, OBJECT, Sink
from guard.constraint.json_syntax import DONE, JsonError, JsonReader

pytestmark = pytest.mark.skipif(
    str(json_syntax.__file__).endswith(".so"), reason="a compiled reader hears compiled sinks alone, and these are not"
)


class Build(Sink):
    """A sink that builds the value, and notes every event."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []
        self.open: list[Any] = []
        self.keys: list[str] = []
        self.value: Any = None

    def _put(self, value: Any) -> None:
        if not self.open:
            self.value = value
        elif isinstance(self.open[-1], dict):
            self.open[-1][self.keys.pop()] = value
        else:
            self.open[-1].append(value)

    def start(self, kind: int, at: int) -> None:
        self.events.append(("start", kind, at))
        if kind in (OBJECT, ARRAY):
            value: Any = {} if kind == OBJECT else []
            self._put(value)
            self.open.append(value)

    def text(self, piece: str, at: int) -> None:
        raise AssertionError("no string was watched")

    def key_start(self, at: int) -> None:
        self.events.append(("key_start", at))

    def key(self, key: str, at: int, end: int) -> None:
        self.events.append(("key", key, at, end))
        self.keys.append(key)

    def scalar(self, kind: int, value: Any, at: int, end: int) -> None:
        self.events.append(("scalar", kind, value, at, end))
        self._put(value)

    def comma(self, at: int) -> None:
        self.events.append(("comma", at))

    def end(self, kind: int, at: int) -> None:
        self.events.append(("end", kind, at))
        self.open.pop()


def read(pieces: list[str]) -> tuple[str, Build, int]:
    """How it went: whole, short, or wrong at an offset; and how much was used."""
    sink = Build()
    reader = JsonReader(sink)
    used = 0
    try:
        for piece in pieces:
            taken = reader.feed(piece)
            used += taken
            if taken < len(piece):
                return "trailing", sink, used
    except JsonError as error:
        return "wrong", sink, error.at
    return ("whole" if reader.finish() else "short"), sink, used


def strict(text: str) -> Any:
    def refuse(word: str) -> Any:
        raise ValueError(word)

    return json.loads(text, parse_constant=refuse)


def is_json(text: str) -> bool:
    try:
        strict(text)
    except ValueError:
        return False
    return True


def splits(text: str) -> list[list[str]]:
    return [[text], list(text), *([text[i : i + n] for i in range(0, len(text), n)] for n in (2, 3, 4))]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)
STYLES = st.sampled_from([{}, {"indent": 1}, {"separators": (",", ":")}, {"ensure_ascii": False}])


@given(VALUES, STYLES)
@settings(max_examples=150, deadline=None)
def test_documents_are_read_the_same_in_every_split(value: Any, style: dict[str, Any]) -> None:
    text = json.dumps(value, **style)
    first = None
    for pieces in splits(text):
        outcome, sink, used = read(pieces)
        assert (outcome, used) == ("whole", len(text))
        assert sink.value == value
        assert type(sink.value) is type(value)
        first = first or sink.events
        assert sink.events == first


@given(VALUES, STYLES, st.data())
@settings(max_examples=250, deadline=None)
def test_damaged_documents_are_refused_at_the_character_that_is_wrong(
    value: Any, style: dict[str, Any], data: st.DataObject
) -> None:
    text = json.dumps(value, **style)
    at = data.draw(st.integers(0, len(text)))
    damage = data.draw(
        st.sampled_from(
            ['"', "\\", ",", ":", "{", "}", "[", "]", "0", "-", ".", "e", "+", "t", "\x01", " ", "\xa0", "'", "/", "u"]
        )
    )
    cut = data.draw(st.integers(0, 1))
    text = text[:at] + damage + text[at + cut :]
    outcomes = {(outcome, used) for outcome, _, used in map(read, splits(text))}
    assert len(outcomes) == 1
    outcome, used = outcomes.pop()
    assert (outcome == "whole") == is_json(text)
    if outcome == "wrong":
        assert read([text[:used]])[0] != "wrong"
        assert read([text[: used + 1]])[0] == "wrong"


@pytest.mark.parametrize(
    "text",
    [
        "NaN", "Infinity", "-Infinity", "01", "-", "1.", ".5", "+1", "1e", "1e+", "[1,]", "{,}", '{"a":1,}', "{'a':1}",
        "tru", '"\t"', '"\\x"', '"\\u12"', "[1 2]", '{"a" 1}', "{1:2}", "nul", "True", "\ufeff1", '"a', "[", "{",
        '{"a"', '{"a":', "١",
    ],
)  # fmt: skip
def test_what_is_no_document(text: str) -> None:
    for pieces in splits(text):
        assert read(pieces)[0] != "whole"
    assert not is_json(text.removeprefix("\ufeff")) or text.startswith("\ufeff")


@pytest.mark.parametrize(
    ("text", "at"),
    [("{{", 1), ("[1,]", 3), ('{"a":tru}', 8), ("trux", 3), ("01", 1), ('"\\ud8zz"', 5), ("-a", 1), ('{"a":1.}', 7)],
)
def test_the_offset_of_an_error(text: str, at: int) -> None:
    for pieces in splits(text):
        outcome, _, used = read(pieces)
        assert (outcome, used) in (("wrong", at), ("trailing", at))


def test_what_follows_a_document_is_not_its_own() -> None:
    for text, used in (('{"a":1} x', 8), ("[]]", 2), ("12 13", 3), ('"a""b"', 3)):
        for pieces in splits(text):
            outcome, _, taken = read(pieces)
            assert (outcome, taken) == ("trailing", used)


def test_surrogates() -> None:
    for pieces in splits('"\\ud83d\\ude00 \\ud83d x \\ude00"'):
        sink = Build()
        reader = JsonReader(sink)
        for piece in pieces:
            reader.feed(piece)
        assert sink.value == "😀 \ufffd x \ufffd"
        assert reader.lone_surrogates == 2


class Listener(Build):
    """Hears strings from ``budget`` on, and where each piece of them begins."""

    def __init__(self, budget: int) -> None:
        super().__init__()
        self.reader = JsonReader(self)
        self.budget = budget
        self.heard: list[tuple[str, int]] = []

    def start(self, kind: int, at: int) -> None:
        super().start(kind, at)
        self.reader.budget = self.budget

    def text(self, piece: str, at: int) -> None:
        self.heard.append((piece, at))

    def scalar(self, kind: int, value: Any, at: int, end: int) -> None:
        super().scalar(kind, value, at, end)
        if self.reader.plain:
            self.heard.append((value, at + 1))


@pytest.mark.parametrize("budget", [-1, 0, 1, 5, 11, 12])
@pytest.mark.parametrize(("written", "said"), [("abcdefghijkl", "abcdefghijkl"), (r"abc\nd\u0065fgh", "abc\ndefgh")])
def test_a_string_is_heard_from_its_budget_on(written: str, said: str, budget: int) -> None:
    for pieces in splits(f'["{written}"]'):
        listener = Listener(budget)
        for piece in pieces:
            listener.reader.feed(piece)
        assert listener.value == [said]
        heard = "".join(piece for piece, _ in listener.heard)
        assert said.endswith(heard)
        assert len(heard) >= len(said) - max(0, budget)
        if len(pieces) > 1 and budget >= len(said):
            assert not heard
        for piece, at in listener.heard:
            assert written[at - 2] in (piece[0], "\\")


def test_depth_costs_no_stack() -> None:
    depth = 50_000
    assert depth > sys.getrecursionlimit()
    reader = JsonReader(Build())
    reader.feed("[" * depth)
    assert reader.depth == depth
    reader.feed("]" * depth)
    assert reader.mode == DONE


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("-0", 0),
        ("1.0", 1.0),
        ("1e2", 100.0),
        ("1e400", Decimal("1e400")),
        ("1e-400", Decimal("1e-400")),
        ("0e9", 0.0),
    ],
)
def test_numbers_keep_their_size(text: str, value: Any) -> None:
    assert number(text) == value
    assert isinstance(number(text), type(value))


def test_integers_longer_than_python_converts() -> None:
    text = "9" * 5_000
    assert number(text) == Decimal(text)
    assert read([text[:2_500], text[2_500:]])[0] == "whole"


def test_random_bytes_never_break_the_reader() -> None:
    rng = random.Random(7)
    for _ in range(2_000):
        text = "".join(rng.choices('{}[]",:\\u0d8 \n1e-.tfn', k=rng.randint(0, 14)))
        outcomes = {(outcome, used) for outcome, _, used in map(read, splits(text))}
        assert len(outcomes) == 1
        assert (outcomes.pop()[0] == "whole") == is_json(text), text
