"""What a JSON schema certainly forbids, as a graph that a reader can walk while a document arrives.

The rules:

- The graph is wider than the schema, never narrower: what it forbids is invalid, what it lets pass is for the judge
  (judge.py). A keyword that is not understood here, or not in full, is left out, which is always sound.
- A Part is one subschema. A Node stands for all parts that one value must satisfy together (a schema, what it refers
  to, its allOf, the same property in several of them), so that a walk is one Node a value. Nodes are made when a
  document first needs them, and kept.
- anyOf, oneOf and then/else are alternatives: a value of a given kind that only one of them can take makes that one
  certain; as long as several can, each is walked.
- As soon as a value is complete, jsonschema-rs judges what the walk does not decide: its node's plain keywords (those
  without subschemas), and whole parts that say more than a walk can follow (not, if, oneOf, contains, unevaluated...).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final
from urllib.parse import quote, unquote

import jsonschema_rs

from guard.constraint.json_syntax import ARRAY, FALSE, NULL, NUMBER, OBJECT, STRING, TRUE
from guard.constraint.judge import Judge, Reason

ALL: Final = 0b1111111
_TYPE_BITS: Final = {
    "object": 1 << OBJECT,
    "array": 1 << ARRAY,
    "string": 1 << STRING,
    "number": 1 << NUMBER,
    "integer": 1 << NUMBER,
    "boolean": 1 << TRUE | 1 << FALSE,
    "null": 1 << NULL,
}
_DRAFTS: Final = {
    "json-schema.org/draft-04/schema": 4,
    "json-schema.org/draft-06/schema": 6,
    "json-schema.org/draft-07/schema": 7,
    "json-schema.org/draft/2019-09/schema": 2019,
    "json-schema.org/draft/2020-12/schema": 2020,
}
VALIDATORS: Final[dict[int, Any]] = {
    4: jsonschema_rs.Draft4Validator,
    6: jsonschema_rs.Draft6Validator,
    7: jsonschema_rs.Draft7Validator,
    2019: jsonschema_rs.Draft201909Validator,
    2020: jsonschema_rs.Draft202012Validator,
}
_REGISTRY_DRAFTS: Final = {
    4: jsonschema_rs.Draft4,
    6: jsonschema_rs.Draft6,
    7: jsonschema_rs.Draft7,
    2019: jsonschema_rs.Draft201909,
    2020: jsonschema_rs.Draft202012,
}
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

_WHOLE: Final = frozenset(
    {
        "not",
        "if",
        "oneOf",
        "contains",
        "dependencies",
        "dependentSchemas",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)
"""Keywords for which a part is judged as a whole, once the value is."""
_BASE: Final = "outguard:///schema"

_MOST_NODES: Final = 5_000
_MOST_KIDS: Final = 1_000
_MOST_ALTERNATIVES: Final = 64
_MOST_TRIALS: Final = 500
_UNKNOWN: Final = object()


def draft_of(schema: Any) -> int | None:
    """The draft that ``$schema`` names (its year from 2019 on); 0 where nothing is said, None for an unknown one."""
    said = schema.get("$schema") if isinstance(schema, dict) else None
    if said is None:
        return 0
    if not isinstance(said, str):
        return None
    return _DRAFTS.get(said.split("://", 1)[-1].rstrip("#"))


class Words:
    """A set of words that a string is read against as it arrives."""

    __slots__ = ("_sorted", "words")

    def __init__(self, words: Iterable[str]) -> None:
        self.words = frozenset(words)
        self._sorted = sorted(self.words)

    def has_prefix(self, prefix: str) -> bool:
        at = bisect_left(self._sorted, prefix)
        return at < len(self._sorted) and self._sorted[at].startswith(prefix)

    def has_other(self, prefix: str, used: Collection[str]) -> bool:
        """Whether a word that is not among ``used`` begins with ``prefix``."""
        words = self._sorted
        at = bisect_left(words, prefix)
        while at < len(words) and words[at].startswith(prefix):
            if words[at] not in used:
                return True
            at += 1
        return False

    def longer(self, prefix: str) -> bool:
        """Whether a word goes on after ``prefix``."""
        at = bisect_left(self._sorted, prefix)
        at += at < len(self._sorted) and self._sorted[at] == prefix
        return at < len(self._sorted) and self._sorted[at].startswith(prefix)

    def rest(self, prefix: str) -> str:
        """What every word that begins with ``prefix`` has next."""
        at = bisect_left(self._sorted, prefix)
        low = high = self._sorted[at] if at < len(self._sorted) else ""
        while at < len(self._sorted) and self._sorted[at].startswith(prefix):
            high = self._sorted[at]
            at += 1
        length = min(len(prefix), len(low))
        while length < len(low) and length < len(high) and low[length] == high[length]:
            length += 1
        return low[len(prefix) : length]


class Part:
    """One subschema, as far as it is understood. Children are Parts; ``None`` says nothing about them."""

    __slots__ = (
        "additional",
        "groups",
        "id",
        "inplace",
        "items",
        "max_items",
        "max_length",
        "max_properties",
        "min_items",
        "min_length",
        "min_properties",
        "never",
        "path",
        "patterns",
        "plain",
        "prefix",
        "properties",
        "property_names",
        "read",
        "required",
        "strings",
        "types",
        "whole",
    )

    def __init__(self, number: int, path: tuple[str | int, ...], never: bool) -> None:
        self.id = number
        self.path = path
        self.read = False
        self.never = never
        self.types = 0 if never else ALL
        self.strings: frozenset[str] | None = None
        self.inplace: list[Part] = []
        self.groups: list[tuple[str, list[Part]]] = []
        self.properties: dict[str, Part] = {}
        self.patterns: list[tuple[Any, Part]] = []
        self.additional: Part | None = None
        self.property_names: Part | None = None
        self.required: tuple[str, ...] = ()
        self.prefix: list[Part] = []
        self.items: Part | None = None
        self.min_items = 0
        self.max_items: int | None = None
        self.min_properties = 0
        self.max_properties: int | None = None
        self.min_length = 0
        self.max_length: int | None = None
        self.plain: dict[str, Any] = {}
        self.whole = False


class SchemaGraph:
    """The parts and nodes of one schema. ``root`` is the node of the whole document. ``cost`` and ``branches`` are the
    judge's (judge.py).

    Not locked: building a node twice at once gives two that mean the same.
    """

    def __init__(self, schema: Any, draft: int, cost: int = 1, branches: int = 1) -> None:
        self.draft = draft
        self.schema = schema
        self._validator = VALIDATORS[draft]
        self._parts: dict[tuple[str | int, ...], Part] = {}
        self._nodes: dict[tuple[frozenset[int], frozenset[tuple[int, int]]], Node] = {}
        self._matchers: dict[str, Any] = {}
        self._judges: dict[int, Judge | None] = {}
        self._limits: dict[tuple[int, str], Any] = {}
        self._registry: Any = None
        self._cost = cost
        self._branches = branches
        self._refs = not _has(schema, "$id" if draft >= 6 else "id", below=True)
        # what a dynamic reference means depends on the way to it, so that no part can be judged by itself
        self._by_parts = self._refs and not any(_has(schema, name) for name in ("$dynamicRef", "$recursiveRef"))
        self.any = Node(self, (), frozenset())
        self.root = self.node([self._part(())], frozenset())

    def node(self, parts: Iterable[Part], settled: frozenset[tuple[int, int]]) -> Node:
        """The node of all of ``parts`` together. ``settled`` names the alternatives that were already decided."""
        closed: dict[int, Part] = {}
        todo = list(parts)
        while todo:
            part = todo.pop()
            if part.id not in closed:
                if not part.read:
                    self._read(part)
                closed[part.id] = part
                todo.extend(part.inplace)
        if not closed:
            return self.any
        key = (frozenset(closed), settled)
        node = self._nodes.get(key)
        if node is None:
            if len(self._nodes) >= _MOST_NODES:
                return self.any
            node = self._nodes[key] = Node(self, tuple(closed[i] for i in sorted(closed)), settled)
        return node

    def matcher(self, pattern: str) -> Any:
        """Whether a key matches, by the judge's own reading of the pattern."""
        found = self._matchers.get(pattern)
        if found is None:
            found = self._matchers[pattern] = self.validator({"pattern": pattern}).is_valid
        return found

    def validator(self, schema: Any) -> Any:
        """A judge of plain keywords: ``schema`` refers to nothing."""
        return self._validator(schema, offline=True, validate_formats=False)

    def limit(self, part: Part, keyword: str, schema: Any) -> Any:
        """The judge of one plain keyword of a part."""
        found = self._limits.get((part.id, keyword))
        if found is None:
            found = self._limits[part.id, keyword] = self.validator(schema)
        return found

    def judge_of(self, part: Part) -> Judge | None:
        """The judge of one part, with all that it refers to; None where that cannot be told apart from the rest."""
        if part.id in self._judges:
            return self._judges[part.id]
        judge = None
        if self._by_parts:
            try:
                if self._registry is None:
                    draft = _REGISTRY_DRAFTS[self.draft]
                    self._registry = jsonschema_rs.Registry([(_BASE, self.schema)], draft=draft)
                pointer = "".join(
                    "/" + quote(str(step).replace("~", "~0").replace("/", "~1"), safe="~") for step in part.path
                )
                reference = {"$ref": f"{_BASE}#{pointer}"}
                options = {"registry": self._registry, "offline": True, "validate_formats": False}
                judge = Judge(self._validator(reference, **options), self._cost, self._branches)
            except Exception:  # it refers to what is not there, say: then the whole document is judged alone
                self._by_parts = False
        self._judges[part.id] = judge
        return judge

    # --- parts -------------------------------------------------------------------------------------------------------

    def _part(self, path: tuple[str | int, ...]) -> Part:
        part = self._parts.get(path)
        if part is None:
            part = self._parts[path] = Part(len(self._parts), path, _at(self.schema, path) is False)
        return part

    def _read(self, part: Part) -> None:
        """Parts are read when a node first needs them, so that a schema may be large, deep or refer to itself."""
        part.read = True
        schema = _at(self.schema, part.path)
        if not isinstance(schema, dict) or (part.path and "$schema" in schema):
            return
        reference = schema.get("$ref")
        if isinstance(reference, str):
            target = self._resolve(reference)
            if target is not None:
                part.inplace.append(self._part(target))
            if self.draft <= 7:
                return
        part.whole = not _WHOLE.isdisjoint(schema)
        self._read_plain(part, schema)
        self._read_applicators(part, schema)
        if isinstance(schema.get("properties"), dict):
            for key in schema["properties"]:
                part.properties[key] = self._part((*part.path, "properties", key))
        if isinstance(schema.get("patternProperties"), dict):
            for pattern in schema["patternProperties"]:
                part.patterns.append((self.matcher(pattern), self._part((*part.path, "patternProperties", pattern))))
        if "additionalProperties" in schema:
            part.additional = self._part((*part.path, "additionalProperties"))
        if self.draft >= 6 and "propertyNames" in schema:
            part.property_names = self._part((*part.path, "propertyNames"))
        self._read_items(part, schema)

    def _read_plain(self, part: Part, schema: dict[str, Any]) -> None:
        part.plain = {
            keyword: schema[keyword]
            for keywords in _PLAIN.values()
            for keyword in keywords
            if keyword in schema and keyword != "type"
        }
        said = schema.get("type")
        types = [said] if isinstance(said, str) else said
        if isinstance(types, list):
            part.types = 0
            for name in types:
                part.types |= _TYPE_BITS.get(name, ALL) if isinstance(name, str) else ALL
            if "integer" in types and "number" not in types:
                part.plain["type"] = said
        allowed = [schema["const"]] if self.draft >= 6 and "const" in schema else None
        if isinstance(schema.get("enum"), list):
            allowed = schema["enum"] if allowed is None else [one for one in schema["enum"] if one == allowed[0]]
        if allowed is not None:
            part.types &= _kinds(allowed)
            part.strings = frozenset(one for one in allowed if isinstance(one, str))
        required = schema.get("required")
        if isinstance(required, list):
            part.required = tuple(name for name in required if isinstance(name, str))
        part.min_items = _count(schema.get("minItems")) or 0
        part.max_items = _count(schema.get("maxItems"))
        part.min_properties = _count(schema.get("minProperties")) or 0
        part.max_properties = _count(schema.get("maxProperties"))
        part.min_length = _count(schema.get("minLength")) or 0
        part.max_length = _count(schema.get("maxLength"))

    def _read_applicators(self, part: Part, schema: dict[str, Any]) -> None:
        if isinstance(schema.get("allOf"), list):
            part.inplace.extend(self._part((*part.path, "allOf", i)) for i in range(len(schema["allOf"])))
        for keyword in ("anyOf", "oneOf"):
            branches = schema.get(keyword)
            if isinstance(branches, list) and branches:
                group = [self._part((*part.path, keyword, i)) for i in range(len(branches))]
                part.groups.append((keyword, group))
        if self.draft >= 7 and all(keyword in schema for keyword in ("if", "then", "else")):
            part.groups.append(("if", [self._part((*part.path, keyword)) for keyword in ("then", "else")]))

    def _read_items(self, part: Part, schema: dict[str, Any]) -> None:
        first, rest = ("prefixItems", "items") if self.draft >= 2020 else ("items", "additionalItems")
        if isinstance(schema.get(first), list):
            part.prefix = [self._part((*part.path, first, i)) for i in range(len(schema[first]))]
            if rest in schema and not isinstance(schema[rest], list):
                part.items = self._part((*part.path, rest))
        elif "items" in schema and not isinstance(schema["items"], list):
            part.items = self._part((*part.path, "items"))

    def _resolve(self, reference: str) -> tuple[str | int, ...] | None:
        """The path that a reference within the document points to; None where that is not certain."""
        found = pointed_at(self.schema, reference) if self._refs else None
        return None if found is None else found[0]


