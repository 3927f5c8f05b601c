"""Text that was decoded wrongly on its way: replacement and control characters, half a surrogate pair, mojibake, raw
tokens.

The rules:

- A replacement character (U+FFFD) is wrong wherever the prompt held none, except where the answer speaks about it: in
  quotes or brackets of its own, or next to its name. At the very end it is a code point that the token limit cut.
- Mojibake is UTF-8 read as Windows-1252. Inside a word ("mÃ¶chte", "donâ€™t") it is hardly ever honest, and twice it
  never is; where it stands alone it takes more of it, and it must be most of what is no ASCII.
- Control characters are no text: a NUL is an error wherever it stands; of the others one is a warning, and the third an
  error, where they stand in no line that is code. Tabs, line ends, vertical tabs, form feeds and the escapes of
  terminals are let through.
- A tokenizer's own spelling ("Ġthe", "<0xE2>") never belongs into text, but tokenizers are written about, so it must
  replace spaces or come in rows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from detectors.finding import Finding
from detectors.policy import DEFAULT, Policy

_REPLACEMENT: Final = "\ufffd"
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")
_OPEN: Final = frozenset("'\"`(<[{«“‘„「『")
_CLOSE: Final = frozenset("'\"`)>]}»”’“」』")
_ABOUT: Final = (
    "fffd",
    "replacement char",
    "replace char",
    "replaced by",
    "replaced with",
    "ersetzungszeichen",
    "caractère de remplacement",
    "替换字符",
    "置換文字",
)
_TRAIL: Final = (
    "\u0080-\u00bf\u20ac\u201a\u0192\u201e\u2026\u2020\u2021\u02c6\u2030\u0160\u2039\u0152\u017d\u2018\u2019\u201c"
    "\u201d\u2022\u2013\u2014\u02dc\u2122\u0161\u203a\u0153\u017e\u0178"
)
_MOJIBAKE: Final = re.compile(
    f"[\u00c2-\u00de][{_TRAIL}]|\u00df[\u0080-\u00bf]"
    f"|\u00e2[\u0080-\u009f\u20ac\u201a\u201e\u2026\u2020\u2021\u02c6\u2030\u2018\u201c\u201d\u2022\u2013\u2014][{_TRAIL}]"
    f"|[\u00e3-\u00ef][{_TRAIL}]{{2}}"  # a sign of Chinese, Japanese or Korean
    f"|\u00f0\u0178[{_TRAIL}]{{2}}"  # an emoji
)
_CERTAIN: Final = ("\u00e2\u20ac", "\u00f0\u0178")
_SPOKEN_OF: Final = ("mojibake", "encod", "decod", "utf-8", "utf8", "latin", "1252", "charset")
_CONTROL: Final = re.compile("[\\x00-\\x08\\x0e-\\x1a\\x1c-\\x1f\\x7f-\\x84\\x86-\\x9f]")
_BACKSLASHES: Final = 3
"""A control character in a line with so many is part of a pattern or of markup."""
_MANY_CONTROLS: Final = 3
_RAW_SIGNS: Final = frozenset("\u0120\u010a\u2581")
_RAW: Final = re.compile("[\u0120\u010a\u2581][^\\W\\d_]")
_IN_MARKER: Final = re.compile(r"<[|\uff5c][^<>\s]*\Z")
"""DeepSeek spells the spaces within its special tokens so; those that stand in a text are another detector's matter."""
_MARKER: Final = 40  # characters of one
_BYTES: Final = re.compile(r"(?:<0x[0-9A-F]{2}>){2,}")
_LITERAL: Final = re.compile(r"""^(?:[ \t]{4,}|.*[=(\[{,]\s*[bruf]{0,2}["']).*(?<!\w)["'](?:(?!["']).)*\Z""")
_UNDECODED: Final = "the tokenizer's own spelling of spaces was never decoded"
_RAW_WHOLE: Final = 4  # in an answer without one space behind the first; in a longer one eight are waited for
_CARRY: Final = 16
_LOOK_BACK: Final = 200
_KEPT: Final = 600


