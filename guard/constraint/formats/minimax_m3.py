"""MiniMax M3: arguments as nested elements whose tags all begin with the namespace token; a list's elements are items.

Text is typed by the schema of its place, as deep as the nesting goes.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any, Final

from guard.constraint.formats.arguments import Offer
from guard.constraint.formats.cursor import Cursor
from guard.constraint.formats.jsoncalls import Broken
from guard.constraint.formats.values import STRING_ONLY, encode, items_of, quoted, subschema, types_of

_NS: Final = "]<]minimax[>["
_DEEPEST: Final = 64
_HEAD: Final = 300

Section = Generator[None, None, None]


def minimax_m3(c: Cursor, offer: Offer) -> Section:
    if not (yield from c.take(_NS + "<tool_call>")):
        raise Broken("the namespace token without a call")
    any_yet = False
    while (yield from c.take(_NS + '<invoke name="', skip_space=True)):
        name, stop = yield from c.collect(('">', "<", "\n"), _HEAD)
        if stop != '">' or not name:
            raise Broken("a call without a name")
        c.call(name)
        any_yet = True
        schema = offer.schema(name)
        yield from _members(c, schema, schema, "invoke", 0, array=False)
        c.end()
    if not any_yet:
        raise Broken("no call within the markup of calls")
    yield from c.take(_NS + "</tool_call>", skip_space=True)


def _members(c: Cursor, schema: Any, root: Any, tag: str, depth: int, *, array: bool) -> Section:
    """Elements up to the closing tag, which is read, as an object or as an array."""
    if depth > _DEEPEST:
        raise Broken("values nested too deeply")
    keys: set[str] = set()
    count = 0
    while True:
        if not (yield from c.take(_NS, skip_space=True)):
            raise Broken(f"neither an element nor the end of {tag}")
        if (yield from c.take(f"</{tag}>")):
            c.args(("[" if array else "{") * (count == 0) + ("]" if array else "}"))
            return
        if not (yield from c.take("<")):
            raise Broken(f"neither an element nor the end of {tag}")
        name, stop = yield from c.collect((">", "<", "\n"), _HEAD)
        if stop != ">" or not name or (array and name != "item") or name in keys:
            raise Broken(f"no place for an element {name[:40]!r}")
        c.args(", " if count else "[" if array else "{")
        count += 1
        if array:
            inner = items_of(schema, root)
        else:
            keys.add(name)
            c.args(json.dumps(name, ensure_ascii=False) + ": ")
            inner = subschema(schema, name, root)
        yield from _value(c, inner, root, name, depth)


def _value(c: Cursor, schema: Any, root: Any, tag: str, depth: int) -> Section:
    types = types_of(schema, root)
    if (
        types != STRING_ONLY
        and (yield from c.follows(_NS + "<", skip_space=True))
        and not (yield from c.follows(_NS + f"</{tag}>", skip_space=True))
    ):
        item = bool((yield from c.follows(_NS + "<item>", skip_space=True)))
        array = "array" in types if types is not None and types & {"array", "object"} else item
        yield from _members(c, schema, root, tag, depth + 1, array=array)
        return
    if types == STRING_ONLY:
        c.args('"')
        stop = yield from c.until((_NS,), lambda piece: c.args(quoted(piece)))
        c.args('"' if stop else "")
    else:
        raw, stop = yield from c.collect((_NS,))
        if stop and not raw.strip() and types is not None and types & {"array", "object"}:
            c.args("[]" if "array" in types else "{}")
        elif stop:
            c.args(encode(raw, types))
    if not stop or not (yield from c.take(f"</{tag}>")):
        raise Broken(f"the element {tag[:40]!r} does not end")
