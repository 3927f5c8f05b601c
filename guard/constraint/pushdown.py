"""A recogniser of context-free grammars of characters, exact for every grammar, that remembers where it has been.

Rules that lead to themselves are automata that call each other; all others are written out where they are used. What an
answer may still become is a set of places, each with the calls it must return to. Calls that return to the same places
are the same (only whether an answer fits is asked, not how), so that ambiguity does not add up, and a place that an
answer comes back to is found again: a step that was made before costs one look-up, in this answer or in another.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from guard.constraint.automaton import Automaton, Leaf, TooLarge
from guard.constraint.gbnf import Chars, Choice, Expression, GrammarError, Rule, Sequence, recursive_rules

_MOST_PLACES: Final = 2_000
"""Places that an answer may be in at once; a grammar that needs more cannot be checked in reasonable time."""
_MOST_KEPT: Final = 50_000
"""Steps and members of sets of places that are kept, some 100 bytes each; beyond them all is forgotten."""
_MOST_FORCED: Final = 2_000


class TooManyPlaces(Exception):
    pass


class Call:
    """A rule that is being read. ``returns``: where it may go on, and within which call."""

    __slots__ = ("done", "returns", "rule")

    def __init__(self, rule: int) -> None:
        self.rule = rule
        self.returns: set[tuple[int, Call]] = set()
        self.done = False


Place = tuple[int, Call]


class Config:
    """The places that an answer may be in, before free moves and calls. ``steps``: what each could read next."""

    __slots__ = ("accepting", "next", "places", "steps")

    def __init__(self, places: frozenset[Place]) -> None:
        self.places = places
        self.next: dict[str, Config | None] = {}
        self.steps: list[tuple[Leaf, int, Call]] | None = None
        self.accepting = False


class Pushdown:
    """Built once a grammar; shared by all answers. Raises TooLarge, and GrammarError where no answer fits at all."""

    def __init__(self, rules: dict[str, Expression]) -> None:
        calling = recursive_rules(rules)
        try:
            self._build(rules, calling)
        except (TooLarge, RecursionError):
            # written out it is too large: then every rule is called
            self._build(rules, frozenset(rules))
        self._prune()
        self._calls: dict[object, Call] = {}
        self._configs: dict[frozenset[Place], Config] = {}
        self._kept = 0
        self._top = Call(-1)
        self.begin = Config(frozenset({(self._root[0], self._top)}))

    # --- building ----------------------------------------------------------------------------------------------------

    def _build(self, rules: dict[str, Expression], calling: frozenset[str]) -> None:
        self._automaton = automaton = Automaton()
        numbers = {name: number for number, name in enumerate(sorted(calling))}
        writer = _Writer(automaton, rules, numbers)
        self._called = writer.called
        self._rules: list[tuple[int, int]] = []
        for name in numbers:
            begin = automaton.state()
            self._rules.append((begin, writer.add(rules[name], begin)))
        begin = automaton.state()
        self._root = (begin, writer.add(Rule("root"), begin))
        self._ends = {end: number for number, (_, end) in enumerate(self._rules)}

    def _prune(self) -> None:
        """Takes out the ways that lead to no end, so that every place that is left can still become an answer."""
        alive: set[int] = set()
        ends = [end for _, end in self._rules] + [self._root[1]]
        back: dict[int, list[tuple[int, int]]] = {}
        for state, edges in enumerate(self._automaton.step):
            for _, target in edges:
                back.setdefault(target, []).append((state, -1))
        for state, free in enumerate(self._automaton.free):
            for _, target in free:
                back.setdefault(target, []).append((state, -1))
        waiting: dict[int, list[int]] = {}
        for state, calls in self._called.items():
            for rule, target in calls:
                back.setdefault(target, []).append((state, rule))
        todo = ends
        while todo:
            state = todo.pop()
            if state in alive:
                continue
            alive.add(state)
            for rule, (begin, _) in enumerate(self._rules):
                if begin == state:
                    todo.extend(waiting.pop(rule, ()))
            for before, rule in back.get(state, ()):
                if rule < 0 or self._rules[rule][0] in alive:
                    todo.append(before)
                else:
                    waiting.setdefault(rule, []).append(before)
        if self._root[0] not in alive:
            raise GrammarError("no answer fits the grammar: its rules never end")
        step = self._automaton.step
        for state, edges in enumerate(step):
            step[state] = [(leaf, target) for leaf, target in edges if target in alive]
        self._free = [[target for _, target in free if target in alive] for free in self._automaton.free]
        self._called = {
            state: [(rule, target) for rule, target in calls if target in alive and self._rules[rule][0] in alive]
            for state, calls in self._called.items()
        }

    # --- reading -----------------------------------------------------------------------------------------------------

    def after(self, config: Config, char: str) -> Config | None:
        """The places after one more character; None where no answer goes on like that. Raises TooManyPlaces."""
        if config.steps is None:
            self._close(config)
        places = frozenset((target, call) for leaf, target, call in config.steps or () if leaf.takes(char))
        found = self._config(places) if places else None
        if len(config.next) < 1_024:
            config.next[char] = found
            self._kept += 1
        return found

    def accepts(self, config: Config) -> bool:
        if config.steps is None:
            self._close(config)
        return config.accepting

    def _config(self, places: frozenset[Place]) -> Config:
        if self._kept > _MOST_KEPT:
            self._configs.clear()
            self._calls.clear()
            self.begin.next.clear()
            self._kept = 0
        config = self._configs.get(places)
        if config is None:
            config = self._configs[places] = Config(places)
            self._kept += len(places)
        return config

    def _close(self, config: Config) -> None:
        """All places that are reached without reading."""
        places = set(config.places)
        todo = list(places)
        begun: dict[int, Call] = {}

        def reach(state: int, call: Call) -> None:
            place = (state, call)
            if place not in places:
                if len(places) >= _MOST_PLACES:
                    raise TooManyPlaces
                places.add(place)
                todo.append(place)

        while todo:
            state, call = todo.pop()
            for target in self._free[state]:
                reach(target, call)
            for rule, target in self._called.get(state, ()):
                called = begun.get(rule)
                if called is None:
                    called = begun[rule] = Call(rule)
                if (target, call) not in called.returns:
                    called.returns.add((target, call))
                    if called.done:
                        reach(target, call)
                reach(self._rules[rule][0], called)
            if self._ends.get(state, -2) == call.rule:
                if call is begun.get(call.rule):
                    call.done = True
                for target, around in tuple(call.returns):
                    reach(target, around)
        known = self._known(begun)
        step = self._automaton.step
        config.steps = [(leaf, target, known.get(call, call)) for state, call in places for leaf, target in step[state]]
        config.accepting = (self._root[1], self._top) in places
        self._kept += len(config.steps)

    def _known(self, begun: dict[int, Call]) -> dict[Call, Call]:
        """For each call that was begun here the one like it that was begun before, where there is one. A call is known
        by its rule and its returns; calls that return into each other are known by all of theirs together."""
        known: dict[Call, Call] = {}
        left = set(begun.values())
        while left:
            ready = [call for call in left if not any(around in left for _, around in call.returns)]
            together = [[call] for call in ready] or [sorted(left, key=lambda call: call.rule)]
            for group in together:
                for call in group:
                    call.returns = {(target, known.get(around, around)) for target, around in call.returns}
                key: object = frozenset(
                    (
                        call.rule,
                        frozenset((t, around.rule if around in group else around) for t, around in call.returns),
                    )
                    for call in group
                )
                for call in group:
                    known[call] = self._calls.setdefault((call.rule, key), call)
                left.difference_update(group)
        return known

    def forced(self, config: Config) -> str:
        out: list[str] = []
        while len(out) < _MOST_FORCED and not self.accepts(config):
            literals = {leaf.literal for leaf, _, _ in config.steps or ()}
            only = literals.pop() if len(literals) == 1 else None
            following = None if only is None else config.next.get(only) or self.after(config, only)
            if only is None or following is None:
                break
            out.append(only)
            config = following
        return "".join(out)


class _Writer:
    """Writes expressions into an automaton. ``called``: for each state the rules that it calls, and where each returns
    to."""

    def __init__(self, automaton: Automaton, rules: dict[str, Expression], numbers: dict[str, int]) -> None:
        self.called: dict[int, list[tuple[int, int]]] = {}
        self._automaton = automaton
        self._rules = rules
        self._numbers = numbers
        self._leaves: dict[Chars, Leaf] = {}

    def add(self, expression: Expression, at: int) -> int:
        """The state behind it."""
        if isinstance(expression, Chars):
            leaf = self._leaves.get(expression)
            if leaf is None:
                leaf = self._leaves[expression] = leaf_of(expression)
            return self._automaton.leaf(at, leaf)
        if isinstance(expression, Rule):
            number = self._numbers.get(expression.name)
            if number is None:
                return self.add(self._rules[expression.name], at)
            after = self._automaton.state()
            self.called.setdefault(at, []).append((number, after))
            return after
        if isinstance(expression, Sequence):
            for item in expression.items:
                at = self.add(item, at)
            return at
        if isinstance(expression, Choice):
            return self._automaton.branch(at, [partial(self.add, one) for one in expression.items])
        return self._automaton.repeat(at, partial(self.add, expression.item), expression.least, expression.most)


class PushdownMatcher:
    """A Matcher (text_check.py)."""

    def __init__(self, pushdown: Pushdown) -> None:
        self._pushdown = pushdown
        self._config = pushdown.begin
        self._failure = ""

    def push(self, text: str) -> int:
        config = self._config
        try:
            for index, char in enumerate(text):
                following = config.next.get(char, config)
                if following is config and char not in config.next:
                    following = self._pushdown.after(config, char)
                if following is None:
                    self._config = config
                    return index
                config = following
        except TooManyPlaces:
            self._failure = f"it can be read in more than {_MOST_PLACES} ways at once"
            self._config = config
            return index
        self._config = config
        return len(text)

    def accepts(self) -> bool:
        try:
            return self._pushdown.accepts(self._config)
        except TooManyPlaces:
            return False

    def forced(self) -> str:
        try:
            return self._pushdown.forced(self._config)
        except TooManyPlaces:
            return ""

    def failure(self) -> str:
        return self._failure


def leaf_of(chars: Chars) -> Leaf:
    """The test of one character that ``chars`` is."""
    ranges, negated = chars.ranges, chars.negated
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1] and not negated:
        only = ranges[0][0]
        return Leaf(lambda char: char == only, only)
    return Leaf(lambda char: any(low <= char <= high for low, high in ranges) != negated, None)
