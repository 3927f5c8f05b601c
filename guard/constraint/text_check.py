"""Answers that are no JSON: held against a regex, a list of choices, a grammar or a structural tag while they stream.

All of them work by a matcher, which reads characters as long as some whole answer begins like that. The first character
with which none does is the error; an end where no whole answer ends is one too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from detectors.finding import Finding
from guard.constraint.contract import Checker
from guard.constraint.json_check import Release
from guard.constraint.words import Words


class Matcher(Protocol):
    def push(self, text: str) -> int:
        """Reads on. Returns how many characters of ``text`` were read; what follows them can never be right."""
        ...

    def accepts(self) -> bool:
        """Whether what was read so far is a whole answer."""
        ...

    def forced(self) -> str:
        """What every whole answer has next."""
        ...

    def failure(self) -> str:
        """Why the matcher could not go on for reasons of its own (a limit); empty otherwise."""
        ...


class TextChecker:
    """A Checker (contract.py). ``family`` begins the codes of its findings, ``what`` is the constraint in words."""

    def __init__(self, new_matcher: Callable[[], Matcher], family: str, what: str, release: Release) -> None:
        self._new_matcher = new_matcher
        self._family = family
        self._what = what
        self._release = release
        self._start()

    def _start(self) -> None:
        self.safe = 0
        self.good = 0
        self.drops: list[tuple[int, int]] = []
        self._texts: list[str] = []
        self._fed = 0
        self._matcher = self._new_matcher()
        self._failed = False

    def feed(self, text: str) -> Sequence[Finding]:
        self._texts.append(text)
        at = self._fed
        self._fed = at + len(text)
        if self._failed:
            return ()
        taken = self._matcher.push(text)
        self.good = at + taken
        if self._release == "streaming":
            self.safe = self.good
        if taken == len(text):
            return ()
        self._failed = True
        limit = self._matcher.failure()
        if limit:
            return (self._error("limit", f"the answer can no longer be held against the {self._what}: {limit}"),)
        shown = text[taken] if text[taken].isprintable() else f"U+{ord(text[taken]):04X}"
        return (self._error("mismatch", f"no answer that fits the {self._what} has {shown!r} there"),)

    def finish(self, truncated: bool) -> Sequence[Finding]:
        if self._failed:
            return ()
        if self._matcher.accepts():
            self.safe = self._fed
            return ()
        self._failed = True
        return (self._error("truncated", f"the answer ends before it fits the {self._what}"),)

    def _error(self, kind: str, message: str) -> Finding:
        at = self.good
        return Finding(f"{self._family}.{kind}", "error", message, onset=at, detected_at=min(at + 1, self._fed))

    @property
    def complete(self) -> bool:
        """Whether the text up to ``good`` is a whole answer."""
        return self._matcher.accepts()

    def rewind(self) -> None:
        """Back to ``good``: what is fed next goes on from there."""
        text = "".join(self._texts)[: self.good]
        self._start()
        self.feed(text)

    def forced(self) -> str:
        """The text that every answer has next, after ``good``; empty where there is a choice, or where the answer may
        end."""
        matcher = self._new_matcher()
        matcher.push("".join(self._texts)[: self.good])
        return "" if matcher.accepts() else matcher.forced()

    @property
    def expecting(self) -> str:
        return f"the rest of the {self._what}"


class ChoiceMatcher:
    """One of a list of words, to the letter."""

    def __init__(self, words: Words) -> None:
        self._words = words
        self._read = ""

    def push(self, text: str) -> int:
        if self._words.has_prefix(self._read + text):
            self._read += text
            return len(text)
        good = self._words.common(self._read, text)
        self._read += text[:good]
        return good

    def accepts(self) -> bool:
        return self._read in self._words.words

    def forced(self) -> str:
        return self._words.rest(self._read)

    def failure(self) -> str:
        return ""


def choice_maker(choices: Sequence[str]) -> Callable[[Release, bool], Checker]:
    words = Words(choices)
    what = f"list of {len(words.words)} choices"
    return lambda release, _: TextChecker(lambda: ChoiceMatcher(words), "constraint", what, release)
