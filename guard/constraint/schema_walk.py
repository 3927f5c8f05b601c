"""A document held against a schema graph as it is read, and its value built on the way.

The rules:

- What is certain is said at the character that makes it certain, whatever the split: an unknown key at the first
  character that no allowed key has there, a list that is too long at its comma, a missing key at the closing bracket.
- A key that stands twice is no error: its last value counts. So a comma in an object that is full, or a key that begins
  like one that stands already and like no other, is held until that key is known to be a new one.
- While a schema leaves alternatives open, every one that is still possible is walked; a value is invalid once none is
  left, and what is left alone is certain from there on.
- An escape says nothing before it is whole: ``held`` is where one begins that is not.
- ``hold`` is where a token begins that only the judge can clear once it is whole (a number with bounds, a string with a
  pattern); the text from there on must not leave yet.
"""

from __future__ import annotations

from typing import Any

from detectors.finding import Finding
from guard.constraint.json_sink import ARRAY, NUMBER, OBJECT, STRING, Sink
from guard.constraint.json_syntax import JsonReader
from guard.constraint.judge import CLOSING, Reason, pointer_of
from guard.constraint.schema_frame import Frame, Position, Violation, a, about, broken_at, full, lacking, path_in, short
from guard.constraint.schema_graph import SchemaGraph
from guard.constraint.schema_node import Node, Plan
from guard.constraint.schema_text import TextWatch, no_room
from guard.constraint.words import Words


