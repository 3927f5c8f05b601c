"""The input of one call of a custom tool, as it streams: text, held to a regex or a grammar or to nothing.

It comes as itself or as the argument of the function that the tool was sent as (input_check.py). Nothing in the text
says where it ends.
"""

from __future__ import annotations

from collections.abc import Sequence

from detectors.finding import Finding
from guard.constraint.compile import CompiledConstraint
from guard.constraint.input_check import InputReader
from guard.constraint.toolargs import Outcomes, is_error, moved


class TextArguments:
    """Used like Arguments (toolargs.py)."""

    whole = False

    def __init__(self, tool: str, compiled: CompiledConstraint | None, channel: str, *, keep_all: bool = False) -> None:
        self._tool = tool
        self._checker = compiled.checker() if compiled is not None else None
        self._reader = InputReader()
        self._channel = channel
        self._keep_all = keep_all
        self._parts: list[str] = []
        self._length = 0
        self.failed = False
        self.released = 0
        self.judged = False

    @property
    def empty(self) -> bool:
        return not self._reader.begun

    @property
    def text(self) -> str:
        return "".join(self._parts)

    @property
    def good(self) -> str:
        """As much of the input as can still become valid."""
        return self.text if self._checker is None else self.text[: self._checker.good]

    @property
    def fits(self) -> bool:
        """Whether it is a valid input as it stands."""
        return not self.failed and (self._checker is None or self._checker.complete)

    def feed(self, text: str) -> tuple[str, Outcomes]:
        if self.failed:
            self._parts.append(text)
            return "", []
        return self._heard(*self._reader.feed(text))

    def _heard(self, text: str, wrong: Sequence[Finding]) -> tuple[str, Outcomes]:
        piece, found = self._take(text) if text else ("", [])
        if wrong and not self.failed:
            found += self._told(wrong)
        return piece, found

    def _take(self, text: str) -> tuple[str, Outcomes]:
        start = self._length
        self._parts.append(text)
        self._length += len(text)
        if self._checker is None:
            clear, found = self._length, []
        else:
            found = self._told(self._checker.feed(text))
            clear = self._checker.safe
        if self._keep_all or clear <= self.released:
            return "", found
        piece = (
            text[self.released - start : clear - start] if self.released >= start else self.text[self.released : clear]
        )
        self.released = clear
        return piece, found

    def end(self, truncated: bool = False) -> tuple[str, Outcomes]:
        self.judged = True
        found = [] if self.failed else self._finished(truncated)
        return ("", found) if self.failed else (self.text[self.released :], found)

    def _finished(self, truncated: bool) -> Outcomes:
        piece, found = self._heard(*self._reader.finish(truncated))
        self.released -= len(piece)  # it leaves with the rest
        if self._checker is not None and not is_error(found):
            found += self._told(self._checker.finish(truncated))
        return found

    def _told(self, findings: Sequence[Finding]) -> Outcomes:
        out: Outcomes = []
        for finding in findings:
            out.append(moved(finding, self._channel))
            if finding.severity == "error" and not self.failed:
                self.failed = True
                message = f"the input of {self._tool} breaks its format: {finding.message}"
                code = "tool.truncated" if finding.code.endswith(".truncated") else "tool.invalid_arguments"
                out.append(Finding(code, "error", message, self._channel, finding.onset, finding.detected_at))
        return out
