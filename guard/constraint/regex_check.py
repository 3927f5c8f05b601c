"""A regex as an automaton that reads answers as they come.

The dialect is that of Python's ``re`` on text, matched against the whole answer: classes and ``\\d \\w \\s`` mean their
Unicode members, ``.`` is anything but a line feed, ``^`` and ``$`` stand for the very ends (``$`` not for
the place before a last line feed). Laziness makes no difference to
what matches as a whole. What is no regular language is refused with its name: back references, look-around, conditions,
possessive repeats and atomic groups. A pattern that Python does not read is tried in the dialect of Rust's ``regex``
(``\\p{L}``) by grammar_check.py.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from functools import partial
from re import _compiler as sre_compiler  # type: ignore[attr-defined]
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser as sre_parser  # type: ignore[attr-defined]
from typing import Any, Final

from guard.constraint.automaton import MOST_STATES, Assertion, Automaton, AutomatonMatcher, Dfa, Leaf, TooLarge
from guard.constraint.contract import Checker
from guard.constraint.json_check import Release
from guard.constraint.limits import Limits, invalid, too_complex
from guard.constraint.spec import Constraint
from guard.constraint.text_check import TextChecker

_REFUSED: Final = {
    sre.ASSERT: "look-around",
    sre.ASSERT_NOT: "look-around",
    sre.GROUPREF: "a back reference",
    sre.GROUPREF_EXISTS: "a condition",
    sre.POSSESSIVE_REPEAT: "a possessive repeat",
    sre.ATOMIC_GROUP: "an atomic group",
}
_LEAVES: Final = frozenset({sre.LITERAL, sre.NOT_LITERAL, sre.IN, sre.ANY, sre.ANY_ALL, sre.RANGE})


_ALPHABETS: Final = int(re.ASCII | re.UNICODE)


class Unsupported(Exception):
    """The pattern is no regular language, or this automaton does not know it."""


class _Builder:
    """Reads a pattern as ``re`` does, which also decides for every single character of it what that matches."""

    def __init__(self, pattern: str) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = sre_parser.parse(pattern)
        self._leaves: dict[str, Leaf] = {}
        self.automaton = Automaton()
        self.automaton.end = self._sequence(tree, tree.state.flags, self.automaton.begin)

    def _sequence(self, items: Any, flags: int, at: int) -> int:
        for op, av in items:
            at = self._item(op, av, at, flags)
        return at

    def _item(self, op: Any, av: Any, at: int, flags: int) -> int:
        if op in _LEAVES:
            return self.automaton.leaf(at, self._leaf(op, av, flags))
        if op is sre.SUBPATTERN:
            _, add, remove, inner = av
            if add & _ALPHABETS:  # there is one at a time
                flags &= ~_ALPHABETS
            return self._sequence(inner, (flags | add) & ~remove, at)
        if op is sre.BRANCH:
            return self.automaton.branch(at, [partial(self._sequence, one, flags) for one in av[1]])
        if op in (sre.MAX_REPEAT, sre.MIN_REPEAT):
            least, most, inner = av
            limit = None if most is sre.MAXREPEAT else most
            return self.automaton.repeat(at, partial(self._sequence, inner, flags), least, limit)
        if op is sre.AT:
            return self.automaton.assertion(at, _assertion(av, flags))
        raise Unsupported(_REFUSED.get(op, str(op).lower()))

    def _leaf(self, op: Any, av: Any, flags: int) -> Leaf:
        name = f"{op}{av}{flags}"
        leaf = self._leaves.get(name)
        if leaf is None:
            literal = chr(av) if op is sre.LITERAL and not flags & re.IGNORECASE else None
            state = sre_parser.State()
            state.str = ""
            state.flags = flags
            one = sre_parser.SubPattern(state, [(op, av)])
            leaf = self._leaves[name] = Leaf(sre_compiler.compile(one, flags).fullmatch, literal)
        return leaf


def _assertion(at: Any, flags: int) -> Assertion:
    lines = bool(flags & re.MULTILINE)
    narrow = bool(flags & re.ASCII)

    def word(char: str | None) -> bool:
        return char is not None and (char == "_" or char.isalnum()) and (not narrow or char.isascii())

    if at is sre.AT_BEGINNING:
        return lambda before, after: before is None or (lines and before == "\n")
    if at is sre.AT_BEGINNING_STRING:
        return lambda before, after: before is None
    if at is sre.AT_END:
        return lambda before, after: after is None or (lines and after == "\n")
    if at is sre.AT_END_STRING:
        return lambda before, after: after is None
    if at is sre.AT_BOUNDARY:
        return lambda before, after: word(before) != word(after)
    if at is sre.AT_NON_BOUNDARY:
        return lambda before, after: word(before) == word(after)
    raise Unsupported(str(at).lower())


def regex_automaton(pattern: str) -> Automaton:
    """Raises re.error, Unsupported or TooLarge."""
    try:
        return _Builder(pattern).automaton
    except (RecursionError, OverflowError, MemoryError):
        raise TooLarge from None


def regex_maker(constraint: Constraint, limits: Limits) -> Callable[[Release, bool], Checker]:
    pattern, param = constraint.value, constraint.param
    if len(pattern) > limits.regex_chars:
        raise too_complex(param, f"the regex has {len(pattern)} characters, and may have {limits.regex_chars}")
    try:
        dfa = Dfa(regex_automaton(pattern))
    except Unsupported as unsupported:
        raise invalid(param, f"the regex uses {unsupported}, which cannot be checked while an answer streams") from None
    except TooLarge:
        raise too_complex(param, f"the regex expands to more than {MOST_STATES} states") from None
    except re.error as error:
        from guard.constraint.grammar_check import rust_regex_maker  # loads a native library

        return rust_regex_maker(constraint, limits, str(error))
    return lambda release, _: TextChecker(lambda: AutomatonMatcher(dfa), "regex", "regex", release)
