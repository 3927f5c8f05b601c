"""A regex as a GBNF grammar, for engines that take grammars and no regexes (llama.cpp).

The grammar may be narrower than the regex, never wider where it matters: classes such as \\d mean their ASCII members.
What has no counterpart (look-around, back references, anchors inside, word boundaries, inline flags) raises
Untranslatable: the constraint is then left to the guard's own check.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

# the parser of the standard library: a second one would have to agree with it
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any, Final

MOST_REPEATS: Final = 1000
"""llama.cpp expands {m,n}; beyond this a count makes its grammar too slow."""

_CLASSES: Final = {
    sre.CATEGORY_DIGIT: "0-9",
    sre.CATEGORY_WORD: "0-9A-Za-z_",
    sre.CATEGORY_SPACE: r" \t\n\r",
}
_NEGATED: Final = {
    sre.CATEGORY_NOT_DIGIT: "0-9",
    sre.CATEGORY_NOT_WORD: "0-9A-Za-z_",
    sre.CATEGORY_NOT_SPACE: r" \t\n\r",
}
_ESCAPES: Final = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


class Untranslatable(Exception):
    """Which part of the regex has no counterpart in GBNF."""


def regex_to_gbnf(pattern: str) -> str:
    """A grammar whose whole text matches ``pattern``. Raises Untranslatable, also for what is no regex."""
    try:
        parsed = _parser.parse(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise Untranslatable(f"not a regex: {error}") from error
    if parsed.state.flags & ~re.UNICODE.value:
        raise Untranslatable("inline flags")
    return "root ::= " + (_sequence(_unanchored(list(parsed))) or '""')


def _unanchored(items: list[Any]) -> list[Any]:
    """A whole match needs no anchors at its ends."""
    while items and items[0] in ((sre.AT, sre.AT_BEGINNING), (sre.AT, sre.AT_BEGINNING_STRING)):
        items = items[1:]
    while items and items[-1] in ((sre.AT, sre.AT_END), (sre.AT, sre.AT_END_STRING)):
        items = items[:-1]
    return items


def _sequence(items: Sequence[Any]) -> str:
    parts: list[str] = []
    literal = ""
    for op, argument in items:
        if op is sre.LITERAL:
            literal += _in_string(argument)
            continue
        if literal:
            parts.append(f'"{literal}"')
            literal = ""
        translate = _RULES.get(op)
        if translate is None:
            raise Untranslatable(str(op).lower().replace("_", " "))
        parts.append(translate(argument))
    if literal:
        parts.append(f'"{literal}"')
    return " ".join(part for part in parts if part)


def _group(items: Sequence[Any]) -> str:
    return f"({_sequence(items) or chr(34) * 2})"


def _subpattern(argument: Any) -> str:
    _, added, removed, items = argument
    if added or removed:
        raise Untranslatable("inline flags")
    return _group(items)


def _branch(argument: Any) -> str:
    return "(" + " | ".join(_sequence(items) or '""' for items in argument[1]) + ")"


def _repeat(argument: Any) -> str:
    low, high, items = argument
    if low > MOST_REPEATS or (high is not sre.MAXREPEAT and high > MOST_REPEATS):
        raise Untranslatable(f"a count above {MOST_REPEATS}")
    inner = _group(items)
    if high is sre.MAXREPEAT:
        return inner + {0: "*", 1: "+"}.get(low, f"{{{low},}}")
    if (low, high) == (0, 1):
        return inner + "?"
    return inner + (f"{{{low}}}" if low == high else f"{{{low},{high}}}")


def _any(_: Any) -> str:
    return r"[^\n]"


def _not_literal(argument: int) -> str:
    return f"[^{_in_class(argument)}]"


def _in(items: Any) -> str:
    if len(items) == 1 and items[0][0] is sre.CATEGORY and items[0][1] in _NEGATED:
        return f"[^{_NEGATED[items[0][1]]}]"
    negated = items[0][0] is sre.NEGATE
    inside = "".join(_class_item(op, argument) for op, argument in items[1 if negated else 0 :])
    return f"[{'^' if negated else ''}{inside}]"


def _class_item(op: Any, argument: Any) -> str:
    if op is sre.LITERAL:
        return _in_class(argument)
    if op is sre.RANGE:
        return f"{_in_class(argument[0])}-{_in_class(argument[1])}"
    if op is sre.CATEGORY and argument in _CLASSES:
        return _CLASSES[argument]
    raise Untranslatable(f"{str(argument).lower()} among other members of a class")


def _in_string(code: int) -> str:
    char = chr(code)
    return _ESCAPES.get(char) or ("\\" + char if char in '"\\' else _plain(char))


def _in_class(code: int) -> str:
    char = chr(code)
    return _ESCAPES.get(char) or ("\\" + char if char in "]\\" else f"\\x{code:02X}" if char in "-^" else _plain(char))


def _plain(char: str) -> str:
    code = ord(char)
    return char if code >= 0x20 and code != 0x7F else f"\\x{code:02X}"


_RULES: Final[dict[Any, Callable[[Any], str]]] = {
    sre.SUBPATTERN: _subpattern,
    sre.BRANCH: _branch,
    sre.MAX_REPEAT: _repeat,
    sre.MIN_REPEAT: _repeat,
    sre.ANY: _any,
    sre.NOT_LITERAL: _not_literal,
    sre.IN: _in,
}
