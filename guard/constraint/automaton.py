"""A nondeterministic automaton over characters, made deterministic as far as answers need it.

No pattern takes more than linear time, however it nests its repeats; its size is limited, as repeats with counts are
written out. Regexes (regex_check.py) and grammars without recursion (grammar_check.py) are built into it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

MOST_STATES: Final = 10_000
_MOST_KEPT: Final = 50_000
"""Transitions and members of states that are kept, some 100 bytes each; beyond them all is forgotten."""
_MOST_FORCED: Final = 2_000


class TooLarge(Exception):
    """More than MOST_STATES states."""


class Leaf:
    """A test of one character. ``literal``: the only character that it takes, if there is one."""

    __slots__ = ("_match", "_memo", "literal")

    def __init__(self, match: Callable[[str], Any], literal: str | None) -> None:
        self._match = match
        self._memo: dict[str, bool] = {}
        self.literal = literal

    def takes(self, char: str) -> bool:
        known = self._memo.get(char)
        if known is None:
            known = bool(self._match(char))
            if len(self._memo) < 4_096:
                self._memo[char] = known
        return known


Assertion = Callable[[str | None, str | None], bool]
"""Whether a place between two characters will do; None is the answer's beginning and its end."""


class Automaton:
    """States are numbers. ``step[state]`` are (leaf, target); ``free[state]`` are (assertion or None, target).
    ``looks``: whether there are assertions."""

    def __init__(self) -> None:
        self.step: list[list[tuple[Leaf, int]]] = []
        self.free: list[list[tuple[Assertion | None, int]]] = []
        self.looks = False
        self.begin = self.state()
        self.end = self.begin

    # --- building: each takes a state and returns the one behind what it adds ----------------------------------------

    def state(self) -> int:
        if len(self.step) >= MOST_STATES:
            raise TooLarge
        self.step.append([])
        self.free.append([])
        return len(self.step) - 1

    def leaf(self, at: int, leaf: Leaf) -> int:
        after = self.state()
        self.step[at].append((leaf, after))
        return after

    def assertion(self, at: int, assertion: Assertion) -> int:
        after = self.state()
        self.looks = True
        self.free[at].append((assertion, after))
        return after

    def branch(self, at: int, branches: Sequence[Callable[[int], int]]) -> int:
        after = self.state()
        for add in branches:
            begin = self.state()
            self.free[at].append((None, begin))
            self.free[add(begin)].append((None, after))
        return after

    def repeat(self, at: int, add: Callable[[int], int], least: int, most: int | None) -> int:
        for _ in range(least):
            at = add(at)
        after = self.state()
        if most is None:
            loop = self.state()
            self.free[at].append((None, loop))
            self.free[add(loop)].append((None, loop))
            self.free[loop].append((None, after))
            return after
        for _ in range(most - least):
            self.free[at].append((None, after))
            begin = self.state()
            self.free[at].append((None, begin))
            at = add(begin)
        self.free[at].append((None, after))
        return after

    # --- reading -----------------------------------------------------------------------------------------------------

    def closure(self, states: frozenset[int], before: str | None, after: str | None) -> set[int]:
        seen = set(states)
        todo = list(states)
        while todo:
            for assertion, target in self.free[todo.pop()]:
                if target not in seen and (assertion is None or assertion(before, after)):
                    seen.add(target)
                    todo.append(target)
        return seen


class Dfa:
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
        while len(out) < _MOST_FORCED and not self.accepts(state):
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


class AutomatonMatcher:
    """A Matcher (text_check.py)."""

    def __init__(self, dfa: Dfa) -> None:
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
