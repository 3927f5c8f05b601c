"""Where two answers part ways. Pure.

Text is compared by characters, token ids by position where both runs have them: two engines with one tokenizer may
agree in text and differ in tokens, never the other way round.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

SHOWN = 24


class Difference(Struct, frozen=True):
    """``offset`` is the first character that differs (the length of the shorter answer, when one begins the other).
    ``token``: the first differing token's index, -1 where ids are missing. ``left`` and ``right`` are what stands
    there."""

    offset: int
    token: int
    left: str
    right: str


def first_difference(
    left: str, right: str, left_ids: Sequence[int] = (), right_ids: Sequence[int] = ()
) -> Difference | None:
    """None when the texts are equal."""
    if left == right:
        return None
    offset = common_prefix(left, right)
    token = common_prefix(left_ids, right_ids) if left_ids and right_ids else -1
    return Difference(offset, token, left[offset : offset + SHOWN], right[offset : offset + SHOWN])


def common_prefix(left: Sequence[object], right: Sequence[object]) -> int:
    """The length of the longest common beginning, by bisection over slices (which compare in C)."""
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def agreement(texts: Sequence[str]) -> tuple[int, float]:
    """How many distinct answers there are, and the share of the most frequent one."""
    if not texts:
        return 0, 0.0
    counts = {text: texts.count(text) for text in set(texts)}
    return len(counts), max(counts.values()) / len(texts)
