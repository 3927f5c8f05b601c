"""Calls whose arguments are tagged bare values, one a key.

Read are Qwen3-Coder and Qwen3.5, MiMo and Seed (``<function=f><parameter=k>``), MiniMax M2 (``<invoke name="f">``),
DeepSeek V3.2 and V4 (the same in DSML), GLM-4.5 to 5 (``<arg_key>``, ``<arg_value>``).

A value ends where its closing tag is followed by what may follow one; a closing tag inside a value, with other text
behind it, belongs to the value. Nothing is unescaped.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Final

from guard.constraint.formats.arguments import Building, Offer
from guard.constraint.formats.cursor import Cursor
from guard.constraint.formats.jsoncalls import Broken
from guard.constraint.formats.values import quoted

_NAME_LIMIT: Final = 300
_WORD_END: Final = re.compile(r"[\s<]")


def _tag_name(c: Cursor, stop: str, what: str) -> Generator[None, None, str]:
    name, found = yield from c.collect((stop, "\n", "<"), _NAME_LIMIT)
    if found != stop:
        raise Broken(f"{what} does not end")
    return name.strip().strip("\"'")


def _word(c: Cursor) -> Generator[None, None, str]:
    """The characters up to white space or a tag."""
    while True:
        found = _WORD_END.search(c.text, c.at)
        end = found.start() if found else len(c.text)
        if end - c.at > _NAME_LIMIT:
            raise Broken("a name without an end", prose=True)
        if found or c.ended:
            word = c.text[c.at : end]
            c.at = end
            return word
        yield


def _value(
    c: Cursor, args: Building, key: str, close: str, nexts: tuple[str, ...], *, line: bool
) -> Generator[None, None, None]:
    """One value and its closing tag. ``line``: it stands on lines of its own, so the newlines around it are not part of
    it."""
    stops = (f"\n{close}", close) if line else (close,)
    if line:
        yield from c.take("\n")
    streams = args.streams(key)
    parts: list[str] = []
    if streams:
        args.key(key)
        c.args('"')

    def sink(text: str) -> None:
        if streams:
            c.args(quoted(text))
        else:
            parts.append(text)

    while True:
        stop = yield from c.until(stops, sink)
        if not stop:
            raise Broken(f"the text ended in the argument {key[:40]!r}")
        after = yield from c.follows(*nexts, skip_space=True)
        if after or not c.text[c.at :].strip(" \t\r\n"):
            break
        sink(stop)
    if streams:
        c.args('"')
    else:
        args.bare(key, "".join(parts))


def function_tag(c: Cursor, offer: Offer, closers: tuple[str, ...]) -> Generator[None, None, None]:
    """``<function=f>`` has been read as far as the name. ``closers`` may stand where the function should have ended."""
    name = yield from _tag_name(c, ">", "the function's name")
    if not name:
        raise Broken("a function without a name")
    c.call(name)
    args = Building(c, offer.schema(name))
    line = bool((yield from c.follows("\n")))
    nexts = ("<parameter=", "</function>", *closers)
    while True:
        found = yield from c.take("<parameter=", "</function>", skip_space=True)
        if found == "</function>":
            args.close()
            return
        if not found:
            raise Broken(f"neither a parameter nor the end of {name}")
        key = yield from _tag_name(c, ">", "a parameter's name")
        yield from _value(c, args, key, "</parameter>", nexts, line=line)


_INVOKE_NAME: Final = re.compile(r'\s*name="([^"]*)"\s*')
_PARAMETER: Final = re.compile(r'\s*name="([^"]*)"(?:\s+(string|type)="([^"]*)")?\s*')


def invoke_tags(c: Cursor, offer: Offer, prefix: str, closing: str, end: str) -> Generator[None, None, None]:
    """``<invoke name="f">`` elements up to ``end``, which is left unread; the tags begin with ``prefix``, the closing
    ones with ``closing``."""
    invoke, parameter = f"{prefix}invoke", f"{prefix}parameter"
    close, close_parameter = f"{closing}invoke>", f"{closing}parameter>"
    any_yet = False
    while (yield from c.take(invoke, skip_space=True)):
        head, stop = yield from c.collect((">",), _NAME_LIMIT)
        named = _INVOKE_NAME.fullmatch(head)
        if not stop or named is None:
            raise Broken("a call without a name")
        c.call(named[1])
        any_yet = True
        args = Building(c, offer.schema(named[1]))
        while True:
            found = yield from c.take(parameter, close, skip_space=True)
            if found == close:
                args.close()
                break
            if not found:
                raise Broken(f"neither a parameter nor the end of {named[1]}")
            head, stop = yield from c.collect((">",), _NAME_LIMIT)
            keyed = _PARAMETER.fullmatch(head)
            if not stop or keyed is None:
                raise Broken("a parameter without a name")
            if keyed[2] == "string" and keyed[3] == "false":
                raw, stop = yield from c.collect((close_parameter,))
                if not stop:
                    raise Broken(f"the text ended in the argument {keyed[1][:40]!r}")
                args.encoded(keyed[1], raw.strip() or '""')
            elif keyed[2] == "string":
                yield from args.value_until(keyed[1], (close_parameter,), literal=True)
            else:
                yield from _value(c, args, keyed[1], close_parameter, (parameter, close, end), line=False)
    if not any_yet:
        raise Broken("no call within the markup of calls")


def glm_call(c: Cursor, offer: Offer) -> Generator[None, None, None]:
    """A GLM call from its name on; the closing tag is read. Text between the tags that an opening tag should stand
    before is taken for the value it plainly is, and said to be mended."""
    name = yield from _word(c)
    stop = yield from c.take("<arg_key>", "</tool_call>", skip_space=True)
    if not stop or not name:
        raise Broken("a call without a name", prose=True)
    c.call(name)
    args = Building(c, offer.schema(name))
    while stop == "<arg_key>":
        key, found = yield from c.collect(("</arg_key>",), _NAME_LIMIT)
        if not found:
            raise Broken("an argument's name does not end")
        key = key.strip()
        if not (yield from c.take("<arg_value>", skip_space=True)):
            value, found = yield from c.collect(("</arg_value>", "<arg_key>", "</tool_call>"))
            if found != "</arg_value>" or not value.strip():
                raise Broken(f"the argument {key[:40]!r} has no value")
            c.malformed(f"the value of {key[:40]!r} has no opening tag", mended=True)
            args.bare(key, value)
        else:
            yield from _value(c, args, key, "</arg_value>", ("<arg_key>", "</tool_call>"), line=False)
        stop = yield from c.take("<arg_key>", "</tool_call>", skip_space=True)
    if stop != "</tool_call>":
        raise Broken(f"neither an argument nor the end of {name}")
    args.close()
