"""Calls framed by special tokens: DeepSeek V3 to V3.1, Kimi K2, Kimi K3, Mistral, Cohere.

Each parser is called with its opening token still unread and the cursor marked. Raises Broken.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Final

from guard.constraint.formats.arguments import Building, Offer
from guard.constraint.formats.cursor import Cursor
from guard.constraint.formats.jsoncalls import Broken, call_list
from guard.constraint.formats.values import quoted

Section = Generator[None, None, None]
_HEAD: Final = 300

# --- DeepSeek --------------------------------------------------------------------------------------------------------

_DS_BEGIN: Final = "<｜tool▁call▁begin｜>"
_DS_SEP: Final = "<｜tool▁sep｜>"
_DS_END: Final = "<｜tool▁call▁end｜>"
_DS_SECTION: Final = ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")


def deepseek(c: Cursor, offer: Offer) -> Section:
    """V3.1 writes ``NAME sep {...}``; V3 and R1 ``function sep NAME`` and the object in a fence."""
    yield from c.take(_DS_SECTION[0])
    any_yet = False
    while (yield from c.take(_DS_BEGIN, skip_space=True)):
        name, stop = yield from c.collect((_DS_SEP, _DS_END, _DS_SECTION[1]), _HEAD)
        if stop != _DS_SEP:
            raise Broken("a call without a name")
        fence = ""
        if (yield from c.space()) != "{":
            name, stop = yield from c.collect(("\n", _DS_END, _DS_BEGIN), _HEAD)
            fence = yield from c.take("```", skip_space=True)
            yield from c.take("json")
            if stop != "\n" or (yield from c.space()) != "{":
                raise Broken("a call without arguments")
        c.call(name.strip())
        any_yet = True
        if not (yield from c.json_value(c.args)):
            raise Broken("the text ended in the arguments")
        if fence:
            yield from c.take("```", skip_space=True)
        yield from _close(c, _DS_END, (_DS_BEGIN, _DS_SECTION[1]))
    if not any_yet:
        raise Broken("no call within the markup of calls")
    yield from c.take(_DS_SECTION[1], skip_space=True)


def _close(c: Cursor, end: str, others: tuple[str, ...]) -> Section:
    """The token that ends a call. What stands before it belongs to the arguments, for the judge to refuse; a call may
    also end with the text or with what follows calls."""
    while True:
        if (yield from c.take(end, skip_space=True)):
            break
        if not (yield from c.space()) or (yield from c.follows(*others)):
            break
        stop = yield from c.until((end, *others), c.args)
        c.at -= len(stop)
    c.end()


# --- Kimi ------------------------------------------------------------------------------------------------------------

_K2_SECTION: Final = ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>")
_K2_BEGIN: Final = "<|tool_call_begin|>"
_K2_ARGUMENTS: Final = "<|tool_call_argument_begin|>"
_K2_END: Final = "<|tool_call_end|>"
_K2_ID: Final = re.compile(r"(?:functions\.)?(.+?)(?::\d+)?")


def kimi_k2(c: Cursor, offer: Offer) -> Section:
    yield from c.take(_K2_SECTION[0])
    any_yet = False
    while (yield from c.take(_K2_BEGIN, skip_space=True)):
        given, stop = yield from c.collect((_K2_ARGUMENTS, _K2_END, _K2_SECTION[1]), _HEAD)
        given = given.strip()
        named = _K2_ID.fullmatch(given)
        if stop != _K2_ARGUMENTS or named is None:
            raise Broken("a call without a name")
        name = given if given in offer.names else named[1]
        c.call(name, given if given.startswith("functions.") and given != name else None)
        any_yet = True
        if (yield from c.space()) in ("{", "["):
            yield from c.json_value(c.args)
        yield from _close(c, _K2_END, (_K2_BEGIN, _K2_SECTION[1]))
    if not any_yet:
        raise Broken("no call within the markup of calls")
    yield from c.take(_K2_SECTION[1], skip_space=True)


_K3_CALL: Final = re.compile(r'call\s+tool="([^"]*)"(?:\s+index="[^"]*")?\s*')
_K3_ARGUMENT: Final = re.compile(r'argument\s+key="([^"]*)"(?:\s+type="([^"]*)")?\s*')
_K3_BLOCKS: Final = {"think": "reasoning", "response": "content"}


def kimi_k3(c: Cursor, offer: Offer) -> Section:
    """Everything from the first block token on: think and response blocks are text, tools blocks hold calls."""
    while (yield from c.space()):
        token = yield from c.take("<|open|>", "<|close|>")
        if not token:
            # text of the block that the prompt opened, or that a closing token left
            stop = yield from c.until(("<|open|>", "<|close|>"), c.say)
            c.at -= len(stop)
            continue
        head, stop = yield from c.collect(("<|sep|>",), _HEAD)
        if not stop:
            raise Broken("a block without a name")
        c.unmark()
        if token == "<|close|>":
            c.channel = ""
            continue
        if head in _K3_BLOCKS:
            c.channel = _K3_BLOCKS[head]
            stop = yield from c.until(("<|close|>", "<|open|>"), c.say)
            c.at -= len(stop)
        elif head == "tools":
            yield from _k3_calls(c, offer)
        else:
            named = _K3_CALL.fullmatch(head)
            if named is None:
                raise Broken(f"an unknown block {head[:40]!r}")
            yield from _k3_call(c, offer, named[1])


def _k3_calls(c: Cursor, offer: Offer) -> Section:
    while (yield from c.take("<|open|>", skip_space=True)):
        head, stop = yield from c.collect(("<|sep|>",), _HEAD)
        named = _K3_CALL.fullmatch(head)
        if not stop or named is None:
            raise Broken("a call without a name")
        yield from _k3_call(c, offer, named[1])


def _k3_call(c: Cursor, offer: Offer, name: str) -> Section:
    c.call(name)
    args = Building(c, offer.schema(name))
    while True:
        token = yield from c.take("<|open|>", "<|close|>", skip_space=True)
        head, stop = yield from c.collect(("<|sep|>",), _HEAD)
        if not token or not stop:
            raise Broken(f"neither an argument nor the end of {name}")
        if token == "<|close|>":
            if head != "call":
                raise Broken(f"{head[:40]!r} closed instead of the call")
            args.close()
            return
        keyed = _K3_ARGUMENT.fullmatch(head)
        if keyed is None:
            raise Broken("an argument without a name")
        key, kind = keyed[1], keyed[2]
        close = ("<|close|>argument<|sep|>",)
        if kind is None or kind == "string":
            yield from args.value_until(key, close, literal=True if kind else None)
        else:
            raw, stop = yield from c.collect(close)
            if not stop:
                raise Broken(f"the text ended in the argument {key[:40]!r}")
            args.encoded(key, raw.strip() or '""')


# --- Mistral ---------------------------------------------------------------------------------------------------------

_MISTRAL: Final = "[TOOL_CALLS]"


def mistral(c: Cursor, offer: Offer) -> Section:
    """Up to v3 a list of objects; later ``NAME[ARGS]{...}``, with a ``[CALL_ID]`` before the arguments or without."""
    while (yield from c.take(_MISTRAL, skip_space=True)):
        char = yield from c.space()
        if char in ("[", "{"):
            yield from call_list(c, (_MISTRAL, "</s>"))
            continue
        name, stop = yield from c.collect(("[ARGS]", "[CALL_ID]", "{", _MISTRAL, "\n"), _HEAD)
        call_id = None
        if stop == "[CALL_ID]":
            call_id, stop = yield from c.collect(("[ARGS]", "{", "\n"), _HEAD)
        name = name.strip()
        if stop not in ("[ARGS]", "{") or not name or " " in name:
            raise Broken("a call without a name")
        if stop == "{":
            c.at -= 1
        c.call(name, call_id)
        if (yield from c.space()) != "{":
            raise Broken(f"{name} without arguments")
        if not (yield from c.json_value(c.args)):
            raise Broken("the text ended in the arguments")
        c.end()


# --- Cohere ----------------------------------------------------------------------------------------------------------


def cohere_action(c: Cursor, offer: Offer) -> Section:
    yield from c.take("<|START_ACTION|>")
    if (yield from c.space()) not in ("[", "{"):
        raise Broken("no list of calls")
    yield from call_list(c, ("<|END_ACTION|>",))
    yield from c.take("<|END_ACTION|>", skip_space=True)


_COFL_CALL: Final = re.compile(r'\s*id="[^"]*"\s+name="([^"]*)"\s*|\s*name="([^"]*)"(?:\s+id="[^"]*")?\s*')
_COFL_VALUE: Final = re.compile(r'(?:\s+name="([^"]*)")?\s+type="(raw|json|dict|list)"\s*')
_COFL_CLOSE: Final = "</cofl:value>"
_DEEPEST: Final = 64


def cohere_xml(c: Cursor, offer: Offer) -> Section:
    yield from c.take("<cofl:tool_calls>")
    any_yet = False
    while (yield from c.take("<cofl:tool_call", skip_space=True)):
        head, stop = yield from c.collect((">",), _HEAD)
        named = _COFL_CALL.fullmatch(head)
        if not stop or named is None:
            raise Broken("a call without a name")
        name = named[1] or named[2] or ""
        c.call(name)
        any_yet = True
        yield from _cofl_members(c, "</cofl:tool_call>", 0)
        c.end()
    if not any_yet:
        raise Broken("no call within the markup of calls")
    yield from c.take("</cofl:tool_calls>", skip_space=True)


def _cofl_members(c: Cursor, close: str, depth: int, *, array: bool = False) -> Section:
    """Values up to the closing tag, as an object or as an array."""
    if depth > _DEEPEST:
        raise Broken("values nested too deeply")
    keys: set[str] = set()
    first = True
    while True:
        found = yield from c.take("<cofl:value", close, skip_space=True)
        if not found:
            raise Broken("neither a value nor the end of the call")
        if found == close:
            c.args(("[" if array else "{") * first + ("]" if array else "}"))
            return
        head, stop = yield from c.collect((">",), _HEAD)
        kind = _COFL_VALUE.fullmatch(head)
        if not stop or kind is None or (kind[1] is None) != array or kind[1] in keys:
            raise Broken("a value without a name or a type of its own")
        c.args(("[" if array else "{") if first else ", ")
        first = False
        if not array:
            keys.add(kind[1])
            c.args(f'"{quoted(kind[1])}": ')
        if kind[2] in ("dict", "list"):
            yield from _cofl_members(c, _COFL_CLOSE, depth + 1, array=kind[2] == "list")
        elif kind[2] == "raw":
            c.args('"')
            if not (yield from c.until((_COFL_CLOSE,), lambda piece: c.args(quoted(piece)))):
                raise Broken("the text ended in a value")
            c.args('"')
        else:
            raw, stop = yield from c.collect((_COFL_CLOSE,))
            if not stop:
                raise Broken("the text ended in a value")
            c.args(raw.strip() or '""')
