"""How an answer begins that is a tool call, or a message with a header, but has lost its markup.

Compared is the beginning with its white space taken out, so that it does not matter how JSON was laid out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

JSON_CALLS: Final = (
    *(
        f'{bracket}{{{kind}"name":"NAME","{key}":'
        for bracket in ("", "[")
        for kind in ("", '"type":"function",')
        for key in ("arguments", "parameters")
    ),
    *(f'{bracket}{{"type":"function","function":{{"name":"NAME"' for bracket in ("", "[")),
)
_HEADERS: Final = ("commentaryto=functions.NAME", "assistantcommentaryto=functions.NAME")
_CHANNEL: Final = "analysis"
"""Harmony without its tokens: the channel's name is glued to the first word of the thoughts."""


def lost_markup(compact: str, names: Iterable[str]) -> str | None:
    """With what the text begins that only markup begins with, for calls of ``names``. Empty if with none of it; None if
    more text is needed."""
    if compact and compact[0] not in "{[ca":
        return ""
    if compact.startswith(_CHANNEL):
        size = len(_CHANNEL)
        return None if len(compact) == size else _CHANNEL if compact[size].isupper() else ""
    found = begins_call(compact, names, (*JSON_CALLS, *_HEADERS))
    return None if found == "" and _CHANNEL.startswith(compact) else found


def begins_call(compact: str, names: Iterable[str], shapes: Iterable[str]) -> str | None:
    """The shape, with its name, that the text begins with. Empty if with none; None if more text is needed."""
    undecided = False
    for name in names:
        for shape in shapes:
            whole = shape.replace("NAME", name)
            if compact.startswith(whole):
                return whole
            undecided = undecided or whole.startswith(compact)
    return None if undecided else ""


def is_header(found: str) -> bool:
    """Whether what ``lost_markup`` found names a channel and no call."""
    return found == _CHANNEL


def length_with_spaces(text: str, count: int) -> int:
    """How long the beginning of ``text`` is that holds ``count`` characters other than white space."""
    for at, char in enumerate(text, 1):
        count -= not char.isspace()
        if count == 0:
            return at
    return len(text)
