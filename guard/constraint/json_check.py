"""JSON and JSON schemas, checked while they stream.

The rules:

- Syntax is exact, character by character. What the schema certainly forbids is said at once (schema_walk.py); whether
  the whole is valid is the judge's word, given at the document's last character.
- ``streaming``: text leaves as it comes, but the document's last character waits for the judge, so that an invalid
  document never looks finished. ``on_complete``: nothing leaves until the answer has ended and is valid.
- White space around the document is fine. A markdown fence around the whole answer is taken off where repairs are
  allowed, and said; any other text around the document is an error.
- A document that was valid before something else followed it is ``complete``: cutting at ``good`` gives a whole answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Literal

from detectors.finding import Finding
from guard.constraint.forced import forced_text
from guard.constraint.json_sink import KINDS
from guard.constraint.json_syntax import DONE, JsonError, JsonReader
from guard.constraint.judge import CLOSING, Judge, pointer_of
from guard.constraint.locate import locate, syntax_error
from guard.constraint.schema_frame import Violation
from guard.constraint.schema_graph import SchemaGraph
from guard.constraint.schema_node import Node
from guard.constraint.schema_walk import SchemaWalk

Release = Literal["streaming", "on_complete"]

_SPACE: Final = re.compile(r"[ \t\r\n]*")
_OPENING: Final = re.compile(r"```[\w.+-]{0,20}[ \t]*\r?\n")
_OPENING_BEGUN: Final = re.compile(r"`{1,2}|```[\w.+-]{0,20}[ \t]*\r?")
_CLOSING: Final = re.compile(r"`{1,3}|```[ \t\r\n]*")

_HEAD, _BODY, _TAIL, _DEAD = range(4)


class JsonChecker:
    """A Checker (contract.py) of one JSON document. ``judge`` is None where syntax and walk decide all."""

    def __init__(self, graph: SchemaGraph, judge: Judge | None, release: Release, repairs: bool) -> None:
        self._graph = graph
        self._judge = judge
        self._release = release
        self._repairs = repairs
        self._streams = release == "streaming"
        self._start()

    def _start(self) -> None:
        self.safe = 0
        self.good = 0
        self.drops: list[tuple[int, int]] = []
        self.complete = False
        self._fed = 0
        self._texts: list[str] = []
        self._stage = _HEAD
        self._walk = SchemaWalk(self._graph)
        self._reader = self._walk.reader = JsonReader(self._walk)
        self._edge = ""
        self._edge_at = 0
        self._fenced = False
        self._refused_at_once = False

    # --- feeding -----------------------------------------------------------------------------------------------------

    def feed(self, text: str) -> Sequence[Finding]:
        self._texts.append(text)
        at = self._fed
        self._fed = fed = at + len(text)
        if self._stage == _HEAD and text and not self._edge and text[0] not in " \t\r\n`":
            self._stage = _BODY
            self._reader.base = at
        if self._stage == _BODY:
            reader = self._reader
            try:
                used = reader.feed(text)
            except JsonError as error:
                return (*self._noted(), self._error("json.invalid", error.at, error.message))
            except Violation as broken:
                return (*self._noted(), self._violated(broken))
            if reader.mode == DONE:
                return self._ended(text, at, used)
            walk = self._walk
            if walk.hold is None and not reader.escape and not walk.heard.high:
                self.good = fed
                if self._streams:
                    self.safe = fed
            else:
                self._hold()
            return self._noted() if walk.findings else ()
        if self._stage == _HEAD:
            return self._head(text, at)
        if self._stage == _TAIL:
            return self._tail(text, at)
        return ()

    def finish(self, truncated: bool) -> Sequence[Finding]:
        if self._stage == _TAIL and not self._edge and not self._fenced:
            self.safe = self.good = self._fed
            return ()
        found: list[Finding] = []
        if self._stage == _DEAD and self._refused_at_once:
            found.extend(self._no_json())
        elif self._stage == _HEAD and self._edge:
            found.append(self._error("json.truncated", self._edge_at, "the answer ends in an opening code fence"))
        elif self._stage == _HEAD:
            found.append(self._error("json.truncated", self._fed, "the answer holds no JSON document"))
        elif self._stage == _BODY:
            found.extend(self._end_of_number())
        if self._stage == _TAIL and self._edge.strip() and not self._edge.lstrip().startswith("```"):
            found.append(self._trailing(self._edge_at))
        if self._stage == _TAIL:
            if self._edge or self._fenced:
                start = self._tail_start
                if start < self._fed:
                    self.drops.append((start, self._fed))
            self.safe = self.good = self._fed
        return found

    def _no_json(self) -> Sequence[Finding]:
        """Prose often begins like a value of a wrong type (``1. Name``, ``not yet``): then it is no JSON at all."""
        text, base = "".join(self._texts), self._reader.base
        wrong = syntax_error(text, base)
        if wrong is None:
            return ()
        at, message = wrong
        return (Finding("json.invalid", "error", message, onset=at, detected_at=min(at + 1, len(text))),)

    def _head(self, text: str, at: int) -> Sequence[Finding]:
        start = 0
        if not self._edge:
            start = _SPACE.match(text).end()  # type: ignore[union-attr]
            if start == len(text):
                self._move(self._fed)
                return ()
            if text[start] != "`":
                return self._begin(text[start:], at + start)
            if not self._repairs:
                message = "the answer is wrapped in a markdown fence, not JSON alone"
                return (self._error("json.fenced", at + start, message),)
            self._edge_at = at + start
            self._move(self._edge_at)
        self._edge += text[start:]
        opening = _OPENING.match(self._edge)
        if opening is None:
            if _OPENING_BEGUN.fullmatch(self._edge):
                self.good = self._fed
                return ()
            return (self._error("json.invalid", self._edge_at, "a value was expected, not '`'"),)
        rest = self._edge[opening.end() :]
        body_at = self._edge_at + opening.end()
        self.drops.append((self._edge_at, body_at))
        self._fenced = True
        self._edge = ""
        self._move(body_at)
        message = "the answer is wrapped in a markdown fence, which was taken off"
        found = [Finding("json.fenced", "warn", message, onset=self._edge_at, detected_at=body_at)]
        space = _SPACE.match(rest).end()  # type: ignore[union-attr]
        self._move(body_at + space)
        found.extend(self._begin(rest[space:], body_at + space))
        return found

    def _begin(self, text: str, at: int) -> Sequence[Finding]:
        """The document begins at offset ``at``, or white space before it goes on to the end of ``text``."""
        self._stage = _BODY
        self._reader.base = at
        if not text:
            return ()
        self._fed = at
        found = self.feed(text)
        self._texts.pop()  # it was kept when it came
        return found

    def _hold(self) -> None:
        walk = self._walk
        full = walk.frames[-1].full_at if walk.frames else None
        self.good = self._fed if full is None else full
        if self._streams:
            held = walk.held()
            self.safe = self._fed if held is None else held

    def _ended(self, text: str, at: int, used: int) -> Sequence[Finding]:
        """The document is whole: its last character leaves if the judge agrees."""
        walk = self._walk
        if self._judge is not None and not self._judge.is_valid(walk.value):
            return (*self._noted(), self._refused_by_judge())
        self.complete = True
        self._stage = _TAIL
        if used == len(text) and not self._fenced and not walk.findings and not self._reader.lone_surrogates:
            self._move(self._fed)
            return ()
        found = list(self._noted())
        if self._reader.lone_surrogates:
            message = "the document escapes half a surrogate pair, which is no character"
            found.append(Finding("json.lone_surrogate", "warn", message))
        space = len(text[:used]) - len(text[:used].rstrip(" \t\r\n")) if self._fenced else 0
        end = at + used - space
        self._move(end)
        if end < self._fed:
            found.extend(self._tail(text[used - space :], end))
        return found

    def _end_of_number(self) -> list[Finding]:
        try:
            whole = self._reader.finish()
        except Violation as broken:
            return [*self._noted(), self._violated(broken)]
        if whole:
            return list(self._ended("", self._fed, 0))
        place = self._walk.pointer() or "the document's root"
        message = f"the answer ends before its JSON document does, at {place}"
        return [self._error("json.truncated", self._fed, message, good=self.good)]

    def _tail(self, text: str, at: int) -> Sequence[Finding]:
        """After the document: white space, and the rest of a fence."""
        if not self._edge and not self._fenced:
            space = _SPACE.match(text).end()  # type: ignore[union-attr]
            self._move(at + space)
            if space == len(text):
                return ()
            text, at = text[space:], at + space
        if not self._edge:
            self._edge_at = at
        had = len(self._edge)
        self._edge += text
        fence = self._edge.lstrip(" \t\r\n")
        tick = len(self._edge) - len(fence)
        if not fence or (self._repairs and _CLOSING.fullmatch(fence)):
            self.good = self._fed
            if not self._fenced and fence.startswith("```") and not self._edge[:had].startswith("```"):
                message = "a markdown fence follows the document, and was taken off"
                onset = self._edge_at + tick
                return (Finding("json.fenced", "warn", message, onset=onset, detected_at=onset + 3),)
            return ()
        return (self._trailing(self._first_bad(tick, fence)),)

    def _first_bad(self, tick: int, fence: str) -> int:
        """Where what follows the document stops being a fence, or white space after one."""
        if self._repairs and fence.startswith("```"):
            rest = fence[3:]
            return self._edge_at + tick + 3 + len(rest) - len(rest.lstrip(" \t\r\n"))
        return self._edge_at + tick

    @property
    def _tail_start(self) -> int:
        return self._edge_at if self._edge else self._fed

    # --- errors ------------------------------------------------------------------------------------------------------

    def _error(
        self, code: str, at: int, message: str, *, good: int | None = None, evidence: dict[str, str] | None = None
    ) -> Finding:
        self._stage = _DEAD
        self.good = at if good is None else good
        if self._streams:
            held = self._walk.hold
            self.safe = max(self.safe, at if held is None else min(held, at))
        if evidence is None:
            evidence = {"pointer": self._walk.pointer()}
        return Finding(code, "error", message, onset=at, detected_at=min(at + 1, self._fed), evidence=evidence)

    def _trailing(self, at: int) -> Finding:
        message = "text follows the JSON document"
        if self._edge[: max(0, at - self._edge_at)].strip():  # a fence stands between them
            self.drops.append((self._edge_at, at))
        return self._error("json.trailing_data", at, message)

    def _violated(self, broken: Violation) -> Finding:
        evidence = {"pointer": broken.pointer, "keyword": broken.keyword}
        message = f"{broken.pointer or 'the root'}: {broken.message}"
        self._refused_at_once = broken.keyword == "type" and not broken.pointer
        return self._error(f"schema.{broken.keyword}", broken.at, message, good=broken.good, evidence=evidence)

    def _refused_by_judge(self) -> Finding:
        """The document is read to its end, and invalid: all of it but its last character may have left."""
        assert self._judge is not None
        reason = self._judge.reason(self._walk.value)
        first, last = self._walk.span
        end = last if self._walk.hold is None else self._walk.hold
        if reason.path:
            first, last = locate("".join(self._texts), self._reader.base, reason.path)
        pointer = pointer_of(reason.path)
        return self._error(
            f"schema.{reason.keyword}",
            end,
            f"{pointer or 'the root'}: {reason.message}",
            good=last if reason.keyword in CLOSING else first,
            evidence={"pointer": pointer, "keyword": reason.keyword},
        )

    def _noted(self) -> Sequence[Finding]:
        found = self._walk.findings
        if not found:
            return ()
        self._walk.findings = []
        return found

    def _move(self, offset: int) -> None:
        self.good = offset
        if self._streams:
            self.safe = offset

    # --- going on from outside ---------------------------------------------------------------------------------------

    def rewind(self) -> None:
        """Back to ``good``: what is fed next goes on from there. Findings that were given are not repeated."""
        text = "".join(self._texts)[: self.good]
        self._start()
        self.feed(text)

    def forced(self) -> str:
        """The text that any valid answer has next, after ``good``; of the ways to order keys and to space, the
        plainest. Empty where the model has a choice."""
        probe = JsonChecker(self._graph, self._judge, self._release, self._repairs)
        probe.feed("".join(self._texts)[: self.good])
        if probe._stage not in (_HEAD, _BODY) or probe._edge:
            return ""
        return forced_text(probe._walk, probe._reader)

    def kinds(self) -> frozenset[int]:
        """What the value behind a key that was just read may be, as far as the schema says (json_syntax.py)."""
        position = self._walk.next
        nodes = [position] if isinstance(position, Node) else [node for node, _ in position]
        return frozenset([kind for kind in range(len(KINDS)) if any(node.on(kind) for node in nodes)])

    @property
    def expecting(self) -> str:
        """In words, what stands open at ``good``."""
        if self.complete:
            return "the document is complete"
        return f"{self._reader.place} at {self._walk.pointer() or 'the root'}, of {len(self._walk.frames)} open levels"
