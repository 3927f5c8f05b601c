"""The automaton against Python's own ``re.fullmatch``."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors.finding import Finding
from guard.constraint.compile import compile_constraint
from guard.constraint.spec import Constraint
from guard.constraint.text_check import TextChecker
from guard.request import RequestError


def checker(pattern: str) -> TextChecker:
    made = compile_constraint(Constraint("regex", pattern, param="regex")).checker()
    assert isinstance(made, TextChecker)
    return made


def run(pattern: str, text: str, size: int = 10**6) -> tuple[list[Finding], TextChecker]:
    check = checker(pattern)
    found = [one for at in range(0, len(text), size) for one in check.feed(text[at : at + size])]
    found.extend(check.finish(False))
    return found, check


ATOMS = (
    "a", "b", "c", "[ab]", "[^a]", ".", "\\d", "\\w", "(?:ab)", "x?", "é", "[a-c1-3]", "\\.", "(a|b)", "(|c)", "\\s",
    "(?i:B)", "[^\\W\\d]", "(?a:\\w)", "(?a:\\W)", "(?ai:É)", "(?s:.)", "(?m:^)", "\\b", "ß", "(?i:ſ)",
)  # fmt: skip
COUNTS = ("", "", "", "*", "+", "?", "{2}", "{1,3}", "{0,2}", "{2,}", "*?", "+?", "??")
PATTERNS = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3).map("".join)
        | st.tuples(inner, st.sampled_from(COUNTS)).map(lambda pair: f"(?:{pair[0]}){pair[1]}")
        | st.lists(inner, min_size=2, max_size=3).map(lambda items: "(" + "|".join(items) + ")")
    ),
    max_leaves=7,
)
TEXTS = st.text(st.sampled_from("abcxé1.B \n_"), max_size=8)


@given(PATTERNS, TEXTS, st.integers(1, 4))
@settings(max_examples=500, deadline=None)
def test_an_answer_fits_where_python_says_so(pattern: str, text: str, size: int) -> None:
    found, check = run(pattern, text)
    assert (not found) == (re.fullmatch(pattern, text) is not None)
    pieces = run(pattern, text, size)
    assert (pieces[0], pieces[1].safe, pieces[1].good) == (found, check.safe, check.good)


@given(PATTERNS, TEXTS)
@settings(max_examples=200, deadline=None)
def test_what_is_forced_is_in_every_answer(pattern: str, text: str) -> None:
    if re.fullmatch(pattern, text) is None:
        return
    for cut in range(len(text) + 1):
        check = checker(pattern)
        assert not check.feed(text[:cut])
        assert text[cut:].startswith(check.forced())


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        (r"^\d{4}-\d{2}$", ("2024-01",), ("2024-1", "x2024-01", "2024-01\n")),
        (r"\A(yes|no)\Z", ("yes", "no"), ("yesno", "")),
        (r"(?s).*end", ("a\nend", "end"), ("end.",)),
        (r".*", ("", "é😀"), ("a\n",)),
        (r"\bfoo\b.*", ("foo", "foo bar"), ("foobar",)),
        (r"a\Bb", ("ab",), ("a b",)),
        (r"(?m)^a$\n^b$", ("a\nb",), ("a\n b",)),
        (r"(?i)straße", ("STRAßE", "straße"), ("strasse",)),
        (r"[\w.-]+@[\w-]+\.com", ("a.b@c-d.com",), ("a@b.org",)),
        (r"(?P<x>a)+", ("aaa",), ("",)),
        (r"\p{Lu}\p{Ll}+", ("Émile",), ("émile", "E")),
    ],
)
def test_the_dialect(pattern: str, good: tuple[str, ...], bad: tuple[str, ...]) -> None:
    for text in good:
        assert not run(pattern, text)[0], text
    for text in bad:
        assert run(pattern, text)[0], text


@pytest.mark.parametrize(
    ("pattern", "text", "code", "at", "forced"),
    [
        (r"\d{3}-\d{4}", "12a", "regex.mismatch", 2, ""),
        (r"\d{3}-\d{4}", "123", "regex.truncated", 3, "-"),
        (r"(foo|bar)baz", "foox", "regex.mismatch", 3, "baz"),
        (r"a{2}", "aaa", "regex.mismatch", 2, ""),
    ],
)
def test_what_is_wrong_is_said_where_it_is(pattern: str, text: str, code: str, at: int, forced: str) -> None:
    found, check = run(pattern, text)
    assert [(one.code, one.onset) for one in found] == [(code, at)]
    assert check.safe == check.good == at
    assert check.forced() == forced


@pytest.mark.parametrize(
    ("pattern", "code", "why"),
    [
        ("(", "invalid_constraint", "no valid regex"),
        ("[z-a]", "invalid_constraint", "no valid regex"),
        ("(?=a)b", "invalid_constraint", "look-around"),
        ("a(?<!b)", "invalid_constraint", "look-around"),
        (r"(a)\1", "invalid_constraint", "back reference"),
        ("(?>a+)b", "invalid_constraint", "atomic group"),
        ("a++b", "invalid_constraint", "possessive"),
        ("(a)?(?(1)b|c)", "invalid_constraint", "condition"),
        ("((a{1,100}){1,100}){1,100}", "constraint_too_complex", "states"),
        ("(" * 3_000 + ")" * 3_000, "constraint_too_complex", "states"),
        ("a" * 20_001, "constraint_too_complex", "characters"),
    ],
)
def test_refusals(pattern: str, code: str, why: str) -> None:
    with pytest.raises(RequestError) as caught:
        checker(pattern)
    assert (caught.value.param, caught.value.code) == ("regex", code)
    assert why in caught.value.message


def test_patterns_that_backtrack_exponentially_elsewhere_take_linear_time() -> None:
    for pattern in (r"(a+)+$", r"(a|a)*b", r"(a|aa)+$", r"(.*a){12}", r"(a*)*(a*)*b"):
        found, check = run(pattern, "a" * 5_000 + "!", 4)
        assert len(found) == 1
        assert check.good >= 5_000


def test_an_automaton_that_forgets_goes_on() -> None:
    rng = random.Random(3)
    pattern = r"[ab]*a[ab]{40}"
    text = "".join(rng.choices("ab", k=6_000))
    found, _ = run(pattern, text, 4)
    assert (not found) == (re.fullmatch(pattern, text) is not None)


def test_on_complete_holds_until_the_answer_fits() -> None:
    made = compile_constraint(Constraint("regex", "ab+")).checker("on_complete")
    made.feed("abb")
    assert made.safe == 0
    assert not made.finish(False)
    assert made.safe == 3


@pytest.mark.parametrize(
    ("choices", "text", "code", "at", "forced"),
    [
        (("red", "green", "re"), "red", "", 3, ""),
        (("red", "green", "re"), "re", "", 2, ""),
        (("red", "green", "re"), "gren", "constraint.mismatch", 3, "en"),
        (("red", "green", "re"), "redd", "constraint.mismatch", 3, ""),
        (("red", "green", "re"), "g", "constraint.truncated", 1, "reen"),
        (("", "a"), "", "", 0, ""),
    ],
)
def test_choices(choices: tuple[str, ...], text: str, code: str, at: int, forced: str) -> None:
    for size in (1, 2, 100):
        check = compile_constraint(Constraint("choice", choices)).checker()
        assert isinstance(check, TextChecker)
        found = [one for i in range(0, len(text), size) for one in check.feed(text[i : i + size])]
        found.extend(check.finish(False))
        assert [one.code for one in found] == ([code] if code else [])
        assert (check.good, check.forced()) == (at, forced)


def test_a_rewound_answer_goes_on() -> None:
    check = checker(r"(foo|bar)-\d+")
    assert check.feed("foo_1")
    check.rewind()
    assert check.forced() == "-"
    assert not check.feed("-12")
    assert not check.finish(False)
    assert check.complete
