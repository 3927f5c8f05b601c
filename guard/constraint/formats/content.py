"""Tool calls that an engine left in its text: read out of it, whatever the family, while it streams.

The rules:

- Text that holds no opening marker passes at once, the same delta that came. What may become a marker waits.
- Markup that is quoted (a fence, a code span) is text. Markup that turns out to be no call is text again, for the leak
  detector to judge; if it had begun as a call, that is said too. Nothing is invented to make a call of it.
- Markup that the text's end cuts off before a call has its name is dropped, and said: it is neither text nor a call.
- White space alone before, between and after calls is part of their markup.
- Where a caller has not said which format to expect (``auto``), finding a call is a repair, and recorded.

Pure: any split of the same text gives the same text, calls and findings.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from typing import Any, Final

from detectors.finding import Finding
from detectors.quoting import Quoting
from detectors.unmarked import JSON_CALLS, begins_call
from guard.constraint.custom_tool import as_functions
from guard.constraint.formats.arguments import Offer
from guard.constraint.formats.contract import Args, Call, End, Malformed, Piece, Text, TextCall
from guard.constraint.formats.cursor import Cursor
from guard.constraint.formats.families import (
    BARE,
    FORMATS,
    READERS,
    Reader,
    bare_json,
    bare_python,
    detect_format,
)
from guard.constraint.formats.jsoncalls import Broken
from guard.events import CONTENT, Repair, TextDelta
from guard.request import Tool, ToolChoice

Out = TextDelta | TextCall | Finding | Repair

_LOOK: Final = re.compile(r"\n|`+|~+|[<\[\]]")
_eventful: Final = re.compile(r"[<\[\]`~]").search
_BARE_CALLS: Final = (*JSON_CALLS, "[NAME(")
_HEAD_CHARS: Final = 400
_LEAD_CHARS: Final = 64


class ContentToolParser:
    """Reads one text channel of one answer. ``format`` is a key of families.FORMATS; under ``auto`` every marker
    counts, and the name of the ``model`` says what may stand there without one.

    ``begins_in``: the channel that the prompt has opened, where the format frames channels (Kimi K3). ``bare``: whether
    a call without any marker may begin the answer, where the format has such calls; not so when the caller asked for
    JSON. ``told``: whether calls are expected in the text (where not, finding one is a repair); by default, where the
    format is known. Under tool_choice none, or without tools, everything passes: a call there would be a leak.
    """

    def __init__(
        self,
        format: str,
        tools: Sequence[Tool],
        tool_choice: ToolChoice,
        *,
        channel: str = CONTENT,
        model: str = "",
        begins_in: str = "",
        bare: bool = True,
        told: bool | None = None,
    ) -> None:
        self._channel = channel
        self._family = detect_format(model) if format == "auto" else format
        self._told = format != "auto" if told is None else told
        self._active = bool(tools) and tool_choice.mode != "none"
        self._offer = Offer({tool.name: tool.parameters for tool in as_functions(tools)})
        self._openers = FORMATS[format]
        self._bare = bare and format in BARE and channel == CONTENT
        self._cursor = Cursor()
        self._cursor.channel = begins_in
        self._framed = False
        self._quoting = Quoting()
        self._calm = False
        self._reading = self._read()
        self._calls = 0
        self._lead: str | None = ""
        self._written = 0
        self._choice = 0
        self._ids: tuple[int, ...] | None = None
        self._logprobs: list[dict[str, Any]] | None = None
        next(self._reading)

    @property
    def calls(self) -> int:
        """How many calls have begun."""
        return self._calls

    def feed(self, delta: TextDelta) -> list[Out]:
        text = delta.text
        if not self._active:
            return [delta]
        if self._calm and _eventful(text) is None:
            self._quoting.lines(text)
            self._written += len(text)
            return [delta]
        self._choice = delta.choice
        if delta.token_ids is not None:
            self._ids = (self._ids or ()) + delta.token_ids
        if delta.logprobs:
            self._logprobs = (self._logprobs or []) + delta.logprobs
        self._cursor.push(text)
        return self._go_on()

    def finish(self) -> list[Out]:
        """The text has ended. What was held of it is text, or a call that breaks off."""
        if not self._active:
            return []
        self._cursor.ended = True
        out = self._go_on()
        if self._ids is not None or self._logprobs:
            out.append(TextDelta(self._choice, self._channel, "", self._ids, self._logprobs))
            self._ids = self._logprobs = None
        return out

    # --- reading -----------------------------------------------------------------------------------------------------

    def _read(self) -> Generator[None, None, None]:
        yield
        c = self._cursor
        if self._family == "harmony" and (yield from c.follows("to=", skip_space=True)):
            # the prompt has opened the message, up to its recipient
            yield from self._section(READERS["<|channel|>"])
        elif self._bare:
            yield from self._head()
        while True:
            yield from self._plain()
            if c.at >= len(c.text):
                return
            opener = yield from c.follows(*self._openers)
            if not opener:
                self._pass(1)
                continue
            if not (yield from self._section(READERS[opener])):
                self._pass(len(opener))

    def _plain(self) -> Generator[None, None, None]:
        """Pass text on up to a character that may begin a marker, outside of quoted text; or up to the end."""
        c = self._cursor
        quoting = self._quoting
        while True:
            found = _LOOK.search(c.text, c.at)
            if found is None:
                if c.at < len(c.text):
                    quoting.text(c.text[c.at :])
                    c.say(c.text[c.at :])
                    c.at = len(c.text)
                if c.ended:
                    return
                self._calm = True
                yield
                self._calm = False
                continue
            if found.start() > c.at:
                quoting.text(c.text[c.at : found.start()])
                c.say(c.text[c.at : found.start()])
                c.at = found.start()
            what = found[0]
            if what == "\n":
                quoting.newline()
            elif what[0] in "`~":
                if found.end() == len(c.text) and not c.ended:
                    yield
                    continue
                quoting.run(what)
            elif quoting.fenced or quoting.span:
                quoting.text(what)
            else:
                return
            c.say(what)
            c.at = found.end()

    def _pass(self, count: int) -> None:
        c = self._cursor
        text = c.text[c.at : c.at + count]
        self._quoting.text(text)
        c.say(text)
        c.at += count

    def _section(self, read: Reader) -> Generator[None, None, bool]:
        """One stretch of markup. False, with nothing read, if it is no call after all."""
        c = self._cursor
        c.mark()
        try:
            yield from read(c, self._offer)
        except Broken as broken:
            c.channel = ""
            if c.ended and not broken.prose:
                # cut short: of a call that has begun, its arguments say so
                if not c.open:
                    c.malformed(str(broken), cut=True)
                c.at = len(c.text)
                c.unmark()
                return True
            if not broken.prose:
                c.malformed(str(broken))
            if c.marked:
                c.back()
                return False
            return True
        c.unmark()
        c.channel = ""
        return True

    def _head(self) -> Generator[None, None, None]:
        """An answer that begins with a call of an offered tool and no marker."""
        c = self._cursor
        first = yield from self._first_char()
        if first not in ("{", "["):
            return
        while True:
            compact = "".join(c.text[c.at : c.at + _HEAD_CHARS].split())
            found = begins_call(compact, self._offer.names, _BARE_CALLS)
            if found is not None or c.ended or len(c.text) - c.at > _HEAD_CHARS:
                break
            yield
        if found:
            yield from self._section(bare_python if found.endswith("(") else bare_json)

    def _first_char(self) -> Generator[None, None, str]:
        c = self._cursor
        while True:
            rest = c.text[c.at :].lstrip()
            lead = len(c.text) - c.at - len(rest)
            if lead > _LEAD_CHARS:
                return ""
            if rest or c.ended:
                if rest[:1] in ("{", "["):
                    self._quoting.lines(c.text[c.at : c.at + lead])
                    c.say(c.text[c.at : c.at + lead])
                    c.at += lead
                return rest[:1]
            yield

    # --- saying ------------------------------------------------------------------------------------------------------

    def _go_on(self) -> list[Out]:
        c = self._cursor
        next(self._reading, None)
        out: list[Out] = []
        if c.out:
            for piece in c.out:
                self._say(piece, out)
            c.out.clear()
        if c.ended and self._lead and not self._calls:
            out.append(self._text(self._lead, ""))
            self._lead = None
        if out and self._ids is not None:
            self._attach(out)
        waiting = self._lead is not None or self._ids or self._logprobs or c.channel
        self._calm = self._calm and not waiting
        return out

    def _say(self, piece: Piece, out: list[Out]) -> None:
        if isinstance(piece, Text):
            if piece.channel and not self._told:
                self._unframe(piece.channel, out)
            text = piece.text
            if self._lead is not None:
                self._lead += text
                if self._lead.isspace() and len(self._lead) <= _LEAD_CHARS:
                    return
                text, self._lead = self._lead, None
            if out and type(out[-1]) is TextDelta and out[-1].channel == (piece.channel or self._channel):
                out[-1].text += text
                self._written += len(text)
            else:
                out.append(self._text(text, piece.channel))
        elif isinstance(piece, Call):
            self._begin(piece, out)
        elif isinstance(piece, Args):
            if out and isinstance(out[-1], TextCall):
                out[-1].arguments += piece.text
            else:
                out.append(TextCall(self._choice, self._calls - 1, arguments=piece.text, source=self._channel))
        elif isinstance(piece, Malformed):
            self._malformed(piece, out)
        elif isinstance(piece, End):
            self._lead = ""

    def _unframe(self, channel: str, out: list[Out]) -> None:
        if not self._framed:
            self._framed = True
            message = f"the {self._channel} held whole messages with their headers, which were read ({channel} first)"
            out.append(Finding("leak.role_marker", "warn", message, self._channel, self._written, self._written))
            out.append(Repair(self._choice, "leak.role_marker", message))

    def _text(self, text: str, channel: str) -> TextDelta:
        if not channel or channel == self._channel:
            self._written += len(text)
        return TextDelta(self._choice, channel or self._channel, text)

    def _begin(self, call: Call, out: list[Out]) -> None:
        if not self._told and not self._calls:
            message = f"a call of {call.name[:80]} stood in the {self._channel} as markup, and was read out of it"
            out.append(Finding("leak.tool_markup", "warn", message, self._channel, self._written, self._written))
            out.append(Repair(self._choice, "leak.tool_markup", message))
        out.append(TextCall(self._choice, self._calls, call.id, call.name, source=self._channel))
        self._calls += 1
        self._lead = ""

    def _malformed(self, piece: Malformed, out: list[Out]) -> None:
        code = "tool.truncated" if piece.cut else "tool.malformed_markup"
        severity: Any = "warn" if piece.mended else "error"
        evidence = {"at": piece.at}
        out.append(
            Finding(code, severity, piece.message, self._channel, self._written, self._written, evidence=evidence)
        )
        if piece.mended:
            out.append(Repair(self._choice, code, piece.message))

    def _attach(self, out: list[Out]) -> None:
        """The ids of what has come go with the last piece made of it."""
        for piece in reversed(out):
            if isinstance(piece, TextDelta):
                piece.token_ids, piece.logprobs = self._ids, self._logprobs
            elif isinstance(piece, TextCall):
                piece.token_ids = self._ids
            else:
                continue
            self._ids = self._logprobs = None
            return
