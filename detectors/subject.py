"""What a prompt is about, as far as it explains markup in the answer: a marker that it names, or tokens in general."""

from __future__ import annotations

import re
from typing import Final

from detectors.markup import Marker

_TOPIC: Final = re.compile(
    r"special[ -]tokens?|control[ -]tokens?|chat[ -]?templates?|chatml|tokeni[sz]er|\b(?:bos|eos|eot)\b"
    r"|prompt (?:format|template)|(?:tool|function)[ -]call(?:ing)? (?:format|syntax|markup|tags?|parser)"
    r"|(?:think|reasoning|thinking)[ -]tags?|stop (?:tokens?|sequences?|strings?)|harmony format|jinja"
    r"|end[ -]of[ -](?:text|sequence|turn)",
    re.IGNORECASE,
)


class Subject:
    """Of one prompt; read when it is first asked about."""

    __slots__ = ("_about_tokens", "_prompt")

    def __init__(self, prompt: str) -> None:
        self._prompt = prompt
        self._about_tokens: bool | None = None

    def names(self, marker: Marker) -> bool:
        return marker.text in self._prompt or bool(marker.closes and marker.closes in self._prompt)

    @property
    def is_about_tokens(self) -> bool:
        if self._about_tokens is None:
            self._about_tokens = _TOPIC.search(self._prompt) is not None
        return self._about_tokens
