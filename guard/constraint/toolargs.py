"""The arguments of one tool call, as they stream.

The rules:

- Text of a JSON object is released as it comes, but what closes it is held until the call has ended and the whole is
  valid: broken arguments never look finished.
- Anything that is no object from its first character on is held whole: it may be an object encoded twice, or one in a
  markdown fence, which lose nothing by being undone. What is undone is recorded.
- Arguments are never completed. What is cut, doubled or followed by something else is an error.
- A call whose tool takes no arguments may leave them out.

Pure: any split of the same text gives the same findings and the same released text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from detectors.finding import Finding
from detectors.leak import leaks_in
from detectors.markup import find
from guard.constraint.toolschema import Validator

Outcome = Finding | tuple[str, str]
"""A finding, or (code, message) of something that can be undone without loss."""

_STRUCTURE: Final = re.compile(r'["{}\[\]]')
_STRING_END: Final = re.compile(r'["\\]')
_FENCE: Final = re.compile(r"```[\w+-]*[ \t]*\n?(.*?)\n?[ \t]*```", re.DOTALL)
_SPACE: Final = " \t\r\n"
_LONGEST_TAIL: Final = 200


class Arguments:
    """``feed`` and ``end`` return what may be released and what was found. ``whole``: an object has been closed."""

    def __init__(self, tool: str, validator: Validator, channel: str, *, keep_all: bool = False) -> None:
        self._tool = tool
        self._validator = validator
        self._channel = channel
        self._keep_all = keep_all
        self._text: list[str] = []
        self._streaming: bool | None = None
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self._closed_at = -1
        self._length = 0
        self.released = 0
        self.judged = False

    @property
    def whole(self) -> bool:
        return self._closed_at >= 0

    @property
    def empty(self) -> bool:
        return self._streaming is None

    @property
    def text(self) -> str:
        if len(self._text) > 1:
            self._text[:] = ["".join(self._text)]
        return self._text[0] if self._text else ""

    def feed(self, text: str) -> tuple[str, list[Outcome]]:
        if not text:
            return "", []
        if self.judged:
            return "", self._after(text) if text.strip(_SPACE) else []
        self._text.append(text)
        start = self._length
        self._length += len(text)
        if self._streaming is None:
            lead = len(text) - len(text.lstrip(_SPACE))
            if lead == len(text):
                return "", []
            self._streaming = text[lead] == "{"
            if self._streaming:
                # nothing but white space came before
                self.released = start + lead
        if not self._streaming:
            return "", []
        clear = self._length
        if not self.whole:
            end = self._scan(text, max(self.released - start, 0))
            if end >= 0:
                self._closed_at = start + end
        if self.whole:
            clear = self._closed_at - 1
        if self._keep_all or clear <= self.released:
            return "", []
        piece = text[max(self.released - start, 0) : clear - start]
        self.released = clear
        return piece, []

    def _scan(self, text: str, at: int) -> int:
        """Where the outermost bracket closes, in ``text``; -1 if it does not."""
        size = len(text)
        while at < size:
            if self._in_string:
                if self._escaped:
                    self._escaped = False
                    at += 1
                    continue
                found = _STRING_END.search(text, at)
                if found is None:
                    return -1
                at = found.end()
                if found[0] == "\\":
                    self._escaped = True
                else:
                    self._in_string = False
                continue
            found = _STRUCTURE.search(text, at)
            if found is None:
                return -1
            at = found.end()
            char = found[0]
            if char == '"':
                self._in_string = True
            elif char in "{[":
                self._depth += 1
            else:
                self._depth -= 1
                if self._depth == 0:
                    return at
        return -1

    # --- the end -----------------------------------------------------------------------------------------------------

    def end(self, truncated: bool = False) -> tuple[str, list[Outcome]]:
        """The call has ended; ``truncated``: by the token limit."""
        self.judged = True
        text = self.text
        if self._streaming:
            if not self.whole:
                return "", self._cut(truncated)
            tail = text[self._closed_at :]
            out = self._tail(tail) if tail.strip(_SPACE) else []
            if out and any(isinstance(one, Finding) and one.severity == "error" for one in out):
                return "", out
            document = text[: self._closed_at].lstrip(_SPACE)
            wrong = self._judge(document, self._closed_at - 1)
            return ("", wrong) if wrong and _is_error(wrong) else (text[self.released : self._closed_at], out + wrong)
        return self._held(text.strip(_SPACE), truncated)

    def _held(self, text: str, truncated: bool) -> tuple[str, list[Outcome]]:
        if text in ("", "null") and self._validator.takes_nothing:
            return "{}", [
                ("tool.empty_arguments", f"{self._tool} takes no arguments; {text or 'nothing'} read as {{}}")
            ]
        if not text:
            return "", self._cut(truncated)
        undone: list[Outcome] = []
        fence = _FENCE.fullmatch(text)
        if fence:
            undone.append(("tool.fenced_arguments", f"the markdown fence around the arguments of {self._tool}"))
            text = fence[1].strip(_SPACE)
        elif text.startswith("`"):
            if truncated:
                return "", self._cut(truncated)
            return "", self._broken("invalid", f"the arguments of {self._tool} begin with a fence that never ends", 0)
        if text.startswith('"'):
            inner = _decoded_string(text)
            if inner is None and truncated:
                return "", self._cut(truncated)
            if inner is not None and not self._accepts(inner):
                bare = inner.strip(_SPACE)
                if bare.startswith("{") or (not bare and self._validator.takes_nothing):
                    undone.append(("tool.double_encoded", f"the arguments of {self._tool} were encoded twice"))
                    text = bare or "{}"
        if text.startswith("{"):
            inside = Arguments(self._tool, self._validator, self._channel)
            piece, _ = inside.feed(text)
            rest, out = inside.end(truncated)
            return ("", out) if _is_error(out) else (piece + rest, undone + out)
        wrong = self._judge(text, 0)
        return ("", wrong) if _is_error(wrong) else (text, undone + wrong)

    def _accepts(self, value: Any) -> bool:
        return not any(True for _ in self._validator.problems(value, self._channel))

    def _judge(self, document: str, onset: int) -> list[Outcome]:
        try:
            value = json.loads(document, parse_constant=_no_constant)
        except RecursionError:
            return [self._json("too_deep", "the arguments are nested too deeply to be read", onset)]
        except ValueError as error:
            at = getattr(error, "pos", onset)
            return self._broken("invalid", f"the arguments of {self._tool} are no JSON: {error}", min(at, onset))
        problems = self._validator.problems(value, self._channel)
        out: list[Outcome] = [_at(problem, onset, self._length) for problem in problems]
        if out:
            message = f"the arguments of {self._tool} break its schema"
            out.append(Finding("tool.invalid_arguments", "error", message, self._channel, onset, self._length))
            return out
        return list(_key_leaks(value, self._channel, onset))

    def _cut(self, truncated: bool) -> list[Outcome]:
        why = "by the token limit" if truncated else "although the call had ended"
        message = f"the arguments of {self._tool} break off {why}"
        at = self._length
        evidence = {"kind": "truncated", "by": "length" if truncated else "end"}
        return [
            Finding("json.truncated", "error", message, self._channel, at, at, evidence=evidence),
            Finding("tool.truncated", "error", message, self._channel, at, at, evidence=evidence),
        ]

    def _tail(self, tail: str) -> list[Outcome]:
        """What follows a whole object: nothing but markers is a leak that can be taken off, all else is an error."""
        rest = tail.strip(_SPACE)
        markers = _only_markers(rest)
        if markers:
            message = f"markup after the arguments of {self._tool}: {rest[:80]!r}"
            leak = Finding("leak.tool_markup", "warn", message, self._channel, self._closed_at, self._length)
            return [leak, ("tool.trailing_markup", message)]
        if rest[0] in "{[":
            return self._broken(
                "concatenated", f"more than one object in the arguments of {self._tool}", self._closed_at
            )
        if not rest.strip("}] \t\r\n"):
            return self._broken(
                "extra_bracket", f"an extra bracket after the arguments of {self._tool}", self._closed_at
            )
        message = f"text after the arguments of {self._tool}: {rest[:80]!r}"
        return self._broken("extra_data", message, self._closed_at)

    def _after(self, text: str) -> list[Outcome]:
        return self._broken("extra_data", f"text after the finished arguments of {self._tool}", self._length)

    def _broken(self, kind: str, message: str, onset: int) -> list[Outcome]:
        evidence = {"kind": kind}
        return [
            self._json(kind, message, onset),
            Finding("tool.invalid_json", "error", message, self._channel, onset, self._length, evidence=evidence),
        ]

    def _json(self, kind: str, message: str, onset: int) -> Finding:
        return Finding(f"json.{kind}", "error", message, self._channel, onset, self._length)


def _at(problem: Finding, onset: int, seen: int) -> Finding:
    return Finding(
        problem.code, problem.severity, problem.message, problem.channel, onset, seen, evidence=problem.evidence
    )


def _is_error(outcomes: Sequence[Outcome]) -> bool:
    return any(isinstance(one, Finding) and one.severity == "error" for one in outcomes)


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")


def _decoded_string(text: str) -> str | None:
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


def _key_leaks(value: Any, channel: str, onset: int) -> Iterator[Finding]:
    """Markup in keys, at any depth, and short values that end with some."""
    stack = [value]
    seen = 0
    while stack and seen < 2000:
        item = stack.pop()
        seen += 1
        if isinstance(item, dict):
            for key, inner in item.items():
                if "<" in key or "[" in key:
                    for leak in leaks_in(key, channel, "an argument's key"):
                        yield _at(leak, onset, onset)
                if isinstance(inner, str):
                    yield from _value_leak(key, inner, channel, onset)
                elif isinstance(inner, dict | list):
                    stack.append(inner)
        elif isinstance(item, list):
            stack += [inner for inner in item if isinstance(inner, dict | list)]


def _value_leak(key: str, value: str, channel: str, onset: int) -> Iterator[Finding]:
    if not value.endswith((">", "]")) or len(value) > _LONGEST_TAIL or "\n" in value:
        return
    found = find(value)
    if found is not None and found[2] == len(value) and found[1] and found[0].weight == "strong":
        message = f"the value of {key} ends with {found[0].text!r}"
        yield Finding("leak.tool_markup", "warn", message, channel, onset, onset, evidence={"marker": found[0].text})
