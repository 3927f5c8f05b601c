"""GBNF and EBNF, as llama.cpp and xgrammar write them, translated to Lark for llguidance.

Both are grammars of characters: whatever can be read in any way is in the language. llguidance reads by tokens, the
longest first, which would lose some of those ways; so every terminal becomes a token of one character, and every
reading is followed. Line ends mean nothing: a rule begins where a name is followed by ``::=``.
"""

from __future__ import annotations

import re
from typing import Final

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


def to_lark(text: str) -> str:
    """The grammar in llguidance's Lark, with ``root`` as its start. Raises GrammarError with the line that is wrong."""
    return _Translator(text).lark()


class _Translator:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._split()
        self._at = 0
        self._names: dict[str, str] = {}
        self._defined: set[str] = set()

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

    def lark(self) -> str:
        rules: list[str] = []
        while self._at < len(self._tokens):
            kind, name = self._peek()
            if kind != "name" or self._peek(1)[0] != "arrow":
                raise self._wrong("a rule (name ::= ...)")
            if name in self._defined:
                raise GrammarError(f"the rule {name!r} stands twice")
            self._defined.add(name)
            self._at += 2
            rules.append(f"{self._name(name)}: {self._alternatives(0)}")
        missing = [name for name in self._names if name not in self._defined]
        if missing:
            raise GrammarError(f"the rule {missing[0]!r} is used, but not defined")
        if "root" not in self._defined:
            raise GrammarError("there is no rule called root")
        return f"start: {self._name('root')}\n" + "\n".join(rules) + "\n"

    def _name(self, name: str) -> str:
        return self._names.setdefault(name, f"r{len(self._names)}")

    def _alternatives(self, depth: int) -> str:
        if depth > _MOST_DEPTH:
            raise TooDeep
        out = [self._sequence(depth)]
        while self._peek()[1] == "|" and self._peek()[0] == "sign":
            self._at += 1
            out.append(self._sequence(depth))
        return " | ".join(out)

    def _sequence(self, depth: int) -> str:
        out: list[str] = []
        while True:
            kind, text = self._peek()
            if kind == "string":
                piece = self._string(text)
            elif kind == "set":
                piece = self._set(text)
            elif kind == "name" and self._peek(1)[0] != "arrow":
                piece = self._name(text)
            elif kind == "sign" and text == ".":
                piece = "/(?s:.)/"
            elif kind == "sign" and text == "(":
                self._at += 1
                inner = self._alternatives(depth + 1)
                if self._peek()[1] != ")":
                    raise self._wrong("')'")
                piece = f"({inner})"
            else:
                return " ".join(out) or '""'
            self._at += 1
            out.append(self._repeated(piece))

    def _repeated(self, piece: str) -> str:
        while True:
            kind, text = self._peek()
            if kind == "sign" and text in "*+?":
                piece = f"({piece}){text}"
            elif kind == "count":
                bounds = text[1:-1].replace(" ", "")
                if any(int(bound) > _MOST_REPEATS for bound in bounds.split(",") if bound):
                    raise TooDeep
                piece = '""' if bounds in ("0", "0,0") else f"({piece}){{{bounds}}}"
            else:
                return piece
            self._at += 1

    def _string(self, text: str) -> str:
        chars = [_terminal(char) for char in self._chars(text[1:-1])]
        return '""' if not chars else chars[0] if len(chars) == 1 else f"({' '.join(chars)})"

    def _chars(self, text: str) -> list[str]:
        return [char for char, _ in self._marked(text)]

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

    def _set(self, text: str) -> str:
        inner = text[1:-1]
        negated = inner.startswith("^")
        chars = self._marked(inner[1:] if negated else inner)
        ranges: list[str] = []
        at = 0
        while at < len(chars):
            low = chars[at][0]
            high = low
            if at + 2 < len(chars) and chars[at + 1] == ("-", False):
                high = chars[at + 2][0]
                at += 2
            if high < low:
                raise GrammarError(f"line {self._line(self._tokens[self._at][2])}: a range runs backwards")
            ranges.append(_code(low) if low == high else f"{_code(low)}-{_code(high)}")
            at += 1
        if not ranges:
            if negated:
                return "/(?s:.)/"
            raise GrammarError(f"line {self._line(self._tokens[self._at][2])}: an empty set matches nothing")
        return f"/[{'^' if negated else ''}{''.join(ranges)}]/"


def _terminal(char: str) -> str:
    return f"/{_code(char)}/"


def _code(char: str) -> str:
    if 0xD800 <= ord(char) <= 0xDFFF:
        raise GrammarError("half a surrogate pair is no character")
    return f"\\x{{{ord(char):X}}}"
