"""Sketches: how close their guesses come to what the texts would have said, and that they say nothing else."""

from __future__ import annotations

import os
import random
import statistics

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.trace.sketch import GRAMS, WORDS, first_difference, lengths, similarity, sketch

KEY = b"a key of tests"
VOCABULARY = [f"word{n}" for n in range(2_000)]


def prose(draw: random.Random, words: int) -> list[str]:
    return [draw.choice(VOCABULARY) for _ in range(words)]


def jaccard(one: list[str], other: list[str]) -> float:
    a, b = ({tuple(words[n : n + WORDS]) for n in range(len(words) - WORDS + 1)} for words in (one, other))
    return len(a & b) / len(a | b)


@pytest.mark.parametrize("words", [30, 300, 3_000])
@pytest.mark.parametrize("changed", [0.0, 0.02, 0.1, 0.5, 1.0])
def test_similarity_is_about_that_of_the_texts(words: int, changed: float) -> None:
    draw = random.Random(words + round(changed * 100))
    errors = []
    for _ in range(30):
        one = prose(draw, words)
        other = [draw.choice(VOCABULARY) if draw.random() < changed else word for word in one]
        guess = similarity(sketch(KEY, " ".join(one)), sketch(KEY, " ".join(other)))
        errors.append(guess - jaccard(one, other))
    assert abs(statistics.mean(errors)) < 0.05
    assert statistics.pstdev(errors) < 0.09
    if changed in (0.0, 1.0):
        assert max(map(abs, errors)) < 0.02


def test_a_part_of_a_text_and_the_whole() -> None:
    draw = random.Random(5)
    errors = []
    for _ in range(30):
        one = prose(draw, 600)
        other = one[:200]
        guess = similarity(sketch(KEY, " ".join(one)), sketch(KEY, " ".join(other)))
        errors.append(guess - jaccard(one, other))
    assert abs(statistics.mean(errors)) < 0.05


def test_text_without_spaces() -> None:
    draw = random.Random(7)
    one = "".join(chr(draw.randrange(0x4E00, 0x4F00)) for _ in range(500))
    other = one[:250] + "".join(chr(draw.randrange(0x4E00, 0x4F00)) for _ in range(250))
    assert similarity(sketch(KEY, one), sketch(KEY, one)) == 1.0
    assert 0.2 < similarity(sketch(KEY, one), sketch(KEY, other)) < 0.5


@given(st.text(max_size=400), st.text(max_size=400), st.text(max_size=400))
def test_the_first_difference_lies_where_it_is_said_to(common: str, one: str, other: str) -> None:
    a, b = (common + one).encode(), (common + other).encode()
    found = first_difference(sketch(KEY, a), sketch(KEY, b))
    if a == b:
        assert found is None
        return
    assert found is not None
    real = next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    assert found.start <= real < found.end
    assert first_difference(sketch(KEY, b), sketch(KEY, a)) == found


@pytest.mark.parametrize("at", [0, 10, 100, 1_000, 9_999])
def test_the_stretch_is_at_most_half_as_long_as_what_is_before_it(at: int) -> None:
    text = bytearray(random.Random(1).randbytes(10_000))
    other = bytearray(text)
    other[at] ^= 1
    found = first_difference(sketch(KEY, bytes(text)), sketch(KEY, bytes(other)))
    assert found is not None
    assert found.start <= at < found.end
    assert found.end - found.start <= max(16, found.start // 2)


@given(st.integers(0, 10**7))
def test_lengths_ascend_to_the_whole(most: int) -> None:
    found = list(lengths(most))
    assert found == sorted(set(found))
    assert found[-1] == most
    assert len(found) < 45


@given(st.text(max_size=300))
def test_what_is_the_same_is_said_to_be(text: str) -> None:
    one = sketch(KEY, text)
    assert one == sketch(KEY, text)
    assert first_difference(one, one) is None
    assert similarity(one, one) == 1.0


def test_without_the_key_nothing_matches() -> None:
    one, other = sketch(KEY, "the cat sat on the mat"), sketch(b"another", "the cat sat on the mat")
    assert not set(one.prefixes) & set(other.prefixes)
    assert not set(one.grams) & set(other.grams)


def test_it_is_small_however_long_the_text() -> None:
    text = " ".join(prose(random.Random(3), 100_000))
    made = sketch(KEY, text)
    assert len(made.grams) == GRAMS
    assert 4 * (len(made.grams) + len(made.prefixes)) < 450
    assert len(msgspec.msgpack.encode(made)) < 700


@pytest.mark.parametrize("text", ["", " ", "one", "one two", "\ud800 half", os.urandom(50)])
def test_odd_texts(text: str | bytes) -> None:
    made = sketch(KEY, text)
    assert first_difference(made, made) is None
    assert similarity(made, sketch(KEY, "quite another text than that one")) < 0.1
