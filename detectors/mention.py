"""Whether a marker in plain text is spoken of or has leaked, told from what stands around it.

The rules:

- Spoken of: quoted on its own, followed by what it is called ("the <pad> token") or by what it does ("<|im_end|> ends a
  turn"), numbered ("<pad>=0"), part of a compound ("<think>-style"), the last word in brackets, a group of a regular
  expression.
- Perhaps spoken of, so that what comes next decides: named before ("tokens such as <eos>"), one of a list, in the
  middle of a sentence that is about tokens, or a plain word in angle brackets in the middle of any sentence. A marker
  that ends the answer, or that another marker follows, has leaked all the same.
- A string literal or a quotation that is open where the marker stands explains it if it is closed again. JSON does not:
  its strings are the answer itself.
- Source code that writes markup shows it without a fence too: a template's statements stand before it, an escape of a
  string literal stands beside it, or it stands in a comment. It has leaked all the same when it ends the answer.
"""

from __future__ import annotations

import re
import string
from typing import Final, Literal

from detectors.markup import Marker
from detectors.quoting import PAIRS

CONTEXT: Final = 4_000
"""Characters before a marker that are looked at."""
AHEAD: Final = 40
"""Characters behind a marker that may be needed."""
CODE_CHARS: Final = 64
"""How far back signs of code are looked for."""

Told = Literal["spoken of", "perhaps", "bare", "more"]

_NOUNS: Final = (
    "token", "tag", "marker", "symbol", "delimiter", "separator", "placeholder", "element", "block", "section",
    "prefix", "suffix",
)  # fmt: skip
_VERBS: Final = (
    "is ", "are ", "was ", "marks", "means", "denotes", "stands ", "separates", "ends ", "begins", "starts", "opens",
    "closes", "signals", "indicates", "represents", "delimits", "terminates",
)  # fmt: skip
_CALLED: Final = tuple(f" {word}" for word in _NOUNS)
_DOES: Final = tuple(f" {word}" for word in _VERBS)
_NUMBERED: Final = tuple(f"{sign}{digit}" for sign in ("=", " = ") for digit in "0123456789")
_COMPOUND: Final = tuple(f"-{chr(letter)}" for letter in range(ord("a"), ord("z") + 1))
_LISTED: Final = tuple(f"{word} {sign}" for word in (",", " and", " or", " /") for sign in ("<", "[", "`"))
_ON: Final = (*_CALLED, *_NUMBERED, *_COMPOUND, *_LISTED)
_ON_OF_TOKENS: Final = (*_ON, *_DOES)
_WORDS: Final = (",", *(f" {letter}" for letter in string.ascii_letters))
_GROUP: Final = re.compile(r"(?:\(\?P?|\\[gk])\Z")
_NAMED: Final = re.compile(
    r"\b(?:tokens?|tags?|markers?|symbols?|delimiters?|separators?|placeholders?|e\.g\.,?|i\.e\.,?|such as|called"
    r"|named):? \Z|[>\]`](?:,|,? and|,? or| /) \Z",
    re.IGNORECASE,
)
_TOPIC: Final = re.compile(
    r"special[ _-]token|control[ _-]token|token[ _]?id|tokeni[sz]|vocab|chat[ _-]?template|chatml"
    r"|\b(?:bos|eos|eot|pad|unk|sep|cls)[ _-]?tok|prompt (?:format|template)|stop (?:token|sequence)",
    re.IGNORECASE,
)
_MID_SENTENCE: Final = re.compile(r"[^\s.!?:。！？：][*_\"'`)\]]*[ \t]+\Z")
_WORD: Final = re.compile(r"<[a-z_]+>")
_GOES_ON: Final = re.compile(r"[,.;)\n]|[ \t][a-z(\u2026<-]")
_UNKNOWN: Final = ("<unk>", "<0x")  # these stand for a part of the answer, so they leak in the middle of sentences
_LINE: Final = 400
_CODE: Final = frozenset('=(){};:_"')
_TAG: Final = re.compile(r"</[a-z][a-z0-9]*>|<[a-z][a-z0-9]* [a-z-]+=")
_QUOTE: Final = re.compile(r"\\.|\"\"\"|'''|[\"'“”«»„「」『』]")
_TYPOGRAPHIC: Final = {"“": "”", "«": "»", "„": "“", "「": "」", "『": "』"}
_PREFIXED: Final = re.compile(r"(?:\A|[^\w'])[bruf]{0,2}\Z", re.IGNORECASE)
_STATEMENT: Final = re.compile(r"\{%-?\s*(?:if|elif|else|endif|for|endfor|set|macro|generation)\b[^{}]*%\}")
_COMMENT: Final = re.compile(r"[ \t]+(?:#|//|/\*)|.*[=;,(){}][ \t]+(?:#|//|/\*)[ \t]")
_STRING: Final = re.compile(r"""(?:(?:=|\+|\[)[ ]?|\b[bruf]|^[ \t]{4,})["'][^"']*\Z""")
_ESCAPES: Final = ("\\n", "\\t", "\\r")
_LITERAL: Final = re.compile(r"[=(,\[:]\s*[bruf]{0,2}(\"\"\"|''')", re.IGNORECASE)


