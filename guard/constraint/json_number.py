"""The values of JSON numbers, kept where a float would lose them."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Final

# Numbers that are cut by the end of a piece go on character by character.
MINUS, ZERO, INTEGER, POINT, FRACTION, E, SIGN, EXPONENT = range(8)
_DIGITS: Final = "0123456789"
STEPS: Final[list[dict[str, int]]] = [
    {"0": ZERO, **dict.fromkeys("123456789", INTEGER)},
    {".": POINT, "e": E, "E": E},
    {**dict.fromkeys(_DIGITS, INTEGER), ".": POINT, "e": E, "E": E},
    dict.fromkeys(_DIGITS, FRACTION),
    {**dict.fromkeys(_DIGITS, FRACTION), "e": E, "E": E},
    {**dict.fromkeys(_DIGITS, EXPONENT), "+": SIGN, "-": SIGN},
    dict.fromkeys(_DIGITS, EXPONENT),
    dict.fromkeys(_DIGITS, EXPONENT),
]
WHOLE: Final = frozenset({ZERO, INTEGER, FRACTION, EXPONENT})
_LONGEST_INT: Final = 4000
"""Digits that int() converts without a complaint (its limit is 4300)."""


def number(text: str) -> int | float | Decimal:
    """The value of a JSON number, as a Decimal where a float would lose it to infinity or to zero."""
    if "." not in text and "e" not in text and "E" not in text:
        return int(text) if len(text) < _LONGEST_INT else Decimal(text)
    value = float(text)
    if value - value != 0.0 or (
        value == 0.0 and text.strip("-0.eE+") and any(c in "123456789" for c in _mantissa(text))
    ):
        try:
            return Decimal(text)
        except InvalidOperation:  # an exponent beyond what can be held
            return value
    return value


def _mantissa(text: str) -> str:
    return re.split("[eE]", text, maxsplit=1)[0]
