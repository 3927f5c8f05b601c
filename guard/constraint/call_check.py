"""One tool call as text in a known form, checked while it streams: markup to the letter, one of the allowed names, and
arguments held by that tool's schema.

It is a Checker (contract.py), so that a call can be enforced like any other constrained answer: what its text may be is
known at each character, and so is what it must be. Nothing but the markup, a name, and what the schema forces of the
arguments is ever forced. Once the arguments are whole the call is: its closing markup may follow or not, and anything
else is an error from which the call is still whole.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from detectors.finding import Finding
from guard.constraint.callform import CallForm, Said
from guard.constraint.compile import CompiledConstraint
from guard.constraint.contract import Checker
from guard.constraint.input_check import InputChecker
from guard.constraint.words import Words

_LEAD, _NAME, _ARGUMENTS, _CLOSING, _DEAD = range(5)
_SPACE: Final = " \t\r\n"


class CallChecker:
    """``calls`` stand before this one, whole. ``tools``: what may be called, and what holds the arguments of each; of
    those that are ``custom`` the input, where anything does.

    ``name`` is known once it is; ``arguments_at`` is then the offset at which the arguments begin, and
    ``arguments_end`` the offset behind them once they are whole (-1 before).
    """

    def __init__(
        self,
        form: CallForm,
        calls: Sequence[Said],
        tools: Mapping[str, CompiledConstraint | None],
        custom: Collection[str] = (),
    ) -> None:
        self.safe = 0
        self.good = 0
        self.drops: list[tuple[int, int]] = []
        self.name = ""
        self.arguments_at = -1
        self.arguments_end = -1
        self._lead = form.before_name(calls)
        between = form.behind_name(len(calls))
        self._behind_name = {name + between: name for name in tools}
        self._names = Words(self._behind_name)
        self._tools = tools
        self._custom = custom
        self._closing = form.closing.replace("{index}", str(len(calls)))
        self._stage = _LEAD if self._lead else _NAME
        self._checker: Checker | None = None
        self._part = ""
        self._begun = False
        self._fed = 0

    @property
    def complete(self) -> bool:
        return self.arguments_end >= 0

    def feed(self, text: str) -> Sequence[Finding]:
        at = self._fed
        self._fed += len(text)
        while text and self._stage != _DEAD:
            if self._stage == _ARGUMENTS:
                return self._take_arguments(text, at)
            if self._stage == _CLOSING:
                return self._take_closing(text, at)
            used, wrong = self._take_markup(text, at)
            if wrong:
                return wrong
            text, at = text[used:], at + used
        return ()

    def finish(self, truncated: bool) -> Sequence[Finding]:
        if self._stage == _DEAD or self.complete:
            return ()
        self._stage = _DEAD
        return (self._error("tool.truncated", self._fed, "the call breaks off before its arguments are whole"),)

    def forced(self) -> str:
        if self._stage == _LEAD:
            return self._lead[len(self._part) :] + self._forced_name("")
        if self._stage == _NAME:
            return self._forced_name(self._part)
        if self._stage == _ARGUMENTS and self._checker is not None:
            return self._checker.forced() if self._begun else _forced_object(self._checker)
        return ""

    def _forced_name(self, part: str) -> str:
        rest = self._names.rest(part)
        name = self._behind_name.get(part + rest)
        if name is None or self._names.longer(part + rest):
            return rest
        return rest + _forced_object(self._arguments_of(name))

    @property
    def input(self) -> list[str] | None:
        """What was said so far to a custom tool, in pieces; None of any other."""
        return self._checker.said if isinstance(self._checker, InputChecker) else None

    # --- inside ------------------------------------------------------------------------------------------------------

    def _take_markup(self, text: str, at: int) -> tuple[int, Sequence[Finding]]:
        if self._stage == _LEAD:
            rest = self._lead[len(self._part) :]
            same = _common(rest, text)
            self._part += text[:same]
            self.good = at + same
            if same == len(rest):
                self._stage, self._part = _NAME, ""
            elif same < len(text):
                return same, (self._error("tool.missing_call", at + same, "a call was to stand here"),)
            return same, ()
        for size in range(1, len(text) + 1):
            part = self._part + text[:size]
            if part in self._behind_name:
                self.name = self._behind_name[part]
                self.good = self.arguments_at = at + size
                self._checker = self._arguments_of(self.name)
                self._stage, self._part = _ARGUMENTS, ""
                return size, ()
            if not self._names.has_prefix(part):
                self._part += text[: size - 1]
                self.good = at + size - 1
                return size, (self._error("tool.unknown_name", at + size - 1, "no tool on offer is called that"),)
        self._part += text
        self.good = at + len(text)
        return len(text), ()

    def _arguments_of(self, name: str) -> Checker:
        held_by = self._tools[name]
        if name in self._custom or held_by is None:
            return InputChecker(held_by)
        return held_by.checker("streaming", False)

    def _take_arguments(self, text: str, at: int) -> Sequence[Finding]:
        checker = self._checker
        assert checker is not None
        base = self.arguments_at
        if not self._begun and (bare := text.lstrip(_SPACE)):
            self._begun = True
            if bare[0] != "{":
                at += len(text) - len(bare)
                self.good = at
                return (self._error("tool.invalid_json", at, "the arguments of a call are an object"),)
        found = checker.feed(text)
        self.good = base + checker.good
        if checker.complete:
            behind = [one.onset for one in found if one.code == "json.trailing_data"]
            end = base + behind[0] if behind else at + len(text)
            document = text[: end - at].rstrip(_SPACE)
            # white space that came with an earlier piece was behind nothing yet
            self.arguments_end = at + len(document)
            self._stage = _CLOSING
            self.good = self.arguments_end
            rest = text[len(document) :]
            return self._take_closing(rest, self.arguments_end) if rest else ()
        wrong = [one for one in found if one.severity == "error"]
        if wrong:
            self._stage = _DEAD
        return [_moved(one, base) for one in found]

    def _take_closing(self, text: str, at: int) -> Sequence[Finding]:
        """Behind the arguments: the closing markup with white space round it, whole or in part."""
        for offset, char in enumerate(text):
            rest = self._closing[len(self._part) :]
            if rest and char == rest[0]:
                self._part += char
            elif char not in _SPACE:
                if not rest.strip(_SPACE).startswith(char):
                    self.good = at + offset
                    return (self._error("tool.extra_data", at + offset, "text follows the call"),)
                self._part += rest[: rest.index(char) + 1]
            self.good = at + offset + 1
        return ()

    def _error(self, code: str, at: int, message: str) -> Finding:
        self._stage = _DEAD
        return Finding(code, "error", message, onset=at, detected_at=min(at + 1, self._fed))


def _forced_object(checker: Checker) -> str:
    """Of arguments that have not begun: they are an object."""
    found = checker.feed("{")
    return "{" if any(one.severity == "error" for one in found) else "{" + checker.forced()


def _moved(finding: Finding, by: int) -> Finding:
    return Finding(
        finding.code,
        finding.severity,
        finding.message,
        finding.channel,
        finding.onset + by,
        finding.detected_at + by,
        finding.confidence,
        finding.evidence,
    )


def _common(one: str, other: str) -> int:
    """How many characters two texts begin with in common."""
    size = min(len(one), len(other))
    for at in range(size):
        if one[at] != other[at]:
            return at
    return size
