"""How much repetition a context explains.

A judge looks at the unit that repeats and at the text before it, once, and says how long the repetition may become: the
bar, at which it is condemned, and the hold, from which its repeats are not released any more. A context raises the bar
and never takes it away. Exact repetition in honest text is short: in the tuning corpus no unit of prose came more than
four times in a row, no unit of three words of code more than eleven times; only rules, numbers and base64 go on for
long.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from detectors.asked import Asked
from detectors.policy import Policy
from detectors.unit import copies_in_time, tokens, turned, weight

WORD: Final = re.compile(r"[^\W\d_]{2,}")
_SPECIAL: Final = re.compile(r"\s*(?:<[|｜]?/?[A-Za-z_][\w▁ -]{0,30}[|｜]?>|\[/?[A-Z]{2,12}\])\s*")
_HTML: Final = frozenset(re.findall(r"\w+", "br td tr th li p hr div span ul ol b i em dd dt row col cell"))
_RULE: Final = frozenset("-=_*#~+.^`─━═│┃║┄┅┈┉╌╍—–·•…▬▔▁‾―")
_BLOCK: Final = frozenset("█▓▒░▄▀■□▪▫●○◆◇▏▎▍▌▋▊▉▇▆▅▃▂★☆⣿⠀⬛⬜🟥🟧🟨🟩🟦🟪⭐")
_COMMENT: Final = re.compile(r"[\s#/*;%!<>|+:.'\"`~=_\\-]*")
_CODE: Final = frozenset('{}[]<>=|\\;$#@_`"/%&+~^')
_CODEISH: Final = re.compile(
    r"[A-Za-z0-9_)\]][.(]\w|\n[ \t]{2,}\S|\w_\w|::|->|\)[,;:]|\(\)|[a-z][A-Z]|,\S*\n[ \t]|:\s*\.\.\."
    r"""|['"]\s*[,)\]]|\w: \S+\s+\w+: |[._=-]{4,}"""
)
LOOKED_BACK: Final = 400  # characters before a run that its judge sees
_VERSE: Final = frozenset(
    re.findall(
        r"\S+",
        "la na ha he hi ho ja je ji hey yeah oh ooh ah aah no yes bye knock tick tock dum doo da di ba bum boom beep "
        "meow woof quack moo row go hip hurray rah tra lalala hehe haha hahaha jaja lol wow yo ding dong ring jingle "
        "drip click clap stomp blah buzz hum mmm hmm shh zzz cluck caw tweet sha ole woah whoa ra amen om hallelujah "
        "alleluia oo ee woo uh huh wop shoo bop shoop bam wham du bi re mi fa so ti nah ay wo ха хе хо ла на",
    )
)
_LITERALS: Final = frozenset(("null", "none", "nil", "true", "false", "nan", "na", "void", "int", "undefined"))
_LAUGH: Final = re.compile(
    r"(?:[hjkwxlaeiou]{2,4}|(?:[hj][aeiou]){3,4}|[хаехи]{2}|哈|呵|嘻|笑|ㅋ|ㅎ|w|草|5|k)", re.IGNORECASE
)
_DRAWN_OUT: Final = frozenset("\u0640اويهーあいうえおぁぃぅぇぉっアイウエオァィゥェォッ아어오우으이ㅏㅗㅜㅠㅡ")
_OPAQUE: Final = re.compile(r"[A-Za-z0-9+/=_%\\-]+")
_CUT_ROW: Final = re.compile(r"(\S)\1{7}=?\n\Z")
_HEXED: Final = re.compile(r"0x|(?:\b(?:[0-9a-f]\d|\d[0-9a-f])\b.*){2}", re.IGNORECASE)
_PAIR: Final = re.compile(r"(?:[0-9a-f]{2}){1,4}", re.IGNORECASE)
LEVEL: Final = re.compile(r"\b(?:INFO|DEBUG|WARN(?:ING)?|ERROR|TRACE|FATAL|NOTICE)\b")
_CRIES: Final = frozenset("!?\uff01\uff1f")
_SENTENCES: Final = re.compile(r"[.!?:;,\n\u3002\uff01\uff1f\uff0c\u060c]")
_CRY: Final = 32  # characters of ASCII, and fewer of other scripts
_MEMBER: Final = re.compile(r""""[^"\n]*":\s*(?:"[^"\n]*"|[\w.+-]+),?\s+(?=")""")
_FORMULA: Final = re.compile(r"\\[A-Za-z]{2,}\{")
_KEY: Final = re.compile(r""""[^"\n]*"\s*:""")
LATE_HOLD: Final = 56  # characters before the bar, so that nothing honest waits for more than sixteen chunks
_EMPTY_ITEM: Final = re.compile(r"\s*[-*+•>]\s*")
SQL: Final = re.compile(r"\b(?:INSERT INTO|VALUES|SELECT|UPDATE|DELETE FROM|ALTER|CREATE)\b")
_PARAGRAPH: Final = 160  # characters; with so many different words a unit is one
_MANY_WORDS: Final = 16
_SELDOM_MANY: Final = ("verse", "member", "nested")
"""What honest text has no more of than a caller may see of a loop."""
_SEEN: Final = 160  # characters of a loop that a caller may see, less a step
_OPAQUE_END: Final = re.compile(r"[A-Za-z0-9+/=_-]{1,64}\Z")
_SHIFTS: Final = re.compile(r"[a-z][A-Z0-9]|[0-9][A-Za-z]|[A-Z][a-z0-9]")
_LITERAL: Final = re.compile(r"""^[ \t]{2,}.*(?<!\w)[bruf]{0,2}(["'])(?:(?!\1).)*\Z""")
_REMARK: Final = re.compile(r"[ \t]*(?://|#|--|;|/?\*)[^\n]*:\s*\Z")
_HEADER: Final = re.compile(r"[\w-]{3,24}:\s*")
_NUMBERED: Final = re.compile(r"[ \t]*\.?\\?(?:\"|//+|#+|\*+|;+|--)[\s\d.)]*")
_NARROW: Final = re.compile(r"[acgtun]+|[a-f]+", re.IGNORECASE)  # DNA, hex
_TIES: Final = frozenset("'\"`({[<|\\:@#$")
_OPAQUE_LINE: Final = re.compile(r"(?:^|\n)\S{16,}\n\Z")
_NUMBER: Final = re.compile(r"[\d\s,.;:|+\-\[\](){}xXeE/*&]+")