def pointed_at(schema: Any, reference: str) -> tuple[tuple[str | int, ...], Any] | None:
    """The path that a reference within ``schema`` points to, and what stands there."""
    if not (reference == "#" or reference.startswith("#/")):
        return None
    path: list[str | int] = []
    at = schema
    for token in unquote(reference[1:]).split("/")[1:]:
        token = token.replace("~1", "/").replace("~0", "~")
        if isinstance(at, dict) and token in at:
            path.append(token)
            at = at[token]
        elif isinstance(at, list) and token.isdecimal() and int(token) < len(at):
            path.append(int(token))
            at = at[int(token)]
        else:
            return None
    return tuple(path), at


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
                return _keyword_of(part.path)
        for part in self.parts:
            if not part.types & bit:
                if "const" in part.plain and not _kinds([part.plain["const"]]) & bit:
                    return "const"
                if "enum" in part.plain and not _kinds(part.plain["enum"]) & bit:
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
                return _keyword_of(part.path)
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
                    found = _keyword_of(part.path)
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
            allowed = [one for one in allowed if _kinds([one]) == 1 << kind]
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


def _keyword_of(path: tuple[str | int, ...]) -> str:
    for step in reversed(path):
        if step in ("additionalProperties", "additionalItems", "items", "prefixItems", "patternProperties"):
            return str(step)
        if step == "properties":
            return "properties"
    return "false"


def _kinds(values: Iterable[Any]) -> int:
    kinds = 0
    for value in values:
        match value:
            case True:
                kinds |= 1 << TRUE
            case False:
                kinds |= 1 << FALSE
            case None:
                kinds |= 1 << NULL
            case str():
                kinds |= 1 << STRING
            case dict():
                kinds |= 1 << OBJECT
            case list():
                kinds |= 1 << ARRAY
            case _:
                kinds |= 1 << NUMBER
    return kinds


def _count(said: Any) -> int | None:
    if isinstance(said, bool) or not isinstance(said, int | float):
        return None
    return int(said)


def _least(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


def _at(schema: Any, path: tuple[str | int, ...]) -> Any:
    for step in path:
        schema = schema[step]
    return schema


def _has(schema: Any, keyword: str, *, below: bool = False) -> bool:
    """Whether an object in ``schema`` (``below``: not the outermost) has ``keyword`` with a string."""
    todo: list[Any] = [schema]
    first = below
    while todo:
        at = todo.pop()
        if isinstance(at, dict):
            if not first and isinstance(at.get(keyword), str):
                return True
            todo.extend(at.values())
        elif isinstance(at, list):
            todo.extend(at)
        first = False
    return False
