"""The tool calls of one answer, held against the tools on offer and the caller's choice, as the engine frames them.

The rules:

- A call leaves in order: its id and name with its first piece, once the name is known to be whole and offered; its
  arguments as they stream; what closes them only when the whole is valid and the call has ended (toolargs.py).
- Engines frame calls wrongly in ways that lose nothing: an index repeated or skipped, no id, an id used before, the
  name in every chunk, a marker behind the name, an object instead of its text. These are put right when repairs are
  allowed, and always recorded: a warn finding and a Repair. Forbidden repairs are errors.
- What would have to be invented is never repaired: it is an error, nothing that looks finished has left, and nothing of
  any call leaves after it.
- A call read out of text (formats/) owes no id and no index. One that stood in the reasoning may be a draft: it is made
  only if the answer ends without any other call and without text. One that is said in both ways is made once.

Pure: the ids that are minted come from ``mint``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from detectors.finding import Finding
from detectors.leak import leaks_in
from detectors.markup import CODES
from guard.constraint.callframe import Call, Standing, begins_another, standing
from guard.constraint.callids import CallIds
from guard.constraint.compile import CompiledConstraint
from guard.constraint.formats.contract import TextCall
from guard.constraint.formats.values import encoded_arguments
from guard.constraint.latecalls import grouped, in_reasoning, meaning, said
from guard.constraint.textargs import TextArguments
from guard.constraint.toolargs import Arguments, Outcome, json_kind
from guard.constraint.toolname import read_name
from guard.constraint.toolschema import compiled_schema, constraint_of, takes_nothing
from guard.events import REASONING, Repair, ToolDelta, ToolRelease, tool_channel
from guard.request import Tool, ToolChoice

Piece = ToolRelease | Finding | Repair

MAX_CALLS: Final = 256


class ToolCallGuard:
    """``known_ids`` are the ids that the conversation has used. ``enforce`` False lets everything leave all the same.

    ``hold`` keeps each call back until it is whole and valid, instead of only what closes it. ``compiled`` holds what
    was compiled already of toolschema.constraint_of each tool, by its name.
    """

    def __init__(
        self,
        tools: Sequence[Tool],
        tool_choice: ToolChoice,
        *,
        mint: Callable[[int], str],
        parallel: bool = True,
        known_ids: Iterable[str] = (),
        repairs: bool = True,
        enforce: bool = True,
        hold: bool = False,
        compiled: Mapping[str, CompiledConstraint] | None = None,
    ) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._choice = tool_choice
        self._parallel = parallel
        self._ids = CallIds(mint, known_ids)
        self._repairs = repairs
        self._enforce = enforce
        self._hold = hold
        self._compiled = compiled or {}
        self._calls: list[Call] = []
        self._by_key: dict[tuple[str, int | None], Call] = {}
        self._counts: dict[str, int] = {}
        self._said: set[tuple[int, str]] = set()
        self._late: list[ToolDelta] = []
        self._streams: Call | None = None
        self._streams_at: int | None = None
        self._failed = False
        self._choice_failed = False
        self._finished = False

    @property
    def calls(self) -> int:
        """How many calls have begun."""
        return len(self._calls) or len(grouped(self._late))

    def standing(self) -> Standing:
        """What may stand of the calls."""
        return standing(self._calls)

    def verdict(self) -> str:
        """Of the tool choice: ok, failed, or none (nothing was asked, and no call was made)."""
        if self._choice_failed:
            return "failed"
        kept_silent = self._choice.mode == "none" and self._tools and self._finished
        return "ok" if self._calls or kept_silent else "none"

    def feed(self, delta: ToolDelta) -> list[Piece]:
        call = self._streams
        if call is not None and call.arguments is not None and not self._failed and self._goes_on(call, delta):
            # most of a long call is this
            piece, outcomes = call.arguments.feed(delta.arguments)
            out: list[Piece] = [ToolRelease(call.choice, call.index, piece)] if piece else []
            self._outcomes(call, outcomes, out)
            return self._latched(out) if outcomes else out
        other = bool(self._calls) and isinstance(delta, TextCall) == (self._calls[0].source == "engine")
        if other or in_reasoning(delta):
            self._late.append(delta)
            return []
        return self._latched(self._feed(delta))

    def _goes_on(self, call: Call, delta: ToolDelta) -> bool:
        """Whether a delta is nothing but more of the arguments that stream."""
        if delta.name or delta.id or delta.raw_arguments is not None or delta.index != self._streams_at:
            return False
        return call.source == (delta.source if isinstance(delta, TextCall) else "engine")

    def _feed(self, delta: ToolDelta) -> list[Piece]:
        out: list[Piece] = []
        call = self._locate(delta, out)
        if call is None:
            return out
        if delta.id and not call.engine_id:
            call.engine_id = delta.id
        text = delta.arguments
        if delta.raw_arguments is not None:
            text += self._encoded(delta.raw_arguments, call, out)
        if delta.name:
            self._take_name(call, delta.name, out)
        if text:
            self._take_arguments(call, text, out)
        streams = call.arguments is not None and not call.dead and call.native is None
        self._streams, self._streams_at = call if streams else None, delta.index
        return out

    def finish(self, truncated: bool = False, *, answered: bool = False) -> list[Piece]:
        """The answer has ended; ``truncated``: by its token limit; ``answered``: with text of its content."""
        out: list[Piece] = []
        self._take_late(answered, out)
        self._finished = True
        for call in self._calls:
            last = call is self._calls[-1]
            self._end(call, truncated and last, out)
            if truncated and last and call.whole and not call.dead and call.source == "engine":
                message = (
                    f"call {call.index} ({call.name}) looks whole though the token limit cut the answer: some engines"
                )
                message += " close arguments that their model did not"
                out.append(Finding("tool.closed_at_limit", "warn", message, tool_channel(call.index)))
        mode = self._choice.mode
        if not self._calls and (mode in ("required", "named") or (mode == "allowed" and self._choice.required)):
            self._choice_failed = True
            wanted = f"a call of {self._choice.names[0]}" if mode == "named" else "a call"
            out.append(Finding("tool.missing_call", "error", f"{wanted} was required, and none was made", "stream"))
        return self._latched(out)

    def _latched(self, out: list[Piece]) -> list[Piece]:
        """Nothing of any call leaves behind the first error."""
        if not self._enforce:
            return out
        if self._failed:
            return [piece for piece in out if not isinstance(piece, ToolRelease)]
        for at, piece in enumerate(out):
            if isinstance(piece, Finding) and piece.severity == "error":
                self._failed = True
                return out[:at] + self._latched(out[at:])
        return out

    def _take_late(self, answered: bool, out: list[Piece]) -> None:
        late, self._late = self._late, []
        made = [(call.name, meaning(call.arguments.text)) for call in self._calls if call.arguments is not None]
        for pieces in grouped(late):
            name, arguments = said(pieces)
            if in_reasoning(pieces[0]) and (self._calls or answered):
                message = f"a call of {name[:80]} in the reasoning was taken for a draft, and not made"
                out.append(Finding("tool.draft_in_reasoning", "warn", message, REASONING))
            elif (name, arguments) in made:
                message = f"the call of {name[:80]} came twice, as the engine framed it and as markup in the text"
                out.append(Finding("tool.repeated_in_text", "warn", message, "stream"))
                out.append(Repair(pieces[0].choice, "tool.repeated_in_text", message))
            else:
                for piece in pieces:
                    out += self._feed(piece)

    # --- which call a delta belongs to -------------------------------------------------------------------------------

    def _locate(self, delta: ToolDelta, out: list[Piece]) -> Call | None:
        source = delta.source if isinstance(delta, TextCall) else "engine"
        key = (source, delta.index)
        call = self._by_key.get(key)
        if call is None and delta.index is None and self._calls and self._calls[-1].source == source:
            call = self._calls[-1]
        if call is not None and not (source == "engine" and begins_another(call, delta, self._tools)):
            return call
        if len(self._calls) >= MAX_CALLS:
            self._note(-1, "tool.too_many_calls", f"more than {MAX_CALLS} calls in one answer", out)
            return None
        new = Call(len(self._calls), delta.choice, source)
        expected = self._counts.get(source, 0)
        self._counts[source] = expected + 1
        if source == "engine" and delta.index != expected:
            said = "none" if delta.index is None else str(delta.index)
            self._repair(new, "tool.wrong_index", f"call {new.index} came with index {said}", out)
        self._calls.append(new)
        self._by_key[key] = new
        self._begin(new, out)
        return new

    def _begin(self, call: Call, out: list[Piece]) -> None:
        if call.index:
            before = self._calls[call.index - 1]
            self._open(before, out)
            if before.whole and not self._hold:
                self._end(before, False, out)
        if self._choice.mode == "none":
            self._refuse(call, "tool.forbidden", "a tool was called although tool_choice is none", out)
        elif call.index and not self._parallel:
            self._refuse(call, "tool.parallel", "a second call although parallel_tool_calls is false", out)

    # --- the name ----------------------------------------------------------------------------------------------------

    def _take_name(self, call: Call, name: str, out: list[Piece]) -> None:
        if name == call.name:
            in_pieces = not call.open and name not in self._tools and name + name in self._tools
            if not in_pieces:
                self._repeated(call, out)
                return
        elif call.open:
            message = f"call {call.index} ({call.name[:80]}) was given another name: {name[:80]!r}"
            self._note(call.index, "tool.name_changed", message, out)
            return
        call.name += name

    def _repeated(self, call: Call, out: list[Piece]) -> None:
        if (call.index, "tool.name_repeated") in self._said:
            return
        message = f"the name of call {call.index} ({call.name}) came more than once"
        out.append(Finding("stream.name_repeated", "warn", message, "stream"))
        self._repair(call, "tool.name_repeated", message, out)

    def _open(self, call: Call, out: list[Piece]) -> None:
        """The name is whole: the call may leave, if it is one of an offered tool."""
        if call.open or call.dead:
            return
        call.open = True
        name = self._known_name(call, out)
        if name is None:
            return
        call.name = name
        if name in self._tools and self._choice.names and name not in self._choice.names:
            allowed = ", ".join(self._choice.names)
            self._refuse(call, "tool.not_allowed", f"{name} was called, but tool_choice allows only {allowed}", out)
            if call.refused():
                return
        tool = self._tools.get(name)
        call.id = self._id_for(call, out)
        call.arguments = self._arguments(call, tool, keep_all=self._hold or call.native is not None)
        if not self._hold:
            out.append(ToolRelease(call.choice, call.index, "", call.id, call.name))

    def _arguments(self, call: Call, tool: Tool | None, keep_all: bool) -> Arguments | TextArguments:
        """``tool`` is None only where nothing is enforced."""
        channel = tool_channel(call.index)
        constraint = constraint_of(tool) if tool is not None else None
        compiled = self._compiled.get(call.name) or (compiled_schema(constraint) if constraint is not None else None)
        if tool is None or tool.is_custom or compiled is None:
            return TextArguments(call.name, compiled, channel, keep_all=keep_all)
        optional = takes_nothing(tool.parameters)
        return Arguments(call.name, compiled, channel, optional=optional, keep_all=keep_all)

    def _known_name(self, call: Call, out: list[Piece]) -> str | None:
        name = call.name
        channel = tool_channel(call.index)
        reading = read_name(name, self._tools)
        if reading.tool is None:
            if reading.marker is not None:
                out += leaks_in(name, channel, "a tool's name")
            offered = ", ".join(list(self._tools)[:8])
            what = f"{name[:80]!r} is not among the tools on offer ({offered})" if name else "a call without a name"
            self._refuse(call, "tool.unknown_name", what, out)
        elif reading.marker is not None:
            marker = reading.marker
            message = f"{marker.text!r} behind the name {reading.tool}"
            evidence = {"marker": marker.text, "family": marker.family, "text": name[:200]}
            out.append(Finding(CODES[marker.kind], "warn", message, channel, evidence=evidence))
            self._repair(call, "tool.name_markup", message, out)
            if reading.arguments is not None:
                call.native = encoded_arguments(reading.arguments, self._tools[reading.tool].parameters)
        elif reading.tool != name:
            self._repair(call, "tool.name_decorated", f"{name[:80]!r} stands for the tool {reading.tool}", out)
        return None if call.dead else reading.tool or name

    def _id_for(self, call: Call, out: list[Piece]) -> str:
        given = call.engine_id
        if not given:
            if call.source == "engine":
                self._repair(call, "tool.missing_id", f"call {call.index} ({call.name}) came without an id", out)
            return self._ids.fresh(call.index)
        if self._ids.used(given):
            self._repair(call, "tool.duplicate_id", f"the id {given[:80]!r} was used before", out)
            return self._ids.instead_of(given, call.name, call.index)
        return self._ids.take(given)

    # --- the arguments -----------------------------------------------------------------------------------------------

    def _take_arguments(self, call: Call, text: str, out: list[Piece]) -> None:
        if call.dead:
            return
        if not call.open:
            if not call.name or not text.strip():
                call.early.append(text)
                return
            self._open(call, out)
            if call.arguments is None:
                return
            text = "".join(call.early) + text
            call.early = []
        assert call.arguments is not None
        if call.native is not None:
            call.early.append(text)
            return
        piece, outcomes = call.arguments.feed(text)
        if piece:
            out.append(ToolRelease(call.choice, call.index, piece))
        self._outcomes(call, outcomes, out)

    def _end(self, call: Call, truncated: bool, out: list[Piece]) -> None:
        """Nothing more belongs to this call."""
        self._open(call, out)
        early, call.early = "".join(call.early), []
        if early and call.native is None:
            self._take_arguments(call, early, out)
        arguments = call.arguments
        if call.dead or arguments is None or arguments.judged:
            return
        if call.native is not None:
            if early.strip() in ("", "{}"):
                _, outcomes = arguments.feed(call.native)
                self._outcomes(call, outcomes, out)
            else:
                message = f"call {call.index} ({call.name}) has arguments in its name and others beside it"
                self._refuse(call, "tool.name_markup", message, out)
        piece, outcomes = arguments.end(truncated)
        self._outcomes(call, outcomes, out)
        if not self._enforce and not piece:
            piece = arguments.text[arguments.released :]
        if call.refused():
            return
        if self._hold:
            out.append(ToolRelease(call.choice, call.index, piece, call.id, call.name))
        elif piece:
            out.append(ToolRelease(call.choice, call.index, piece))

    def _outcomes(self, call: Call, outcomes: Sequence[Outcome], out: list[Piece]) -> None:
        for outcome in outcomes:
            if isinstance(outcome, Finding):
                out.append(outcome)
                if outcome.severity == "error" and self._enforce:
                    call.dead = True
            else:
                self._repair(call, *outcome, out)

    def _encoded(self, value: Any, call: Call, out: list[Piece]) -> str:
        message = f"the arguments of call {call.index} came as {json_kind(value)}, not as text"
        self._repair(call, "tool.arguments_object", message, out)
        try:
            return json.dumps(value, ensure_ascii=False, allow_nan=False)
        except (ValueError, TypeError, RecursionError) as error:
            self._refuse(call, "tool.invalid_json", f"arguments that JSON cannot say: {error}", out)
            return ""

    # --- saying so ---------------------------------------------------------------------------------------------------

    def _repair(self, call: Call, code: str, message: str, out: list[Piece]) -> None:
        if (call.index, code) in self._said:
            return
        self._said.add((call.index, code))
        severity: Any = "warn" if self._repairs else "error"
        out.append(Finding(code, severity, message, tool_channel(call.index)))
        if self._repairs:
            out.append(Repair(call.choice, code, message))
        elif self._enforce:
            call.dead = True

    def _refuse(self, call: Call, code: str, message: str, out: list[Piece]) -> None:
        self._choice_failed = self._choice_failed or code in _OF_THE_CHOICE
        if self._enforce:
            call.dead = True
        self._note(call.index, code, message, out)

    def _note(self, index: int, code: str, message: str, out: list[Piece]) -> None:
        if (index, code) not in self._said:
            self._said.add((index, code))
            channel = tool_channel(index) if index >= 0 else "stream"
            out.append(Finding(code, "error", message, channel))


_OF_THE_CHOICE: Final = frozenset({"tool.forbidden", "tool.parallel", "tool.not_allowed", "tool.unknown_name"})
