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

from collections.abc import Sequence
from typing import Any

from detectors.finding import Finding
from guard.constraint.json_syntax import ARRAY, KINDS, NUMBER, OBJECT, STRING, UNHEARD, JsonReader
from guard.constraint.judge import CLOSING, Reason, pointer_of
from guard.constraint.schema_graph import Node, Plan, SchemaGraph, Words

Position = Node | list[tuple[Node, int]]
"""Where a value is to come: one node, or several, each with the set (as bits) of the alternatives around it that it
belongs to."""


class Violation(Exception):
    """No continuation is valid. ``at`` is the character with which that became certain (or where text is held from);
    ``good`` the end of what can still become valid, which is earlier where a whole value is at fault."""

    def __init__(self, keyword: str, pointer: str, at: int, good: int, message: str) -> None:
        super().__init__(message)
        self.keyword = keyword
        self.pointer = pointer
        self.at = at
        self.good = good
        self.message = message


class Frame:
    """An open object or array. Either ``node`` is certain, or ``many`` are possible, of which ``alive`` still are."""

    __slots__ = ("alive", "at", "count", "full", "full_at", "items", "key", "kind", "many", "node", "quiet", "value")

    def __init__(self, kind: int, at: int, node: Node | None, many: list[tuple[Node, int]] | None) -> None:
        self.kind = kind
        self.at = at
        self.node = node
        self.many = many
        self.alive = 1 if many is None else (1 << len(many)) - 1
        self.value: Any = {} if kind == OBJECT else []
        self.key: str | None = None
        self.count = 0
        self.full = ""
        self.full_at: int | None = None
        self.items: Node | None = None
        self.quiet = False
        if node is not None:
            self.quiet = node.quiet
            if kind == ARRAY:
                self.items = node.all_items()

    def settle(self, node: Node) -> None:
        """Only one alternative is left."""
        self.node = node
        self.many = None
        if self.kind == ARRAY:
            self.items = node.all_items()

    def nodes(self) -> list[Node]:
        if self.many is None:
            return [self.node] if self.node is not None else []
        return [node for i, (node, _) in enumerate(self.many) if self.alive >> i & 1]


