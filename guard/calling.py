"""A tool call that is made good from outside: the engine goes on with it as text, in its model's own markup, and the
text is read as the call that it is. Pure.

A call that was asked for and did not come begins with what the choice forces; one that broke its schema goes on from
its last good character. What the caller already holds of the calls stays: it is the beginning of that text. A custom
tool, which takes text, is called as a function whose one argument is that text (input_check.py).

A call that was not to be made is no matter of text: the engine is asked again without the tools.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from msgspec import Struct

from detectors.finding import Finding
from guard.constraint.call_check import CallChecker
from guard.constraint.callform import CallForm, Said
from guard.constraint.callframe import Standing
from guard.constraint.compile import CompiledConstraint
from guard.constraint.formats.contract import TextCall
from guard.constraint.input_check import as_input, begun_input
from guard.enforce import FAMILIES, Salvage
from guard.events import TextDelta, ToolDelta
from guard.holding import split
from guard.request import GenerationRequest, ToolChoice

FORBIDDEN: Final = "tool.forbidden"
"""A call although none was wanted."""
_NOT_MENDED: Final = frozenset({FORBIDDEN, "tool.too_many_calls", "tool.name_changed"})
_AT_LIMIT: Final = "tool.parallel"
"""A call too many: the answer ends before it."""
_OF_THE_NAME: Final = frozenset({"tool.missing_call", "tool.unknown_name", "tool.not_allowed"})


class Calling(Struct):
    """The text of a call: ``calls`` stand before it, one of ``tools`` is called. ``base`` is how it begins. ``custom``
    tools take text."""

    form: CallForm
    calls: tuple[Said, ...]
    tools: dict[str, CompiledConstraint | None]
    base: str
    custom: frozenset[str] = frozenset()

    def checker(self) -> CallChecker:
        return CallChecker(self.form, _written(self.calls, self.custom), self.tools, self.custom)


def owes_call(choice: ToolChoice) -> bool:
    return choice.mode in ("required", "named") or (choice.mode == "allowed" and choice.required)


def promised(request: GenerationRequest) -> frozenset[str]:
    """The codes of findings that say that an engine broke what a request demanded of its calls."""
    choice = request.tool_choice
    if not request.tools:
        return frozenset()
    codes = {FORBIDDEN} if choice.mode == "none" else set()
    if owes_call(choice):
        codes.add("tool.missing_call")
    if choice.names:
        codes.add("tool.not_allowed")
    if request.parallel_tool_calls is False:
        codes.add(_AT_LIMIT)
    if any(tool.strict for tool in request.tools):
        codes.add("tool.invalid_arguments")
    return frozenset(codes)


def calling(
    request: GenerationRequest,
    compiled: Mapping[str, CompiledConstraint],
    form: CallForm,
    stands: Standing | None,
    cause: str,
    *,
    behind: str,
) -> Calling | None:
    """How the call goes on that broke by ``cause``; None where nothing forces one. ``behind`` is the text that it
    stands behind."""
    if stands is None or cause in _NOT_MENDED or not request.tools:
        return None
    calls, opened = tuple(stands.whole), stands.open
    if cause == _AT_LIMIT and opened is None and calls:
        calls, opened = calls[:-1], calls[-1]
    if opened is None and not owes_call(request.tool_choice):
        return None
    names = request.tool_choice.names or tuple(tool.name for tool in request.tools)
    custom = frozenset(tool.name for tool in request.tools if tool.is_custom)
    if opened is not None:
        names = (opened[0],)
    tools = {name: compiled.get(name) for name in names if name in compiled or name in custom}
    if len(tools) < len(names):
        return None
    if behind and not behind[-1].isspace():
        form = form._replace(begin="\n" + form.begin)
    base = form.before_name(_written(calls, custom))
    if opened is not None:
        name, said = opened
        base += name + form.behind_name(len(calls)) + (begun_input(said) if name in custom else said)
    return Calling(form, calls, tools, base, custom)


def _written(calls: Sequence[Said], custom: Collection[str]) -> tuple[Said, ...]:
    """As they stand in the text."""
    return tuple((name, as_input(said) if name in custom else said) for name, said in calls)


def withheld(at: int) -> Finding:
    """For the record, when the engine is asked again without the tools; ``at``: where the answer goes on."""
    message = "the engine was asked again without the tools, because it called one although none was to be called"
    evidence = {"origin": "withheld", "characters": 0}
    return Finding("constraint.enforced", "info", message, onset=at, detected_at=at, evidence=evidence)


def mendable(cause: str, channel: str) -> bool:
    """Whether a finding is about a call."""
    family = cause.partition(".")[0]
    return family == "tool" or (family in FAMILIES and channel.startswith("tool:"))


class CallReader:
    """Reads the text of one attempt at a call: deltas of text go in, calls come out, as far as they are good."""

    def __init__(self, made: Calling) -> None:
        self._made = made
        self._checker = made.checker()
        self._fed = 0
        self._pieces: list[TextDelta] = []
        self._named = False
        self._said = 0
        self._pieces_said = 0

    def feed(self, delta: TextDelta) -> list[ToolDelta | Finding]:
        self._pieces.append(delta)
        self._fed += len(delta.text)
        found = self._checker.feed(delta.text)
        return [*self._calls(delta.choice), *map(_of_the_stream, found)]

    def finish(self, truncated: bool) -> list[ToolDelta | Finding]:
        return [_of_the_stream(one) for one in self._checker.finish(truncated)]

    def _calls(self, choice: int) -> list[ToolDelta]:
        checker = self._checker
        if not checker.name:
            return []
        out: list[ToolDelta] = []
        number = len(self._made.calls)
        if not self._named:
            self._named = True
            self._said = checker.arguments_at
            out += [
                TextCall(choice, index, name=name, arguments=arguments)
                for index, (name, arguments) in enumerate(self._made.calls)
            ]
            out.append(TextCall(choice, number, name=checker.name))
        if checker.input is not None:
            new = "".join(checker.input[self._pieces_said :])
            self._pieces_said = len(checker.input)
            return [*out, TextCall(choice, number, arguments=new)] if new else out
        end = checker.arguments_end if checker.complete else checker.good
        if end > self._said:
            last = self._pieces[-1].text
            start = self._fed - len(last)
            if self._said < start:
                last, start = "".join(piece.text for piece in self._pieces), 0
            out.append(TextCall(choice, number, arguments=last[self._said - start : end - start]))
            self._said = end
        return out

    def salvage(self, onset: int | None) -> Salvage:
        """All that may stand of the text. ``onset``: the offset in the call's arguments from which on they may not,
        where something else than their schema was broken."""
        limit = self._checker.good
        if onset is not None and self._checker.name:
            limit = min(limit, self._checker.arguments_at + onset)
        held: list[TextDelta] = []
        refused: TextDelta | None = None
        start = 0
        for piece in self._pieces:
            end = start + len(piece.text)
            if end > limit:
                kept, rest = split(piece, max(0, limit - start))
                refused = refused or rest
                piece = kept
            if start < limit:
                held.append(piece)
            start = end
        return Salvage(held, 0, refused)


def _of_the_stream(finding: Finding) -> Finding:
    """The offsets are of the call's text, which is no channel of the answer."""
    evidence = {**(finding.evidence or {}), "at": finding.onset}
    return Finding(finding.code, finding.severity, finding.message, "stream", evidence=evidence)
