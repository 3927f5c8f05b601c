"""Gemma 4 and FunctionGemma: ``call:f{key:<|"|>text<|"|>,n:5}``, keys bare, strings between tokens of their own."""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from typing import Final

from guard.constraint.formats.arguments import Offer
from guard.constraint.formats.cursor import Cursor
from guard.constraint.formats.jsoncalls import Broken
from guard.constraint.formats.values import quoted

_SCALAR_END: Final = re.compile(r"[,\]}\s<]")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_WORDS: Final = {"true": "true", "false": "false", "null": "null", "True": "true", "False": "false", "None": "null"}
_DEEPEST: Final = 64
_HEAD: Final = 300

Section = Generator[None, None, None]


def gemma4(c: Cursor, offer: Offer) -> Section:
    yield from _calls(c, "<|tool_call>", "<tool_call|>", '<|"|>')


def function_gemma(c: Cursor, offer: Offer) -> Section:
    yield from _calls(c, "<start_function_call>", "<end_function_call>", "<escape>")


def _calls(c: Cursor, opening: str, closing: str, quote: str) -> Section:
    yield from c.take(opening)
    if not (yield from c.take("call:", skip_space=True)):
        raise Broken("no call after the token of calls")
    name, stop = yield from c.collect(("{", closing, "\n"), _HEAD)
    if stop != "{" or not name.strip():
        raise Broken("a call without a name")
    c.call(name.strip())
    yield from _members(c, quote, "}", 0)
    c.end()
    yield from c.take(closing, skip_space=True)


def _value(c: Cursor, quote: str, depth: int) -> Section:
    if depth > _DEEPEST:
        raise Broken("values nested too deeply")
    if (yield from c.take(quote, skip_space=True)):
        c.args('"')
        if not (yield from c.until((quote,), lambda piece: c.args(quoted(piece)))):
            raise Broken("the text ended in a string")
        c.args('"')
        return
    char = yield from c.space()
    if char == '"':
        if not (yield from c.json_value(c.args)):
            raise Broken("the text ended in a string")
    elif char == "{":
        c.at += 1
        yield from _members(c, quote, "}", depth + 1)
    elif char == "[":
        c.at += 1
        yield from _members(c, quote, "]", depth + 1)
    else:
        yield from _scalar(c)


def _scalar(c: Cursor) -> Section:
    while True:
        found = _SCALAR_END.search(c.text, c.at)
        if found is not None:
            break
        if c.ended:
            raise Broken("the text ended in a value")
        yield
    word = c.text[c.at : found.start()]
    if word in _WORDS:
        c.args(_WORDS[word])
    elif _NUMBER.fullmatch(word):
        c.args(word)
    else:
        raise Broken(f"{word[:40]!r} is no value")
    c.at = found.start()


def _members(c: Cursor, quote: str, close: str, depth: int) -> Section:
    """What stands between the brackets of an object or a list; the opening one has been read."""
    in_object = close == "}"
    c.args("{" if in_object else "[")
    keys: set[str] = set()
    first = True
    while True:
        char = yield from c.space()
        if char == close:
            c.at += 1
            c.args(close)
            return
        if not first:
            if char != ",":
                raise Broken(f"{char!r} where a comma should stand" if char else "the text ended in the arguments")
            c.at += 1
            c.args(", ")
        first = False
        if in_object:
            key = yield from _key(c, quote)
            if key in keys:
                raise Broken(f"the argument {key[:40]!r} came twice")
            keys.add(key)
            c.args(json.dumps(key, ensure_ascii=False) + ": ")
        yield from _value(c, quote, depth)


def _key(c: Cursor, quote: str) -> Generator[None, None, str]:
    yield from c.space()
    if (yield from c.take(quote)):
        key, stop = yield from c.collect((quote,), _HEAD)
        if not stop or not (yield from c.take(":", skip_space=True)):
            raise Broken("a key without a value")
        return key
    key, stop = yield from c.collect((":", ",", "}", "\n"), _HEAD)
    if stop != ":" or not key.strip():
        raise Broken("a key without a value")
    return key.strip().strip('"')
