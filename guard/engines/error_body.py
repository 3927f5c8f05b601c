"""What an engine says when it refuses: its own words out of whatever shape it wraps them in. Pure.

Shapes seen: ``{"error": {"message", "type", "param", "code"}}`` (vLLM, llama.cpp, OpenAI), ``{"error": "text"}``,
``{"object": "error", "message", "param", "code"}`` (SGLang), ``{"detail": "text" | [{"loc", "msg"}]}`` (FastAPI),
``{"message": ...}``, plain text, HTML. What is shown is bounded, is one line where it can be, and keeps no file paths
or line numbers of the engine's own source.
"""

from __future__ import annotations

import email.utils
import html
import json
import re
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

MAX_MESSAGE: Final = 1000
"""Characters of an engine's message that are kept."""

LONGEST_RETRY_AFTER: Final = 3600.0
"""Seconds. An engine that asks for more is taken to ask for this: a clock that is wrong, or a date in another century,
must not send callers away for good."""

_SOURCE_LINE: Final = re.compile(r'\n*[ \t]*File "[^"\n]*", line \d+(?:, in [^\n]*)?(?:\n[^\n]*)?')
_TAGS: Final = re.compile(r"<(script|style)\b.*?</\1\s*>|<[^>]*>", re.DOTALL | re.IGNORECASE)
_TITLE: Final = re.compile(r"<title[^>]*>(.*?)</title", re.DOTALL | re.IGNORECASE)


class EngineMessage(NamedTuple):
    message: str
    status: int | None = None
    param: str = ""


def read_error_body(body: bytes, content_type: str = "") -> EngineMessage:
    """The message in an error response; never raises, and is empty only where the body is."""
    text = body.decode("utf-8", "replace").strip()
    if text[:1] in ("{", "["):
        try:
            found = error_message(json.loads(text))
        except (ValueError, RecursionError):
            found = None
        if found is not None:
            return found
    if "html" in content_type or text[:1] == "<":
        title = _TITLE.search(text)
        text = html.unescape(_TAGS.sub(" ", title.group(1) if title else text))
        text = " ".join(text.split())
    return EngineMessage(_shorten(text))


def error_message(value: Any) -> EngineMessage | None:
    """The message in a decoded object that is an error in any of the shapes; None where it is none of them."""
    if isinstance(value, list) and len(value) == 1:  # some gateways wrap the error in a list
        value = value[0]
    if not isinstance(value, dict):
        return None
    inner = value.get("error")
    if isinstance(inner, dict):
        text = _text(inner.get("message")) or _text(inner.get("detail")) or _text(inner.get("type")) or _dump(inner)
        return EngineMessage(_shorten(text), _status(inner, value), _text(inner.get("param")))
    if inner:
        more = _text(value.get("message"))
        text = _text(inner) if not more else f"{_text(inner)}: {more}"
        return EngineMessage(_shorten(text or _dump(inner)), _status(value), _text(value.get("param")))
    if value.get("object") == "error" or ("message" in value and "choices" not in value):
        text = _text(value.get("message")) or _dump(value)
        return EngineMessage(_shorten(text), _status(value), _text(value.get("param")))
    if "detail" in value and "choices" not in value:
        return _detail(value["detail"])
    return None


def _detail(detail: Any) -> EngineMessage:
    """FastAPI: a text, or a list of {loc, msg}."""
    if isinstance(detail, list):
        parts: list[str] = []
        param = ""
        for item in detail:
            if not isinstance(item, dict):
                parts.append(_text(item) or _dump(item))
                continue
            loc = item.get("loc")
            where = ".".join(str(part) for part in loc if part != "body") if isinstance(loc, list) else ""
            text = _text(item.get("msg")) or _dump(item)
            param = param or where
            parts.append(f"{where}: {text}" if where else text)
        return EngineMessage(_shorten("; ".join(parts)), None, param)
    if isinstance(detail, dict):
        return error_message({"error": detail}) or EngineMessage(_shorten(_dump(detail)))
    return EngineMessage(_shorten(_text(detail) or _dump(detail)))


def retry_after_seconds(value: str, now: datetime | None = None) -> float | None:
    """A Retry-After header: seconds, or an HTTP date (then counted from ``now``), at most ``LONGEST_RETRY_AFTER``. None
    where it is neither."""
    value = value.strip()
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        pass
    else:
        return min(seconds, LONGEST_RETRY_AFTER) if seconds >= 0 else None  # and NaN is none
    try:
        date = email.utils.parsedate_to_datetime(value)
    except (ValueError, TypeError, IndexError):
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return min(max(0.0, (date - (now or datetime.now(UTC))).total_seconds()), LONGEST_RETRY_AFTER)


def _status(*places: dict[str, Any]) -> int | None:
    for place in places:
        for key in ("code", "status", "status_code"):
            value = place.get(key)
            if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) == 3:
                value = int(value)
            if isinstance(value, int) and not isinstance(value, bool) and 100 <= value <= 599:
                return value
    return None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _shorten(text: str) -> str:
    text = _SOURCE_LINE.sub("", text).strip()
    text = text.encode("utf-8", "replace").decode("utf-8")  # a lone surrogate could not be passed on
    return text if len(text) <= MAX_MESSAGE else text[: MAX_MESSAGE - 1] + "…"
