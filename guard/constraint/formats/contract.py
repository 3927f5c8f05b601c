"""What a format parser is fed and what it says.

A parser is fed an answer's text in any split and says, in order: text that is no part of a call, and calls. What it
says of a given text does not depend on the split, joined pieces counted as one. It holds no more than it must to know
what a beginning will become.
"""

from __future__ import annotations

from msgspec import Struct

from guard.events import ToolDelta


class Text(Struct, gc=False):
    """Plain text of ``channel``, which a format that frames its own channels may name."""

    text: str
    channel: str = ""


class Call(Struct, gc=False):
    """A call begins."""

    name: str
    id: str | None = None


class Args(Struct, gc=False):
    """More of the arguments, as JSON text."""

    text: str


class End(Struct, gc=False):
    """The call is whole as its markup goes."""


class Malformed(Struct, gc=False):
    """Markup that began as a call and is none. ``mended``: nothing was lost, so the call goes on all the same;
    ``cut``: the text ended before the call could begin."""

    message: str
    at: int
    mended: bool = False
    cut: bool = False


Piece = Text | Call | Args | End | Malformed


class TextCall(ToolDelta):
    """A piece of a call that was read out of text. ``source`` names the channel; ``index`` counts within it, and it
    owes no id."""

    source: str = "content"
