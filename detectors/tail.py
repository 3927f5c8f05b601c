"""Holds the last characters of a text while they are all the same: a collapse into one token looks like that at first.

The rules:

- It condemns nothing. It only holds, for a few characters, until the repetition detector has looked: that one works in
  steps, and would let a dozen exclamation marks go before its first look.
- Pairs and threes are ordinary (``ll``, ``...``, three quotation marks, an empty line), so three always leave, and the
  fourth waits for something else to follow.
- An exclamation mark waits from the first on: it is token 0 of the common vocabularies, which is what a replica with a
  numeric fault says for ever, and a caller must not be left with one of them in the middle of a sentence.
- An answer that begins with what no answer begins with (``/``, ``%``) is held from its first character, so that a
  replica that says nothing else has delivered nothing, and the answer can start afresh elsewhere.
- Spaces and tabs are indentation, and dashes, equal signs and their like are rules: they are left
  alone, but for an answer that begins with one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from detectors.finding import Finding

LEAVE: Final = 3
LEAVE_DIGITS: Final = 16
"""Within a text: floats end in as many noughts or nines."""
MOST: Final = 32
"""Longer runs have been looked at by the repetition detector, whose word counts from there on."""

_LEFT_ALONE: Final = frozenset(" \t-=_*~")
_TOKEN_0: Final = "!"
_OPENINGS: Final = frozenset("{[(<\"'`#*->|¿¡“‘«—…$@:")


class Tail:
    __slots__ = ("_char", "_run", "_seen", "calm", "doubt")

    def __init__(self) -> None:
        self.doubt = 0
        self.calm = True  # plain words end in no run
        self._char = ""
        self._run = 0
        self._seen = 0

    def feed(
        self, text: str, token_ids: Sequence[int] | None = None, logprobs: Sequence[float] | None = None
    ) -> Sequence[Finding]:
        if not text:
            return ()
        last = text[-1]
        size = len(text)
        if last == self._char and (size == 1 or text == last * size):
            self._run += size
        elif size == 1 or text[-2] != last:
            self._char = last
            self._run = 1
        else:
            self._char = last
            self._run = size - len(text.rstrip(last))
        self._seen = seen = self._seen + size
        run = self._run
        leave = 0 if last == _TOKEN_0 or (run == seen and self._odd(last)) else LEAVE
        if run < seen and "0" <= last <= "9":
            leave = LEAVE_DIGITS
        alone = last in _LEFT_ALONE and (run < seen or last in " \t")
        held = leave < run <= MOST and not alone
        self.doubt = seen - run + leave if held else seen
        return ()

    def finish(self) -> Sequence[Finding]:
        self.doubt = self._seen
        return ()

    @staticmethod
    def _odd(char: str) -> bool:
        """Whether no answer begins with it. Letters of every script are ordinary, and so are emoji."""
        return ord(char) < 0x250 and not char.isalnum() and not char.isspace() and char not in _OPENINGS
