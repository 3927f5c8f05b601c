"""A regex as an automaton that reads answers as they come.

The dialect is that of Python's ``re`` on text, matched against the whole answer: classes and ``\\d \\w \\s`` mean their
Unicode members, ``.`` is anything but a line feed, ``^`` and ``$`` stand for the very ends (``$`` not for
the place before a last line feed). Laziness makes no difference to
what matches as a whole. What is no regular language is refused with its name: back references, look-around, conditions,
possessive repeats and atomic groups. A pattern that Python does not read is tried in the dialect of Rust's ``regex``
(``\\p{L}``) by grammar_check.py.

The automaton is nondeterministic and made deterministic as far as answers need it, so that no pattern takes more than
linear time, however it nests its repeats. Its size is limited: repeats with counts are written out.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from re import _compiler as sre_compiler  # type: ignore[attr-defined]
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser as sre_parser  # type: ignore[attr-defined]
from typing import Any, Final

from guard.constraint.contract import Checker
from guard.constraint.json_check import Release
from guard.constraint.limits import Limits, invalid, too_complex
from guard.constraint.spec import Constraint
from guard.constraint.text_check import TextChecker

_MOST_STATES: Final = 10_000
_MOST_KEPT: Final = 200_000
"""Transitions and members of states that are kept, some 100 bytes each; beyond them all is forgotten."""

_REFUSED: Final = {
    sre.ASSERT: "look-around",
    sre.ASSERT_NOT: "look-around",
    sre.GROUPREF: "a back reference",
    sre.GROUPREF_EXISTS: "a condition",
    sre.POSSESSIVE_REPEAT: "a possessive repeat",
    sre.ATOMIC_GROUP: "an atomic group",
}
_LEAVES: Final = frozenset({sre.LITERAL, sre.NOT_LITERAL, sre.IN, sre.ANY, sre.ANY_ALL, sre.RANGE})


class Unsupported(Exception):
    """The pattern is no regular language, or this automaton does not know it."""


class TooLarge(Exception):
    pass


class _Leaf:
    """One character of the pattern, decided by ``re`` itself."""

    __slots__ = ("_match", "_memo", "literal")

    def __init__(self, match: Callable[[str], Any], literal: str | None) -> None:
        self._match = match
        self._memo: dict[str, bool] = {}
        self.literal = literal

    def takes(self, char: str) -> bool:
        known = self._memo.get(char)
        if known is None:
            known = self._match(char) is not None
            if len(self._memo) < 4_096:
                self._memo[char] = known
        return known


class _Assertion:
    __slots__ = ("ascii", "at", "multiline")

    def __init__(self, at: Any, flags: int) -> None:
        self.at = at
        self.multiline = bool(flags & re.MULTILINE)
        self.ascii = bool(flags & re.ASCII)

    def holds(self, before: str | None, after: str | None) -> bool:
        """Between the characters ``before`` and ``after``; None is the answer's beginning and its end."""
        at = self.at
        if at is sre.AT_BEGINNING:
            return before is None or (self.multiline and before == "\n")
        if at is sre.AT_BEGINNING_STRING:
            return before is None
        if at is sre.AT_END:
            return after is None or (self.multiline and after == "\n")
        if at is sre.AT_END_STRING:
            return after is None
        boundary = self._word(before) != self._word(after)
        return boundary if at is sre.AT_BOUNDARY else not boundary

    def _word(self, char: str | None) -> bool:
        return char is not None and (char == "_" or char.isalnum()) and (not self.ascii or char.isascii())


class Automaton:
    """States are numbers. ``step[state]`` are (leaf, target); ``free[state]`` are (assertion or None, target)."""

    def __init__(self, pattern: str) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = sre_parser.parse(pattern)
        self._flags = tree.state.flags
        self._state = tree.state
        self.step: list[list[tuple[_Leaf, int]]] = []
        self.free: list[list[tuple[_Assertion | None, int]]] = []
        self._leaves: dict[str, _Leaf] = {}
        self.looks = False
        self.begin = self._new()
        self.end = self._sequence(tree, self.begin, self._flags)

    # --- building ----------------------------------------------------------------------------------------------------

    def _new(self) -> int:
        if len(self.step) >= _MOST_STATES:
            raise TooLarge
        self.step.append([])
        self.free.append([])
        return len(self.step) - 1

    def _sequence(self, items: Any, at: int, flags: int) -> int:
        for op, av in items:
            at = self._item(op, av, at, flags)
        return at

    def _item(self, op: Any, av: Any, at: int, flags: int) -> int:
        if op in _LEAVES:
            after = self._new()
            self.step[at].append((self._leaf(op, av, flags), after))
            return after
        if op is sre.SUBPATTERN:
            _, add, remove, inner = av
            return self._sequence(inner, at, (flags | add) & ~remove)
        if op is sre.BRANCH:
            after = self._new()
            for branch in av[1]:
                begin = self._new()
                self.free[at].append((None, begin))
                self.free[self._sequence(branch, begin, flags)].append((None, after))
            return after
        if op in (sre.MAX_REPEAT, sre.MIN_REPEAT):
            return self._repeat(av[0], av[1], av[2], at, flags)
        if op is sre.AT:
            after = self._new()
            self.looks = True
            self.free[at].append((_Assertion(av, flags), after))
            return after
        raise Unsupported(_REFUSED.get(op, str(op).lower()))

    def _repeat(self, least: int, most: Any, inner: Any, at: int, flags: int) -> int:
        for _ in range(least):
            at = self._sequence(inner, at, flags)
        after = self._new()
        if most is sre.MAXREPEAT:
            loop = self._new()
            self.free[at].append((None, loop))
            self.free[self._sequence(inner, loop, flags)].append((None, loop))
            self.free[loop].append((None, after))
            return after
        for _ in range(most - least):
            self.free[at].append((None, after))
            begin = self._new()
            self.free[at].append((None, begin))
            at = self._sequence(inner, begin, flags)
        self.free[at].append((None, after))
        return after

    def _leaf(self, op: Any, av: Any, flags: int) -> _Leaf:
        name = f"{op}{av}{flags}"
        leaf = self._leaves.get(name)
        if leaf is None:
            literal = chr(av) if op is sre.LITERAL and not flags & re.IGNORECASE else None
            state = sre_parser.State()
            state.str = ""
            state.flags = flags
            one = sre_parser.SubPattern(state, [(op, av)])
            leaf = self._leaves[name] = _Leaf(sre_compiler.compile(one, flags).fullmatch, literal)
        return leaf

    # --- reading -----------------------------------------------------------------------------------------------------

    def closure(self, states: frozenset[int], before: str | None, after: str | None) -> set[int]:
        seen = set(states)
        todo = list(states)
        while todo:
            for assertion, target in self.free[todo.pop()]:
                if target not in seen and (assertion is None or assertion.holds(before, after)):
                    seen.add(target)
                    todo.append(target)
        return seen


