"""From the bytes of a body to the JSON object they must be. Pure.

Every refusal says where: line and column, as an editor counts them. Of keys given twice the last one counts, here and
in all that is sent on. Nesting is bounded, so that nothing behind this has to fear it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

MAX_DEPTH: Final = 200
"""Levels of arrays and objects. The deepest published tool schema seen has about 30."""


# one half of a surrogate pair without the other, which UTF-8 cannot carry
_HALF: Final = re.compile(
    rb"\\u[dD][89aAbB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|(?<!\\u[dD][89aAbB][0-9a-fA-F][0-9a-fA-F])\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)


class BodyError(Exception):
    """Why the body cannot be read."""


def decode_object(raw: bytes, headers: Mapping[bytes, bytes]) -> dict[str, Any]:
    """``headers``: the request's, in lower case. The content type is not held against a body that is JSON."""
    encoding = headers.get(b"content-encoding", b"identity").strip().lower()
    if encoding not in (b"", b"identity"):
        raise BodyError(f"a body in content-encoding {encoding.decode('latin-1')!r} is not taken: send it as it is")
    raw = raw.removeprefix(b"\xef\xbb\xbf")
    if not raw.strip():
        raise BodyError("the body is empty, and must be a JSON object")
    try:
        body = msgspec.json.decode(raw)
    except RecursionError:
        raise _too_deep() from None
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise BodyError(_explain(raw, str(error))) from None
    if not isinstance(body, dict):
        kind = {list: "an array", str: "a string", bool: "a truth value", type(None): "null"}.get(
            type(body), "a number"
        )
        raise BodyError(f"the body must be a JSON object, and is {kind}")
    if raw.count(b"{") + raw.count(b"[") > MAX_DEPTH and _deeper(body, MAX_DEPTH):
        raise _too_deep()
    return body


def _too_deep() -> BodyError:
    return BodyError(f"the body is nested more than {MAX_DEPTH} levels deep")


def _deeper(value: Any, limit: int) -> bool:
    level = [value]
    for _ in range(limit):
        below: list[Any] = []
        for one in level:
            below.extend(one.values() if isinstance(one, dict) else one)
        level = [one for one in below if isinstance(one, (dict, list))]
        if not level:
            return False
    return True


def _explain(raw: bytes, message: str) -> str:
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        return f"the body is not UTF-8 text: {_place(raw, error.start)}"
    half = _HALF.search(raw)
    if half is not None and _is_json(raw):
        return f"the body holds half of a surrogate pair, which is no character, at {_place(raw, half.start())}"
    text, mark, tail = message.partition(" (byte ")
    text = text.removeprefix("JSON is malformed: ")
    if mark and tail.rstrip(")").isdigit():
        at = int(tail.rstrip(")")) - text.startswith("trailing characters")  # that one is counted from the next byte
        return f"the body is not JSON: {text} at {_place(raw, at)}"
    if "truncated" in text:
        return f"the body is not JSON: it ends too early, at {_place(raw, len(raw))}"
    return f"the body is not JSON that can be read: {text.partition(' - at ')[0]}"


def _is_json(raw: bytes) -> bool:
    try:
        json.loads(raw)
    except (ValueError, RecursionError):
        return False
    return True


def _place(raw: bytes, at: int) -> str:
    before = raw[:at]
    line = before.count(b"\n") + 1
    column = len(before[before.rfind(b"\n") + 1 :].decode("utf-8", "replace")) + 1
    return f"line {line}, column {column} (byte {at})"
