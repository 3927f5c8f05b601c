"""``--where``: a small language for choosing traces, read into SQL with parameters. Pure.

    finding = 'repetition.*' and cluster = 'b'
    engine in ('a', 'b') and not (outcome = 'ok' or completion_tokens < 10)

- A condition is about one attempt and its request: a trace is chosen when one of its attempts meets all of it. So the
  example above means a repetition *on* cluster b, not one somewhere in a trace that also touched cluster b.
- Text is compared as it is, save that ``*`` stands for any text. ``finding`` holds when the attempt has one that
  matches; a bare family (``'repetition'``) means all of it.
- What is written never becomes SQL: names are looked up in FIELDS, values go along as parameters.
"""

from __future__ import annotations

import difflib
import re
from typing import Any, Final, Literal

from msgspec import Struct

Kind = Literal["text", "number", "truth", "codes"]


class WhereError(Exception):
    """``offset`` is the character of the text at which it stops making sense. As text: with that place underlined."""

    def __init__(self, message: str, text: str, offset: int) -> None:
        super().__init__(f"{message}\n  {text}\n  {' ' * offset}^")
        self.message = message
        self.offset = offset


class Condition(Struct, frozen=True):
    """``sql`` speaks of the aliases r (requests), a (attempts) and f (what an attempt's findings say)."""

    sql: str
    params: dict[str, Any]


class Field(Struct, frozen=True):
    sql: str
    kind: Kind = "text"


_REQUEST_TEXTS: Final = """
trace_id request_id model tenant policy kind protocol outcome error_code finish_reason constraint_kind verdict_format
verdict_tool_choice
"""
_REQUEST_NUMBERS: Final = """
duration_ms first_token_ms temperature top_p seed max_tokens tools prompt_tokens completion_tokens wasted_tokens
attempts_made
"""
_ATTEMPT_TEXTS: Final = """
engine dialect image cluster node precision endpoint prefix_hint tokenizer_hash template_hash action error_kind
"""

FIELDS: Final[dict[str, Field]] = {
    **{name: Field(f"r.{name}") for name in _REQUEST_TEXTS.split()},
    **{name: Field(f"r.{name}", "number") for name in _REQUEST_NUMBERS.split()},
    **{name: Field(f"r.{name}", "truth") for name in ("recovered", "stream")},
    **{name: Field(f"a.{name}") for name in _ATTEMPT_TEXTS.split()},
    **{name: Field(f"a.{name}", "number") for name in ("error_status", "cached_tokens")},
    "version": Field("a.engine_version"),
    "attempt_outcome": Field("a.outcome"),
    "concurrency": Field("a.concurrency_at_start", "number"),
    "contradiction": Field("a.contradictions", "codes"),
    "finding": Field("f.codes", "codes"),
    "severity": Field("f.severities", "codes"),
}

_TOKEN: Final = re.compile(
    r"\s*(?:(?P<number>-?\d+(?:\.\d+)?)(?![\w.])|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<text>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|(?P<sign>!=|<>|<=|>=|[=<>(),]))"
)
_ORDERS: Final = frozenset(("<", "<=", ">", ">="))
MAX_DEPTH: Final = 50


class _Token(Struct):
    kind: str
    text: str
    offset: int