class SchemaWalk:
    """The sink of a JsonReader. ``value`` is the document's once it is whole."""

    def __init__(self, graph: SchemaGraph) -> None:
        self.reader: JsonReader
        self.frames: list[Frame] = []
        self.hold: int | None = None
        self.value: Any = None
        self.findings: list[Finding] = []
        self._judged = 0
        self.next: Position = graph.root
        self.node: Node | None = None
        self.many: list[tuple[Node, int]] | None = None
        self._frame: Frame | None = None
        self._watching: Sequence[tuple[Words | None, int | None]] = ()
        self._seen = ""
        self._length = 0
        self._check = False
        self.high = ""
        self._in_key = False
        self._counted = False

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
        if position.__class__ is Node:
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
            self._watch(plan.watch, plan.budget)
        if frame is None and kind == NUMBER:
            self.hold = at  # nothing ends a number at the root: any of it would look whole

    def _start_many(self, frame: Frame | None, position: Position, kind: int, at: int) -> None:
        """A value that is invalid, or that may be one of several."""
        if isinstance(position, Node):
            many = [(one, 1) for one in position.on(kind)]
            if not many:
                raise self._refused(position.refusal(kind), at, f"{_a(kind)} is not allowed here")
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
            self._watch([watch for plan in plans for watch in plan.watch or ()], -1)

    def _open(self, frame: Frame | None, opened: Frame) -> None:
        self._put(frame, opened.value)
        self._frame = opened
        self.frames.append(opened)
        self.reader.quiet = opened.quiet

    def scalar(self, kind: int, value: Any, at: int, end: int) -> None:
        if self._check:
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
                        raise self._refused(reason.keyword, at, reason.message)
        self.hold = None
        frame = self._frame
        if frame is None:
            self.value = value
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
                onset = max(onset, _broken_at(node, kind, keyword, value, at, end))
        if not parents:
            if kind == STRING:
                self._replay(value, at)
            keyword = keywords[0] if len(set(keywords)) == 1 else "anyOf"
            raise self._refused(keyword, onset, _about(keyword, kind))
        if self._frame is not None:
            self._narrow(len(self.frames) - 1, parents)

    def _broken(self, node: Node, kind: int, keyword: str, value: Any, at: int, end: int) -> Violation:
        if kind == STRING:
            self._replay(value, at)
        return self._refused(keyword, _broken_at(node, kind, keyword, value, at, end), _about(keyword, kind))

    def _replay(self, text: str, at: int) -> None:
        """A string that came whole was not heard. Now that it is at fault, it is: raises the Violation of the character
        that is wrong, as it would have been raised had it come in pieces."""
        reader = self.reader
        if reader.plain and reader.budget != UNHEARD:
            reader.budget -= len(text)
            if reader.budget < 0 and text:
                self._hear(text, at + 1)

    def _put(self, frame: Frame | None, value: Any) -> None:
        if frame is None:
            self.value = value
        elif frame.kind == OBJECT:
            frame.value[frame.key] = value
        else:
            frame.value.append(value)

    # --- objects and arrays ------------------------------------------------------------------------------------------

    def key_start(self, at: int) -> None:
        frame = self.frames[-1]
        node = frame.node
        if node is not None:
            if not frame.value and node.bounded:
                self._has_room(frame, [node], at)
            if frame.full_at is not None:
                self._watch([(Words(frame.value), None)], -1, in_key=True)
            elif node.key_watch is not None:
                self._watch(node.key_watch, -1, in_key=True)
            if node.holds_keys and self.hold is None:
                self.hold = at
            return
        nodes = frame.nodes()
        if not frame.value:
            self._has_room(frame, nodes, at)
        if frame.full_at is not None:
            self._watch([(Words(frame.value), None)], -1, in_key=True)
        elif all(one.names is not None for one in nodes):
            self._watch([(one.names, None) for one in nodes], -1, in_key=True)
        if self.hold is None and any(one.holds_keys for one in nodes):
            self.hold = at

    def _has_room(self, frame: Frame, nodes: list[Node], at: int) -> None:
        keyword = _full(frame, nodes)
        if keyword is not None:
            raise self._refused(keyword, at, "no key is allowed here", inside=False)

    def key(self, key: str, at: int, end: int) -> None:
        frame = self.frames[-1]
        frame.key = key
        if key in frame.value:
            self._twice(key, at, end)
            frame.full_at = None
        elif frame.full_at is not None:
            raise self._no_room(frame)
        node = frame.node
        if node is not None:
            child = node.kids.get(key) or node.child(key)
            if child.__class__ is not Node:
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
            keyword = _full(frame, [frame.node])
        else:
            keyword = _full(frame, frame.nodes())
        if keyword is None:
            return
        if frame.kind == ARRAY:
            raise self._refused(keyword, at, "the array is full", inside=False)
        frame.full = keyword
        frame.full_at = self.hold = at

    def _unknown(self, keyword: str, key: str, at: int, end: int) -> Violation:
        self._replay(key, at)
        if self.frames[-1].full_at is not None:
            return self._no_room(self.frames[-1])
        onset = at if self.hold == at else end - 1
        return self._refused(keyword, onset, f"the key {_short(key)} is not allowed here", inside=False)

    def _twice(self, key: str, at: int, end: int) -> None:
        message = f"the key {_short(key)} stands twice in one object; its last value counts"
        evidence = {"pointer": self.pointer()}
        self.findings.append(
            Finding("json.duplicate_key", "warn", message, onset=at, detected_at=end, evidence=evidence)
        )

    def end(self, kind: int, at: int) -> None:
        frame = self.frames.pop()
        around = self._frame = self.frames[-1] if self.frames else None
        if around is not None:
            self.reader.quiet = around.quiet
        node = frame.node
        if node is not None:
            keyword, message = _lacking(frame, node)
            if keyword is not None:
                raise self._refused(keyword, at, message, good=at if keyword in CLOSING else frame.at)
            if node.whole and self._may_judge(frame, at):
                reason = node.judge(frame.value)
                if reason is not None:
                    raise self._broken_inside(reason, frame, at)
            return
        keywords: list[tuple[str, str]] = []
        parents = 0
        for i, (one, mask) in enumerate(frame.many or ()):
            if frame.alive >> i & 1:
                keyword, message = _lacking(frame, one)
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
            raise self._refused(keyword, at, message, good=good)
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
                raise self._refused(child, at, "no item is allowed here")
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
            raise self._refused(why, at, "no item is allowed here")
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
            raise self._refused(keyword, at, f"{_a(kind)} is not allowed here")
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

    # --- strings and keys that are known by their beginning ----------------------------------------------------------

    def _watch(self, watching: Sequence[tuple[Words | None, int | None]], budget: int, in_key: bool = False) -> None:
        self._watching = watching
        self._seen = ""
        self._length = 0
        self.high = ""
        self._in_key = in_key
        self._counted = budget >= 0
        self.reader.budget = budget

    def text(self, piece: str, at: int) -> None:
        if self.high:
            high, self.high = self.high, ""
            if "\udc00" <= piece <= "\udfff":
                piece = (high + piece).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
                at -= 6
            else:
                self._hear(high, at - 6)
        if len(piece) == 1 and "\ud800" <= piece <= "\udbff":
            self.high = piece
        else:
            self._hear(piece, at)

    def _hear_key(self, piece: str, at: int) -> None:
        """A key's next characters. One that begins like a key that stands already may become that one again, but not a
        new one: it is held from where that is certain."""
        frame = self.frames[-1]
        used = frame.value
        seen = self._seen
        self._seen = begun = seen + piece
        if frame.full_at is None:
            if any(words is not None and words.has_other(begun, used) for words, _ in self._watching):
                return
            good = 0
            for words, _ in self._watching:
                while words is not None and good < len(piece) and words.has_other(seen + piece[: good + 1], used):
                    good += 1
            frame.full, frame.full_at = "additionalProperties", at + good
            self.hold = at + good if self.hold is None else min(self.hold, at + good)
        if not any(key.startswith(begun) for key in used):
            raise self._no_room(frame)

    def _no_room(self, frame: Frame) -> Violation:
        message = "nothing that the object may still have begins like this"
        return self._refused(frame.full, frame.full_at or 0, message, inside=False)

    def _hear(self, piece: str, at: int) -> None:
        if self._in_key:
            self._hear_key(piece, at)
            return
        if len(self._watching) == 1:
            words, most = self._watching[0]
            if words is None and self._counted:
                # only the length counts, and the budget for it is spent
                best, keyword = len(piece) + self.reader.budget, "maxLength"
            else:
                best, keyword = self._first_wrong(words, most, piece)
                if not keyword:
                    self._seen += piece if words is not None else ""
                    self._length += len(piece)
                    return
        else:
            best, keyword = -1, ""
            left: list[tuple[Words | None, int | None]] = []
            for words, most in self._watching:
                good, why = self._first_wrong(words, most, piece)
                if not why:
                    left.append((words, most))
                elif good > best:
                    best, keyword = good, why
            if left:
                self._watching = left
                self._length += len(piece)
                if any(words is not None for words, _ in left):
                    self._seen += piece
                return
        if keyword == "enum" and self.node is not None and not any("enum" in part.plain for part in self.node.parts):
            keyword = "const"
        raise self._refused(keyword, at + best, _about(keyword, STRING))

    def _first_wrong(self, words: Words | None, most: int | None, piece: str) -> tuple[int, str]:
        """How many characters of ``piece`` can still follow, and the keyword that the next one breaks, if there is."""
        good, why = len(piece), ""
        if most is not None and self._length + good > most:
            good, why = most - self._length, "maxLength"
        if words is not None and not words.has_prefix(self._seen + piece):
            fits = _common(words, self._seen, piece)
            if fits < good or not why:
                good, why = fits, "enum"
        return good, why

    def held(self) -> int | None:
        """Where text begins that must not leave yet."""
        reader = self.reader
        pending = len(reader.escape) + (6 if self.high else 0)
        if not pending:
            return self.hold
        at = reader.offset - pending
        return at if self.hold is None else min(self.hold, at)

    # --- words -------------------------------------------------------------------------------------------------------

    def pointer(self, *, inside: bool = True) -> str:
        """The JSON pointer of the value that is being read; of the container around it where ``inside`` is not set."""
        steps: list[str | int] = []
        for number, frame in enumerate(self.frames, 1):
            if not inside and number == len(self.frames):
                break
            if frame.key is not None:
                steps.append(frame.key)
            elif frame.kind == ARRAY and frame.count:
                steps.append(frame.count - 1)
        return pointer_of(steps)

    def _refused(
        self, keyword: str, at: int, message: str, *, inside: bool = True, good: int | None = None
    ) -> Violation:
        return Violation(keyword, self.pointer(inside=inside), at, at if good is None else good, message)


