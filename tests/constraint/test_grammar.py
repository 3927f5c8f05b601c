"""Grammars: EBNF and GBNF against a naive reader of all readings, Lark and structural tags by example."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from detectors.finding import Finding
from guard.constraint.compile import compile_constraint
from guard.constraint.gbnf import Chars, Choice, Expression, Repeat, Rule, Sequence, parse, recursive_rules
from guard.constraint.spec import Constraint
from guard.constraint.text_check import TextChecker
from guard.request import RequestError

JSON = r"""
# as llama.cpp ships it
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
"""


def checker(text: str, syntax: str = "gbnf") -> TextChecker:
    made = compile_constraint(Constraint("grammar", text, syntax=syntax, param="grammar")).checker()
    assert isinstance(made, TextChecker)
    return made


def run(check: TextChecker, text: str, size: int = 10**6) -> list[Finding]:
    found = [one for at in range(0, len(text), size) for one in check.feed(text[at : at + size])]
    return [*found, *check.finish(False)]


class Naive:
    """Every reading of a text, by filling a table of (rule, from, to) until nothing is added."""

    def __init__(self, rules: dict[str, Expression], text: str) -> None:
        self.rules = rules
        self.text = text
        self.table: dict[tuple[str, int], set[int]] = {}
        self.grew = True
        while self.grew:
            self.grew = False
            for name in rules:
                for at in range(len(text) + 1):
                    known = self.table.setdefault((name, at), set())
                    found = self.ends(rules[name], at)
                    if not found <= known:
                        known |= found
                        self.grew = True

    def ends(self, expression: Expression, at: int) -> set[int]:
        match expression:
            case Chars(ranges, negated):
                if at == len(self.text):
                    return set()
                inside = any(low <= self.text[at] <= high for low, high in ranges)
                return {at + 1} if inside != negated else set()
            case Rule(name):
                return set(self.table.get((name, at), set()))
            case Sequence(items):
                here = {at}
                for item in items:
                    here = {end for start in here for end in self.ends(item, start)}
                return here
            case Choice(items):
                return {end for item in items for end in self.ends(item, at)}
            case Repeat(item, least, most):
                here = {at}
                for _ in range(least):
                    here = {end for start in here for end in self.ends(item, start)}
                out = set(here)
                count = least
                while here and (most is None or count < most):
                    here = {end for start in here for end in self.ends(item, start)} - (out if most is None else set())
                    out |= here
                    count += 1
                return out

    @property
    def accepts(self) -> bool:
        return len(self.text) in self.table["root", 0]


def productive(rules: dict[str, Expression]) -> bool:
    """Whether anything can be derived from root."""
    known: set[str] = set()

    def ends(expression: Expression) -> bool:
        match expression:
            case Chars():
                return True
            case Rule(name):
                return name in known
            case Sequence(items):
                return all(map(ends, items))
            case Choice(items):
                return any(map(ends, items))
            case Repeat(item, least, _):
                return least == 0 or ends(item)

    while True:
        more = {name for name in rules if name not in known and ends(rules[name])}
        if not more:
            return "root" in known
        known |= more


def grammars(rng: random.Random) -> Iterator[str]:
    names = ("root", "x", "y")

    def expression(depth: int) -> str:
        roll = rng.random()
        if depth == 0 or roll < 0.35:
            return rng.choice(('"a"', '"b"', '"ab"', "[ab]", "[^a]", '""', "[a-c]", '"é"', "."))
        if roll < 0.5:
            return rng.choice(names[1:])
        if roll < 0.7:
            return f"({expression(depth - 1)} {expression(depth - 1)})"
        if roll < 0.85:
            return f"({expression(depth - 1)} | {expression(depth - 1)})"
        return f"({expression(depth - 1)}){rng.choice('*+?')}"

    while True:
        yield "\n".join(f"{name} ::= {expression(3)}" for name in names)


@pytest.mark.parametrize("seed", range(4))
def test_every_reading_counts(seed: int) -> None:
    rng = random.Random(seed)
    verdicts = {True: 0, False: 0}
    for text, _ in zip(grammars(rng), range(40), strict=False):
        if not productive(parse(text)):
            with pytest.raises(RequestError, match="never end"):
                checker(text)
            continue
        for _ in range(6):
            answer = "".join(rng.choices("abcé", k=rng.randint(0, 6)))
            accepts = Naive(parse(text), answer).accepts
            verdicts[accepts] += 1
            for size in (1, 3, 100):
                check = checker(text)
                assert (not run(check, answer, size)) == accepts, (text, answer)
    assert min(verdicts.values()) > 20


def test_a_grammar_of_json() -> None:
    assert recursive_rules(parse(JSON)) == {"value", "object", "array"}
    for good in ('{"a": [1, -2.5e3, "x\\n\\u00e9", true, null, {}]}', "{}", '{"é": "😀"}'):
        for size in (1, 4, 100):
            assert not run(checker(JSON), good, size)
    for bad, at in (("[1]", 0), ('{"a": tru3}', 9), ('{"a" 1}', 5), ('{"a": 1', 7), ("{}}", 2), ('{"a": "\x01"}', 7)):
        for size in (1, 4, 100):
            check = checker(JSON)
            found = run(check, bad, size)
            assert [one.onset for one in found] == [at]
            assert check.good == check.safe == at


def test_what_is_forced() -> None:
    for grammar, text, forced in (
        ('root ::= "(" [a-z]+ ")"', "", "("),
        ('root ::= "yes, " ("sir" | "madam")', "y", "es, "),
        ('root ::= item\nitem ::= "<" item ">" | "x"', "<x", ">"),
        ('root ::= "é" "è"', "", "éè"),
        ('root ::= "a" "b"?', "a", ""),
    ):
        check = checker(grammar)
        check.feed(text)
        assert check.forced() == forced


def test_a_character_of_several_bytes_is_wrong_as_a_whole() -> None:
    grammar = 'root ::= ("é" root) | "x"'
    for size in (1, 2, 5):
        check = checker(grammar)
        found = run(check, "ééè", size)
        assert [(one.code, one.onset) for one in found] == [("grammar.mismatch", 2)]
        check.rewind()
        assert not check.feed("x")
        assert check.complete


def test_ambiguity_does_not_add_up() -> None:
    check = checker('root ::= word*\nword ::= [a-z ]+ | "(" word ")"')
    for _ in range(1_000):
        assert not check.feed("some words ")
    assert not check.finish(False)


@pytest.mark.parametrize(
    ("grammar", "syntax", "code", "why"),
    [
        ("root ::= x", "gbnf", "invalid_constraint", "'x' is used, but not defined"),
        ('x ::= "a"', "gbnf", "invalid_constraint", "no rule called root"),
        ('root ::= "a\n', "gbnf", "invalid_constraint", "line 1"),
        ('root ::= "a"\nroot ::= "b"', "ebnf", "invalid_constraint", "twice"),
        ('root ::= ("a"', "ebnf", "invalid_constraint", "')'"),
        ("root ::= [z-a]", "gbnf", "invalid_constraint", "backwards"),
        ("root ::= []", "gbnf", "invalid_constraint", "empty set"),
        ('root ::= "\\x4"', "gbnf", "invalid_constraint", "escape"),
        ('root ::= "a"{3,1}', "gbnf", "invalid_constraint", "no count"),
        ("root", "gbnf", "invalid_constraint", "rule"),
        ("start: B", "lark", "invalid_constraint", "B"),
        ("root ::= " + "(" * 200 + '"a"' + ")" * 200, "gbnf", "constraint_too_complex", "nests"),
        ('root ::= "a"{99999}', "gbnf", "constraint_too_complex", "repeats"),
        ('root ::= "' + "a" * 100_001 + '"', "gbnf", "constraint_too_complex", "characters"),
    ],
)
def test_refusals(grammar: str, syntax: str, code: str, why: str) -> None:
    with pytest.raises(RequestError) as caught:
        checker(grammar, syntax)
    assert (caught.value.param, caught.value.code) == ("grammar", code)
    assert why in caught.value.message


def test_lark() -> None:
    grammar = 'start: "SELECT " NAME (", " NAME)* " FROM " NAME\nNAME: /[a-z_]+/'
    for size in (1, 4, 100):
        assert not run(checker(grammar, "lark"), "SELECT a, b_c FROM t", size)
        found = run(checker(grammar, "lark"), "SELECT a b", size)
        assert [one.code for one in found] == ["grammar.mismatch"]


@pytest.mark.parametrize("name", ["chess", "arithmetic", "list"])
def test_grammars_in_the_wild(name: str) -> None:
    grammar, good, bad = WILD[name]
    for answer in good:
        assert not run(checker(grammar), answer, 4)
    for answer in bad:
        assert run(checker(grammar), answer, 4)


WILD = {
    "chess": (
        """# Specifies chess moves as a list in algebraic notation
