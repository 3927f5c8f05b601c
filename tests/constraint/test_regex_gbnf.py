"""The grammar made of a regex accepts what the regex matches, and nothing else."""

from __future__ import annotations

import re

import pytest
from llguidance import LLMatcher, LLTokenizer
from llguidance.gbnf_to_lark import gbnf_to_lark

from guard.constraint.regex_gbnf import Untranslatable, regex_to_gbnf

PATTERNS = [
    (r"\d{4}-\d{2}-\d{2}", ["2026-11-30"], ["2026-1-30", "x"]),
    (r"(yes|no)", ["yes", "no"], ["maybe", "yesno"]),
    (r"^[A-Z][a-z]+( [A-Z][a-z]+)*$", ["Ada", "Ada Lovelace"], ["ada", "Ada "]),
    (r"[^\d,-]+x?", ["abc", "ax"], ["a1", "a-b"]),
    (r'"a\\b"', ['"a\\b"'], ["a\\b"]),
    (r"\D+", ["abc"], ["a1"]),
    (r"a{2,3}b?", ["aa", "aaab"], ["a", "aaaa"]),
    (r"a{2,}", ["aa", "aaaaa"], ["a"]),
    (r"x.y", ["xay", "x]y"], ["x\ny", "xy"]),
    (r"é|\t", ["é", "\t"], ["e"]),
    (r"[\]\[^-]", ["]", "[", "^", "-"], ["\\"]),
]


@pytest.mark.parametrize(("pattern", "good", "bad"), PATTERNS)
def test_accepts_what_the_regex_matches(pattern: str, good: list[str], bad: list[str]) -> None:
    grammar = regex_to_gbnf(pattern)
    for text in good:
        assert re.fullmatch(pattern, text)
        assert _accepts(grammar, text), (grammar, text)
    for text in bad:
        assert not re.fullmatch(pattern, text)
        assert not _accepts(grammar, text), (grammar, text)


@pytest.mark.parametrize(
    "pattern", [r"a(?=b)", r"(a)\1", r"\bword", r"(?i)a", r"a(?i:b)", r"[\D1]", r"(", r"a{2000}", r"x^y"]
)
def test_says_what_it_cannot_translate(pattern: str) -> None:
    with pytest.raises(Untranslatable):
        regex_to_gbnf(pattern)


def _accepts(grammar: str, text: str) -> bool:
    matcher = LLMatcher(LLTokenizer("byte"), gbnf_to_lark(grammar))
    assert not matcher.get_error()
    return matcher.consume_tokens(list(text.encode())) and matcher.is_accepting()
