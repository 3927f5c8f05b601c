"""Trace context: what a caller may send, and what an engine gets."""

from __future__ import annotations

import pytest

from guard.trace.context import TraceContext, attempt_span_id, begin, parse_traceparent

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.mark.parametrize(
    ("header", "wanted"),
    [
        (f"00-{TRACE}-{SPAN}-01", (TRACE, SPAN, True)),
        (f" 00-{TRACE}-{SPAN}-00 ", (TRACE, SPAN, False)),
        (f"00-{TRACE}-{SPAN}-03", (TRACE, SPAN, True)),  # flags of later versions
        (f"01-{TRACE}-{SPAN}-01-what-comes-later", (TRACE, SPAN, True)),
        ("", None),
        ("nonsense", None),
        (f"00-{TRACE}-{SPAN}", None),
        (f"00-{TRACE}-{SPAN}-01-more", None),  # version 00 has no more
        (f"ff-{TRACE}-{SPAN}-01", None),
        (f"00-{'0' * 32}-{SPAN}-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (f"00-{TRACE.upper()}-{SPAN}-01", None),
        (f"00-{TRACE[:-1]}-{SPAN}-01", None),
        (f"00-{TRACE}-{SPAN}-01\n00-{TRACE}-{SPAN}-01", None),
    ],
)
def test_traceparent(header: str, wanted: tuple[str, str, bool] | None) -> None:
    assert parse_traceparent(header) == wanted


def test_a_request_within_a_trace_and_one_of_its_own() -> None:
    random = bytes(range(1, 25))
    inside = begin(f"00-{TRACE}-{SPAN}-00", " vendor=1 ", random)
    assert inside == TraceContext(TRACE, random[16:].hex(), SPAN, False, "vendor=1")
    own = begin("nonsense", "vendor=1", random)
    assert own == TraceContext(random[:16].hex(), random[16:].hex())
    assert parse_traceparent(own.traceparent()) == (own.trace_id, own.span_id, True)
    assert inside.traceparent("1" * 16) == f"00-{TRACE}-{'1' * 16}-00"
    zeros = begin("", "", bytes(24))
    assert int(zeros.trace_id, 16)
    assert int(zeros.span_id, 16)
    with pytest.raises(ValueError, match="24"):
        begin("", "", b"short")


def test_an_attempt_has_a_span_of_its_own_that_anyone_can_work_out() -> None:
    ids = {attempt_span_id(SPAN, choice, attempt) for choice in range(3) for attempt in range(1, 4)}
    assert len(ids) == 9
    assert all(len(one) == 16 and int(one, 16) for one in ids)
    assert attempt_span_id(SPAN, 0, 1) == attempt_span_id(SPAN, 0, 1) != attempt_span_id(TRACE[:16], 0, 1)
