"""All that one value must satisfy together, and how a value of each kind is walked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from guard.constraint.json_sink import ARRAY, FALSE, NULL, NUMBER, OBJECT, STRING, TRUE
from guard.constraint.judge import Judge, Reason
from guard.constraint.schema_parts import ALL, Part, keyword_of, kinds
from guard.constraint.words import Words

if TYPE_CHECKING:
    from guard.constraint.schema_graph import SchemaGraph

_PLAIN: Final[dict[int, tuple[str, ...]]] = {
    STRING: ("type", "enum", "const", "minLength", "maxLength", "pattern"),
    NUMBER: (
        "type",
        "enum",
        "const",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
    ),
    TRUE: ("enum", "const"),
    FALSE: ("enum", "const"),
    NULL: ("enum", "const"),
    OBJECT: ("enum", "const", "required", "minProperties", "maxProperties", "dependentRequired"),
    ARRAY: ("enum", "const", "minItems", "maxItems", "uniqueItems"),
}
_WALKED: Final[dict[int, frozenset[str]]] = {
    STRING: frozenset({"type", "minLength", "maxLength"}),
    NUMBER: frozenset(),
    TRUE: frozenset(),
    FALSE: frozenset(),
    NULL: frozenset(),
    OBJECT: frozenset({"required", "minProperties", "maxProperties"}),
    ARRAY: frozenset({"minItems", "maxItems"}),
}
"""Plain keywords that the walk decides itself."""
_MOST_KIDS: Final = 1_000
_MOST_ALTERNATIVES: Final = 64
_MOST_TRIALS: Final = 500
_UNKNOWN: Final = object()


class Plan:
    """What to do with a value of one kind, decided once. ``watch``: what its text is read against, after ``budget``
    characters; ``hold``: whether it must not leave before it is judged; ``check``: whether it is judged at all."""

    __slots__ = ("budget", "check", "hold", "node", "watch")

    def __init__(self, node: Node | None, kind: int) -> None:
        self.node = node
        self.watch: list[tuple[Words | None, int | None]] | None = None
        self.budget = 0
        self.hold = self.check = False
        if node is None or kind <= ARRAY:
            return
        judged = node.judged(kind)
        self.hold = judged or node.whole
        self.check = self.hold or (kind == STRING and (node.watch_string or node.min_length > 0))
        if kind == STRING and node.watch_string:
            self.watch = [(node.strings, node.max_length)]
            self.budget = -1 if node.strings is not None or node.max_length is None else node.max_length


class Node:
    """All that one value must satisfy together.

    ``on[kind]``: the nodes that a value of that kind may be walked as (none: it is invalid, one: certainly that one).
    The other attributes are of use on a node without open alternatives.
    """

    __slots__ = (
        "_checks",
        "_graph",
        "_items",
        "_judges",
        "_on",
        "_same",
        "_width",
        "bounded",
        "groups",
        "holds_keys",
        "key_watch",
        "kids",
        "max_items",
        "max_length",
        "max_properties",
        "min_items",
        "min_length",
        "min_properties",
        "names",
        "parts",
        "plans",
        "quiet",
        "required",
        "settled",
        "strings",
        "types",
        "unchecked",
        "watch_string",
        "whole",
    )

    def __init__(self, graph: SchemaGraph, parts: tuple[Part, ...], settled: frozenset[tuple[int, int]]) -> None:
        self._graph = graph
        self.parts = parts
        self.settled = settled
        self._on: list[tuple[Node, ...] | None] = [None] * 7
        self.kids: dict[str, Node | str] = {}
        self._items: dict[int, Node | str] = {}
        self._checks: list[Any] = [_UNKNOWN] * 7
        self.types = ALL
        self.min_items = self.min_properties = self.min_length = 0
        self.max_items: int | None = None
        self.max_properties: int | None = None
        self.max_length: int | None = None
        strings: frozenset[str] | None = None
        required: dict[str, None] = {}
        self.groups: list[tuple[tuple[int, int], str, list[Part]]] = []
        for part in parts:
            self.types &= part.types
            if part.strings is not None:
                strings = part.strings if strings is None else strings & part.strings
            required.update(dict.fromkeys(part.required))
            self.min_items = max(self.min_items, part.min_items)
            self.min_properties = max(self.min_properties, part.min_properties)
            self.min_length = max(self.min_length, part.min_length)
            self.max_items = _least(self.max_items, part.max_items)
            self.max_properties = _least(self.max_properties, part.max_properties)
            self.max_length = _least(self.max_length, part.max_length)
            for index, (keyword, group) in enumerate(part.groups):
                if (part.id, index) not in settled:
                    self.groups.append(((part.id, index), keyword, group))
        self.required = tuple(required)
        self.strings = None if strings is None else Words(strings)
        if strings is not None and not strings:
            self.types &= ~(1 << STRING)
        self.names = _names(parts)
        # a key that may yet turn out to be wrong must not leave before it is whole
        self.holds_keys = any(
            part.property_names is not None or (part.patterns and part.additional is not None and part.additional.never)
            for part in parts
        )
        self.watch_string = self.strings is not None or self.max_length is not None
        self.bounded = (
            self.max_items is not None
            or self.max_properties is not None
            or self.names is not None
            or any(part.items is not None and part.items.never for part in parts)
        )
        self.unchecked: list[bool | None] = [None] * 7
        self.whole = any(part.whole for part in parts)
        self.plans: list[Plan | None] = [None] * 7
        self.quiet = not self.bounded and not self.holds_keys
        self.key_watch = None if self.names is None else [(self.names, None)]
        self._width = max((len(part.prefix) for part in parts), default=0)
        self._same: Node | object | None = _UNKNOWN
        self._judges: list[Judge] | None = None

    # --- by kind -----------------------------------------------------------------------------------------------------

    def on(self, kind: int) -> tuple[Node, ...]:
        found = self._on[kind]
        if found is None:
            trials = [_MOST_TRIALS]
            settled = self._settle(kind, trials)
            if trials[0] <= 0 or len(settled) > _MOST_ALTERNATIVES:
                # too many to walk: the alternatives say nothing
                settled = [self._graph.node(self.parts, self.settled.union(name for name, _, _ in self.groups))]
            found = self._on[kind] = tuple(settled)
        return found

    def _settle(self, kind: int, trials: list[int]) -> list[Node]:
        """One node for each way to choose from the alternatives, as far as that way can take the kind of value."""
        if not self.types >> kind & 1:
            return []
        if not self.groups:
            return [self]
        name, _, group = self.groups[0]
        possible: dict[Node, None] = {}
        for branch in group:
            trials[0] -= 1
            if trials[0] <= 0:
                break
            chosen = self._graph.node((*self.parts, branch), self.settled | {name})
            possible.update(dict.fromkeys(chosen._settle(kind, trials)))
        return list(possible)

    def plan(self, kind: int) -> Plan:
        """How a value of this kind is walked; without a node where it is invalid, or can be several."""
        on = self.on(kind)
        plan = Plan(on[0] if len(on) == 1 else None, kind)
        self.plans[kind] = plan
        return plan

    def refusal(self, kind: int) -> str:
        """The keyword for which a value of this kind is invalid."""
        bit = 1 << kind
        for part in self.parts:
            if part.never:
                return keyword_of(part.path)
        for part in self.parts:
            if not part.types & bit:
                if "const" in part.plain and not kinds([part.plain["const"]]) & bit:
                    return "const"
                if "enum" in part.plain and not kinds(part.plain["enum"]) & bit:
                    return "enum"
                return "type"
        if self.types & bit and self.groups:
            return self.groups[0][1]
        if kind == STRING and self.strings is not None:
            return "enum"  # each part has words of its own, and no word is in all of them
        return "type"

    # --- objects -----------------------------------------------------------------------------------------------------

    def child(self, key: str) -> Node | str:
        """The node of a property's value, or the keyword that forbids the property."""
        found = self.kids.get(key)
        if found is None:
            found = self._child(key)
            if len(self.kids) < _MOST_KIDS:
                self.kids[key] = found
        return found

    def _child(self, key: str) -> Node | str:
        parts: list[Part] = []
        for part in self.parts:
            matched = False
            if key in part.properties:
                matched = True
                parts.append(part.properties[key])
            for matches, of_pattern in part.patterns:
                if matches(key):
                    matched = True
                    parts.append(of_pattern)
            if not matched and part.additional is not None:
                if part.additional.never:
                    return "additionalProperties"
                parts.append(part.additional)
            if part.property_names is not None:
                names = self._graph.node([part.property_names], frozenset())
                if not any(node.check(STRING, key) is None for node in names.on(STRING)):
                    return "propertyNames"
        node = self._graph.node(parts, frozenset())
        for part in node.parts:
            if part.never:
                return keyword_of(part.path)
        return node

    # --- arrays ------------------------------------------------------------------------------------------------------

    def all_items(self) -> Node | None:
        """The node of every item, however many there are; None where it takes more to know."""
        if self._same is _UNKNOWN:
            same = self.item(0) if not self._width and self.max_items is None else None
            self._same = same if isinstance(same, Node) else None
        return self._same  # type: ignore[return-value]

    def item(self, index: int) -> Node | str:
        """The node of the item at ``index``, or the keyword that forbids it."""
        if self.max_items is not None and index >= self.max_items:
            return "maxItems"
        slot = min(index, self._width)
        found = self._items.get(slot)
        if found is None:
            parts = [
                part.prefix[slot] if slot < len(part.prefix) else part.items
                for part in self.parts
                if slot < len(part.prefix) or part.items is not None
            ]
            node = self._graph.node([part for part in parts if part is not None], frozenset())
            found = node
            for part in node.parts:
                if part.never:
                    found = keyword_of(part.path)
            self._items[slot] = found
        return found

    # --- whole values ------------------------------------------------------------------------------------------------

    def check(self, kind: int, value: Any) -> str | None:
        """The plain keyword that a whole value of this kind breaks, if it does."""
        skip = self.unchecked[kind]
        if skip is None:
            skip = not self.judged(kind)
            if kind == STRING:
                skip = skip and self.strings is None and not self.min_length and self.max_length is None
            self.unchecked[kind] = skip
        if skip:
            return None
        if kind == STRING:
            if self.strings is not None and value not in self.strings.words:
                return self._why(kind, value) or "enum"
            if len(value) < self.min_length:
                return "minLength"
            if self.max_length is not None and len(value) > self.max_length:
                return "maxLength"
        judge = self._checks[kind]
        if judge is None or judge.is_valid(value):
            return None
        return self._why(kind, value) or "schema"

    def judge(self, value: Any) -> Reason | None:
        """Why a whole value breaks a part that the walk does not decide, if it does."""
        if self._judges is None:
            found = [self._graph.judge_of(part) for part in self.parts if part.whole]
            self._judges = [one for one in found if one is not None]
            self.whole = bool(self._judges)
        for judge in self._judges:
            if not judge.is_valid(value):
                return judge.reason(value)
        return None

    def only_value(self, kind: int) -> tuple[Any] | None:
        """The one value that enum or const leave for this kind, in a tuple."""
        for part in self.parts:
            allowed = part.plain.get("enum", [])
            if self._graph.draft >= 6 and "const" in part.plain:
                allowed = [part.plain["const"]]
            allowed = [one for one in allowed if kinds([one]) == 1 << kind]
            if len(allowed) == 1 and self.check(kind, allowed[0]) is None:
                return (allowed[0],)
        return None

    def judged(self, kind: int) -> bool:
        """Whether the judge must see a value of this kind when it is whole."""
        judge = self._checks[kind]
        if judge is _UNKNOWN:
            judge = self._checks[kind] = self._plain_judge(kind)
        return judge is not None

    def _plain_judge(self, kind: int) -> Any:
        walked = _WALKED[kind]
        if self.strings is not None and kind == STRING:
            walked = walked | {"enum", "const"}
        plain = [
            {keyword: part.plain[keyword] for keyword in _PLAIN[kind] if keyword in part.plain} for part in self.parts
        ]
        plain = [one for one in plain if not walked.issuperset(one)]
        if not plain:
            return None
        return self._graph.validator(plain[0] if len(plain) == 1 else {"allOf": plain})

    def _why(self, kind: int, value: Any) -> str | None:
        for part in self.parts:
            plain = {keyword: part.plain[keyword] for keyword in _PLAIN[kind] if keyword in part.plain}
            for keyword, said in plain.items():
                limits = {keyword: said}
                if keyword in ("minimum", "maximum") and self._graph.draft == 4:
                    limits = plain
                if not self._graph.limit(part, keyword, limits).is_valid(value):
                    return keyword
        return None


def _names(parts: Sequence[Part]) -> Words | None:
    """The keys that an object may have, where additionalProperties makes that a list of words."""
    names: set[str] | None = None
    for part in parts:
        if part.additional is not None and part.additional.never and not part.patterns:
            own = {key for key, child in part.properties.items() if not child.never}
            names = own if names is None else names & own
    return None if names is None else Words(names)


def _least(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)
