"""Calls written as Python: ``[f(a=1), g(b="x")]``, as Llama 4, Llama 3.2 and Gemma 3 write them.

An argument's value is whole before it is read; it must be a Python literal (JSON's words are taken too), and becomes
JSON text. A positional argument has no name, so a call that has one is broken.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from typing import Final

from guard.constraint.formats.arguments import Building, Offer
from guard.constraint.formats.cursor import SPACE, Cursor
from guard.constraint.formats.jsoncalls import Broken
from guard.constraint.formats.values import python_literal

_IDENTIFIER: Final = re.compile(r"[A-Za-z_][\w.-]*")
_MARK: Final = re.compile(r"""['"()\[\]{},]""")
_LONGEST_NAME: Final = 300


def call_sequence(c: Cursor, offer: Offer, opening: str, closing: str) -> Generator[None, None, None]:
    """Calls separated by commas, semicolons or line ends, between the brackets if there are any. Raises Broken."""
    if opening:
        if not (yield from c.take(opening)):
            raise Broken(f"no {opening!r}")
        yield from c.space()
    while True:
        yield from _call(c, offer)
        char = yield from c.space()
        if char in (",", ";"):
            c.at += 1
            char = yield from c.space()
        if closing and char == closing:
            c.at += 1
            return
        if not char or (not closing and not _IDENTIFIER.match(char)):
            return  # nothing is lost with the closing bracket
        if not _IDENTIFIER.match(char):
            raise Broken(f"{char!r} where a call should stand")


def _call(c: Cursor, offer: Offer) -> Generator[None, None, None]:
    name = yield from identifier(c)
    if (yield from c.peek()) != "(":
        raise Broken("no call")
    c.at += 1
    c.call(name.removesuffix(".call"))
    yield from keyword_arguments(c, Building(c, offer.schema(name.removesuffix(".call"))))


def keyword_arguments(c: Cursor, args: Building) -> Generator[None, None, None]:
    """``a=1, b="x")``: the closing bracket is read, and closes the arguments."""
    while True:
        char = yield from c.space()
        if char == ")":
            c.at += 1
            args.close()
            return
        key = yield from identifier(c)
        if (yield from c.space()) != "=":
            raise Broken("an argument without a name")
        c.at += 1
        raw, stop = yield from _value(c)
        literal = _as_json(raw)
        if literal is None:
            raise Broken(f"the value of {key[:40]!r} is no literal")
        args.encoded(key, literal)
        if stop == ",":
            c.at += 1


def identifier(c: Cursor) -> Generator[None, None, str]:
    while True:
        found = _IDENTIFIER.match(c.text, c.at)
        if found is None:
            yield from c.need(1)
            if c.at >= len(c.text) or not _IDENTIFIER.match(c.text, c.at):
                raise Broken("no name where one should stand")
            continue
        if found.end() - c.at > _LONGEST_NAME:
            raise Broken("a name without an end")
        if found.end() < len(c.text) or c.ended:
            c.at = found.end()
            return found[0]
        yield


def _value(c: Cursor) -> Generator[None, None, tuple[str, str]]:
    """The text up to the comma or bracket that ends the value, which is left unread."""
    start = c.offset
    parts: list[str] = []
    depth = 0
    while True:
        found = _MARK.search(c.text, c.at)
        end = found.start() if found else len(c.text)
        parts.append(c.text[c.at : end])
        c.at = end
        if found is None:
            if c.ended:
                raise Broken("the text ended in an argument")
            yield
            continue
        char = found[0]
        if char in "\"'":
            parts.append((yield from _string(c, char)))
            continue
        if depth == 0 and char in ",)":
            return "".join(parts).strip(SPACE), char
        if char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
            if depth < 0:
                raise Broken(f"a bracket too many after {c.offset - start} characters of a value")
        parts.append(char)
        c.at += 1


def _string(c: Cursor, quote: str) -> Generator[None, None, str]:
    yield from c.need(3)
    closing = quote * 3 if c.text.startswith(quote * 3, c.at) else quote
    parts = [closing]
    c.at += len(closing)
    while True:
        text, stop = yield from c.collect(("\\", closing))
        parts.append(text)
        if not stop:
            raise Broken("the text ended in a string")
        parts.append(stop)
        if stop == closing:
            return "".join(parts)
        yield from c.need(1)
        parts.append(c.text[c.at : c.at + 1])
        c.at += 1


def _as_json(raw: str) -> str | None:
    literal = python_literal(raw)
    if literal is not None:
        return literal
    try:
        json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return raw
