"""Markers that nothing beside them explains: which of them have leaked, and how bad that is.

The rules:

- A strong one has leaked where it stands. An edge one has where nothing that can be seen, or another marker, stands
  before it, and where it closes what nothing opened; an inner one there, and anywhere behind markup of tools.
- What is not certain yet waits for what comes next: another marker says that it leaked, and so does the end of the
  answer (for an inner one it does not); anything else says that it did not.
- Code that shows markup goes on, so a marker in it has leaked only where the answer ends with it.
- A closing reasoning tag that nothing opened shows the caller somebody's thoughts: error. A block that opens the answer
  and is closed again is what an engine without a reasoning parser sends: warn, or error where the engine's stream
  should have parsed it. A block that is never closed, or a second opening tag, is an error.
- Each marker is reported once, at its first place, and never when the prompt names it. Where the prompt is about
  special tokens in general, it is recorded as info.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from detectors.finding import Finding, Severity
from detectors.markup import CODES, Marker
from detectors.subject import Subject

_MOST_FINDINGS: Final = 16


class BareMarkers:
    """Of one channel. ``at``: how much of it has been read, which is the reader's to say. ``visible``: something stands
    in it that is not white space. ``unsure``: what says of a marker that it leaked (the next marker or the end, only a
    marker, only the end), the marker, and where it stands. ``after_marker``: the last thing was one."""

    __slots__ = (
        "_channel", "_open", "_parsed", "_prompt", "_reported", "_thought", "_tool_seen", "after_marker", "at",
        "unsure", "visible",
    )  # fmt: skip

    def __init__(self, channel: str, prompt: Subject, parsed_reasoning: bool) -> None:
        self.at = 0
        self.visible = False
        self.unsure: tuple[str, Marker, int] | None = None
        self.after_marker = False
        self._channel = channel
        self._prompt = prompt
        self._parsed = parsed_reasoning
        self._tool_seen = False
        self._thought = False  # a reasoning block has begun
        self._reported: set[str] = set()
        self._open: list[tuple[Marker, int]] = []

    @property
    def none_seen(self) -> bool:
        """Whether there has been nothing yet that makes the next marker likelier."""
        return not (self._reported or self._tool_seen or self._thought)

    # --- what comes, in its order ------------------------------------------------------------------------------------

    def other(self) -> None:
        """Anything that is no marker and can be seen."""
        self.visible = True
        self.unsure = None
        self.after_marker = False

    def marker(self, out: list[Finding]) -> None:
        """A marker comes, whatever it is: the one before it is judged."""
        if self.unsure is not None:
            when, marker, start = self.unsure
            self.unsure = None
            if when != "end":
                self.report(marker, start, out)

    def in_code(self, marker: Marker, start: int) -> None:
        """In a fence, or in source code without one."""
        if marker.weight == "strong" and marker.kind != "reasoning":
            self.unsure = ("end", marker, start)
        self.visible = True

    def perhaps(self, marker: Marker, start: int, out: list[Finding]) -> None:
        """Perhaps it is spoken of."""
        if self.after_marker or not self.visible:
            self.report(marker, start, out)
        else:
            self.unsure = ("next", marker, start)
        self.after_marker = True

    def bare(self, marker: Marker, start: int, out: list[Finding]) -> None:
        self._judge(marker, start, self.after_marker or not self.visible, out)

    def late(self, markers: Sequence[tuple[Marker, int]], out: list[Finding]) -> None:
        """What seemed to explain them was never closed. Other text has come since, so nothing that follows stands
        beside them."""
        after_marker = self.after_marker
        for marker, start in markers:
            self._judge(marker, start, False, out)
        self.after_marker = after_marker
        self.unsure = None

    def end(self, out: list[Finding]) -> None:
        if self.unsure is not None:
            when, marker, start = self.unsure
            self.unsure = None
            if when != "marker":
                self.report(marker, start, out)
        for marker, start in self._open:
            if marker.kind == "reasoning" and self._channel == "content":
                self.report(marker, start, out, "error", "is never closed")

    # --- inside ------------------------------------------------------------------------------------------------------

    def _judge(self, marker: Marker, start: int, adjacent: bool, out: list[Finding]) -> None:
        if marker.kind == "reasoning":
            self._reasoning(marker, start, out)
        elif marker.weight == "strong":
            self.report(marker, start, out)
        elif marker.weight == "edge":
            if adjacent:
                self.report(marker, start, out)
            elif marker.closes:
                opened = [pair for pair in self._open if pair[0].text == marker.closes]
                if opened:
                    self._open.remove(opened[-1])
                else:
                    self.report(marker, start, out)
            else:
                if marker.text == "<s>":
                    self._open.append((marker, start))
                self.unsure = ("next", marker, start)
        elif adjacent or self._tool_seen:
            self.report(marker, start, out)
        else:
            self.unsure = ("marker", marker, start)
        self.after_marker = True

    def _reasoning(self, marker: Marker, start: int, out: list[Finding]) -> None:
        severity: Severity = "warn" if self._channel != "content" else "error"
        opened = [pair for pair in self._open if pair[0].kind == "reasoning"]
        if marker.closes:
            for pair in reversed(opened):
                if pair[0].text == marker.closes:
                    self._open.remove(pair)
                    return
            self.report(marker, start, out, severity, "closes what nothing opened")
        else:
            leading = not (self.visible or opened or self._thought)
            self._thought = True
            self._open.append((marker, start))
            if leading and not self._parsed:
                self.report(marker, start, out, "warn", "opens the answer")
                self._reported.discard(marker.text)
            else:
                self.report(marker, start, out, severity, "opens inside the answer")

    def report(
        self, marker: Marker, start: int, out: list[Finding], severity: Severity = "error", how: str = ""
    ) -> None:
        if marker.kind == "tool":
            self._tool_seen = True
        if marker.text in self._reported or len(self._reported) >= _MOST_FINDINGS or self._prompt.names(marker):
            return
        self._reported.add(marker.text)
        if self._prompt.is_about_tokens:
            severity = "info"
        message = f"{marker.text!r} ({marker.family}) in the {self._channel}" + (f": {how}" if how else "")
        out.append(
            Finding(
                CODES[marker.kind],
                severity,
                message,
                channel=self._channel,
                onset=start,
                detected_at=self.at,
                evidence={"marker": marker.text, "family": marker.family},
            )
        )
