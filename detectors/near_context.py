"""How much of a repetition a context explains whose copies differ in their numbers and their white space.

Honest data looks the same, so it takes more copies than an exact one, and signs of rows, logs, code and listings raise
the bar. A verse that counts down ends by itself, as a collapse does not: collapses count up. A plan counts its days,
and says of each how far to run: what a number is, counter or data, only many copies show, so it is asked at the bar.
"""

from __future__ import annotations

import itertools
import re
from typing import Final

from detectors.asked import Asked
from detectors.context import LATE_HOLD, LEVEL, SQL, WORD, Judgement, looks_like_code, patient, sung_copies
from detectors.policy import Policy
from detectors.unit import turned

_SEEN_NEAR: Final = 116  # the same of a near-loop, normalised
_VERSES_COUNTED: Final = 6
_DRAWN: Final = re.compile("[\u2500-\u257f]{2}|[-=]{24}")
_MARKED: Final = re.compile(r"[0 .):(\][#-]+")
_EMPTY_NUMBER: Final = re.compile(r"0[.)] ")
_TIME: Final = re.compile(r"0[-/]0[-/]0|0:0:0|0T0|\b0-0\b")
_DOTTED: Final = re.compile(r"0(?:\.0){2,}")  # an address, a version, a section, a date
_ADDRESS: Final = re.compile(r"0(?:\.0){3,}")
_NETWORK: Final = 260  # copies; as many as a list of all the addresses of one has, or a few more
_FIELDS: Final = re.compile(r"(?:^|\s)[A-Z][\w-]{2,}: .{1,60}?\s[A-Z][\w-]{2,}: ")
_MARKER: Final = re.compile(r"(?<!\S)(?:\[0\]|#0|\(0\)|<0>|\$0)|0%")
_IDENTIFIER: Final = re.compile(r"[^\W\d]0|0[^\W\d]")
_NO_GAP: Final = re.compile(r"([\u2e80-\uffff])0|0([\u2e80-\uffff])")
"""Chinese, Japanese and Korean set no gap between a number and the words beside it."""
_LAST_NUMBER: Final = re.compile(r"\d+\Z")
_FENCE: Final = re.compile(r"(?m)^[ \t]*(?:```+|~~~+)([^`\n]*)$")


def judge_near(unit: str, before: str, run: str, asked: Asked, policy: Policy) -> Judgement:
    """``unit`` is normalised: every number is a 0, every gap one space. ``run`` is the text itself, all of it."""
    unit = turned(unit)
    bar, kind, why = _near(unit, run, policy)
    if not why and (sung := sung_copies(WORD.findall(unit), asked, policy)):
        bar, why = _VERSES_COUNTED * sung * len(unit), "song"  # ten green bottles, ninety-nine of beer
    if not why and (left := _counts_down(unit, run)) and left <= policy.countdown_copies:
        bar, why = max(bar, (left + 3) * len(unit)), "countdown"  # it ends by itself, as a collapse does not
    if not why and _in_output(before):
        bar, why = policy.near_output_copies * len(unit), "output"
    if not why and (unit.count("'") + unit.count('"') >= 4 or _DRAWN.search(run[: 4 * len(unit)])):
        why = "data"  # as likely a table as prose: held later
    bar, why = patient(unit, bar, why, asked, policy)
    period = len(unit)
    early = max(2 * period - 36, 84, min(bar - LATE_HOLD, _SEEN_NEAR))
    hold = bar - LATE_HOLD if why else min(bar, early)
    return Judgement(bar, hold, kind, why)


def judge_plan(unit: str, run: str, policy: Policy) -> int:
    """The bar of a plan in characters of ``unit``, which is normalised as ``run`` is not; 0 where it is none.

    One number of a plan goes on by one from copy to copy, and at least one other is data: it neither stays nor goes on
    by the same step throughout. The first copy is left out, as a run may begin within a number, and so is the number at
    the end, of which more may come.
    """
    fields = unit.count("0")
    if fields < 2:
        return 0
    numbers = [int(number) for number in re.findall(r"\d{1,15}", _LAST_NUMBER.sub("", run))][fields:]
    if len(numbers) < 3 * fields:
        return 0
    columns = [numbers[field::fields] for field in range(fields)]
    steps = [{after - before for before, after in itertools.pairwise(column)} for column in columns]
    plan = {1} in steps and any(len(found) > 1 for found in steps)
    return int(policy.row_copies * len(unit) * policy.patience) if plan else 0


