"""W3C trace context: reading a caller's, and making the one that an engine gets. Pure: random bytes are given in."""

from __future__ import annotations

import hashlib
import re
from typing import Final, NamedTuple

_FORM: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")

RANDOM_BYTES: Final = 24
"""How many random bytes ``begin`` wants."""


class TraceContext(NamedTuple):
    """``trace_id`` has 32 hex digits, the span ids 16; ``parent_span_id`` is empty where nobody called us with one.
    ``sampled`` is the caller's wish about spans; rows are kept either way."""

    trace_id: str
    span_id: str
    parent_span_id: str = ""
    sampled: bool = True
    state: str = ""

    def traceparent(self, span_id: str = "") -> str:
        """For the next hop; ``span_id`` of the attempt that calls it."""
        return f"00-{self.trace_id}-{span_id or self.span_id}-{'01' if self.sampled else '00'}"


class Parent(NamedTuple):
    """What a caller's traceparent says: its trace, its own span, and whether it wants spans."""

    trace_id: str
    span_id: str
    sampled: bool


def parse_traceparent(header: str) -> Parent | None:
    """None for what is no valid traceparent, which is then as good as absent."""
    match = _FORM.fullmatch(header.strip())
    if match is None:
        return None
    version, trace_id, span_id, flags, more = match.groups()
    if version == "ff" or (version == "00" and more):
        return None
    if not int(trace_id, 16) or not int(span_id, 16):
        return None
    return Parent(trace_id, span_id, bool(int(flags, 16) & 1))


def begin(traceparent: str, tracestate: str, random: bytes) -> TraceContext:
    """The context of a request: within the caller's trace, or a new one."""
    if len(random) < RANDOM_BYTES:
        raise ValueError(f"needs {RANDOM_BYTES} random bytes")
    span_id = _nonzero(random[16:24]).hex()
    parent = parse_traceparent(traceparent)
    if parent is None:
        return TraceContext(_nonzero(random[:16]).hex(), span_id)
    return TraceContext(parent.trace_id, span_id, parent.span_id, parent.sampled, tracestate.strip()[:512])


def attempt_span_id(span_id: str, choice: int, attempt: int) -> str:
    """The span of one attempt, known to whoever knows the request's: it is never stored."""
    digest = hashlib.blake2b(f"{span_id}/{choice}/{attempt}".encode(), digest_size=8).digest()
    return _nonzero(digest).hex()


def _nonzero(data: bytes) -> bytes:
    """All zeros are no id."""
    return data if any(data) else data[:-1] + b"\x01"
