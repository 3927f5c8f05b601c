"""What the name of a call says: an offered tool, one with its family's decoration, or one with markup stuck to it.

Pure. Nothing is guessed: a name is read as a tool's only if what is taken off carries nothing, or carries the call's
arguments whole.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final, NamedTuple

from detectors.markup import Marker, find

_COUNTED: Final = re.compile(r"(.+):\d+")
_HEADER_WORDS: Final = frozenset(
    {"commentary", "analysis", "final", "json", "code", "assistant", "function", "functions", "tool"}
)
_CARRIERS: Final = frozenset({"<arg_key>", "<arg_value>", "<parameter=", '<parameter name="', '<|"|>', "[ARGS]"})
_GLM_ARGUMENT: Final = re.compile(r"\s*<arg_key>([^<]*)</arg_key>\s*<arg_value>(.*?)</arg_value>", re.DOTALL)


class Reading(NamedTuple):
    """``tool``: the offered tool that is meant, or None. ``marker``: markup that the name holds. ``arguments``: (key,
    raw value) pairs, where the name holds the call's arguments."""

    tool: str | None
    marker: Marker | None = None
    arguments: tuple[tuple[str, str], ...] | None = None


def read_name(name: str, tools: Collection[str]) -> Reading:
    if name in tools:
        return Reading(name)
    bare = undecorated(name, tools)
    if bare is not None:
        return Reading(bare)
    found = find(name)
    if found is None:
        return Reading(None)
    marker, start, _ = found
    head, tail = name[:start].strip(), name[start:]
    known = head if head in tools else undecorated(head, tools)
    if known is not None:
        arguments = _glm_arguments(tail)
        if arguments is not None or _says_nothing(tail):
            return Reading(known, marker, arguments)
    return Reading(None, marker)


def undecorated(name: str, tools: Collection[str]) -> str | None:
    """The tool that is meant by a name with white space around it, ``functions.`` before or a counter behind it."""
    bare = name.strip().removeprefix("functions.")
    if bare in tools:
        return bare
    counted = _COUNTED.fullmatch(bare)
    return counted[1] if counted and counted[1] in tools else None


def _says_nothing(tail: str) -> bool:
    """Whether the text is markers and the words of a message header only."""
    at = 0
    words = ""
    while (found := find(tail, at)) is not None:
        if found[0].text in _CARRIERS:
            return False
        words += " " + tail[at : found[1]]
        at = found[2]
    return all(word in _HEADER_WORDS for word in (words + " " + tail[at:]).split())


def _glm_arguments(tail: str) -> tuple[tuple[str, str], ...] | None:
    """The arguments of a GLM call that were taken for a part of its name; None if they are not whole."""
    found = []
    at = 0
    while (pair := _GLM_ARGUMENT.match(tail, at)) is not None:
        found.append((pair[1].strip(), pair[2]))
        at = pair.end()
    return tuple(found) if found and tail[at:].strip() in ("", "</tool_call>") else None