def _in_output(before: str) -> bool:
    """Whether a fence or a block of preformatted text is open: what a program printed may well repeat itself."""
    if max(before.rfind("<pre"), before.rfind("<code")) > max(before.rfind("</pre"), before.rfind("</code")):
        return True
    fences = _FENCE.findall(before)
    return bool(fences) and (bool(fences[-1].strip()) or len(fences) % 2 == 1)


def _near(unit: str, run: str, policy: Policy) -> tuple[int, str, str]:
    period = len(unit)
    words = WORD.findall(unit)
    distinct = len({word.lower() for word in words})
    if not words:
        fields = unit.count("0")
        marked = _MARKED.fullmatch(unit) is not None and any(char in "[]()#" for char in unit)
        if fields >= 2 and marked and _counts(run, fields):
            return max((policy.near_copies - 1) * period, 50), "near_loop", ""
        if _EMPTY_NUMBER.fullmatch(unit) and _counts(run, 1) and run.count("\n") * 3 >= len(run.split()) * 2:
            return policy.row_copies * period, "near_loop", "empty items"
        if _ADDRESS.search(unit) and _counts_up(unit, run):
            return (policy.near_row_copies + _NETWORK) * period, "near_loop", "addresses"
        return policy.near_number_chars, "near_loop", "numbers"
    if unit.count("0") > 3 * len(words):
        return policy.near_number_chars, "near_loop", "numbers"
    if _TIME.search(unit) or _FIELDS.search(unit + unit) or LEVEL.search(unit):
        return policy.near_row_copies * period, "near_loop", "log"
    plain = _DOTTED.sub("0", _MARKER.sub("0", unit))
    if SQL.search(unit):
        return policy.near_row_copies * period, "near_loop", "rows"
    spaced = _NO_GAP.sub(r"\1 0 \2", unit) if _counts_up(unit, run) else unit
    if _IDENTIFIER.search(spaced) or looks_like_code(plain):
        if distinct >= 4 and period >= 32 and not looks_like_code(plain.replace('"', "").replace(",", " ")):
            return policy.row_copies * period, "near_loop", "sentences"
        return policy.near_row_copies * period, "near_loop", "rows"
    if _DOTTED.search(unit):
        if distinct < 2 or not _counts_up(unit, run):
            return policy.near_row_copies * period, "near_loop", "log"
        listed = _ADDRESS.search(unit) and (distinct < 3 or period < 28)
        return (_NETWORK if listed else policy.row_copies) * period, "near_loop", "dotted"
    if distinct < 2 and (period < 7 or unit.count("0") > 1):
        return policy.near_row_copies * period, "near_loop", "short"
    rich = period >= 60 and distinct >= 7
    return max((policy.rich_near_copies if rich else policy.near_copies) * period, 76), "near_loop", ""


def _counts_down(unit: str, run: str) -> int:
    """How far a verse that counts down has to go: every number of the unit goes down by one or stays. Else 0."""
    fields = unit.count("0")
    numbers = [int(number) for number in re.findall(r"\d{1,15}", run.rstrip("0123456789"))]
    if not fields or len(numbers) <= fields:
        return 0
    steps = {after - before for before, after in zip(numbers, numbers[fields:], strict=False)}
    return max(numbers[:fields]) if -1 in steps and steps <= {-1, 0} else 0


def _counts_up(unit: str, run: str) -> bool:
    """Whether the numbers of the unit go up by one or stay, and some do go up. Dates are another matter."""
    fields = unit.count("0")
    numbers = [int(number) for number in re.findall(r"\d{1,15}", run.rstrip("0123456789"))]
    steps = {after - before for before, after in zip(numbers, numbers[fields:], strict=False)}
    return 1 in steps and steps <= {0, 1} and not any(1_900 <= number < 2_100 for number in numbers[:fields])


def _counts(run: str, fields: int) -> bool:
    """Whether every number of the unit goes up by one, down by one, or stays, as counters do and data does not."""
    numbers = [int(number) for number in re.findall(r"\d{1,15}", run)]
    if len(numbers) < 3 * fields:
        return False
    for field in range(fields):
        column = numbers[field::fields]
        steps = {after - before for before, after in itertools.pairwise(column[:-1])}
        if len(steps) > 1 or not steps <= {-1, 0, 1}:
            return False
    return True
