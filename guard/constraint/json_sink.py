"""What a reader of JSON tells of a document, and to whom.

The rules:

- Every value begins once and ends once, in the order of the text: a container by its bracket, anything else as a whole.
- Offsets count characters from the start of the first text that the reader was fed, plus its ``base``.
- The text of a string is told as it comes from the piece on that makes it longer than the reader's ``budget``, which
  the sink may set when the string begins. Its value is told whole all the same.
- A sink that has seen enough raises; nothing is fed to its reader afterwards.
"""

from __future__ import annotations

from typing import Any, Final

OBJECT: Final = 0
ARRAY: Final = 1
STRING: Final = 2
NUMBER: Final = 3
TRUE: Final = 4
FALSE: Final = 5
NULL: Final = 6
KINDS: Final = ("object", "array", "string", "number", "true", "false", "null")
UNHEARD: Final = 1 << 60
"""A budget that no string uses up."""


class Sink:
    """Hears what is read. This one does nothing about it."""

    __slots__ = ()

    def start(self, kind: int, at: int) -> None:
        """A value begins at its first character, at offset ``at``."""

    def text(self, piece: str, at: int) -> None:
        """Decoded text within a string or key, once it is longer than the reader's ``budget``: a run of plain
        characters that begins at offset ``at``, or the one character of the escape that does (half a surrogate pair
        comes alone). Not of a string that came whole in one piece, without an escape: that one is ``plain``."""

    def key_start(self, at: int) -> None:
        """A key's opening quote; not while the reader is ``quiet``."""

    def key(self, key: str, at: int, end: int) -> None:
        """A whole key; ``end`` is past its closing quote."""

    def scalar(self, kind: int, value: Any, at: int, end: int) -> None:
        """A whole string, number or literal."""

    def comma(self, at: int) -> None:
        """Another item or property must follow; not while the reader is ``quiet``."""

    def end(self, kind: int, at: int) -> None:
        """The container that was begun last and is still open is closed by the bracket at ``at``."""
