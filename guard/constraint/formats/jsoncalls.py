"""Calls that are JSON objects: ``{"name": "f", "arguments": {...}}``, alone, in a list, or within a pair of markers.

Read are Hermes and what follows it (Qwen 2.5 and 3, EXAONE, Granite, Phi, LongCat, Hunyuan, MiniMax M1, InternLM),
Llama 3, Mistral up to v3, Cohere's actions, and the bare list that engines produce under a required tool choice.

The keys may come in any order. The arguments are passed on as they are written; their JSON is not judged here.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Final

from guard.constraint.formats.cursor import Cursor

NAMES: Final = frozenset({"name", "tool_name", "recipient_name"})
ARGUMENTS: Final = frozenset({"arguments", "parameters", "input", "args"})
IDS: Final = frozenset({"id", "tool_call_id", "call_id"})


class Broken(Exception):
    """The markup is not what it began as. ``prose``: it did not even begin as a call, so it is text like any other."""

    def __init__(self, message: str, *, prose: bool = False) -> None:
        super().__init__(message)
        self.prose = prose


def call_object(c: Cursor) -> Generator[None, None, None]:
    """One object, from its opening bracket. Raises Broken; says nothing before the name is known."""
    name: str | None = None
    call_id: str | None = None
    early: str | None = None
    depth = 0
    members = 0
    c.at += 1
    while True:
        char = yield from c.space()
        if char == "," and members:
            c.at += 1
            continue
        if char == "}":
            c.at += 1
            if depth:
                depth -= 1
                continue
            break
        members += 1
        key = yield from _text(c, "a key")
        if (yield from c.space()) != ":":
            raise Broken(f"no colon after the key {key[:40]!r}")
        c.at += 1
        char = yield from c.space()
        if key == "function" and char == "{" and not depth:
            c.at += 1
            depth += 1
        elif char == '"' and (key in NAMES or (key == "function" and name is None)):
            name = yield from _text(c, "the name")
        elif key in IDS and not c.committed:
            raw = yield from _value(c)
            call_id = _id(raw)
        elif key in ARGUMENTS:
            if name is None:
                early = yield from _value(c)
            else:
                c.call(name, call_id)
                if not (yield from c.json_value(c.args)):
                    raise Broken("the text ended in the arguments")
        else:
            yield from _value(c)
    if c.committed:
        return
    if name is None:
        raise Broken("a call without a name")
    c.call(name, call_id)
    if early is not None:
        c.args(early)


def call_list(c: Cursor, close: tuple[str, ...] = ()) -> Generator[None, None, None]:
    """A list of objects from its opening bracket, or objects one after the other; up to its end or to a closing marker,
    which is left unread. Raises Broken."""
    bracket = (yield from c.peek()) == "["
    if bracket:
        c.at += 1
    any_yet = False
    while True:
        char = yield from c.space()
        if char == "{":
            c.committed = False
            yield from call_object(c)
            c.end()
            any_yet = True
        elif char in (",", ";") and any_yet:
            c.at += 1
        elif char == "]" and bracket:
            c.at += 1
            break
        elif not char and any_yet:
            break  # nothing is lost with the bracket
        elif not bracket and any_yet and (not char or not close or (yield from c.follows(*close))):
            break
        else:
            raise Broken(f"{char!r} where a call should stand" if char else "the text ended before the list did")
    if not any_yet:
        raise Broken("an empty list of calls")


def _text(c: Cursor, what: str) -> Generator[None, None, str]:
    raw = yield from c.json_string()
    if raw is None:
        raise Broken(f"{what} is no string" if c.at < len(c.text) else f"the text ended before {what} did")
    try:
        return str(json.loads(raw, strict=False))
    except ValueError:
        raise Broken(f"{what} is no string") from None


def _value(c: Cursor) -> Generator[None, None, str]:
    parts: list[str] = []
    if not (yield from c.json_value(parts.append)):
        raise Broken("the text ended in a value")
    return "".join(parts)


def _id(raw: str) -> str | None:
    try:
        value = json.loads(raw)
    except ValueError:
        return None
    # a bare counter (Cohere's "0") names a call only within its own answer
    return value if isinstance(value, str) and not value.isdigit() else None
