"""The event stream reader: the standard's cases, and any split gives the same events."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.engines.sse import SseReader

CASES = {
    "one": (b"data: a\n\n", [("", b"a")]),
    "no space": (b"data:a\n\n", [("", b"a")]),
    "two spaces": (b"data:  a\n\n", [("", b" a")]),
    "several": (b"data: a\n\ndata: b\n\n", [("", b"a"), ("", b"b")]),
    "crlf": (b"data: a\r\n\r\ndata: b\r\n\r\n", [("", b"a"), ("", b"b")]),
    "cr": (b"data: a\r\rdata: b\r\r", [("", b"a"), ("", b"b")]),
    "mixed ends": (b"data: a\r\n\ndata: b\n\r\ndata: c\r\n\r", [("", b"a"), ("", b"b"), ("", b"c")]),
    "lines joined": (b"data: a\ndata: b\n\n", [("", b"a\nb")]),
    "empty data": (b"data\n\ndata:\n\n", [("", b""), ("", b"")]),
    "comments": (b": ping\n\ndata: a\n: pong\ndata: b\n\n:\n\n", [("", b"a\nb")]),
    "fields": (b"id: 7\nevent: delta\nretry: 10\ndata: a\n\ndata: b\n\n", [("delta", b"a"), ("", b"b")]),
    "unknown field": (b"x-trace: 1\nfoo: bar\ndata: a\n\n", [("", b"a")]),
    "event without data": (b"event: ping\n\ndata: a\n\n", [("", b"a")]),
    "error without data": (b"event: error\n\n", [("error", b"")]),
    "error in a comment": (b": a\n\n: b\nevent: error\n: c\n\nevent: error\n\n", [("error", b"c"), ("error", b"")]),
    "error field": (b'error: {"message":"x"}\n\n', [("error", b'{"message":"x"}')]),
    "byte order mark": (b"\xef\xbb\xbfdata: a\n\n", [("", b"a")]),
    "mark only at the start": (b"data: a\n\ndata: \xef\xbb\xbfb\n\n", [("", b"a"), ("", b"\xef\xbb\xbfb")]),
    "no empty line at the end": (b"data: a\n\ndata: b\n", [("", b"a"), ("", b"b")]),
    "no line end at the end": (b"data: a\n\ndata: b", [("", b"a"), ("", b"b")]),
    "many empty lines": (b"\n\n\ndata: a\n\n\n\n\n", [("", b"a")]),
    "colons in data": (b"data: a: b:c\n\n", [("", b"a: b:c")]),
    "no utf-8": (b"data: \xff\xfe\x80\n\n", [("", b"\xff\xfe\x80")]),
    "nothing": (b"", []),
}
BROKEN = {
    "html": (b"data: a\n\n<html>\n\n", [("", b"a")]),
    "text": (b"Internal Server Error\n\ndata: a\n\n", []),
    "json": (b'data: a\n\n{"error": 1}\ndata: b\n\n', [("", b"a")]),
    "binary": (b"\x80\x81\x82\n", []),
    "heading": (b"Traceback: x\n", []),
    "half a mark": (b"\xef\xbb\n", []),
}


def read(pieces: list[bytes], limit: int = 1000) -> tuple[list[tuple[str, bytes]], str | None]:
    reader = SseReader(limit)
    events = [event for piece in pieces for event in reader.feed(piece)]
    return events + reader.finish(), reader.broken


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    at = sorted({c % (len(data) + 1) for c in cuts})
    return [data[a:b] for a, b in zip([0, *at], [*at, len(data)], strict=True)]


@pytest.mark.parametrize(("data", "events"), CASES.values(), ids=CASES.keys())
def test_whole_byte_by_byte_and_cut_once(data: bytes, events: list[tuple[str, bytes]]) -> None:
    assert read([data]) == (events, None)
    assert read([data[i : i + 1] for i in range(len(data))]) == (events, None)
    for i in range(len(data)):
        assert read([data[:i], data[i:]]) == (events, None)


@pytest.mark.parametrize(("data", "events"), BROKEN.values(), ids=BROKEN.keys())
def test_a_line_that_is_no_field_ends_it(data: bytes, events: list[tuple[str, bytes]]) -> None:
    for pieces in ([data], [data[i : i + 1] for i in range(len(data))]):
        found, broken = read(pieces)
        assert found == events
        assert broken is not None
        assert "no server-sent event" in broken


def test_nothing_comes_after_the_break() -> None:
    reader = SseReader()
    assert reader.feed(b"<p>\n") == []
    assert reader.feed(b"data: a\n\n") == []
    assert reader.finish() == []


@pytest.mark.parametrize(
    "data",
    [
        b"data: " + b"x" * 100 + b"\n\n",
        b"data: " + b"x" * 100,
        b"data: xxxxxxxxxx\n" * 20 + b"\n",
        b": " + b"x" * 100,
    ],
)
def test_an_event_has_a_limit(data: bytes) -> None:
    for step in (1, 7, len(data)):
        _, broken = read([data[i : i + step] for i in range(0, len(data), step)], limit=80)
        assert broken == "an event longer than 80 bytes"


def test_many_events_are_no_long_event() -> None:
    data = b"data: xxxxxxxxxx\n\n" * 50
    assert read([data], limit=80) == ([("", b"xxxxxxxxxx")] * 50, None)


def test_finish_twice_gives_nothing_more() -> None:
    reader = SseReader()
    reader.feed(b"data: a")
    assert reader.finish() == [("", b"a")]
    assert reader.finish() == []


LINES = st.lists(
    st.sampled_from(
        [
            b"data: a",
            b"data:b",
            b"data: \xc3\xa9",
            b"data",
            b": c",
            b"event: e",
            b"event: error",
            b"id: 1",
            b"",
            b"",
            b"",
        ]
    ),
    max_size=25,
)
ENDS = st.lists(st.sampled_from([b"\n", b"\r\n", b"\r"]), min_size=25, max_size=25)


@given(LINES, ENDS, st.lists(st.integers(0, 400), max_size=8), st.booleans())
def test_any_split_gives_the_same(lines: list[bytes], ends: list[bytes], cuts: list[int], mark: bool) -> None:
    data = (b"\xef\xbb\xbf" if mark else b"") + b"".join(a + b for a, b in zip(lines, ends, strict=False))
    assert read(split(data, cuts)) == read([data]) == read([data[i : i + 1] for i in range(len(data))])


@given(st.binary(max_size=60), st.lists(st.integers(0, 60), max_size=6))
def test_any_bytes_any_split(data: bytes, cuts: list[int]) -> None:
    assert read(split(data, cuts), limit=30) == read([data], limit=30)
