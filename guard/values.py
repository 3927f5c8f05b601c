"""Plain values of a request body, each checked for its kind, with the path of the field in the error. Pure.

``null`` is not set. Whole numbers may come as 1.0 (some clients know one kind of number); text never counts as a
number, nor a number as a truth value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from guard.request import RequestError


def text(value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise wrong(path, "a string", value)
    return value


def boolean(body: Mapping[str, Any], name: str, path: str = "") -> bool | None:
    value = body.get(name)
    if value is None or isinstance(value, bool):
        return value
    raise wrong(path or name, "true or false", value)


def number(
    body: Mapping[str, Any], name: str, low: float = -math.inf, high: float = math.inf, *, path: str = ""
) -> float | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise wrong(path or name, "a number", value)
    if not low <= value <= high:
        raise RequestError(f"must be between {low} and {high}, and is {shown(value)}", path or name, "out_of_range")
    return value


def integer(body: Mapping[str, Any], name: str, low: int, high: int, *, path: str = "") -> int | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong(path or name, "a whole number", value)
    if value < low:
        raise RequestError(f"must be at least {low}, and is {shown(value)}", path or name, "out_of_range")
    if value > high:
        raise RequestError(f"must be at most {high}, and is {shown(value)}", path or name, "out_of_range")
    return value


def wrong(path: str, expected: str, value: Any) -> RequestError:
    return RequestError(f"must be {expected}, and is {shown(value)}", path, "invalid_type")


def shown(value: Any) -> str:
    """A short picture of a wrong value; of text only so much that the caller knows it again."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value) if abs(value) < 1e30 else "a number out of all range"
        case str():
            return repr(value) if len(value) <= 40 else f"a string of {len(value)} characters"
        case list() | tuple():
            return f"a list of {len(value)}"
        case dict():
            return "an object"
    return f"a {type(value).__name__}"
