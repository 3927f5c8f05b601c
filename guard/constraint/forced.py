"""Text that a schema forces.

Keys may come in any order and white space may stand anywhere, so hardly a character is forced to the letter. What
counts as forced here is what every valid document must still have: the opening quote of the only kind of value there
may be, the rest of the only word, a required key when no optional one is left, a closing bracket when nothing else
fits. The order of required keys is the schema's, the spacing is none.
"""

from __future__ import annotations

import json
from typing import Final

from guard.constraint.json_sink import ARRAY, FALSE, NULL, NUMBER, OBJECT, STRING, TRUE
from guard.constraint.json_syntax import DONE, JsonError, JsonReader
from guard.constraint.schema_frame import Frame, Violation
from guard.constraint.schema_node import Node
from guard.constraint.schema_walk import SchemaWalk
from guard.constraint.words import Words

_MOST: Final = 20_000
_BEGINS: Final = {OBJECT: "{", ARRAY: "[", STRING: '"', TRUE: "true", FALSE: "false", NULL: "null"}
"""A number can begin in eleven ways."""


def forced_text(walk: SchemaWalk, reader: JsonReader) -> str:
    """Moves ``walk`` and ``reader`` on over the text it returns."""
    out: list[str] = []
    length = 0
    while length < _MOST and reader.mode != DONE:
        piece = _next(walk, reader)
        if not piece:
            break
        try:
            reader.feed(piece)
        except (JsonError, Violation):  # the schema forces what it forbids: nothing can be valid here
            break
        out.append(piece)
        length += len(piece)
    return "".join(out)


def _next(walk: SchemaWalk, reader: JsonReader) -> str:
    place = reader.place
    frame = walk.frames[-1] if walk.frames else None
    if frame is not None and frame.node is None:
        # several alternatives are open: only the syntax can force anything
        return ":" if place == "colon" else ""
    if place == "colon":
        return ":"
    if place == "literal":
        return reader.partial
    if place == "string":
        return _rest_of_string(walk, reader, frame)
    if place == "value":
        return _value(walk, frame)
    if frame is None or frame.node is None:
        return ""
    if place == "number":
        only = walk.node.only_value(NUMBER) if walk.node is not None else None
        if only is None or json.dumps(only[0]) != reader.partial:
            return ""
        place = "after"
    if place in ("first_key", "key", "after") and frame.kind == OBJECT:
        return _in_object(frame, frame.node, place)
    if place in ("first_item", "after"):
        return _in_array(walk, frame, frame.node, place)
    return ""


def _value(walk: SchemaWalk, frame: Frame | None) -> str:
    if frame is not None and frame.kind == ARRAY:
        node = frame.node.item(frame.count) if frame.node is not None else None
    else:
        node = walk.next if isinstance(walk.next, Node) else None
    if not isinstance(node, Node):
        return ""
    kinds = [kind for kind in range(7) if node.on(kind)]
    if len(kinds) != 1:
        return ""
    settled = node.on(kinds[0])
    only = settled[0].only_value(kinds[0]) if len(settled) == 1 else None
    if only is not None:
        return json.dumps(only[0], ensure_ascii=False, separators=(",", ":"))
    return _BEGINS.get(kinds[0], "")


def _rest_of_string(walk: SchemaWalk, reader: JsonReader, frame: Frame | None) -> str:
    if reader.escape:
        return ""
    so_far = reader.partial
    if reader.in_key:
        if frame is None or frame.node is None:
            return ""
        words = _keys_left(frame, frame.node)
        return "" if words is None else _rest(words, so_far)
    node = walk.node
    if node is None:
        return ""
    if node.strings is not None:
        return _rest(node.strings, so_far)
    return '"' if node.max_length is not None and len(so_far) >= node.max_length else ""


def _rest(words: Words, so_far: str) -> str:
    rest = words.rest(so_far)
    if rest and rest.isprintable() and '"' not in rest and "\\" not in rest:
        return rest
    if not rest and so_far in words.words and not words.longer(so_far):
        return '"'
    return ""


def _keys_left(frame: Frame, node: Node) -> Words | None:
    """The keys that the object can still take, where they can be listed."""
    if node.names is None:
        return None
    return Words(node.names.words - frame.value.keys())


def _in_object(frame: Frame, node: Node, place: str) -> str:
    left = _keys_left(frame, node)
    missing = [key for key in node.required if key not in frame.value]
    room = node.max_properties is None or len(frame.value) < node.max_properties
    if place == "after" and ((left is not None and not left.words) or not room):
        return "}" if not missing else ""
    if place == "first_key" and left is not None and not left.words:
        return "}"
    if not missing:
        short = len(frame.value) < node.min_properties
        if place == "first_key":
            return '"' if short else ""
        return "," if short and place == "after" else '"' if place == "key" else ""
    if place == "after":
        return ","
    if left is not None and left.words <= set(missing):
        return json.dumps(missing[0], ensure_ascii=False)
    return '"'


def _in_array(walk: SchemaWalk, frame: Frame, node: Node, place: str) -> str:
    if isinstance(node.item(frame.count), str):
        return "]"
    if frame.count < node.min_items:
        return "," if place == "after" else _value(walk, frame)
    return ""
