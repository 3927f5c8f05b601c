"""However a text is cut, its findings and what may be released of it are the same."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors import Detector, Encoding, Panel, Repetition, Whitespace
from tests.corpus.collapse import collapses
from tests.corpus.honest import honest

MAKERS: dict[str, Callable[[bool], Detector]] = {
    "repetition": lambda json: Repetition(json=json),
    "whitespace": lambda json: Whitespace(json=json),
    "encoding": lambda json: Encoding(),
    "panel": lambda json: Panel(json=json),
}

alphabet = st.sampled_from(
    ["a", "b", " ", "\n", "0", "7", ".", "!", "-", "|", '"', "{", "}", "\\", "ö", "Ã¶", "\ufffd", "的"]
)
units = st.lists(alphabet, min_size=1, max_size=40).map("".join)
texts = st.lists(st.tuples(units, st.sampled_from([1, 1, 2, 3, 5, 9, 17, 40])), min_size=1, max_size=5).map(
    lambda parts: "".join(unit * copies for unit, copies in parts)[:3_000]
)


def outcome(detector: Detector, text: str, cuts: list[int]) -> tuple[object, dict[int, int]]:
    """The first error with all that was found before it, and the doubt at every cut, up to the feed that condemned."""
    doubts: dict[int, int] = {}
    found = []
    for low, high in zip([0, *cuts], [*cuts, len(text)], strict=True):
        found += detector.feed(text[low:high])
        doubts[high] = detector.doubt
        if any(f.severity == "error" for f in found):
            break
    else:
        found += detector.finish()
        doubts[len(text) + 1] = detector.doubt
    errors = [f for f in found if f.severity == "error"]
    if not errors:
        return found, doubts
    first = errors[0]
    before = [f for f in found if f.detected_at < first.detected_at]
    return [*before, first], {**doubts, -1: detector.doubt}


def agree(make: Callable[[bool], Detector], text: str, json: bool, rng: random.Random) -> None:
    one, doubts = outcome(make(json), text, list(range(1, len(text))))
    for count in (0, 1, 7, len(text) // 5):
        cuts = sorted(rng.sample(range(1, len(text)), min(count, len(text) - 1))) if len(text) > 1 else []
        other, others = outcome(make(json), text, cuts)
        assert other == one
        assert others.get(-1) == doubts.get(-1)
        for at, doubt in others.items():
            if at in doubts:
                assert doubt == doubts[at], f"doubt after {at} characters"


@pytest.mark.parametrize("name", MAKERS)
@settings(max_examples=40, deadline=None)
@given(text=texts, json=st.booleans(), seed=st.integers(0, 1_000))
def test_any_split_gives_the_same(name: str, text: str, json: bool, seed: int) -> None:
    agree(MAKERS[name], text, json, random.Random(seed))


@pytest.mark.parametrize("name", MAKERS)
def test_any_split_of_the_corpus_gives_the_same(name: str) -> None:
    rng = random.Random(5)
    cases = [(c.text[:3_000], c.json) for c in collapses(2, seed=41)]
    cases += [(document.text[:3_000], False) for document in honest(20, seed=41)]
    for text, json in cases:
        agree(MAKERS[name], text, json, rng)


@pytest.mark.parametrize("name", MAKERS)
@settings(max_examples=40, deadline=None)
@given(text=texts, json=st.booleans())
def test_what_was_cleared_stays_cleared(name: str, text: str, json: bool) -> None:
    detector = MAKERS[name](json)
    last = 0
    for i, char in enumerate(text, 1):
        detector.feed(char)
        assert last <= detector.doubt <= i
        last = detector.doubt
    detector.finish()
    assert last <= detector.doubt <= len(text)
