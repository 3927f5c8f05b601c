"""A document held against a schema graph as it is read, and its value built on the way.

The rules:

- What is certain is said at the character that makes it certain, whatever the split: an unknown key at the first
  character that no allowed key has there, a list that is too long at its comma, a missing key at the closing bracket.
- A key that stands twice is no error: its last value counts. So a comma in an object that is full is held until the key
  after it is known to be a new one.
- While a schema leaves alternatives open, every one that is still possible is walked; a value is invalid once none is
  left, and what is left alone is certain from there on.
- ``hold`` is where a token begins that only the judge can clear once it is whole (a number with bounds, a string with a
  pattern); the text from there on must not leave yet.
"""

from __future__ import annotations

from typing import Any

from detectors.finding import Finding
from guard.constraint.json_syntax import ARRAY, KINDS, NUMBER, OBJECT, STRING, JsonReader, judgeable
from guard.constraint.judge import CLOSING
from guard.constraint.schema_graph import Node, SchemaGraph, Words

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

    __slots__ = ("alive", "at", "count", "full", "full_at", "key", "kind", "many", "node", "value")

    def __init__(self, kind: int, at: int, node: Node | None, many: list[tuple[Node, int]] | None, value: Any) -> None:
        self.kind = kind
        self.at = at
        self.node = node
        self.many = many
        self.alive = (1 << len(many)) - 1 if many is not None else 1
        self.value = value
        self.key: str | None = None
        self.count = 0
        self.full = ""
        self.full_at: int | None = None

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
        self.next: Position = graph.root
        self.node: Node | None = None
        self.many: list[tuple[Node, int]] | None = None
        self._frame: Frame | None = None
        self._watching: list[tuple[Words | None, int | None]] = []
        self._seen = ""
        self._length = 0
        self._high = ""
        self._in_key = False

    # --- values ------------------------------------------------------------------------------------------------------

    def start(self, kind: int, at: int) -> None:
        frame = self._frame
        position = self._item(frame, at) if frame is not None and frame.kind == ARRAY else self.next
        many: list[tuple[Node, int]] | None = None
        node: Node | None = None
        if type(position) is Node:
            on = position.on(kind)
            if len(on) == 1:
                node = on[0]
            elif on:
                many = [(one, 1) for one in on]
            else:
                raise self._refused(position.refusal(kind), at, f"{_a(kind)} is not allowed here")
        else:
            many = self._merge(position, kind, at)  # type: ignore[arg-type]
            if len(many) == 1 and frame is not None and frame.many is None:
                node, many = many[0][0], None
        if kind <= ARRAY:
            value: Any = {} if kind == OBJECT else []
            self._put(frame, value)
            self._frame = Frame(kind, at, node, many, value)
            self.frames.append(self._frame)
            return
        self.node = node
        self.many = many
        if kind == STRING:
            if node is not None:
                if node.watch_string:
                    self._watch([(node.strings, node.max_length)])
                if node.judged(STRING):
                    self.hold = at
            elif many is not None:
                if all(one.watch_string for one, _ in many):
                    self._watch([(one.strings, one.max_length) for one, _ in many])
                if any(one.judged(STRING) for one, _ in many):
                    self.hold = at
        elif kind == NUMBER and (
            frame is None  # nothing ends a number at the root: any of it would look whole
            or (node is not None and node.judged(NUMBER))
            or (many is not None and any(one.judged(NUMBER) for one, _ in many))
        ):
            self.hold = at

    def scalar(self, kind: int, value: Any, at: int, end: int) -> None:
        self.hold = None
        if self.reader.lone_surrogates and kind == STRING:
            value = judgeable(value)
        node = self.node
        if node is not None:
            if not node.unchecked[kind]:
                keyword = node.check(kind, value)
                if keyword is not None:
                    raise self._refused(
                        keyword, self._broken_at(node, kind, keyword, value, at, end), _about(keyword, kind)
                    )
        else:
            self._settle_scalar(kind, value, at, end)
        self._put(self._frame, value)

    def _settle_scalar(self, kind: int, value: Any, at: int, end: int) -> None:
        keywords: list[str] = []
        onset = at
        parents = 0
        for node, mask in self.many or ():
            keyword = node.check(kind, value)
            if keyword is None:
                parents |= mask
            else:
                keywords.append(keyword)
                onset = max(onset, self._broken_at(node, kind, keyword, value, at, end))
        if not parents:
            keyword = keywords[0] if len(set(keywords)) == 1 else "anyOf"
            raise self._refused(keyword, onset, _about(keyword, kind))
        if self._frame is not None:
            self._narrow(len(self.frames) - 1, parents)

    @staticmethod
    def _broken_at(node: Node, kind: int, keyword: str, value: Any, at: int, end: int) -> int:
        if kind == STRING and (keyword == "minLength" or (node.strings is not None and node.strings.has_prefix(value))):
            return end - 1
        return at

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
        nodes = [frame.node] if frame.node is not None else frame.nodes()
        if not frame.value:
            keyword = _full(frame, nodes)
            if keyword is not None:
                raise self._refused(keyword, at, "no key is allowed here", inside=False)
        if frame.full_at is not None:
            self._watch([(Words(frame.value), None)], in_key=True)
            return
        if all(node.names is not None for node in nodes):
            self._watch([(node.names, None) for node in nodes], in_key=True)
        if any(node.holds_keys for node in nodes):
            self.hold = at

    def key(self, key: str, at: int, end: int) -> None:
        frame = self.frames[-1]
        held, self.hold = self.hold == at, None
        if self.reader.lone_surrogates:
            key = judgeable(key)
        frame.key = key
        if key in frame.value:
            self._twice(key, at, end)
        elif frame.full_at is not None:
            raise self._refused(frame.full, frame.full_at, "the object is full", inside=False)
        frame.full_at = None
        node = frame.node
        if node is not None:
            child = node.child(key)
            if isinstance(child, str):
                raise self._unknown(child, key, at if held else end - 1)
            self.next = child
            return
        position: list[tuple[Node, int]] = []
        why = ""
        for i, (one, _) in enumerate(frame.many or ()):
            if frame.alive >> i & 1:
                child = one.child(key)
                if isinstance(child, str):
                    why = child
                else:
                    position.append((child, 1 << i))
        if not position:
            raise self._unknown(why, key, at if held else end - 1)
        self.next = position

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

    def _unknown(self, keyword: str, key: str, at: int) -> Violation:
        return self._refused(keyword, at, f"the key {_short(key)} is not allowed here", inside=False)

    def _twice(self, key: str, at: int, end: int) -> None:
        message = f"the key {_short(key)} stands twice in one object; its last value counts"
        evidence = {"pointer": self.pointer()}
        self.findings.append(
            Finding("json.duplicate_key", "warn", message, onset=at, detected_at=end, evidence=evidence)
        )

    def end(self, kind: int, at: int) -> None:
        frame = self.frames.pop()
        self._frame = self.frames[-1] if self.frames else None
        node = frame.node
        if node is not None:
            keyword, message = _lacking(frame, node)
            if keyword is not None:
                raise self._refused(keyword, at, message, good=at if keyword in CLOSING else frame.at)
            return
        keywords: list[tuple[str, str]] = []
        parents = 0
        for i, (one, mask) in enumerate(frame.many or ()):
            if frame.alive >> i & 1:
                keyword, message = _lacking(frame, one)
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
                frame.node = left[0]
                frame.many = None
            alive = parents
            index -= 1

    # --- strings and keys that are known by their beginning ----------------------------------------------------------

    def _watch(self, watching: list[tuple[Words | None, int | None]], in_key: bool = False) -> None:
        self._watching = watching
        self._seen = ""
        self._length = 0
        self._high = ""
        self._in_key = in_key
        self.reader.watch = True

    def text(self, piece: str, at: int) -> None:
        if self._high:
            high, self._high = self._high, ""
            if "\udc00" <= piece <= "\udfff":
                piece = (high + piece).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
                at -= 6
            else:
                self._hear(high, at - 6)
        if len(piece) == 1 and "\ud800" <= piece <= "\udbff":
            self._high = piece
        else:
            self._hear(piece, at)

    def _hear(self, piece: str, at: int) -> None:
        best = -1
        left: list[tuple[Words | None, int | None]] = []
        keyword = ""
        for words, most in self._watching:
            fits = len(piece)
            why = ""
            if most is not None and self._length + fits > most:
                fits = most - self._length
                why = "maxLength"
            if words is not None and not words.has_prefix(self._seen + piece):
                good = _common(words, self._seen, piece)
                if good < fits or not why:
                    fits, why = good, "enum"
            if not why:
                left.append((words, most))
            elif fits > best:
                best, keyword = fits, why
        if left:
            self._watching = left
            self._length += len(piece)
            if any(words is not None for words, _ in left):
                self._seen += piece
            return
        if self._in_key:
            frame = self.frames[-1]
            if frame.full_at is not None:
                raise self._refused(frame.full, frame.full_at, "the object is full", inside=False)
            message = "no key that is allowed here begins like this"
            raise self._refused("additionalProperties", at + best, message, inside=False)
        if keyword == "enum" and self.node is not None and not any("enum" in part.plain for part in self.node.parts):
            keyword = "const"
        raise self._refused(keyword, at + best, _about(keyword, STRING))

    # --- words -------------------------------------------------------------------------------------------------------

    def pointer(self, *, inside: bool = True) -> str:
        """The JSON pointer of the value that is being read; of the container around it where ``inside`` is not set."""
        steps: list[str] = []
        for number, frame in enumerate(self.frames, 1):
            if not inside and number == len(self.frames):
                break
            if frame.key is not None:
                steps.append(frame.key.replace("~", "~0").replace("/", "~1"))
            elif frame.kind == ARRAY and frame.count:
                steps.append(str(frame.count - 1))
        return "".join("/" + step for step in steps)

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
