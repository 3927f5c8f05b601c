"""Control tokens and markup that leaked into what a caller reads.

The rules:

- Whatever the table in markup.py knows, or has the shape of a special token, is a leak in plain text: once a marker,
  at its first place.
- Text about markup is no leak: in a fence, in a code span, in a string or a quotation, where it is spoken of
  (detectors/mention.py), where the answer showed the same marker in one of these ways before, or when the prompt names
  it.
- What only its surroundings explain has leaked all the same when it ends the answer or another marker follows it.
- What nothing explains is judged in bare.py.
- The beginning of what may become a marker is in doubt until it is one or is none, so no leaked marker is released.
- Arguments of tool calls are data and may hold anything; their names and keys are looked at by ``leaks_in``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from detectors.bare import BareMarkers
from detectors.finding import Finding
from detectors.markup import CODES, Kind, Marker, find, match, may_become
from detectors.mention import (
    AHEAD,
    CODE_CHARS,
    CONTEXT,
    in_source,
    indexes,
    mid_sentence,
    open_string,
    spoken_of,
    writes_markup,
)
from detectors.quoting import Quoting
from detectors.subject import Subject
from detectors.unmarked import is_header, length_with_spaces, lost_markup

_LOOK: Final = re.compile(r"\n|`+|~+|[<\[\]◁]")
_LOOK_IN_STRING: Final = re.compile(r"\n|`+|~+|[<\[\]◁]|\"+|'+|[”»“」』]")
_eventful: Final = re.compile(r"[<\[\]◁`~]").search
_HEAD_CHARS: Final = 400
_SPAN_CHARS: Final = 400
"""How long a marker may wait for the backtick that makes it code, or for the end of its string."""
_UNREAD: Final = 256
"""Calm chunks that are read together."""


class Leak:
    """Watches one channel. ``parsed_reasoning``: the engine splits reasoning off, so a reasoning tag is its mistake."""

    __slots__ = (
        "_bare", "_closer", "_discussed", "_document", "_head", "_held", "_in_span", "_n", "_names", "_off", "_past",
        "_quoting", "_unread", "calm", "doubt",
    )  # fmt: skip

    def __init__(
        self,
        channel: str = "content",
        prompt_text: str | None = None,
        tool_names: Sequence[str] = (),
        *,
        parsed_reasoning: bool = False,
    ) -> None:
        self.doubt = 0
        self._bare = BareMarkers(channel, Subject(prompt_text or ""), parsed_reasoning)
        self._names = frozenset(tool_names)
        self._off = channel.startswith("tool:")
        self._n = 0
        self.calm = False
        self._held = ""
        self._past = ""  # the text before what is held, as much of it as a marker may need
        self._unread: list[str] = []  # calm text that comes after it
        self._quoting = Quoting(paragraphs=True)
        self._document = False  # it begins as JSON does
        self._discussed: set[str] = set()  # markers that the answer has shown as what they are
        self._in_span: list[tuple[Marker, int]] = []
        self._closer = ""  # what ends the string that they stand in, where it is no code span
        self._head: str | None = "" if channel == "content" else None

    def feed(
        self, text: str, token_ids: Sequence[int] | None = None, logprobs: Sequence[float] | None = None
    ) -> Sequence[Finding]:
        self._n = seen = self._n + len(text)
        if self.calm and _eventful(text) is None:
            self.doubt = seen
            self._unread.append(text)
            if len(self._unread) >= _UNREAD:
                self._catch_up()
            return ()
        if self._off:
            self.doubt = seen
            return ()
        return self._look(text, final=False)

    def finish(self) -> Sequence[Finding]:
        found = () if self._off else self._look("", final=True)
        self.doubt = self._n
        return found

    # --- reading -----------------------------------------------------------------------------------------------------

    def _catch_up(self) -> None:
        text = "".join(self._unread)
        self._unread.clear()
        self._quoting.lines(text)
        self._past = (self._past + text)[-CONTEXT:]

    def _look(self, text: str, final: bool) -> list[Finding]:
        out: list[Finding] = []
        if self._unread:
            self._catch_up()
        if self._head is not None:
            self._look_at_head(text, out, final)
        buffer = self._held + text
        base = self._n - len(buffer)
        at = 0
        keep = clear = len(buffer)
        quoting, bare = self._quoting, self._bare
        while True:
            token = (_LOOK_IN_STRING if self._closer else _LOOK).search(buffer, at)
            if token is None:
                if at < len(buffer):
                    self._plain(buffer[at:])
                break
            start = token.start()
            if start > at:
                self._plain(buffer[at:start])
            if self._in_span:
                self._span_expires(buffer, base + start, out)
            what = token[0]
            bare.at = base + token.end()
            at = token.end()
            if what == "\n":
                quoting.newline()
                if not quoting.span and len(self._closer) < 3:
                    self._span_ended(out, is_code=False)
                continue
            if what[0] in "`~\"'" and at == len(buffer) and not final:
                keep = start  # how long it is shows later; it is no part of a marker
                break
            if what[0] in "`~":
                before = quoting.span
                quoting.run(what, self._before(buffer, start, 1).isalnum())
                bare.other()
                if before and not quoting.span and not self._closer:
                    self._span_ended(out, is_code=True)
            elif what[0] in "<[]◁":
                end = self._marker(buffer, start, base, out, final)
                if end < 0:
                    keep = start
                    if not (bare.none_seen and indexes(buffer[start:], self._before(buffer, start, CODE_CHARS))):
                        clear = start
                    break
                if end == 0:
                    self._plain(what)
                    end = start + 1
                at = end
            else:
                self._plain(what)
                if self._ends_string(what, buffer, start):
                    self._span_ended(out, is_code=True)
        if self._in_span:
            self._span_expires(buffer, base + keep, out)
        self._past = (self._past + buffer[:keep])[-CONTEXT:]
        self._held = buffer[keep:]
        if final:
            bare.at = self._n
            self._span_ended(out, is_code=False)
            bare.end(out)
        self._set_doubt(base + clear)
        return out

    def _before(self, buffer: str, start: int, most: int = CONTEXT) -> str:
        """The text before ``start``, at most so much of it."""
        return buffer[start - most : start] if start >= most else (self._past + buffer[:start])[-most:]

    def _ends_string(self, quotes: str, buffer: str, start: int) -> bool:
        closer = self._closer
        if closer not in quotes or (len(closer) == 1 and self._before(buffer, start, 1) == "\\"):
            return False
        return closer != "'" or not buffer[start + len(quotes) : start + len(quotes) + 1].isalnum()

    def _plain(self, text: str) -> None:
        """Text without a marker, a newline or a run of backticks."""
        self._quoting.text(text)
        if text.isspace():
            return
        if not self._bare.visible:
            self._document = text.lstrip()[0] in "{["
        self._bare.other()

    def _set_doubt(self, clear: int) -> None:
        doubt, bare = clear, self._bare
        if bare.unsure is not None:
            doubt = min(doubt, bare.unsure[2])
        if self._in_span:
            doubt = min(doubt, self._in_span[0][1])
        if self._head is not None:
            doubt = 0
        self.doubt = max(doubt, self.doubt)
        self.calm = (
            bare.visible
            and self._head is None
            and bare.unsure is None
            and not self._held
            and not self._in_span
            and not bare.after_marker
        )

    # --- markers -----------------------------------------------------------------------------------------------------

    def _marker(self, buffer: str, start: int, base: int, out: list[Finding], final: bool) -> int:
        """Where the marker at ``start`` ends; 0 if there is none, -1 if more text must be seen."""
        found = match(buffer, start)
        if found is None:
            rest = buffer[start : start + 64]
            return -1 if not final and start + len(rest) == len(buffer) and may_become(rest) else 0
        marker, end = found
        before = self._before(buffer, start)
        after = buffer[end : end + AHEAD]
        told, used = spoken_of(marker, before, after)
        if told == "more" and not final:
            return -1
        if told == "spoken of":
            self._discussed.add(marker.text)
            self._plain(marker.text)
            return end
        self._bare.at = min(base + end + used, self._n)
        source = in_source(marker, before, after, document=self._document)
        self._seen(marker, base + start, before, told == "perhaps", out, source=source)
        self._quoting.text(marker.text)
        return end

    def _seen(
        self, marker: Marker, start: int, before: str, perhaps: bool, out: list[Finding], *, source: bool
    ) -> None:
        """A marker that nothing next to it explains."""
        bare = self._bare
        bare.marker(out)
        if self._quoting.fenced or source:
            bare.in_code(marker, start)
            self._discussed.add(marker.text)
            return
        if not self._quoting.span and not self._in_span and not self._document:
            self._closer = open_string(before)
        if self._quoting.span or self._closer:
            self._in_span.append((marker, start))
            bare.visible = True
        elif perhaps or (
            marker.weight == "strong"
            and marker.text in self._discussed
            and (marker.kind != "reasoning" or mid_sentence(before))
        ):
            bare.perhaps(marker, start, out)
        else:
            bare.bare(marker, start, out)

    def _span_ended(self, out: list[Finding], is_code: bool) -> None:
        candidates, self._in_span = self._in_span, []
        self._closer = ""
        if is_code:
            self._discussed.update(marker.text for marker, _ in candidates)
        elif candidates:
            self._bare.late(candidates, out)

    def _span_expires(self, buffer: str, position: int, out: list[Finding]) -> None:
        limit = self._in_span[0][1] + _SPAN_CHARS
        if position > limit:
            self._bare.at = limit
            self._quoting.span = 0
            text = self._before(buffer, limit - (self._n - len(buffer)), _SPAN_CHARS)
            self._span_ended(out, is_code=writes_markup(text))

    # --- a call without markup ---------------------------------------------------------------------------------------

    def _look_at_head(self, text: str, out: list[Finding], final: bool) -> None:
        """The answer begins like a call of an offered tool written as bare JSON, or names a Harmony recipient."""
        head = self._head = ((self._head or "") + text)[:_HEAD_CHARS]
        found = lost_markup("".join(head.split()), self._names)
        if found is None and not final and len(head) < _HEAD_CHARS:
            return
        self._head = None
        if found:
            kind: Kind = "role" if is_header(found) else "tool"
            self._bare.at = length_with_spaces(head, len(found)) + (kind == "role")
            self._bare.report(Marker(found, kind, "bare"), len(head) - len(head.lstrip()), out)


def leaks_in(text: str, channel: str, where: str) -> list[Finding]:
    """Markup inside a tool's name or an argument's key, where there is no place for any."""
    found = find(text)
    if found is None:
        return []
    marker, start, _ = found
    message = f"{marker.text!r} ({marker.family}) in {where}"
    evidence = {"marker": marker.text, "family": marker.family, "text": text[:200]}
    return [Finding(CODES[marker.kind], "error", message, channel=channel, onset=start, evidence=evidence)]
