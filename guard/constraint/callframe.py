"""One call as an engine frames it, and where in its stream the next one begins.

Engines repeat an index, leave it out, repeat the id or the name in each chunk, or send the name in pieces; what is
whole already tells which of these it is.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from guard.constraint.textargs import TextArguments
from guard.constraint.toolargs import Arguments
from guard.events import ToolDelta


class Standing(NamedTuple):
    """What may stand of an answer's calls, as (name, arguments or a custom tool's input): those that are ``whole``; and
    one that is ``open``, up to its last good character. None where none was begun or nothing of it can stand."""

    whole: list[tuple[str, str]]
    open: tuple[str, str] | None


@dataclass(slots=True)
class Call:
    index: int
    choice: int
    source: str
    engine_id: str = ""
    id: str = ""
    name: str = ""
    early: list[str] = field(default_factory=list)
    arguments: Arguments | TextArguments | None = None
    native: str | None = None
    open: bool = False
    dead: bool = False

    def refused(self) -> bool:
        """``dead``, asked anew: a checker of types takes an attribute to be what it was before a call."""
        return self.dead

    @property
    def begun(self) -> bool:
        """Whether any of its arguments have come."""
        return any(part.strip() for part in self.early) or (self.arguments is not None and not self.arguments.empty)

    @property
    def whole(self) -> bool:
        return self.arguments is not None and self.arguments.whole


def standing(calls: Sequence[Call]) -> Standing:
    whole: list[tuple[str, str]] = []
    for call in calls:
        arguments = call.arguments
        if arguments is None or not call.id:
            return Standing(whole, None)
        said = (call.name, arguments.good)
        if isinstance(arguments, TextArguments):  # nothing in it says where it ends, but another call does
            ended = arguments.fits and (arguments.judged or call is not calls[-1])
        else:
            ended = arguments.whole and not arguments.failed
        if call.dead or not ended:
            return Standing(whole, said)
        whole.append(said)
    return Standing(whole, None)


def begins_another(call: Call, delta: ToolDelta, tools: Collection[str]) -> bool:
    """Whether a delta that carries the index of ``call`` is the first of a call of its own."""
    other_id = bool(delta.id and call.engine_id and delta.id != call.engine_id)
    starts = delta.raw_arguments is not None or delta.arguments.lstrip()[:1] == "{"
    if not delta.name:
        return other_id and call.whole and starts
    if call.whole:
        return other_id or starts or delta.name != call.name
    if call.begun:
        return (other_id and starts) or (delta.name != call.name and call.name in tools)
    if delta.name == call.name:
        return other_id
    # the name comes in pieces, or the call before took no arguments
    joined = call.name + delta.name
    if any(name.startswith(joined) for name in tools):
        return False
    return call.name in tools and (other_id or delta.name in tools)
