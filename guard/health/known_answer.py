"""A small question whose answer is known, and what an engine's answer to it says. Pure.

- The stream guard judges it like any answer: a collapse, a cut or an error counts as it does for a caller.
- Whether the words are right counts only for an engine that had them right before: a small model may not be able to
  repeat five words, and one that thinks first does not get to them within its ``TOKENS``.
- It costs an engine ``TOKENS`` tokens at most, and one is under way at a time.
"""

from __future__ import annotations

from typing import Final

from guard.engines.contract import Capabilities
from guard.health.verdict import WELL, Verdict
from guard.request import GenerationRequest, Sampling

TOKENS: Final = 32
WORDS: Final = ("lamp", "harbor", "seven", "green", "window")
WRONG: Final = "probe.wrong_answer"
_ASKED: Final = f"Copy this line and write nothing else: {' '.join(WORDS)}"
"""Not "repeat": the detectors would let an answer repeat itself that was asked to."""


def question(model: str, capabilities: Capabilities, *, number: int) -> GenerationRequest:
    sampling = Sampling(max_tokens=TOKENS, temperature=0.0)
    if capabilities.chat:
        messages = [{"role": "user", "content": _ASKED}]
        return GenerationRequest(f"probe-{number}", "chat", model, messages, sampling=sampling)
    return GenerationRequest(f"probe-{number}", "completion", model, prompt=_ASKED + "\n", sampling=sampling)


class KnownAnswer:
    """What one engine has shown that it can."""

    def __init__(self) -> None:
        self.able = False

    def judge(self, text: str) -> tuple[str, Verdict]:
        """Of an answer that nothing condemned: the cause, empty where it was good, and what it says."""
        right = all(word in text.lower() for word in WORDS)
        self.able = self.able or right
        return (WRONG, Verdict(0.5)) if self.able and not right else ("", WELL)
