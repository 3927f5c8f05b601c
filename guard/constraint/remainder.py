"""What is left of a grammar behind a beginning: the grammar of the remainder. Pure.

Engines start a grammar at its root, wherever in an answer they are asked to go on (llama.cpp's chat with a JSON schema
apart). So an answer that is gone on with is given the grammar of what may still come: the grammar's own rules, and a
root that stands where the answer broke off.

The beginning is read as llama.cpp reads it: a set of stacks, each what would have to follow, one character after the
other. The new root is their alternatives.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from guard.constraint.gbnf import Chars, Choice, Expression, GrammarError, Repeat, Rule, Sequence, TooDeep, parse

MOST_STACKS: Final = 200
MOST_STEPS: Final = 20_000
"""Of opening rules for one character: a grammar that leads to itself without reading anything never ends."""

Stack = tuple["Expression", "Stack"] | tuple[()]
"""What must follow, the next thing first."""


class NoRemainder(Exception):
    """The beginning is none of the grammar's, or the grammar is too much for this."""


def remainder(grammar: str, beginning: str) -> str:
    """A grammar in GBNF of what may follow ``beginning``. Raises NoRemainder."""
    try:
        rules = parse(grammar)
    except (GrammarError, TooDeep) as error:
        raise NoRemainder(str(error)) from error
    start: Stack = (Rule("root"), ())
    stacks = _opened([start], rules)
    for char in beginning:
        followed = [stack[1] for stack in stacks if stack and _takes(stack[0], char)]
        if not followed:
            raise NoRemainder("the grammar does not allow what was said")
        stacks = _opened(followed, rules)
    text = {name: _written(expression) for name, expression in rules.items()}
    alternatives = sorted({_written(Sequence(tuple(_items(stack)))) for stack in stacks})
    if alternatives == ['""']:
        raise NoRemainder("nothing may follow what was said")
    name = "root"
    while name in rules:
        name += "-again"
    own = "\n".join(f"{_renamed(rule, name)} ::= {body}" for rule, body in text.items())
    return f"root ::= {' | '.join(alternatives)}\n{own}\n".replace("\0root", name)


def _opened(stacks: Iterable[Stack], rules: dict[str, Expression]) -> list[Stack]:
    """The same, opened until each begins with a character or is empty."""
    out: dict[Stack, None] = {}
    seen: set[Stack] = set()
    todo = list(stacks)
    while todo:
        stack = todo.pop()
        if stack in seen:
            continue
        seen.add(stack)
        if len(seen) > MOST_STEPS or len(out) > MOST_STACKS:
            raise NoRemainder("the grammar can be read in too many ways")
        if not stack or isinstance(stack[0], Chars):
            out[stack] = None
            continue
        head, rest = stack
        match head:
            case Rule(name):
                todo.append((rules[name], rest))
            case Sequence(items):
                for item in reversed(items):
                    rest = (item, rest)
                todo.append(rest)
            case Choice(items):
                todo.extend((item, rest) for item in items)
            case Repeat(item, least, most):
                if most != 0:
                    again = Repeat(item, max(0, least - 1), None if most is None else most - 1)
                    todo.append((item, (again, rest)))
                if least == 0:
                    todo.append(rest)
    return list(out)


def _takes(expression: Expression, char: str) -> bool:
    return isinstance(expression, Chars) and any(a <= char <= b for a, b in expression.ranges) != expression.negated


def _items(stack: Stack) -> Iterable[Expression]:
    while stack:
        yield stack[0]
        stack = stack[1]


# --- writing ----------------------------------------------------------------------------------------------------------


def _renamed(rule: str, root: str) -> str:
    return root if rule == "root" else rule


def _written(expression: Expression) -> str:
    """In GBNF. The old root is written as a mark, because its name is taken by the new one."""
    match expression:
        case Chars():
            return _class(expression)
        case Rule(name):
            return "\0root" if name == "root" else name
        case Sequence(items):
            return _sequence(items)
        case Choice(items):
            return f"({' | '.join(map(_written, items))})"
        case Repeat(item, least, most):
            if most == 0:
                return '""'
            inner = _written(item)
            if isinstance(item, Sequence | Repeat) and inner != '""':
                inner = f"({inner})"
            sign = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((least, most))
            counted = f"{{{least},}}" if most is None else f"{{{least},{most}}}"
            return inner + (sign or counted)


def _sequence(items: Iterable[Expression]) -> str:
    parts: list[str] = []
    literal = ""
    for item in items:
        only = _literal(item)
        if only is not None:
            literal += _in_string(only)
            continue
        if literal:
            parts.append(f'"{literal}"')
            literal = ""
        written = _written(item)
        if written != '""':
            parts.append(written)
    if literal:
        parts.append(f'"{literal}"')
    return " ".join(parts) or '""'


def _literal(item: Expression) -> str | None:
    if (
        isinstance(item, Chars)
        and not item.negated
        and len(item.ranges) == 1
        and item.ranges[0][0] == item.ranges[0][1]
    ):
        return item.ranges[0][0]
    return None


def _class(chars: Chars) -> str:
    if not chars.ranges:
        return "."
    inside = "".join(_in_class(a) if a == b else f"{_in_class(a)}-{_in_class(b)}" for a, b in chars.ranges)
    return f"[{'^' if chars.negated else ''}{inside}]"


_ESCAPES: Final = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def _in_string(char: str) -> str:
    return _ESCAPES.get(char) or ("\\" + char if char in '"\\' else _plain(char))


def _in_class(char: str) -> str:
    return _ESCAPES.get(char) or (
        "\\" + char if char in "]\\" else f"\\x{ord(char):02X}" if char in "-^" else _plain(char)
    )


def _plain(char: str) -> str:
    code = ord(char)
    return char if code >= 0x20 and code != 0x7F else f"\\x{code:02X}"