class SchemaWalk(Sink):
    """The sink of a JsonReader. Once the document is whole, ``value`` is its value and ``span`` are the offsets of its
    first and last characters."""

    def __init__(self, graph: SchemaGraph) -> None:
        self.reader: JsonReader
        self.frames: list[Frame] = []
        self.hold: int | None = None
        self.value: Any = None
        self.span = (0, 0)
        self.findings: list[Finding] = []
        self._judged = 0
        self.next: Position = graph.root
        self.node: Node | None = None
        self.many: list[tuple[Node, int]] | None = None
        self._frame: Frame | None = None
        self._check = False
        self.heard = TextWatch(self)

    # --- values ------------------------------------------------------------------------------------------------------

    def start(self, kind: int, at: int) -> None:
        frame = self._frame
        position: Position
        if frame is not None and frame.kind == ARRAY:
            same = frame.items
            if same is None:
                position = self._item(frame, at)
            else:
                frame.count += 1
                position = same
        else:
            position = self.next
        node: Node | None = None
        plan: Plan | None = None
        if type(position) is Node:
            plan = position.plans[kind] or position.plan(kind)
            node = plan.node
        if node is None or plan is None:
            self._start_many(frame, position, kind, at)
            return
        if kind <= ARRAY:
            self._open(frame, Frame(kind, at, node, None))
            return
        self.node = node
        self._check = plan.check
        if plan.hold:
            self.hold = at
        if plan.watch is not None:
            self.heard.begin(plan.watch, plan.budget)
        if frame is None and kind == NUMBER:
            self.hold = at  # nothing ends a number at the root: any of it would look whole

    def _start_many(self, frame: Frame | None, position: Position, kind: int, at: int) -> None:
        """A value that is invalid, or that may be one of several."""
        if isinstance(position, Node):
            many = [(one, 1) for one in position.on(kind)]
            if not many:
                raise self.refused(position.refusal(kind), at, f"{a(kind)} is not allowed here")
        else:
            many = self._merge(position, kind, at)
        certain = many[0][0] if len(many) == 1 and frame is not None and frame.many is None else None
        if kind <= ARRAY:
            self._open(frame, Frame(kind, at, certain, None if certain else many))
            return
        self.node = certain
        self.many = many
        self._check = True
        plans = [one.plans[kind] or one.plan(kind) for one, _ in many]
        if any(plan.hold for plan in plans) or (frame is None and kind == NUMBER):
            self.hold = at
        if all(plan.watch is not None for plan in plans):
            self.heard.begin([watch for plan in plans for watch in plan.watch or ()], -1)

    def _open(self, frame: Frame | None, opened: Frame) -> None:
        self._put(frame, opened.value)
        self._frame = opened
        self.frames.append(opened)
        self.reader.quiet = opened.quiet

    def scalar(self, kind: int, value: Any, at: int, end: int) -> None:
        if self._check:
            if self.heard.high:
                self.heard.close(end)
            node = self.node
            if node is None:
                self._settle_scalar(kind, value, at, end)
            else:
                keyword = node.check(kind, value)
                if keyword is not None:
                    raise self._broken(node, kind, keyword, value, at, end)
                if node.whole and self.frames:
                    reason = node.judge(value)
                    if reason is not None:
                        raise self.refused(reason.keyword, at, reason.message)
        self.hold = None
        frame = self._frame
        if frame is None:
            self.value = value
            self.span = (at, end - 1)
        elif frame.kind == OBJECT:
            frame.value[frame.key] = value
        else:
            frame.value.append(value)

    def _settle_scalar(self, kind: int, value: Any, at: int, end: int) -> None:
        keywords: list[str] = []
        onset = at
        parents = 0
        for node, mask in self.many or ():
            keyword = node.check(kind, value)
            if keyword is None and node.whole and self.frames:
                reason = node.judge(value)
                keyword = reason.keyword if reason is not None else None
            if keyword is None:
                parents |= mask
            else:
                keywords.append(keyword)
                onset = max(onset, broken_at(node, kind, keyword, value, at, end))
        if not parents:
            if kind == STRING:
                self.heard.replay(value, at)
            keyword = keywords[0] if len(set(keywords)) == 1 else "anyOf"
            raise self.refused(keyword, onset, about(keyword, kind))
        if self._frame is not None:
            self._narrow(len(self.frames) - 1, parents)

    def _broken(self, node: Node, kind: int, keyword: str, value: Any, at: int, end: int) -> Violation:
        if kind == STRING:
            self.heard.replay(value, at)
        return self.refused(keyword, broken_at(node, kind, keyword, value, at, end), about(keyword, kind))

    def _put(self, frame: Frame | None, value: Any) -> None:
        if frame is None:
            self.value = value
        elif frame.kind == OBJECT:
            frame.value[frame.key] = value
        else:
            frame.value.append(value)

    # --- objects and arrays ------------------------------------------------------------------------------------------

    def text(self, piece: str, at: int) -> None:
        self.heard.text(piece, at)

    def key_start(self, at: int) -> None:
        frame = self.frames[-1]
        node = frame.node
        if node is not None:
            if not frame.value and node.bounded:
                self._has_room(frame, [node], at)
            if frame.full_at is not None:
                self.heard.begin([(Words(frame.value), None)], -1, in_key=True)
            elif node.key_watch is not None:
                self.heard.begin(node.key_watch, -1, in_key=True)
            if node.holds_keys and self.hold is None:
                self.hold = at
            return
        nodes = frame.nodes()
        if not frame.value:
            self._has_room(frame, nodes, at)
        if frame.full_at is not None:
            self.heard.begin([(Words(frame.value), None)], -1, in_key=True)
        elif all(one.names is not None for one in nodes):
            self.heard.begin([(one.names, None) for one in nodes], -1, in_key=True)
        if self.hold is None and any(one.holds_keys for one in nodes):
            self.hold = at

    def _has_room(self, frame: Frame, nodes: list[Node], at: int) -> None:
        keyword = full(frame, nodes)
        if keyword is not None:
            raise self.refused(keyword, at, "no key is allowed here", inside=False)

    def key(self, key: str, at: int, end: int) -> None:
        frame = self.frames[-1]
        frame.key = key
        if self.heard.high:
            self.heard.close(end)
        if key in frame.value:
            self._twice(key, at, end)
            frame.full_at = None
        elif frame.full_at is not None:
            raise no_room(self, frame)
        node = frame.node
        if node is not None:
            child = node.kids.get(key) or node.child(key)
            if type(child) is not Node:
                raise self._unknown(str(child), key, at, end)
            self.next = child
            self.hold = None
            return
        position: list[tuple[Node, int]] = []
        why = ""
        for i, (one, _) in enumerate(frame.many or ()):
            if frame.alive >> i & 1:
                below = one.child(key)
                if isinstance(below, str):
                    why = below
                else:
                    position.append((below, 1 << i))
        if not position:
            raise self._unknown(why, key, at, end)
        self.next = position
        self.hold = None

    def comma(self, at: int) -> None:
        frame = self.frames[-1]
        if frame.node is not None:
            if not frame.node.bounded:
                return
            keyword = full(frame, [frame.node])
        else:
            keyword = full(frame, frame.nodes())
        if keyword is None:
            return
        if frame.kind == ARRAY:
            raise self.refused(keyword, at, "the array is full", inside=False)
        frame.full = keyword
        frame.full_at = self.hold = at

    def _unknown(self, keyword: str, key: str, at: int, end: int) -> Violation:
        self.heard.replay(key, at)
        if self.frames[-1].full_at is not None:
            return no_room(self, self.frames[-1])
        onset = at if self.hold == at else end - 1
        return self.refused(keyword, onset, f"the key {short(key)} is not allowed here", inside=False)

    def _twice(self, key: str, at: int, end: int) -> None:
        message = f"the key {short(key)} stands twice in one object; its last value counts"
        evidence = {"pointer": self.pointer()}
        self.findings.append(
            Finding("json.duplicate_key", "warn", message, onset=at, detected_at=end, evidence=evidence)
        )

    def end(self, kind: int, at: int) -> None:
        frame = self.frames.pop()
        if self.frames:
            around = self._frame = self.frames[-1]
            self.reader.quiet = around.quiet
        else:
            self._frame = None
            self.span = (frame.at, at)
        node = frame.node
        if node is not None:
            keyword, message = lacking(frame, node)
            if keyword is not None:
                raise self.refused(keyword, at, message, good=at if keyword in CLOSING else frame.at)
            if node.whole and self._may_judge(frame, at):
                reason = node.judge(frame.value)
                if reason is not None:
                    raise self._broken_inside(reason, frame, at)
            return
        keywords: list[tuple[str, str]] = []
        parents = 0
        for i, (one, mask) in enumerate(frame.many or ()):
            if frame.alive >> i & 1:
                keyword, message = lacking(frame, one)
                if keyword is None and one.whole and self._may_judge(frame, at):
                    reason = one.judge(frame.value)
                    if reason is not None:
                        keyword, message = reason.keyword, reason.message
                if keyword is None:
                    parents |= mask
                else:
                    keywords.append((keyword, message))
        if not parents:
            good = at if any(keyword in CLOSING for keyword, _ in keywords) else frame.at
            keyword, message = keywords[0]
            if len({keyword for keyword, _ in keywords}) > 1:
                keyword, message = "anyOf", "no alternative takes this value: " + "; ".join(m for _, m in keywords[:3])
            raise self.refused(keyword, at, message, good=good)
        if self.frames:
            self._narrow(len(self.frames) - 1, parents)

    def _may_judge(self, frame: Frame, at: int) -> bool:
        """Whether a container may be judged by itself before the whole is: nested ones are judged again with each level
        around them, so that only so much text may be. At the root it will be anyway."""
        if not self.frames:
            return False
        self._judged += at - frame.at
        return self._judged <= 8 * (at - self.reader.base) + 10_000

    def _broken_inside(self, reason: Reason, frame: Frame, at: int) -> Violation:
        pointer = self.pointer() + pointer_of(reason.path)
        # where the value at fault begins is not known any more, unless it is this one
        good = at if reason.keyword in CLOSING and not reason.path else frame.at
        return Violation(reason.keyword, pointer, at, good, reason.message)

    def _item(self, frame: Frame, at: int) -> Position:
        index = frame.count
        frame.count = index + 1
        if frame.node is not None:
            child = frame.node.item(index)
            if isinstance(child, str):
                raise self.refused(child, at, "no item is allowed here")
            return child
        position: list[tuple[Node, int]] = []
        why = ""
        for i, (one, _) in enumerate(frame.many or ()):
            if frame.alive >> i & 1:
                child = one.item(index)
                if isinstance(child, str):
                    why = child
                else:
                    position.append((child, 1 << i))
        if not position:
            raise self.refused(why, at, "no item is allowed here")
        return position

    # --- alternatives ------------------------------------------------------------------------------------------------

    def _merge(self, position: list[tuple[Node, int]], kind: int, at: int) -> list[tuple[Node, int]]:
        merged: dict[Node, int] = {}
        parents = 0
        for child, mask in position:
            for one in child.on(kind):
                merged[one] = merged.get(one, 0) | mask
                parents |= mask
        if not merged:
            keywords = {child.refusal(kind) for child, _ in position}
            keyword = keywords.pop() if len(keywords) == 1 else "anyOf"
            raise self.refused(keyword, at, f"{a(kind)} is not allowed here")
        self._narrow(len(self.frames) - 1, parents)
        return list(merged.items())

    def _narrow(self, index: int, alive: int) -> None:
        """Only the alternatives ``alive`` of the frame at ``index`` are still possible, and so on outwards."""
        while index >= 0:
            frame = self.frames[index]
            many = frame.many
            if many is None or alive & frame.alive == frame.alive:
                return
            frame.alive &= alive
            parents = 0
            left: list[Node] = []
            for i, (node, mask) in enumerate(many):
                if frame.alive >> i & 1:
                    parents |= mask
                    left.append(node)
            if len(left) == 1:
                frame.settle(left[0])
            alive = parents
            index -= 1

    def held(self) -> int | None:
        """Where text begins that must not leave yet."""
        reader = self.reader
        pending = len(reader.escape) + (6 if self.heard.high else 0)
        if not pending:
            return self.hold
        at = reader.offset - pending
        return at if self.hold is None else min(self.hold, at)

    # --- words -------------------------------------------------------------------------------------------------------

    def pointer(self, *, inside: bool = True) -> str:
        """The JSON pointer of the value that is being read; of the container around it where ``inside`` is not set."""
        return pointer_of(path_in(self.frames if inside else self.frames[:-1]))

    def refused(
        self, keyword: str, at: int, message: str, *, inside: bool = True, good: int | None = None
    ) -> Violation:
        return Violation(keyword, self.pointer(inside=inside), at, at if good is None else good, message)
