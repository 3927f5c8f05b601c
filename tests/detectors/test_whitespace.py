"""White space without end, and the gaps that honest text and JSON have."""

from __future__ import annotations

import json
import random

import pytest

from detectors import Finding, Whitespace

RANDOM = "".join(random.Random(3).choice(" \n\t ") for _ in range(900))
DEEP = json.dumps(json.loads("[" * 40 + "1" + "]" * 40), indent=4)


def run(text: str, as_json: bool) -> list[Finding]:
    watch = Whitespace(json=as_json)
    return [*watch.feed(text), *watch.finish()]


@pytest.mark.parametrize(
    ("text", "as_json", "code", "onset"),
    [
        ('{"a": "x"' + " " * 230, True, "whitespace.inside_json", 9),
        ('{"a": ' + "\n " * 50, True, "whitespace.inside_json", 5),
        ('{"a": [1,' + RANDOM, True, "whitespace.inside_json", 9),
        ('{"a": "she said \\"no\\""' + " " * 90, True, "whitespace.inside_json", 23),
        ('{"a": "\\\\"' + "\t" * 90, True, "whitespace.inside_json", 10),
        ('{"a": 1}' + " " * 90, True, "whitespace.after_document", 8),
        ('{"a": {"b": []}}' + "\n" * 20, True, "whitespace.after_document", 16),
        ("\n" * 40, True, "whitespace.before_document", 0),
        ("[1.1]" + "\n" * 100, False, "whitespace.newlines", 5),
        ("So" + " " * 1_200, False, "whitespace.run", 2),
        ("So" + RANDOM, False, "whitespace.newlines", 2),
        ("x" + (" " * 300 + "\n| |\n") * 40, False, "whitespace.waste", 1),
    ],
)
def test_white_space_without_end_is_found_where_it_begins(text: str, as_json: bool, code: str, onset: int) -> None:
    found = run(text, as_json)
    assert [(f.code, f.severity, f.onset) for f in found] == [(code, "error", onset)]


@pytest.mark.parametrize(
    ("text", "as_json"),
    [
        (DEEP, True),
        (json.dumps({"text": "a" + " " * 400 + "b", "lines": "\\n" * 50}), True),
        ('{"a":' + " " * 40 + '"aligned"}\n', True),
        ('{"a": 1}\n\n', True),
        (" \n" * 6 + '{"a": 1}', True),
        ("| a" + " " * 200 + "| b |\n" * 20, False),
        ("Dear Sir,\n\n\n\n\n\n\nYours", False),
        ("def f():\n" + "            return 1\n" * 400, False),
        ("".join(" " * 70 + f"{i}\n" for i in range(60)), False),
    ],
)
def test_honest_gaps_pass(text: str, as_json: bool) -> None:
    assert run(text, as_json) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Hello" + " " * 500, True),
        ("Hello" + " " * 192, True),
        ("Hello" + " \n" * 30, True),
        ("Hello" + "\n" * 24, True),
        ("Hello" + "\t" * 200, True),
        ("Hello" + "\u3000" * 200, True),
        ("Hello" + " " * 100, False),
        ("Hello" + "\n" * 12, False),
        ("Hello" + " " * 500 + "world", False),
        ("| a" + " " * 120, False),
    ],
)
@pytest.mark.parametrize("size", [1, 7, 1_000])
def test_white_space_behind_the_last_word(text: str, found: bool, size: int) -> None:
    watch = Whitespace()
    early = [f for start in range(0, len(text), size) for f in watch.feed(text[start : start + size])]
    late = watch.finish()
    assert [(f.code, f.onset) for f in (*early, *late)] == ([("whitespace.trailing", 5)] if found else [])
    assert Whitespace(json=True).finish() == ()


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_an_escape_is_over_with_the_next_character(size: int) -> None:
    watch, text = Whitespace(json=True), '{"a": "x\\n"' + " " * 90
    found = [f for start in range(0, len(text), size) for f in watch.feed(text[start : start + size])]
    assert [f.code for f in found] == ["whitespace.inside_json"]


def test_a_gap_is_held_before_it_is_condemned() -> None:
    watch = Whitespace(json=True)
    assert watch.feed('{"a": 1') == ()
    for _ in range(7):
        assert watch.feed(" \n") == ()
    assert watch.doubt < 7 + 10
    assert watch.feed("}") == ()
    assert watch.doubt == 22