def _common(words: Words, seen: str, piece: str) -> int:
    """How many characters of ``piece`` can still follow ``seen``."""
    low, high = 0, len(piece)
    while low < high:
        middle = (low + high + 1) // 2
        if words.has_prefix(seen + piece[:middle]):
            low = middle
        else:
            high = middle - 1
    return low


def _broken_at(node: Node, kind: int, keyword: str, value: Any, at: int, end: int) -> int:
    """The character with which a value went wrong, where that is not the whole of it."""
    begun = kind == STRING and node.strings is not None and keyword != "pattern" and node.strings.has_prefix(value)
    return end - 1 if begun or keyword == "minLength" else at


def _full(frame: Frame, nodes: list[Node]) -> str | None:
    """The keyword for which nothing more fits in, whichever of the nodes the container is."""
    keyword: str | None = None
    for node in nodes:
        keyword = _full_as(frame, node)
        if keyword is None:
            return None
    return keyword


def _full_as(frame: Frame, node: Node) -> str | None:
    if frame.kind == ARRAY:
        child = node.item(frame.count)
        return child if isinstance(child, str) else None
    if node.max_properties is not None and len(frame.value) >= node.max_properties:
        return "maxProperties"
    if node.names is not None and node.names.words <= frame.value.keys():
        return "additionalProperties"
    return None


