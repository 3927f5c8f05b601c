"""Levenshtein's distance, bit-parallel: one column of the table is one integer. Pure.

Myers 1999 in Hyyrö's form (2003), on integers as long as the shorter sequence: n steps of m/64 words each. Two answers
of 2,000 tokens take about 5 ms. Works on any sequences of hashable items.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence


def edit_distance(left: Sequence[Hashable], right: Sequence[Hashable]) -> int:
    """The least number of items inserted, deleted or replaced that makes one the other."""
    pattern, text = (left, right) if len(left) <= len(right) else (right, left)
    start = 0
    while start < len(pattern) and pattern[start] == text[start]:
        start += 1
    end = 0
    while end < len(pattern) - start and pattern[-1 - end] == text[-1 - end]:
        end += 1
    pattern, text = pattern[start : len(pattern) - end], text[start : len(text) - end]
    distance = len(pattern)
    if not distance:
        return len(text)
    places: dict[Hashable, int] = {}
    for place, item in enumerate(pattern):
        places[item] = places.get(item, 0) | 1 << place
    full, last = (1 << distance) - 1, 1 << (distance - 1)
    up, down = full, 0  # where a cell is one more, one less, than the cell above it
    for item in text:
        equal = places.get(item, 0)
        diagonal = (((equal & up) + up) ^ up) | equal | down
        more = down | ~(diagonal | up) & full
        less = up & diagonal
        if more & last:
            distance += 1
        elif less & last:
            distance -= 1
        more = (more << 1 | 1) & full
        less = less << 1 & full
        up = less | ~(diagonal | more) & full
        down = more & diagonal
    return distance
