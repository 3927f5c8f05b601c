"""What a string of JSON says: its escapes, and the halves of surrogate pairs that some of them are.

The rules:

- An escape says one character. One that the end of a piece cuts goes on a character at a time, and the first that no
  escape has there is wrong.
- A character beyond U+FFFF is two escapes, each of half a surrogate pair. Whoever hears a string as it comes hears the
  halves one by one; the value of a whole string has the character.
- Half a pair without the other is a character to JSON, but none to anything that takes Unicode. It is counted, and the
  replacement character, which is as long, stands for it.
"""

from __future__ import annotations

import re
from typing import Final

ESCAPE: Final = re.compile(r'\\(?:(["\\/bfnrt])|u([0-9a-fA-F]{4}))').match
"""A whole escape: its letter, or its four digits."""
LETTERS: Final = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
"""What an escape of one letter says."""
FOLLOWS: Final = ("\\", '"\\/bfnrtu', *["0123456789abcdefABCDEF"] * 4)
"""What may come behind so many characters of an escape; without a u it is whole with the second."""
_HIGH: Final = chr(0xD800)
_HIGH_END: Final = chr(0xDBFF)
_LOW: Final = chr(0xDC00)
_LOW_END: Final = chr(0xDFFF)
_HALF: Final = re.compile(r"[\ud800-\udfff]")
NO_CHARACTER: Final = "\ufffd"
"""Stands for half a surrogate pair."""


def is_half(c: str) -> bool:
    """Half a surrogate pair. Asked, as below, of whatever was heard in one piece: a half comes alone."""
    return _HIGH <= c <= _LOW_END


def is_high(c: str) -> bool:
    """The first half of a pair, if the second follows."""
    return _HIGH <= c <= _HIGH_END


def is_pair(before: str, c: str) -> bool:
    """Whether ``c`` is the second half of a pair that ``before`` begins."""
    return _HIGH <= before <= _HIGH_END and _LOW <= c <= _LOW_END


def pair(high: str, low: str) -> str:
    """The character of two halves."""
    return (high + low).encode("utf-16-le", "surrogatepass").decode("utf-16-le")


def joined(text: str) -> tuple[str, int]:
    """The value of a whole string that has halves of pairs, and how many of them had no other half."""
    text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    lone = len(_HALF.findall(text))
    return judgeable(text) if lone else text, lone


def judgeable(text: str) -> str:
    """With the replacement character for what has no other half. Text that is not whole yet may end between two."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