def _lacking(frame: Frame, node: Node) -> tuple[str | None, str]:
    """What a container that is being closed breaks."""
    if frame.kind == OBJECT:
        missing = [key for key in node.required if key not in frame.value]
        if missing:
            return "required", "the object lacks " + ", ".join(_short(key) for key in missing[:5])
        if len(frame.value) < node.min_properties:
            return "minProperties", f"the object has {len(frame.value)} properties, and needs {node.min_properties}"
        if node.max_properties is not None and len(frame.value) > node.max_properties:
            return "maxProperties", f"the object has {len(frame.value)} properties, and may have {node.max_properties}"
    elif len(frame.value) < node.min_items:
        return "minItems", f"the array has {len(frame.value)} items, and needs {node.min_items}"
    if node.unchecked[frame.kind]:
        return None, ""
    keyword = node.check(frame.kind, frame.value)
    return keyword, _about(keyword, frame.kind) if keyword else ""


def _about(keyword: str, kind: int) -> str:
    if keyword == "enum":
        return f"the {KINDS[kind]} is none of those that are allowed"
    if keyword == "type":
        return "the number is no integer"
    if keyword == "const":
        return f"the {KINDS[kind]} is not the one that is allowed"
    return f"the {KINDS[kind]} breaks {keyword}"


def _a(kind: int) -> str:
    name = KINDS[kind]
    return name if name in ("true", "false", "null") else f"an {name}" if name[0] in "ao" else f"a {name}"


def _short(text: str) -> str:
    shown = text if len(text) <= 60 else text[:60] + "…"
    return '"' + shown.encode("utf-8", "replace").decode() + '"'
