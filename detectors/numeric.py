"""Numbers that no sound computation gives, in the logprobs of the chosen tokens.

The rules:

- A logprob that is not a number, is positive, or is minus infinity for a token that was chosen all the same, comes from
  a broken computation: an error. Engines that write -9999 for "too small to tell" are let through.
- A logprob of exactly zero is honest: a constraint that leaves one choice gives it, and so does a sure model. Hundreds
  in a row without any other value are recorded as pinned; entropy that is all but gone over as many, as collapsed.
  Both only sharpen another verdict, and are warnings.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from detectors.finding import Finding

_ROUNDING: Final = 1e-3  # above zero by this much is a sum that was rounded, not a probability above one
_ROW: Final = 256  # tokens
_SURE: Final = -1e-4  # all but certain: a probability above 0.9999


class Numeric:
    """One channel. Tokens are counted from the channel's start; offsets are those of the text fed with them."""

    __slots__ = ("_channel", "_onset", "_reported", "_seen", "_sure", "_zero", "condemned", "doubt")

    def __init__(self, *, channel: str = "content") -> None:
        self.doubt = 0
        self.condemned = False
        self._channel = channel
        self._seen = 0
        self._zero = 0
        self._sure = 0
        self._onset = 0
        self._reported: set[str] = set()

    def feed(
        self, text: str, token_ids: Sequence[int] | None = None, logprobs: Sequence[float] | None = None
    ) -> Sequence[Finding]:
        start = self._seen
        self._seen = seen = start + len(text)
        if self.condemned:
            return ()
        if logprobs:
            for value in logprobs:
                if -9000.0 < value <= _ROUNDING:  # also false for what is not a number
                    if value < _SURE:
                        self._zero = self._sure = 0
                        continue
                    if not self._sure:
                        self._onset = start
                    self._sure += 1
                    self._zero = self._zero + 1 if value >= 0.0 else 0
                    if self._sure < _ROW:
                        continue
                found = self._judge(value, start)
                if found:
                    return found
        self.doubt = seen
        return ()

    def finish(self) -> Sequence[Finding]:
        if not self.condemned:
            self.doubt = self._seen
        return ()

    def _judge(self, value: float, start: int) -> Sequence[Finding]:
        kind = ""
        if math.isnan(value):
            kind, message = "nan", "the logprob of a chosen token is not a number"
        elif value > _ROUNDING:
            kind, message = "positive", "the logprob of a chosen token is positive"
        elif value == -math.inf:
            kind, message = "infinite", "a token was chosen whose probability is zero"
        if kind:
            self.condemned = True
            self.doubt = max(self.doubt, start)
            evidence = {"logprob": str(value)}
            return (Finding(f"numeric.{kind}", "error", message, self._channel, start, self._seen, 0.99, evidence),)
        kind = "pinned" if self._zero >= _ROW else "collapsed_entropy"
        if self._sure < _ROW or kind in self._reported:
            return ()
        self._reported.add(kind)
        message = f"{_ROW} tokens in a row were certain" + (" to the last bit" if kind == "pinned" else "")
        evidence = {"tokens": str(self._sure)}
        return (Finding(f"numeric.{kind}", "warn", message, self._channel, self._onset, self._seen, 0.6, evidence),)
