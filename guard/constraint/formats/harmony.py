"""gpt-oss's Harmony: an answer is messages, each with a channel and maybe a recipient.

``analysis`` is reasoning, ``final`` and ``commentary`` without a recipient are content, a recipient makes it a call.
The recipient may stand before or behind the channel. From the first header on everything is read as messages.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Final

from guard.constraint.formats.arguments import Offer
from guard.constraint.formats.cursor import Cursor
from guard.constraint.formats.jsoncalls import Broken

_CHANNEL: Final = re.compile(r"<\|channel\|>\s*(\w+)|^\s*(analysis|commentary|final)\b")
_RECIPIENT: Final = re.compile(r"\bto=([\w./-]+)")
_ENDS: Final = ("<|call|>", "<|end|>", "<|return|>", "<|start|>")
_PEOPLE: Final = frozenset({"user", "assistant", "all", "system"})
_HEAD: Final = 300


def harmony(c: Cursor, offer: Offer) -> Generator[None, None, None]:
    """Called at a header's first token, or at a recipient that begins the answer. Raises Broken."""
    while True:
        header, stop = yield from c.collect(("<|message|>",), _HEAD)
        if not stop:
            raise Broken("a message header that does not end")
        channel = _CHANNEL.search(header)
        recipient = _RECIPIENT.search(header)
        if channel is None and recipient is None and "<|start|>" not in header:
            raise Broken("a message without a channel")
        if recipient is not None and recipient[1] not in _PEOPLE:
            c.call(recipient[1].removeprefix("functions."))
            stop = yield from c.until(_ENDS, c.args)
            c.end()
        else:
            c.unmark()
            name = (channel[1] or channel[2]) if channel else "final"
            c.channel = "reasoning" if name == "analysis" else "content"
            stop = yield from c.until(_ENDS, c.say)
            c.channel = ""
        if stop == "<|start|>":
            c.at -= len(stop)
        if not (yield from c.follows("<|start|>", "<|channel|>", skip_space=True)):
            return
        c.mark()