class Encoding:
    """One channel. ``prompt_text`` is looked at once, for what it holds already."""

    __slots__ = (
        "_allowed",
        "_channel",
        "_control_onset",
        "_controls_seen",
        "_hits",
        "_last",
        "_others",
        "_policy",
        "_raw",
        "_raw_onset",
        "_recent",
        "_seen",
        "_spaces",
        "_spoiled",
        "_sure",
        "_waiting",
        "calm",
        "condemned",
        "doubt",
        "releases",
    )

    def __init__(self, *, channel: str = "content", prompt_text: str | None = None, policy: Policy = DEFAULT) -> None:
        self.doubt = 0
        self.condemned = False
        self.releases: list[tuple[int, int]] = []
        self._channel = channel
        self._policy = policy
        prompt = prompt_text or ""
        self._allowed = {
            "replacement": _REPLACEMENT in prompt,
            "mojibake": _MOJIBAKE.search(prompt) is not None,
            "raw": _RAW.search(prompt) is not None,
            "bytes": "<0x" in prompt,
            "control": _CONTROL.search(prompt) is not None,
        }
        self.calm = True
        self._seen = 0
        self._recent = ""  # the last characters, for what lies across a border
        self._waiting = -1  # offset of a replacement character whose right neighbour has not come
        self._controls_seen = 0  # those that no line of code explains
        self._control_onset = 0  # offset of the first of them
        self._hits: list[int] = []
        self._sure = 0  # hits that are hardly ever honest
        self._spoiled = 0  # characters in those hits
        self._others = 0  # characters beyond ASCII, those of the hits included
        self._raw = 0
        self._raw_onset = 0
        self._spaces = 0
        self._last = 0  # offset up to which mojibake and raw tokens were counted

    def feed(
        self, text: str, token_ids: Sequence[int] | None = None, logprobs: Sequence[float] | None = None
    ) -> Sequence[Finding]:
        if self.condemned or not text:
            return ()
        start = self._seen
        self._seen = seen = start + len(text)
        if self.calm and ">" not in text and text.isascii() and (text.isprintable() or not _CONTROL.search(text)):
            recent = self._recent + text
            self._recent = recent if len(recent) < _KEPT else recent[-_LOOK_BACK:]
            self.doubt = seen
            return ()
        found: list[Finding] = []
        warned: list[Finding] = []
        if self._waiting >= 0 or self._recent[-1:] in _RAW_SIGNS or not text.isascii():
            found = self._odd(text, start)
        if not self._allowed["control"]:
            for one in self._controls(text, start):
                (warned if one.severity == "warn" else found).append(one)
        if ">" in text and not self._allowed["bytes"]:
            found += self._byte_tokens(text, start)
        if self._raw:
            self._spaces += text.count(" ", max(0, self._raw_onset - start))
        self._recent = (self._recent + text)[-_LOOK_BACK:]
        self.calm = not self._raw and self._waiting < 0 and self._recent[-1:] not in _RAW_SIGNS
        if not found:
            self.doubt = seen if self._waiting < 0 else max(self.doubt, self._waiting)
            return tuple(warned)
        first = min(found, key=lambda finding: finding.detected_at)
        self.condemned = True
        self.calm = False
        if first.code == "encoding.replacement_char":  # that was held since its onset
            self.doubt = max(self.doubt, first.onset)
        else:
            self.doubt = max(self.doubt, first.detected_at - 1)
        return (*(one for one in warned if one.detected_at < first.detected_at), first)

    def finish(self) -> Sequence[Finding]:
        if self.condemned:
            return ()
        if self._raw >= _RAW_WHOLE and not self._spaces:
            self.condemned = True
            evidence = {"count": self._raw}
            return (
                Finding(
                    "encoding.raw_tokens",
                    "error",
                    _UNDECODED,
                    self._channel,
                    self._raw_onset,
                    self._seen,
                    0.9,
                    evidence,
                ),
            )
        self.doubt = self._seen
        if self._waiting < 0:
            return ()
        onset, self._waiting = self._waiting, -1
        message = "the text ends in the middle of a code point"
        return (Finding("encoding.split_code_point", "warn", message, self._channel, onset, self._seen, 0.9),)

    def _odd(self, text: str, start: int) -> list[Finding]:
        found: list[Finding] = []
        if not self._allowed["replacement"]:
            found += self._replacements(text, start)
        surrogate = _SURROGATE.search(text)
        if surrogate is not None:
            at = start + surrogate.start()
            message = "half of a surrogate pair: a code point was cut in two and put together wrongly"
            found.append(Finding("encoding.split_code_point", "error", message, self._channel, at, at + 1, 0.99))
        if not self._allowed["mojibake"]:
            found += self._mojibake(text, start)
            self._others += sum(char > "\x7f" for char in text)
        if not self._allowed["raw"]:
            found += self._raw_tokens(text, start)
        return found

    def _replacements(self, text: str, start: int) -> Sequence[Finding]:
        at = 0
        while True:
            if self._waiting < 0:
                at = text.find(_REPLACEMENT, at)
                if at < 0:
                    return ()
                self._waiting = start + at
            while at < len(text) and text[at] == _REPLACEMENT:
                at += 1
            if at == len(text):
                return ()
            onset, self._waiting = self._waiting, -1
            before = (
                (self._recent + text[: max(onset - start, 0)])[-160:] if onset >= start else self._before(onset, start)
            )
            if _about(before, text[at]):
                self.releases = [*self.releases[-3:], (onset, start + at + 1)]
            else:
                count = start + at - onset
                message = "a replacement character stands where a character of the answer was lost"
                evidence = {"count": count, "before": before[-12:], "after": text[at : at + 1]}
                return (
                    Finding(
                        "encoding.replacement_char",
                        "error",
                        message,
                        self._channel,
                        onset,
                        start + at + 1,
                        0.97,
                        evidence,
                    ),
                )

    def _before(self, onset: int, start: int) -> str:
        gone = start - onset
        return self._recent[:-gone] if gone < len(self._recent) else ""

    def _mojibake(self, text: str, start: int) -> Sequence[Finding]:
        carried = self._recent[-4:]
        whole = carried + text
        shift = start - len(carried)
        for match in _MOJIBAKE.finditer(whole):
            at = shift + match.start()
            if at < self._last:
                continue
            self._last = shift + match.end()
            if match.end() <= len(carried):
                continue
            pair = match.group()
            self._hits.append(at)
            self._spoiled += len(pair)
            before = whole[match.start() - 1 : match.start()]
            sure = pair.startswith(_CERTAIN) or (pair[0] < "\u00df" and "a" <= before <= "z")
            if sure and not self._is_spoken_of(text[: max(at - start, 0)]):
                self._sure += 1
            others = self._others + sum(char > "\x7f" for char in text[: max(self._last - start, 0)])
            bar = self._policy.mojibake_points
            # in a table of characters such pairs stand among many others
            if 2 * self._sure >= bar or (len(self._hits) + self._sure >= bar and self._spoiled * 5 >= others * 3):
                message = "UTF-8 was read as Windows-1252 on its way"
                evidence = {"example": pair, "count": len(self._hits)}
                onset = self._hits[0]
                return (
                    Finding("encoding.mojibake", "error", message, self._channel, onset, self._last, 0.95, evidence),
                )
        return ()

    def _is_spoken_of(self, text: str) -> bool:
        recent = (self._recent + text)[-160:].lower()
        return any(word in recent for word in _SPOKEN_OF)

    def _controls(self, text: str, start: int) -> list[Finding]:
        found: list[Finding] = []
        for match in _CONTROL.finditer(text):
            char = match.group()
            before = (self._recent + text[: match.start()])[-160:]
            line = before[before.rfind("\n") + 1 :]
            if line[-1:] in _OPEN:
                continue
            code = line.startswith(("\t", "    ")) or line.count("\\") >= _BACKSLASHES
            if code and char != "\0" and char < "\x80":
                continue
            at = start + match.start()
            evidence = {"character": f"U+{ord(char):04X}", "before": line[-12:]}
            if char == "\0":
                message = "a NUL stands in the text"
                found.append(
                    Finding("encoding.control_char", "error", message, self._channel, at, at + 1, 0.9, evidence)
                )
                return found
            self._controls_seen += 1
            if self._controls_seen == 1:
                self._control_onset = at
                message = "a control character stands in the text"
                found.append(
                    Finding("encoding.control_char", "warn", message, self._channel, at, at + 1, 0.9, evidence)
                )
            elif self._controls_seen == _MANY_CONTROLS:
                message, onset = "control characters stand in the text", self._control_onset
                found.append(
                    Finding("encoding.control_char", "error", message, self._channel, onset, at + 1, 0.9, evidence)
                )
                return found
        return found

    def _raw_tokens(self, text: str, start: int) -> Sequence[Finding]:
        whole = self._recent[-_MARKER:] + text
        carried = len(whole) - len(text)
        shift = start - carried
        for match in _RAW.finditer(whole, max(0, carried - 1)):
            if _IN_MARKER.search(whole, max(0, match.start() - _MARKER), match.start()):
                continue
            if not self._raw:
                self._raw_onset = shift + match.start()
            self._raw += 1
            spaces = self._spaces + text.count(" ", max(0, self._raw_onset - start), match.end() - carried)
            if self._raw >= 8 and self._raw > 2 * spaces:
                end = shift + match.end()
                return (
                    Finding(
                        "encoding.raw_tokens", "error", _UNDECODED, self._channel, self._raw_onset, end, 0.95,
                        {"example": match.group(), "count": self._raw},
                    ),
                )  # fmt: skip
        return ()

    def _byte_tokens(self, text: str, start: int) -> Sequence[Finding]:
        carry = self._recent[-_CARRY:]
        match = _BYTES.search(carry + text)
        if match is None or match.end() <= len(carry):
            return ()
        onset = start - len(carry) + match.start()
        first = onset + 12  # the second of two makes it certain
        message = "a tokenizer's byte tokens were printed instead of the character that they spell"
        evidence = {"example": match.group()[:24]}
        return (Finding("encoding.byte_tokens", "error", message, self._channel, onset, first, 0.97, evidence),)


def _about(before: str, after: str) -> bool:
    if before[-1:] in _OPEN and after in _CLOSE:
        return True
    line = before[before.rfind("\n") + 1 :]
    if _LITERAL.search(line):
        return True
    recent = before.lower()
    return any(name in recent for name in _ABOUT)