root    ::= "1. " move " " move "\\n" ([1-9] [0-9]? ". " move " " move "\\n")+
move    ::= (pawn | nonpawn | castle) [+#]?
nonpawn ::= [NBKQR] [a-h]? [1-8]? "x"? [a-h] [1-8]
pawn    ::= ([a-h] "x")? [a-h] [1-8] ("=" [NBKQR])?
castle  ::= "O-O" "-O"?
""",
        ("1. e4 e5\n2. Nf3 Nc6\n3. O-O exd5\n",),
        ("1. e4 e5\n", "1. e9 e5\n2. a1 a2\n"),
    ),
    "arithmetic": (
        """root  ::= (expr "=" ws term "\\n")+
expr  ::= term ([-+*/] term)*
term  ::= ident | num | "(" ws expr ")" ws
ident ::= [a-z] [a-z0-9_]* ws
num   ::= [0-9]+ ws
ws    ::= [ \\t\\n]*
""",
        ("(a +3) *x_1 = 7\n", "1=2\n3 +4=(5)\n"),
        ("(a + 3 * x = 7\n", "a = 7"),
    ),
    "list": (
        'root ::= item+\n# Excludes various line breaks\nitem ::= "- " [^\\r\\n\\x0b\\x0c\\x85\\u2028\\u2029]+ "\\n"\n',
        ("- a\n- b c\n",),
        ("- a\n-b\n", "- a"),
    ),
}
