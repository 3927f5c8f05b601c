"""Frames: whatever was written is found again, and damage costs only the records it hit."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from guard.trace.frames import HEADER, REQUEST, Damage, Frame, Tail, scan, seal, seed_of

SEED = seed_of("00000000000000000001-abcdef01")


def framed(*payloads: bytes) -> bytes:
    out = b""
    for payload in payloads:
        buffer = bytearray(HEADER) + payload
        seal(buffer, REQUEST, len(payload), SEED)
        out += bytes(buffer)
    return out


def walk(data: bytes) -> tuple[list[bytes], list[Damage], list[Tail]]:
    found = list(scan(memoryview(data), SEED))
    return (
        [bytes(item.payload) for item in found if isinstance(item, Frame)],
        [item for item in found if isinstance(item, Damage)],
        [item for item in found if isinstance(item, Tail)],
    )


def test_whole_records_are_found_with_their_places() -> None:
    data = framed(b"one", b"", b"three")
    frames = [item for item in scan(memoryview(data), SEED, base=100) if isinstance(item, Frame)]
    assert [bytes(frame.payload) for frame in frames] == [b"one", b"", b"three"]
    assert (frames[0].start, frames[0].end, frames[-1].end) == (100, 100 + HEADER + 3, 100 + len(data))


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=6), st.data())
@settings(max_examples=60, deadline=None)
def test_a_cut_file_keeps_every_whole_record_and_has_one_tail(payloads: list[bytes], data: st.DataObject) -> None:
    whole = framed(*payloads)
    cut = data.draw(st.integers(0, len(whole)))
    ends = [len(framed(*payloads[: i + 1])) for i in range(len(payloads))]
    kept = sum(end <= cut for end in ends)
    records, damage, tails = walk(whole[:cut])
    assert records == payloads[:kept]
    assert not damage
    start = ends[kept - 1] if kept else 0
    assert tails == ([Tail(start)] if cut > start else [])


@given(st.lists(st.binary(min_size=1, max_size=60), min_size=3, max_size=6), st.data())
@settings(max_examples=80, deadline=None)
def test_a_flipped_byte_costs_one_record_and_is_named(payloads: list[bytes], data: st.DataObject) -> None:
    whole = bytearray(framed(*payloads))
    place = data.draw(st.integers(0, len(framed(*payloads[:-1])) - 1))
    hit = next(i for i in range(len(payloads)) if place < len(framed(*payloads[: i + 1])))
    whole[place] ^= data.draw(st.integers(1, 255))
    records, damage, tails = walk(bytes(whole))
    assert records == payloads[:hit] + payloads[hit + 1 :]
    assert not tails
    start = len(framed(*payloads[:hit]))
    assert [(item.start, item.end) for item in damage] == [(start, start + HEADER + len(payloads[hit]))]


def test_a_record_cut_short_in_the_middle_does_not_swallow_the_ones_behind_it() -> None:
    first, torn, last = framed(b"first"), framed(b"t" * 50)[:30], framed(b"last")
    records, damage, tails = walk(first + torn + last)
    assert records == [b"first", b"last"]
    assert [(item.start, item.end) for item in damage] == [(len(first), len(first) + 30)]
    assert not tails


def test_bytes_that_are_no_segment_are_one_tail() -> None:
    assert walk(b"hello, this is no segment at all") == ([], [], [Tail(0)])


def test_a_text_that_imitates_a_record_of_another_segment_is_no_record() -> None:
    forged = bytearray(HEADER) + b"forged"
    seal(forged, REQUEST, 6, seed_of("00000000000000000002-00000000"))
    data = framed(b"an answer that holds " + bytes(forged), b"next")
    broken = bytearray(data)
    broken[HEADER] ^= 1
    records, damage, _ = walk(bytes(broken))
    assert records == [b"next"]
    assert len(damage) == 1