@dataclass(frozen=True, slots=True)
class Judgement:
    """``bar`` and ``hold`` are lengths of the whole run in characters, first copy included."""

    bar: int
    hold: int
    kind: str
    why: str


def judge(unit: str, before: str, *, first: bool, asked: Asked, policy: Policy) -> Judgement:
    """``before`` ends where the run starts; ``first`` says that there is nothing but white space before it."""
    unit = turned(unit)
    bar, kind, why = _exact(unit, before, first, asked, policy)
    bar, why = patient(unit, bar, why, asked, policy)
    period = len(unit)
    early = max(2 * period - 32, 8, min(bar - LATE_HOLD, _SEEN))
    if why in _SELDOM_MANY:
        hold = max(2 * period, min(bar - LATE_HOLD, _SEEN))
    else:
        hold = max(bar - LATE_HOLD, min(bar, 2 * period)) if why else early
    return Judgement(bar, min(bar, hold), kind, why)


def patient(unit: str, bar: int, why: str, asked: Asked, policy: Policy) -> tuple[int, str]:
    bar = int(bar * policy.patience)
    copies = asked.copies(unit, policy)
    if copies * len(unit) > bar:
        return copies * len(unit), "asked"
    return bar, why


def _exact(unit: str, before: str, first: bool, asked: Asked, policy: Policy) -> tuple[int, str, str]:
    period = len(unit)
    if unit.isspace():
        if "\n" in unit:
            most = policy.leading_newlines if first else policy.newlines
            return period * max(2, -(-most // unit.count("\n"))), "newlines", ""
        return policy.spaces, "spaces", "blank"
    if period == 1:
        bar, why = _character(unit, before, first, policy)
        return bar, "single_token", why
    line = before[before.rfind("\n") + 1 :]
    words = WORD.findall(unit)
    distinct = len({word.lower() for word in words})
    if not any(char.isalpha() for char in unit):
        return _wordless(unit, before, policy)
    special = _SPECIAL.fullmatch(unit)
    if special and not (distinct and words[0].lower() in _HTML):
        return policy.special_copies * period, "single_token" if unit[-1] in ">]" else "period", ""
    if _NUMBER.fullmatch(unit):
        return _numbers(before, policy), "period", "numbers"
    if period > 16 and _OPAQUE.fullmatch(unit.strip()) and not unit.strip().islower():
        return policy.row_copies * period, "rows", "opaque"
    spaced = any(char.isspace() for char in unit)
    if not spaced and period <= 16 and unit.isascii() and (_OPAQUE.fullmatch(unit) or "\\" in unit):
        return _glued(unit, before, policy)
    if looks_like_code(unit):
        return _structured(unit, line, distinct, policy)
    if LEVEL.search(unit) and "\n" in unit:
        return policy.row_copies * period, "rows", "log"
    if _PAIR.fullmatch(unit.strip()) and _HEXED.search(line):
        return policy.number_chars, "period", "hex"
    if distinct == 0 and period < 6 and _opened(line):
        return max(policy.literal_copies * period, policy.ornament_chars), "period", "symbols"
    if distinct == 1 and words[0].lower() in _LITERALS and "," in unit:
        return max(policy.literal_copies * period, policy.ornament_chars), "period", "literals"
    if distinct <= 1 and tokens(unit) <= 2:
        kind = "single_token" if tokens(unit) == 1 else "period"
        if distinct and words[0].lower() in _VERSE:
            return policy.word_copies_in_verse * period, kind, "verse"
        copies = min(max(policy.word_copies, -(-policy.phrase_weight // weight(unit))), 12)
        return min(copies, copies_in_time(unit)) * period, kind, ""
    if not words and unit.isascii():
        return policy.word_copies_in_verse * period, "period", "letters"
    if words and all(word.lower() in _VERSE for word in words):
        return policy.word_copies_in_verse * period, "period", "verse"
    if distinct == 0 and period < 8:
        return policy.ornament_chars, "period", "letters"
    if period >= _PARAGRAPH and distinct >= _MANY_WORDS and policy.phrase_copies > 4:
        # as much text said again word for word is none of a refrain's, a list's or a form's
        return int((policy.phrase_copies - 1.25) * period), "period", ""
    copies = min(max(policy.phrase_copies, -(-policy.phrase_weight // weight(unit))), copies_in_time(unit))
    sung = sung_copies(words, asked, policy)
    if sung:
        return max(sung, copies) * period, "period", "song"
    if _in_verse(before if before[-1:] == "\n" or "\n" not in unit else before + "\n"):
        return max(policy.verse_copies, copies) * period, "period", "verse"
    return copies * period, "period", ""


def sung_copies(words: Sequence[str], asked: Asked, policy: Policy) -> int:
    """How often a line of a song may come; 0: it is none."""
    if sum(word.lower() in _VERSE for word in words) * 2 > len(words):
        return policy.refrain_copies
    return policy.song_copies if asked.sings else 0


def _in_verse(before: str) -> bool:
    """Short lines that do not end like sentences of prose stand before it, four at least."""
    whole = before.split("\n")[0 if len(before) < LOOKED_BACK else 1 : -1]
    lines = [line for line in whole if line.strip()][-4:]
    return (
        len(lines) == 4
        and all((8 <= len(line) <= 64 and line[-1] in ",;!?.\u2014-") or line[-1].isalpha() for line in lines)
        and sum(line[-1] != "." for line in lines) >= 2
    )


def looks_like_code(unit: str) -> bool:
    code = sum(char in _CODE for char in unit)
    if code and (len(unit) < 32 or code * 32 > len(unit)):
        return True
    return len(_CODEISH.findall(unit + unit[:2])) * 48 > len(unit)


def _character(char: str, before: str, first: bool, policy: Policy) -> tuple[int, str]:
    line = before[before.rfind("\n") + 1 :]
    margin = bool(line) and (_COMMENT.fullmatch(line) or _NUMBERED.fullmatch(line)) is not None
    if char in _RULE:
        if first and char not in "-=_*#~+^\u2500\u2501\u2550":
            return 96, "rule"  # rules stand above titles; leaders and strokes begin no answer
        return policy.rule_chars, "rule"
    if char in _BLOCK:
        return policy.opaque_chars, "drawing"
    if char.isdigit():
        return _digit(char, line, before[-1:], policy)
    if char.isalpha():
        return _letter(char, line, before, margin, policy)
    if line.lstrip().startswith(char * 2) or char * 4 in line or (char == "/" and _NUMBERED.match(line)):
        return 160, "rule"  # a title between two pieces of a rule
    if char == "/" and _in_base64(before):
        return policy.opaque_chars, "opaque"
    if char in ")]}>([{<\"'|\\,;:":
        return 32 if len(WORD.findall(line)) > 3 and before[-1:] in ".!? " else 96, "brackets"
    if margin or (not line and char in ("/%;|*" if first else "/%;|<>&:$@\\,*")):
        return 160, "margin"
    if char in _CRIES and not first and _ends_a_cry(before):
        return policy.exclaimed_copies, "cry"
    return policy.token_copies, ""


def _ends_a_cry(before: str) -> bool:
    """Whether what stands before a row of exclamation or question marks is a short sentence, as it is in what people
    shout; a replica that fails in the middle of a sentence has longer ones before it."""
    cry = _SENTENCES.split(before)[-1]
    return bool(cry.strip()) and weight(cry) <= _CRY and (before[-1].isalnum() or before[-1] > "\x7f")


def _in_base64(before: str) -> bool:
    end = _OPAQUE_END.search(before)
    return end is not None and len(end.group()) >= 20 and len(_SHIFTS.findall(end.group())) >= 4


def _digit(char: str, line: str, last: str, policy: Policy) -> tuple[int, str]:
    if char == "0" and not line.strip():
        return 3 * policy.opaque_chars, "number"
    if last and (last.isalnum() or last in "./+\\'\"`-$#([{,_"):
        return policy.opaque_chars, "number"
    return 48, "number"


def _letter(char: str, line: str, before: str, margin: bool, policy: Policy) -> tuple[int, str]:
    last = before[-1:]
    if char in "xX" and last.isalnum():
        return policy.opaque_chars, "filler"
    if not line and (char * 8 in before[-100:] or _CUT_ROW.search(before)):
        return policy.opaque_chars, "opaque"  # a row that was cut into lines
    if char in "AfF":  # zeros in base64, ones in hexadecimal
        return (8 if char == "A" and not line else 3) * policy.opaque_chars, "opaque"
    if last.isalnum() and last.isascii():
        end = _OPAQUE_END.search(before)
        stem = end.group() if end else last
        if (
            before[-1 - len(stem) :][:1] == "\\"
            or not stem.isalpha()
            or len(stem) >= 24
            or not (stem[1:].islower() or stem.isupper())
        ):
            return policy.opaque_chars, "opaque"
        if last.islower() and char.isupper():
            return policy.token_copies, ""
        return 48, "drawn out"  # Noooo
    if last and last in "'\"`=+/\\-_({[<|*:":
        return policy.opaque_chars, "opaque"
    if not line and _OPAQUE_LINE.search(before):
        return policy.opaque_chars, "opaque"
    if margin or _LITERAL.search(line) or _REMARK.match(line):
        return policy.opaque_chars, "literal"
    if char in "xX" and before:
        return policy.opaque_chars if not line or _HEADER.fullmatch(line) else 48, "filler"
    if char in _DRAWN_OUT or (char.islower() and last.isalpha() and not last.isascii()):
        return 48, "drawn out"  # the Arabic kashida, the vowels of a cry, and cased scripts that are not Latin
    if char in "kKwWㅋㅎ哈呵嘻笑ха草":
        return policy.word_copies_in_verse, "laughter"
    return policy.token_copies, ""


def _wordless(unit: str, before: str, policy: Policy) -> tuple[int, str, str]:
    if any(char.isdigit() for char in unit):
        return policy.number_chars if "\n" in unit else _numbers(before, policy), "period", "numbers"
    if sum(char in _RULE for char in unit) * 2 >= len(unit):
        return policy.rule_chars * (3 if len(unit) >= 8 else 1), "period", "rule"
    if "\n" in unit and _EMPTY_ITEM.fullmatch(unit):
        return policy.row_copies * len(unit), "rows", "empty items"
    if "\n" in unit:
        return max(policy.row_copies * len(unit), 2 * policy.ornament_chars), "rows", "rows"
    if all(char in "!?,;:¡¿ " for char in unit):
        line = before[before.rfind("\n") + 1 :]
        if "?," in unit + unit and (_opened(line) or SQL.search(line)):
            return max(policy.literal_copies * len(unit), policy.ornament_chars), "period", "placeholders"
        return 48, "period", ""
    if any(char > "\U0001f000" or "\u2600" <= char <= "\u27bf" for char in unit) and not any(
        char in _BLOCK for char in unit
    ):
        return min(policy.emoji_copies, copies_in_time(unit)) * len(unit), "period", ""
    return policy.ornament_chars, "period", "ornament"


def _numbers(before: str, policy: Policy) -> int:
    """Within brackets, or where a line of numbers or data begins, an array or a row; elsewhere hardly anything."""
    line = before[before.rfind("\n") + 1 :]
    if _opened(line) or not WORD.search(line):
        return policy.number_chars
    return policy.stray_number_chars


def _opened(line: str) -> bool:
    return any(line.count(one) > line.count(other) for one, other in ("[]", "{}", "()"))


def _glued(unit: str, before: str, policy: Policy) -> tuple[int, str, str]:
    """Letters and digits without a gap: part of something opaque, or one syllable for ever."""
    if "\\" in unit or "%" in unit:
        return 2 * policy.opaque_chars, "period", "escapes"
    if _LAUGH.fullmatch(unit) or unit.lower() in _VERSE:
        return policy.word_copies_in_verse * len(unit), "single_token", "laughter"
    head = _OPAQUE_END.search(before)
    stem = head.group() if head else ""
    plain = unit.isalpha() and (unit.islower() or unit.istitle()) and not _NARROW.fullmatch(unit)
    if plain and len(stem) < 24 and (not stem or stem[1:].islower()) and before[-1 - len(stem) :][:1] not in _TIES:
        return (policy.token_copies - 2) * len(unit), "single_token", ""
    # a long row of letters and digits without a gap before it: base64, in which anything may come often
    return policy.opaque_chars * (3 if len(stem) >= 48 else 1), "period", "opaque"


def _structured(unit: str, line: str, distinct: int, policy: Policy) -> tuple[int, str, str]:
    period = len(unit)
    kind = "rows" if "\n" in unit else "period"
    if not any(char in "{}[]" for char in unit) and unit.count('"') in (2, 4):
        match = _MEMBER.search(unit + unit)
        if match is not None and len(match.group()) == period:
            return max(policy.member_copies * period, 120), "rows", "member"
    if distinct and sum(char in "([{" for char in unit) > sum(char in ")]}" for char in unit) and " " not in unit:
        return max(policy.nested_copies * period, 120), kind, "nested"
    if unit.count("|") >= 2 or ("{" in unit and ":" in unit and not _FORMULA.search(unit)):
        if all(word.lower() in _LITERALS for word in WORD.findall(_KEY.sub("", unit))) and '"' in unit:
            return policy.empty_row_copies * period, kind, "empty rows"
        copies = policy.rich_code_copies if distinct >= 6 else policy.row_copies * (2 if distinct < 4 else 1)
        return max(copies * period, policy.ornament_chars), kind, "row"
    quoted = unit.count('"') == 2 or unit.count("'") == 2
    if quoted and distinct and period < 80:
        copies = policy.quoted_copies if "\\" not in unit or distinct > 2 else policy.literal_copies
        return max(copies * period, 120), kind, "strings"
    if distinct >= 3 and period >= 24:
        copies = policy.code_copies if distinct < 6 or period < 48 else policy.rich_code_copies
        return copies * period, kind, "code"
    if distinct == 2:
        return max(policy.short_code_copies * period, 240), kind, "code"
    return max(policy.literal_copies * period, policy.ornament_chars), kind, "literals"