def spoken_of(marker: Marker, before: str, after: str) -> tuple[Told, int]:
    """What the text up to the marker and what of the text behind it is known say, and how much of that was needed.
    ``more``: it takes more text to say."""
    last = before[-1:]
    closing = PAIRS.get(last, "")
    if closing and not after:
        return "more", 0
    if closing and after.startswith(closing):
        return "spoken of", 1
    if _GROUP.search(before[-4:]):
        return "spoken of", 0
    if not after:
        return "more", 0
    if after[0] == ")" and _in_brackets(before):
        return "spoken of", 1
    of_tokens = marker.kind != "reasoning" and not marker.text.startswith(_UNKNOWN)
    continuations = _ON_OF_TOKENS if of_tokens else _ON
    line = before[before.rfind("\n") + 1 :]
    if line.rfind("{{") > line.rfind("}}") or line.rfind("{%") > line.rfind("%}"):
        return "spoken of", 0  # within an expression of a template
    if marker.closes and line.endswith(marker.closes):  # an empty pair in the middle of a line: "in <a></a> or not"
        continuations += _WORDS if line.removesuffix(marker.closes).strip() else ()
    elif marker.text[0] == "<" and line.strip():
        continuations += tuple(f"</{marker.text[1:]}{word}" for word in (*_CALLED, *_WORDS))
    used = 1
    while any(text.startswith(after[:used]) for text in continuations):
        if after[:used] in continuations:
            return "perhaps" if after[:used] in _LISTED else "spoken of", used
        if used == len(after):
            return "more", used
        used += 1
    if after[0] == "\\" and used < 2:
        if len(after) < 2:
            return "more", 1
        used = 2
    if _NAMED.search(before[-32:]):
        return "perhaps", used
    if marker.kind == "reasoning" or not _MID_SENTENCE.search(before[-16:]):
        return "bare", used
    if of_tokens and marker.kind == "token" and _WORD.fullmatch(marker.text):
        if after[0] in " \t" and len(after) < 2:
            return "more", 1
        if _GOES_ON.match(after):
            return "perhaps", max(used, 2 if after[0] in " \t" else 1)
    return ("perhaps" if _TOPIC.search(before) else "bare"), used


def mid_sentence(before: str) -> bool:
    return _MID_SENTENCE.search(before[-16:]) is not None


def in_source(marker: Marker, before: str, after: str, *, document: bool) -> bool:
    """Whether the marker stands in source code that writes such markup. ``document``: the answer is JSON, in whose
    strings escapes mean nothing."""
    if writes_markup(before):
        return True
    if document or (marker.kind == "reasoning" and not marker.text.startswith("<|")):
        return False
    line = before[before.rfind("\n") + 1 :]
    if before.endswith(_ESCAPES) or after.startswith(_ESCAPES) or _COMMENT.match(line) or _STRING.search(line):
        return True
    literal = next(iter(reversed(list(_LITERAL.finditer(before)))), None)
    return literal is not None and before.find(literal[1], literal.end()) < 0


def writes_markup(text: str) -> bool:
    """Whether a statement of a template stands in the text."""
    return _STATEMENT.search(text) is not None


def indexes(rest: str, before: str) -> bool:
    """Whether a bracket, and at most a letter behind it, indexes something in code, or begins a tag where tags are
    common. Markers begin like that too, and there are many more of those: such a bracket is not waited with."""
    if len(rest) > 2:
        return False
    if rest[0] == "<":
        return _TAG.search(before) is not None
    if rest[0] == "]":
        return before.count("[") > before.count("]")
    return (before[-1:].isalnum() or before[-1:] in ("_", "]", ")", '"', "'")) and not _CODE.isdisjoint(before)


def open_string(before: str) -> str:
    """What would close the string literal or the quotation that is open where the text ends; empty when none is."""
    for literal in reversed(list(_LITERAL.finditer(before, max(0, len(before) - _LINE)))):
        if before.find(literal[1], literal.end()) < 0:
            return literal[1]
        break
    line = before[before.rfind("\n") + 1 :][-_LINE:]
    closer = ""
    for match in _QUOTE.finditer(line):
        quote = match[0]
        if quote[0] == "\\":
            continue
        if not closer:
            if quote in _TYPOGRAPHIC:
                closer = _TYPOGRAPHIC[quote]
            elif quote[0] == '"' or (quote[0] == "'" and _PREFIXED.search(line, 0, match.start())):
                closer = quote
        elif quote == closer and not (quote == "'" and line[match.end() : match.end() + 1].isalnum()):
            closer = ""
    return closer


def _in_brackets(before: str) -> bool:
    line = before[before.rfind("\n") + 1 :][-_LINE:]
    return line.count("(") > line.count(")")
