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

from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import quote

import jsonschema_rs

from guard.constraint.judge import Judge
from guard.constraint.schema_drafts import REGISTRY_DRAFTS, VALIDATORS, has
from guard.constraint.schema_node import Node
from guard.constraint.schema_parts import Part, Parts

_BASE: Final = "outguard:///schema"
_MOST_NODES: Final = 5_000


class SchemaGraph:
    """The parts and nodes of one schema. ``root`` is the node of the whole document. ``cost`` and ``branches`` are the
    judge's (judge.py).

    Not locked: building a node twice at once gives two that mean the same.
    """

    def __init__(self, schema: Any, draft: int, cost: int = 1, branches: int = 1) -> None:
        self.draft = draft
        self.schema = schema
        self._validator = VALIDATORS[draft]
        self._parts = Parts(schema, draft)
        self._nodes: dict[tuple[frozenset[int], frozenset[tuple[int, int]]], Node] = {}
        self._judges: dict[int, Judge | None] = {}
        self._limits: dict[tuple[int, str], Any] = {}
        self._registry: Any = None
        self._cost = cost
        self._branches = branches
        # what a dynamic reference means depends on the way to it, so that no part can be judged by itself
        self._by_parts = self._parts.refers and not any(has(schema, name) for name in ("$dynamicRef", "$recursiveRef"))
        self.any = Node(self, (), frozenset())
        self.root = self.node([self._parts.part(())], frozenset())

    def node(self, parts: Iterable[Part], settled: frozenset[tuple[int, int]]) -> Node:
        """The node of all of ``parts`` together. ``settled`` names the alternatives that were already decided."""
        closed: dict[int, Part] = {}
        todo = list(parts)
        while todo:
            part = todo.pop()
            if part.id not in closed:
                if not part.read:
                    self._parts.read(part)
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
                    draft = REGISTRY_DRAFTS[self.draft]
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
