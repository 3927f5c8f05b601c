"""GBNF and EBNF, as llama.cpp and xgrammar write them, parsed.

Both are grammars of characters: whatever can be read in any way is in the language. Line ends mean nothing: a rule
begins where a name is followed by ``::=``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

_TOKEN: Final = re.compile(
    r"""(?P<space>(?:[ \t\r\n]|\#[^\n]*)+)
    |(?P<arrow>::=)
    |(?P<string>"(?:[^"\\\n]|\\.)*")
    |(?P<set>\[(?:[^\]\\\n]|\\.)*\])
    |(?P<count>\{[ ]*\d+[ ]*(?:,[ ]*\d*[ ]*)?\})
    |(?P<name>[A-Za-z_][A-Za-z0-9_-]*)
    |(?P<sign>[|()*+?.])""",
    re.VERBOSE,
)
_ESCAPE: Final = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_LETTERS: Final = {"n": "\n", "r": "\r", "t": "\t", "0": "\0"}
_MOST_DEPTH: Final = 100
_MOST_REPEATS: Final = 10_000


class GrammarError(Exception):
    pass


class TooDeep(Exception):
    pass


class Chars(Struct, frozen=True):
    """One character out of ``ranges`` (low, high), or one that is in none of them."""

    ranges: tuple[tuple[str, str], ...]
    negated: bool = False


class Rule(Struct, frozen=True):
    """A use of another rule."""

    name: str


class Sequence(Struct, frozen=True):
    items: tuple[Expression, ...]


class Choice(Struct, frozen=True):
    items: tuple[Expression, ...]


class Repeat(Struct, frozen=True):
    item: Expression
    least: int
    most: int | None


Expression = Chars | Rule | Sequence | Choice | Repeat


def parse(text: str) -> dict[str, Expression]:
    """The rules of a grammar, of which one is called root. Raises GrammarError with the line that is wrong, TooDeep."""
    return _Parser(text).rules()


def recursive_rules(rules: dict[str, Expression]) -> frozenset[str]:
    """The rules that lead to themselves, of those that root leads to."""
    reached: dict[str, set[str]] = {}
    todo = ["root"]
    while todo:
        name = todo.pop()
        if name not in reached:
            reached[name] = set(_uses(rules[name]))
            todo.extend(reached[name])
    out: set[str] = set()
    for name in reached:
        seen: set[str] = set()
        todo = list(reached[name])
        while todo and name not in seen:
            used = todo.pop()
            if used not in seen:
                seen.add(used)
                todo.extend(reached[used])
        if name in seen:
            out.add(name)
    return frozenset(out)


def _uses(expression: Expression) -> Iterator[str]:
    todo = [expression]
    while todo:
        match todo.pop():
            case Rule(name):
                yield name
            case Sequence(items) | Choice(items):
                todo.extend(items)
            case Repeat(item):
                todo.append(item)


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._split()
        self._at = 0
        self._used: dict[str, None] = {}

    def _split(self) -> list[tuple[str, str, int]]:
        tokens: list[tuple[str, str, int]] = []
        at = 0
        while at < len(self._text):
            match = _TOKEN.match(self._text, at)
            if match is None:
                raise GrammarError(f"line {self._line(at)}: {self._text[at : at + 20]!r} is nothing that a grammar has")
            if match.lastgroup != "space":
                tokens.append((match.lastgroup or "", match[0], at))
            at = match.end()
        return tokens

    def _line(self, at: int) -> int:
        return self._text.count("\n", 0, at) + 1

    def _peek(self, ahead: int = 0) -> tuple[str, str]:
        index = self._at + ahead
        return self._tokens[index][:2] if index < len(self._tokens) else ("end", "the end")

    def _wrong(self, wanted: str) -> GrammarError:
        index = min(self._at, len(self._tokens) - 1)
        line = self._line(self._tokens[index][2]) if self._tokens else 1
        return GrammarError(f"line {line}: {wanted} was expected, not {self._peek()[1]!r}")

    def rules(self) -> dict[str, Expression]:
        rules: dict[str, Expression] = {}
        while self._at < len(self._tokens):
            kind, name = self._peek()
            if kind != "name" or self._peek(1)[0] != "arrow":
                raise self._wrong("a rule (name ::= ...)")
            if name in rules:
                raise GrammarError(f"the rule {name!r} stands twice")
            self._at += 2
            rules[name] = self._alternatives(0)
        missing = [name for name in self._used if name not in rules]
        if missing:
            raise GrammarError(f"the rule {missing[0]!r} is used, but not defined")
        if "root" not in rules:
            raise GrammarError("there is no rule called root")
        return rules

    def _alternatives(self, depth: int) -> Expression:
        if depth > _MOST_DEPTH:
            raise TooDeep
        out = [self._sequence(depth)]
        while self._peek() == ("sign", "|"):
            self._at += 1
            out.append(self._sequence(depth))
        return out[0] if len(out) == 1 else Choice(tuple(out))

    def _sequence(self, depth: int) -> Expression:
        out: list[Expression] = []
        while True:
            kind, text = self._peek()
            piece: Expression
            if kind == "string":
                piece = Sequence(tuple(_just(char) for char, _ in self._marked(text[1:-1])))
            elif kind == "set":
                piece = self._set(text)
            elif kind == "name" and self._peek(1)[0] != "arrow":
                self._used.setdefault(text)
                piece = Rule(text)
            elif kind == "sign" and text == ".":
                piece = Chars((), negated=True)
            elif kind == "sign" and text == "(":
                self._at += 1
                piece = self._alternatives(depth + 1)
                if self._peek()[1] != ")":
                    raise self._wrong("')'")
            else:
                return out[0] if len(out) == 1 else Sequence(tuple(out))
            self._at += 1
            out.append(self._repeated(piece))

    def _repeated(self, piece: Expression) -> Expression:
        while True:
            kind, text = self._peek()
            if kind == "sign" and text in "*+?":
                piece = Repeat(piece, 1 if text == "+" else 0, 1 if text == "?" else None)
            elif kind == "count":
                low, comma, high = text[1:-1].replace(" ", "").partition(",")
                least = int(low)
                most = (int(high) if high else None) if comma else least
                if least > _MOST_REPEATS or (most or 0) > _MOST_REPEATS:
                    raise TooDeep
                if most is not None and most < least:
                    raise GrammarError(f"line {self._line(self._tokens[self._at][2])}: {text} is no count")
                piece = Repeat(piece, least, most)
            else:
                return piece
            self._at += 1

    def _marked(self, text: str) -> list[tuple[str, bool]]:
        """The characters, and whether each was escaped."""
        out: list[tuple[str, bool]] = []
        at = 0
        while at < len(text):
            if text[at] != "\\":
                out.append((text[at], False))
                at += 1
                continue
            match = _ESCAPE.match(text, at)
            if match is None:
                raise GrammarError(f"line {self._line(self._tokens[self._at][2])}: an escape is not whole")
            code = match[1] or match[2] or match[3]
            if code is None and match[4] in "xuU":
                raise GrammarError(f"line {self._line(self._tokens[self._at][2])}: an escape is not whole")
            if code is not None and int(code, 16) > 0x10FFFF:
                raise GrammarError(f"line {self._line(self._tokens[self._at][2])}: there is no character {match[0]}")
            out.append((chr(int(code, 16)) if code else _LETTERS.get(match[4], match[4]), True))
            at = match.end()
        return out

    def _set(self, text: str) -> Chars:
        inner = text[1:-1]
        negated = inner.startswith("^")
        chars = self._marked(inner[1:] if negated else inner)
        ranges: list[tuple[str, str]] = []
        at = 0
        while at < len(chars):
            low = high = chars[at][0]
            if at + 2 < len(chars) and chars[at + 1] == ("-", False):
                high = chars[at + 2][0]
                at += 2
            if high < low:
                raise GrammarError(f"line {self._line(self._tokens[self._at][2])}: a range runs backwards")
            ranges.append((low, high))
            at += 1
        if not ranges and not negated:
            raise GrammarError(f"line {self._line(self._tokens[self._at][2])}: an empty set matches nothing")
        return Chars(tuple(ranges), negated)


def _just(char: str) -> Chars:
    return Chars(((char, char),))