def parse(text: str) -> Condition:
    """Raises WhereError."""
    return _Parser(text).whole()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens(text)
        self._at = 0
        self._depth = 0
        self._params: dict[str, Any] = {}

    def whole(self) -> Condition:
        sql = self._either()
        if self._next.kind != "end":
            raise self._wrong(f"expected 'and', 'or' or the end, and found {self._next.text!r}")
        return Condition(sql, self._params)

    # --- the grammar, one method a rule ------------------------------------------------------------------------------

    def _either(self) -> str:
        parts = [self._both()]
        while self._word("or"):
            parts.append(self._both())
        return parts[0] if len(parts) == 1 else f"({' OR '.join(parts)})"

    def _both(self) -> str:
        parts = [self._single()]
        while self._word("and"):
            parts.append(self._single())
        return parts[0] if len(parts) == 1 else f"({' AND '.join(parts)})"

    def _single(self) -> str:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._wrong(f"more than {MAX_DEPTH} conditions within each other")
        if self._word("not"):
            sql = f"NOT ({self._single()})"
        elif self._sign("("):
            sql = self._either()
            if not self._sign(")"):
                raise self._wrong("expected ')'")
        else:
            sql = self._comparison()
        self._depth -= 1
        return sql

    def _comparison(self) -> str:
        token = self._next
        if token.kind != "name":
            raise self._wrong(f"expected a field, and found {token.text or 'the end'!r}")
        field = FIELDS.get(token.text)
        if field is None:
            near = difflib.get_close_matches(token.text, FIELDS, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(FIELDS))}"
            raise self._wrong(f"there is no field {token.text!r} ({hint})")
        self._at += 1
        if self._word("in"):
            return self._one_of(field)
        if self._word("not"):
            if not self._word("in"):
                raise self._wrong("expected 'in' behind 'not'")
            return f"NOT ({self._one_of(field)})"
        sign = self._next
        if sign.kind != "sign" or sign.text in "(),":
            raise self._wrong("expected =, !=, <, <=, >, >= or in behind a field")
        self._at += 1
        if sign.text in _ORDERS:
            if field.kind != "number":
                raise WhereError(f"{token.text!r} is no number: it knows = and != only", self._text, sign.offset)
            return f"{field.sql} {sign.text} {self._value(field)}"
        equal = self._equal(field)
        return equal if sign.text == "=" else f"NOT ({equal})"

    def _one_of(self, field: Field) -> str:
        if not self._sign("("):
            raise self._wrong("expected '(' behind 'in'")
        parts = [self._equal(field)]
        while self._sign(","):
            parts.append(self._equal(field))
        if not self._sign(")"):
            raise self._wrong("expected ',' or ')'")
        return f"({' OR '.join(parts)})"

    def _equal(self, field: Field) -> str:
        token = self._next
        if self._word("null"):
            if field.kind != "number":
                raise WhereError("only numbers can be null; text that was not given is ''", self._text, token.offset)
            return f"{field.sql} IS NULL"
        if field.kind in ("number", "truth"):
            return f"{field.sql} = {self._value(field)}"
        if field.kind == "text":
            return self._like(field.sql, self._text_value())
        value = self._text_value()
        matches = self._like("c", value)
        if value and "*" not in value and "." not in value:
            matches += f" OR {self._like('c', f'{value}.*')}"
        return f"arrayExists(c -> {matches}, {field.sql})"

    # --- values ------------------------------------------------------------------------------------------------------

    def _like(self, sql: str, value: str) -> str:
        if "*" not in value:
            return f"{sql} = {self._param(value, 'String')}"
        escaped = value.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_").replace("*", "%")
        return f"{sql} LIKE {self._param(escaped, 'String')}"

    def _text_value(self) -> str:
        token = self._next
        if token.kind != "text":
            raise self._wrong(f"expected a text in quotes, and found {token.text or 'the end'!r}")
        self._at += 1
        return re.sub(r"\\(.)", r"\1", token.text[1:-1], flags=re.DOTALL)

    def _value(self, field: Field) -> str:
        token = self._next
        self._at += 1
        if field.kind == "truth":
            if token.kind == "name" and token.text.lower() in ("true", "false"):
                return self._param(token.text.lower() == "true", "Bool")
            raise WhereError(f"expected true or false, and found {token.text or 'the end'!r}", self._text, token.offset)
        if token.kind != "number":
            raise WhereError(f"expected a number, and found {token.text or 'the end'!r}", self._text, token.offset)
        return self._param(float(token.text), "Float64")

    def _param(self, value: Any, kind: str) -> str:
        name = f"w{len(self._params)}"
        self._params[name] = value
        return f"{{{name}:{kind}}}"

    # --- tokens ------------------------------------------------------------------------------------------------------

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _word(self, word: str) -> bool:
        return self._take(self._next.kind == "name" and self._next.text.lower() == word)

    def _sign(self, sign: str) -> bool:
        return self._take(self._next.kind == "sign" and self._next.text == sign)

    def _take(self, here: bool) -> bool:
        self._at += here
        return here

    def _wrong(self, message: str) -> WhereError:
        return WhereError(message, self._text, self._next.offset)


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    at = 0
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        if match is None:
            at += len(text[at:]) - len(text[at:].lstrip())
            open_ = text[at] in "'\""
            message = "a text is not closed" if open_ else f"{text[at]!r} means nothing here"
            raise WhereError(message, text, at)
        kind = match.lastgroup or ""
        said = match[kind]
        found.append(_Token(kind, "!=" if said == "<>" else said, match.start(kind)))
        at = match.end()
    found.append(_Token("end", "", len(text)))
    return found
