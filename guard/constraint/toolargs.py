"""The arguments of one tool call, as they stream.

The rules:

- Text of a JSON object is released as its checker (json_check.py) clears it, but what closes it is held until the call
  has ended: broken arguments, or arguments with something behind them, never look finished.
- Anything that is no object from its first character on is held whole: it may be an object encoded twice, or one in a
  markdown fence, which lose nothing by being undone. What is undone is recorded.
- Arguments are an object, as the API says, also where their schema leaves that open.
- Arguments are never completed. What is cut, doubled or followed by something else is an error.
- A call whose tool takes no arguments may leave them out.

Each error says twice what it is: as the text's own (json, schema), and as the call's (tool). Pure: any split of the
same text gives the same findings and the same released text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from detectors.finding import Finding
from detectors.leak import leaks_in
from detectors.markup import find
from guard.constraint.compile import CompiledConstraint
from guard.constraint.contract import Checker

Outcome = Finding | tuple[str, str]
"""A finding, or (code, message) of something that can be undone without loss."""

Outcomes = list[Outcome]

_FENCE: Final = re.compile(r"```[\w+-]*[ \t]*\n?(.*?)\n?[ \t]*```", re.DOTALL)
_SPACE: Final = " \t\r\n"
_LONGEST_TAIL: Final = 200


class Arguments:
    """``feed`` and ``end`` return what may be released and what was found.

    ``whole``: a document has been closed. ``keep_all``: nothing is released before the end.
    """

    def __init__(
        self, tool: str, compiled: CompiledConstraint, channel: str, *, optional: bool, keep_all: bool = False
    ) -> None:
        self._tool = tool
        self._compiled = compiled
        self._channel = channel
        self._optional = optional
        self._keep_all = keep_all
        self._parts: list[str] = []
        self._length = 0
        self._checker: Checker | None = None
        self._held = False
        self._closed_at = -1
        self.failed = False
        self.released = 0
        self.judged = False

    @property
    def whole(self) -> bool:
        return self._closed_at >= 0 or self.failed

    @property
    def empty(self) -> bool:
        return self._checker is None and not self._held

    @property
    def text(self) -> str:
        if len(self._parts) > 1:
            self._parts[:] = ["".join(self._parts)]
        return self._parts[0] if self._parts else ""

    @property
    def good(self) -> str:
        """As much of the object as can still become valid, or all of it without what follows. Empty where the arguments
        did not begin as one."""
        if self._checker is None:
            return ""
        return self.text[: self._closed_at if self._closed_at >= 0 else self._checker.good]

    def feed(self, text: str) -> tuple[str, Sequence[Outcome]]:
        checker = self._checker
        if checker is None or self.failed or self._closed_at >= 0:
            return self._unusual(text)
        start = self._length
        self._parts.append(text)
        self._length = start + len(text)
        found = checker.feed(text)
        if found or checker.complete:
            return self._eventful(checker, text, start, found)
        return self._clear(text, start, checker.safe), ()

    def _unusual(self, text: str) -> tuple[str, Sequence[Outcome]]:
        """Text before the document begins, after its end, or in no document at all."""
        if self.judged and not self.failed:
            return "", self._broken("extra_data", "text after finished arguments", self._length) if text.strip() else ()
        self._parts.append(text)
        self._length += len(text)
        if self.failed or self._held or self._closed_at >= 0 or not text.strip(_SPACE):
            return "", ()
        if text.lstrip(_SPACE)[0] != "{":
            self._held = True
            return "", ()
        checker = self._checker = self._compiled.checker("streaming", False)
        text = self.text
        return self._eventful(checker, text, 0, checker.feed(text))

    def _eventful(
        self, checker: Checker, text: str, start: int, findings: Sequence[Finding]
    ) -> tuple[str, Sequence[Outcome]]:
        out: Outcomes = []
        behind = -1
        for finding in findings:
            if finding.code == "json.trailing_data":
                behind = finding.onset  # judged when all of it is there
            else:
                out += self._told(finding)
        clear = checker.safe
        if not self.failed and (behind >= 0 or checker.complete):
            document = text if behind < 0 else text[: behind - start]
            self._closed_at = start + len(document.rstrip(_SPACE))
            clear = min(clear, self._closed_at - 1)
        return self._clear(text, start, clear), out

    def _clear(self, text: str, start: int, clear: int) -> str:
        """What leaves of all that came: up to ``clear``. ``text`` is its last piece, which begins at ``start``."""
        released = self.released
        if self._keep_all or clear <= released:
            return ""
        self.released = clear
        if released < start:
            return self.text[released:clear]
        return text if released == start and clear == start + len(text) else text[released - start : clear - start]

    def _told(self, finding: Finding) -> Outcomes:
        """A checker's finding, in this call's channel and with what it means for the call."""
        here = moved(finding, self._channel)
        if finding.severity != "error":
            return [here]
        self.failed = True
        if finding.family == "schema":
            code, what = "tool.invalid_arguments", "break its schema"
        elif finding.code == "json.truncated":
            code, what = "tool.truncated", "break off"
        else:
            code, what = "tool.invalid_json", "are no JSON"
        message = f"the arguments of {self._tool} {what}: {finding.message}"
        own = Finding(code, "error", message, self._channel, finding.onset, finding.detected_at)
        return [here, own]

    # --- the end -----------------------------------------------------------------------------------------------------

    def end(self, truncated: bool = False) -> tuple[str, Outcomes]:
        """The call has ended; ``truncated``: by the token limit."""
        self.judged = True
        if self.failed:
            return "", []
        text = self.text
        if self._checker is None:
            return self._undone(text.strip(_SPACE), truncated)
        out: Outcomes = []
        if self._closed_at < 0:
            for finding in self._checker.finish(truncated):
                out += self._told(finding)
            if not self.failed:
                out += self._cut(truncated)
            return "", out
        tail = text[self._closed_at :].strip(_SPACE)
        if tail:
            out += self._behind(tail)
        document = text[: self._closed_at]
        if "<" in document or "[" in document:
            out += _inside(document, self._channel, self._closed_at - 1)
        if is_error(out):
            self.failed = True
        return ("", out) if self.failed else (document[self.released :], out)

    def _undone(self, text: str, truncated: bool) -> tuple[str, Outcomes]:
        """Arguments that did not begin as an object."""
        if text in ("", "null") and self._optional:
            return "{}", [
                ("tool.empty_arguments", f"{self._tool} takes no arguments; {text or 'nothing'} read as {{}}")
            ]
        if not text:
            return "", self._cut(truncated)
        steps: Outcomes = []
        fence = _FENCE.fullmatch(text)
        if fence:
            steps.append(("tool.fenced_arguments", f"a markdown fence around the arguments of {self._tool}"))
            text = fence[1].strip(_SPACE)
        elif text.startswith("`"):
            if truncated:
                return "", self._cut(truncated)
            return "", self._broken("invalid", "the arguments begin with a fence that never ends", 0)
        if text.startswith('"'):
            inner = _decoded(text)
            if inner is None and truncated:
                return "", self._cut(truncated)
            bare = (inner or "").strip(_SPACE)
            encoded_twice = bare.startswith("{") or (inner is not None and not bare and self._optional)
            if encoded_twice and (self._may_be_object() or not self._takes(text)):
                steps.append(("tool.double_encoded", f"the arguments of {self._tool} were encoded twice"))
                text = bare or "{}"
        if text.startswith("{"):
            inside = Arguments(self._tool, self._compiled, self._channel, optional=self._optional)
            piece, found = inside.feed(text)
            rest, more = inside.end(truncated)
            self.failed = inside.failed
            return ("", [*found, *more]) if self.failed else (piece + rest, [*steps, *found, *more])
        checker = self._compiled.checker("streaming", False)
        wrong: Outcomes = []
        for finding in (*checker.feed(text), *checker.finish(truncated)):
            wrong += self._told(finding)
        if not self.failed and self._may_be_object():
            # the schema leaves the type open, the API does not
            message = "the arguments of a call are an object"
            wrong += self._told(Finding("schema.type", "error", message, self._channel, 0, self._length))
        return ("", wrong) if self.failed else (text, steps + wrong)

    def _may_be_object(self) -> bool:
        checker = self._compiled.checker("streaming", False)
        return not any(finding.severity == "error" for finding in checker.feed("{"))

    def _takes(self, text: str) -> bool:
        checker = self._compiled.checker("streaming", False)
        return not any(finding.severity == "error" for finding in (*checker.feed(text), *checker.finish(False)))

    def _cut(self, truncated: bool) -> Outcomes:
        message = "the text ends " + ("at the token limit" if truncated else "where the call does")
        return self._told(Finding("json.truncated", "error", message, self._channel, self._length, self._length))

    def _behind(self, tail: str) -> Outcomes:
        """What follows a whole object: nothing but markers is a leak that can be taken off, all else is an error."""
        if _only_markers(tail):
            message = f"markup behind the arguments of {self._tool}: {tail[:80]!r}"
            leak = Finding("leak.tool_markup", "warn", message, self._channel, self._closed_at, self._length)
            return [leak, ("tool.trailing_markup", message)]
        if tail[0] in "{[":
            return self._broken("concatenated", "another document follows the first", self._closed_at)
        if not tail.strip("}] \t\r\n"):
            return self._broken("extra_bracket", "a bracket follows that closes nothing", self._closed_at)
        return self._broken("extra_data", f"text follows the object: {tail[:80]!r}", self._closed_at)

    def _broken(self, kind: str, message: str, onset: int) -> Outcomes:
        return self._told(Finding(f"json.{kind}", "error", message, self._channel, onset, self._length))


def moved(finding: Finding, channel: str) -> Finding:
    return Finding(
        finding.code,
        finding.severity,
        finding.message,
        channel,
        finding.onset,
        finding.detected_at,
        finding.confidence,
        finding.evidence,
    )


def is_error(outcomes: Sequence[Outcome]) -> bool:
    return any(isinstance(one, Finding) and one.severity == "error" for one in outcomes)


def _decoded(text: str) -> str | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, str) else None


def _only_markers(text: str) -> bool:
    """Whether the text is markers, white space and nothing else."""
    at = 0
    if len(text) > _LONGEST_TAIL:
        return False
    while at < len(text):
        found = find(text, at)
        if found is None or text[at : found[1]].strip(_SPACE):
            return False
        at = found[2]
    return at > 0


def _inside(document: str, channel: str, onset: int) -> Iterator[Finding]:
    """Markup in keys, at any depth, and short values that end with some. The document is valid JSON."""
    if find(document) is None:
        return
    stack: list[Any] = [json.loads(document)]
    while stack:
        item = stack.pop()
        if isinstance(item, list):
            stack += [inner for inner in item if isinstance(inner, dict | list)]
        elif isinstance(item, dict):
            for key, inner in item.items():
                if "<" in key or "[" in key:
                    yield from (_at(leak, onset) for leak in leaks_in(key, channel, "an argument's key"))
                if isinstance(inner, str):
                    yield from _at_end_of(key, inner, channel, onset)
                elif isinstance(inner, dict | list):
                    stack.append(inner)


def _at(finding: Finding, onset: int) -> Finding:
    return Finding(
        finding.code, finding.severity, finding.message, finding.channel, onset, onset + 1, evidence=finding.evidence
    )


def _at_end_of(key: str, value: str, channel: str, onset: int) -> Iterator[Finding]:
    if not value.endswith((">", "]")) or len(value) > _LONGEST_TAIL or "\n" in value:
        return
    found = find(value)
    ends = found is not None and found[2] == len(value) and found[1]
    if found and ends and found[0].weight == "strong" and found[0].kind != "reasoning":
        message = f"the value of {key} ends with {found[0].text!r}"
        yield Finding(
            "leak.tool_markup", "warn", message, channel, onset, onset + 1, evidence={"marker": found[0].text}
        )


def json_kind(value: Any) -> str:
    names = {dict: "an object", list: "an array", bool: "a boolean", int: "a number", float: "a number"}
    return names.get(type(value), type(value).__name__)
