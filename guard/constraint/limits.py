"""What a constraint may cost, and the refusal that says which limit it breaks.

Everything that can be told from a schema without compiling it is told here, in time that is linear in its size: its
bytes, its depth, references that lead in a circle without going into the value, and how many subschemas one leaf of a
document may have to be held against (the judge evaluates them all: 40 definitions of two lines can ask for 2^40).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from msgspec import Struct

from guard.constraint.schema_drafts import pointed_at
from guard.request import RequestError

COMPLEX: Final = "constraint_too_complex"
INVALID: Final = "invalid_constraint"


class Limits(Struct, frozen=True):
    """``bytes``: of the canonical form. ``depth``: levels of nesting in a schema (jsonschema-rs itself ends at 255).
    ``evaluations``: of subschemas for one leaf of a document; each takes about 30 ns. ``seconds`` and ``megabytes``: of
    CPU and memory for compiling what cannot be judged by its looks. ``choices``: alternatives of a choice."""

    bytes: int = 512 << 10
    depth: int = 200
    evaluations: int = 50_000
    choices: int = 10_000
    regex_chars: int = 20_000
    grammar_chars: int = 100_000
    seconds: float = 2.0
    megabytes: int = 512


def too_complex(param: str, message: str) -> RequestError:
    return RequestError(f"{param}: {message}" if param else message, param, COMPLEX)


def invalid(param: str, message: str) -> RequestError:
    return RequestError(f"{param}: {message}" if param else message, param, INVALID)


def depth_of(value: Any, most: int) -> int:
    """How deep ``value`` nests; at most ``most`` + 1, where counting ends."""
    level = [value]
    depth = 0
    while level and depth <= most:
        below: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                below.extend(child for child in one.values() if isinstance(child, dict | list))
            elif isinstance(one, list):
                below.extend(child for child in one if isinstance(child, dict | list))
        level = below
        depth += 1
    return depth


_INPLACE_LISTS: Final = ("allOf", "anyOf", "oneOf")
_INPLACE: Final = ("not", "if", "then", "else")
_INPLACE_MAPS: Final = ("dependentSchemas", "dependencies")
_BELOW_MAPS: Final = ("properties", "patternProperties")
_BELOW: Final = (
    "additionalProperties",
    "additionalItems",
    "contains",
    "items",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
)


_LEADING: Final = frozenset(
    {
        "$ref", "$dynamicRef", "$recursiveRef", "items", "prefixItems",
        *_INPLACE_LISTS, *_INPLACE, *_INPLACE_MAPS, *_BELOW_MAPS, *_BELOW,
    }
)  # fmt: skip
"""Keywords that lead on to other schemas."""

Edge = tuple[Any, bool, str]


class Shape(Struct, frozen=True):
    """``evaluations`` for one leaf (a circle through the value counted once); ``branches``: subschemas that are held
    against one value at once, at most; ``recursive``: whether a schema leads to itself."""

    evaluations: int
    branches: int
    recursive: bool


def shape_of(schema: Any, param: str, limits: Limits) -> Shape:
    """Raises RequestError (constraint_too_complex) for a circle that never goes into the value, and for too many
    evaluations."""
    names = _Names(schema)
    nodes, component = _components([schema], names.edges)
    ranked, flat_component = _components([node for _, node in nodes], names.inplace)
    members: dict[int, int] = {}
    for number in component.values():
        members[number] = members.get(number, 0) + 1
    rank = {node_id: at for at, (node_id, _) in enumerate(ranked)}
    # within a component the references that stay at a value are in order, children first
    nodes.sort(key=lambda entry: (component[entry[0]], rank[entry[0]]))
    if len(set(flat_component.values())) < len(ranked) or any(
        child is node for _, node in ranked for child, _, _ in names.inplace(node)
    ):
        raise too_complex(param, "the schema refers to itself in a circle that never goes into the value")
    recursive = False
    cost: dict[int, int] = {}
    branches = 1
    for node_id, node in nodes:
        beside = below = 0
        here = 1
        for child, goes_in, reference in names.edges(node):
            same = component[id(child)] == component[node_id]
            recursive = recursive or (same and (members[component[node_id]] > 1 or child is node))
            if goes_in:
                below = max(below, 1 if same else cost[id(child)])
            else:
                beside += cost[id(child)] if reference != "dynamic" or not same else 1
                here += 1
        cost[node_id] = 1 + beside + below
        branches = max(branches, here)
        if cost[node_id] > limits.evaluations:
            raise too_complex(
                param,
                "the schema asks for more evaluations of subschemas than may be made for one value"
                f" (limit: {limits.evaluations})",
            )
    return Shape(cost[id(schema)], branches, recursive)


class _Names:
    """Where the edges of a schema lead. References that are not certain (another base or document) lead nowhere."""

    def __init__(self, schema: Any) -> None:
        self._root = schema
        self._dynamic: list[Any] | None = None
        self._known: dict[int, list[Edge]] = {}

    def inplace(self, node: Any) -> list[Edge]:
        return [edge for edge in self.edges(node) if not edge[1] and edge[2] != "dynamic"]

    def edges(self, node: Any) -> list[Edge]:
        """(child, whether it is held against a part of the value, what kind of reference)."""
        if not isinstance(node, dict) or _LEADING.isdisjoint(node):  # as most are, in a schema that is large
            return []
        known = self._known.get(id(node))
        if known is None:
            known = self._known[id(node)] = list(self._found(node))
        return known

    def _found(self, node: dict[str, Any]) -> Iterator[Edge]:
        reference = node.get("$ref")
        if isinstance(reference, str):
            target = pointed_at(self._root, reference)
            if target is not None and isinstance(target[1], dict):
                yield target[1], False, "static"
        for keyword in ("$dynamicRef", "$recursiveRef"):
            if isinstance(node.get(keyword), str):
                for anchored in self._anchors():
                    yield anchored, False, "dynamic"
        for keyword in _INPLACE_LISTS:
            for child in _listed(node.get(keyword)):
                yield child, False, ""
        for keyword in _INPLACE:
            if isinstance(node.get(keyword), dict):
                yield node[keyword], False, ""
        for keyword in _INPLACE_MAPS:
            for child in _valued(node.get(keyword)):
                yield child, False, ""
        for keyword in _BELOW_MAPS:
            for child in _valued(node.get(keyword)):
                yield child, True, ""
        for keyword in _BELOW:
            if isinstance(node.get(keyword), dict):
                yield node[keyword], True, ""
        for keyword in ("items", "prefixItems"):
            for child in _listed(node.get(keyword)):
                yield child, True, ""

    def _anchors(self) -> list[Any]:
        if self._dynamic is None:
            self._dynamic = []
            todo = [self._root]
            while todo:
                at = todo.pop()
                if isinstance(at, dict):
                    if "$dynamicAnchor" in at or "$recursiveAnchor" in at:
                        self._dynamic.append(at)
                    todo.extend(at.values())
                elif isinstance(at, list):
                    todo.extend(at)
        return self._dynamic


def _listed(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        yield from (child for child in value if isinstance(child, dict))


def _valued(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from (child for child in value.values() if isinstance(child, dict))


def _components(
    roots: Iterable[Any], edges_of: Callable[[Any], list[Edge]]
) -> tuple[list[tuple[int, Any]], dict[int, int]]:
    """Strongly connected components (Tarjan, without recursion): the nodes, children before parents where they are in
    different components, and the number of each node's component, which counts up in the same order."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    component: dict[int, int] = {}
    order: list[tuple[int, Any]] = []
    open_nodes: list[tuple[int, Any]] = []
    work: list[tuple[Any, Iterator[Edge]]] = []
    number = 0

    def enter(node: Any) -> None:
        index[id(node)] = low[id(node)] = len(index)
        open_nodes.append((id(node), node))
        work.append((node, iter(edges_of(node))))

    for root in roots:
        if id(root) not in index:
            enter(root)
        while work:
            node, edges = work[-1]
            for child, _, _ in edges:
                if id(child) not in index:
                    enter(child)
                    break
                if id(child) not in component:
                    low[id(node)] = min(low[id(node)], index[id(child)])
            else:
                work.pop()
                if work:
                    parent = id(work[-1][0])
                    low[parent] = min(low[parent], low[id(node)])
                if low[id(node)] == index[id(node)]:
                    number += 1
                    while True:
                        last = open_nodes.pop()
                        component[last[0]] = number
                        order.append(last)
                        if last[1] is node:
                            break
    return order, component