class _Dfa:
    """The states that answers have needed so far. A state is a set of automaton states before their free moves, and the
    character before it as far as assertions can see it."""

    def __init__(self, automaton: Automaton) -> None:
        self._nfa = automaton
        self._states: dict[tuple[frozenset[int], str | None], _State] = {}
        self._kept = 0
        self.begin = _State(frozenset({automaton.begin}), None)

    def _intern(self, states: frozenset[int], before: str | None) -> _State:
        if self._kept > _MOST_KEPT:
            self._states.clear()
            self.begin.next.clear()
            self._kept = 0
        seen = before if self._nfa.looks else ""
        state = self._states.get((states, seen))
        if state is None:
            state = self._states[states, seen] = _State(states, before)
            self._kept += len(states)
        return state

    def after(self, state: _State, char: str) -> _State | None:
        """The state after one more character; None where no match begins like that."""
        nfa = self._nfa
        targets: set[int] = set()
        for here in nfa.closure(state.states, state.before, char):
            for leaf, target in nfa.step[here]:
                if leaf.takes(char):
                    targets.add(target)
        found = self._intern(frozenset(targets), char) if targets else None
        if len(state.next) < 1_024:
            state.next[char] = found
            self._kept += 1
        return found

    def accepts(self, state: _State) -> bool:
        known = state.accepting
        if known is None:
            closed = self._nfa.closure(state.states, state.before, None)
            known = state.accepting = self._nfa.end in closed
        return known

    def forced(self, state: _State) -> str:
        out: list[str] = []
        while len(out) < 2_000 and not self.accepts(state):
            literals = {
                leaf.literal
                for here in self._nfa.closure(state.states, state.before, None)
                for leaf, _ in self._nfa.step[here]
            }
            only = literals.pop() if len(literals) == 1 else None
            if only is None or self._nfa.looks:
                break
            following = state.next.get(only) or self.after(state, only)
            if following is None:
                break
            out.append(only)
            state = following
        return "".join(out)


class _State:
    __slots__ = ("accepting", "before", "next", "states")

    def __init__(self, states: frozenset[int], before: str | None) -> None:
        self.states = states
        self.before = before
        self.next: dict[str, _State | None] = {}
        self.accepting: bool | None = None


_ABSENT: Final = object()


class RegexMatcher:
    def __init__(self, dfa: _Dfa) -> None:
        self._dfa = dfa
        self._state = dfa.begin

    def push(self, text: str) -> int:
        state = self._state
        for index, char in enumerate(text):
            following = state.next.get(char, _ABSENT)
            if following is _ABSENT:
                following = self._dfa.after(state, char)
            if following is None:
                self._state = state
                return index
            state = following  # type: ignore[assignment]
        self._state = state
        return len(text)

    def accepts(self) -> bool:
        return self._dfa.accepts(self._state)

    def forced(self) -> str:
        return self._dfa.forced(self._state)

    def failure(self) -> str:
        return ""


def regex_maker(constraint: Constraint, limits: Limits) -> Callable[[Release, bool], Checker]:
    pattern, param = constraint.value, constraint.param
    if len(pattern) > limits.regex_chars:
        raise too_complex(param, f"the regex has {len(pattern)} characters, and may have {limits.regex_chars}")
    try:
        dfa = _Dfa(Automaton(pattern))
    except Unsupported as error:
        raise invalid(param, f"the regex uses {error}, which cannot be checked while an answer streams") from None
    except (TooLarge, RecursionError, OverflowError, MemoryError):
        raise too_complex(param, f"the regex expands to more than {_MOST_STATES} states") from None
    except re.error as error:
        from guard.constraint.grammar_check import rust_regex_maker  # loads a native library

        return rust_regex_maker(constraint, limits, str(error))
    return lambda release, _: TextChecker(lambda: RegexMatcher(dfa), "regex", "regex", release)
