"""Which text is quoted: markdown's fenced blocks and inline code spans, and what stands between quotation marks.

Text that is *about* markup shows it in one of these ways. The reader is told of each newline and of each run of
backticks or tildes, in order, and knows at once whether what follows is inside a fence or an open span. A span ends
with its line, or, for a reader of paragraphs, with its paragraph: one that was never closed was no span (whoever asked
may have to change his mind then). A backtick behind a letter is an accent ("it`s"): its span never leaves its line.
"""

from __future__ import annotations

import re
from typing import Final

PAIRS: Final = {
    '"': '"',
    "'": "'",
    "“": "”",
    "‘": "’",
    "«": "»",
    "„": "“",
    "「": "」",
    "『": "』",
    "*": "*",
    "(": ")",
    "（": "）",
}

_BLANK: Final = re.compile(r"[ \t>]*(?:[-*+]|\d{1,9}[.)]?)?[ \t>]*")
"""What may stand before a fence on its line (block quote, list item). Every beginning of it matches too."""
_LONGEST: Final = 40


class Quoting:
    """``fenced``: inside a fenced block. ``span``: how many backticks opened the code span that we are in, else 0."""

    __slots__ = ("_accent", "_fence", "_info", "_line", "_paragraphs", "span")

    def __init__(self, *, paragraphs: bool = False) -> None:
        self.span = 0
        self._paragraphs = paragraphs
        self._accent = False
        self._fence = ""
        self._info = False
        self._line: str | None = ""

    @property
    def fenced(self) -> bool:
        return bool(self._fence)

    def lines(self, text: str) -> None:
        """Text without a run of backticks or tildes."""
        if "\n" in text:
            if not (self.span and self._paragraphs):
                self.newline()
                text = text[text.rindex("\n") + 1 :]
            else:
                first, *others = text.split("\n")
                self.text(first)
                for line in others[:-1]:
                    self.newline()
                    self.text(line)
                self.newline()
                text = others[-1]
        if self._line is not None:
            self.text(text)

    def text(self, text: str) -> None:
        """Text of the current line without newline, backtick run or tilde run."""
        if self._line is not None and text:
            line = self._line + text
            blank = len(line) <= _LONGEST and (line.isspace() or _BLANK.fullmatch(line))
            self._line = line if blank else None

    def newline(self) -> None:
        if not self._paragraphs or self._accent or (self._line is not None and not self._line.strip()):
            self.span = 0
        self._info = False
        self._line = ""

    def run(self, run: str, after_word: bool = False) -> None:
        """A whole run of backticks or tildes."""
        at_start = self._line is not None
        self._line = None
        if self._fence:
            if at_start and run[0] == self._fence[0] and len(run) >= len(self._fence):
                self._fence = ""
            elif self._info and run[0] == "`" == self._fence[0]:
                # an info string holds no backtick: this was inline code that began the line
                self.span = 0 if len(run) == len(self._fence) else len(self._fence)
                self._fence = ""
            return
        if at_start and len(run) >= 3:
            self._fence = run
            self._info = True
            self.span = 0
        elif run[0] == "`":
            if not self.span:
                self.span = len(run)
                self._accent = after_word
            elif self.span == len(run):
                self.span = 0
