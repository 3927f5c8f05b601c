"""The corpus is the same for the same seed, its halves share nothing, and what it says of itself is true."""

from __future__ import annotations

from math import isclose

from tests.bench.baselines import RULES, exact_suffix, identical_chunks, pieces
from tests.bench.interval import interval
from tests.corpus.clean import documents
from tests.corpus.collapse import EXACT, KINDS, collapses
from tests.corpus.honest import honest


def test_the_same_seed_gives_the_same() -> None:
    assert list(collapses(2, seed=3)) == list(collapses(2, seed=3))
    assert list(collapses(1, seed=3)) != list(collapses(1, seed=4))
    assert list(honest(20, seed=3)) == list(honest(20, seed=3))
    assert list(documents("tuning", 20, seed=3)) == list(documents("tuning", 20, seed=3))


def test_the_halves_share_no_text() -> None:
    tuning = {document.text for document in documents("tuning", 60, seed=3)}
    test = {document.text for document in documents("test", 60, seed=3)}
    assert tuning
    assert test
    assert not tuning & test
    assert all(2_000 <= len(text) <= 20_000 for text in tuning | test)


def test_a_collapse_is_what_it_says() -> None:
    kinds = set()
    for collapse in collapses(3, seed=9):
        kinds.add(collapse.kind)
        if collapse.kind in EXACT:
            unit = collapse.text[collapse.onset : collapse.onset + collapse.period]
            assert collapse.text[collapse.onset + collapse.period :].startswith(unit * 12)
    assert kinds == set(KINDS)


def test_pieces_add_up() -> None:
    for document in honest(40, seed=5):
        assert "".join(pieces(document.text)) == document.text


def test_the_other_rules() -> None:
    assert exact_suffix(list("abcdxyxyxyxyxy"), count=4) == 12
    assert exact_suffix(list("abcdefgh"), count=4) is None
    assert identical_chunks([" the"] * 100) == 400
    assert identical_chunks(["a"] * 200) is None
    assert all(rule(pieces("Nothing is said twice here.")) is None for rule in RULES.values())


def test_intervals_are_those_of_clopper_and_pearson() -> None:
    assert interval(0, 0) == (0.0, 1.0)
    for hits, total, low, high in (
        (0, 10, 0.0, 0.30850),
        (5, 10, 0.18709, 0.81291),
        (10, 10, 0.69150, 1.0),
        (1, 30_000, 8.44e-7, 1.857e-4),
    ):
        found = interval(hits, total)
        assert isclose(found[0], low, rel_tol=2e-3, abs_tol=1e-9)
        assert isclose(found[1], high, rel_tol=2e-3)
