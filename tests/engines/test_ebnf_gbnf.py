"""EBNF as llama.cpp's GBNF."""

from __future__ import annotations

import pytest

from guard.constraint.regex_gbnf import Untranslatable
from guard.engines.ebnf_gbnf import ebnf_to_gbnf


@pytest.mark.parametrize(
    ("ebnf", "gbnf"),
    [
        ('root ::= "a"', 'root ::= "a"'),
        ('root ::= "a"\n  | "b"\n', 'root ::= "a" | "b"'),
        ("root ::= x_y\nx_y ::= [a-z_]+", "root ::= x-y\nx-y ::= [a-z_]+"),
        ('root ::= x_y x-y\nx_y ::= "_"\nx-y ::= "::="', 'root ::= x-y-x x-y\nx-y-x ::= "_"\nx-y ::= "::="'),
        ('root ::= ("a" | "b") {2, 3} # c "\nb ::= .', 'root ::= ( "a" | "b" ){2,3}\nb ::= .'),
        (r'root ::= "\"]" [^\]"#]*  "x"?', r'root ::= "\"]" [^\]"#]* "x"?'),
        ('_a ::= a.b\na.b ::= "x"', 'a ::= a-b\na-b ::= "x"'),
    ],
)
def test_the_same_rules(ebnf: str, gbnf: str) -> None:
    assert ebnf_to_gbnf(ebnf) == gbnf


@pytest.mark.parametrize(
    "ebnf",
    [
        'root ::= (= "a") "b"',
        'root ::= TagDispatch(("a", b))',
        '"a"',
        'root ::= "a',
        "root ::= @",
        "start: x",
        "root ::= [a",
    ],
)
def test_what_has_no_counterpart(ebnf: str) -> None:
    with pytest.raises(Untranslatable):
        ebnf_to_gbnf(ebnf)
