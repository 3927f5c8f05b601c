"""Where two answers part ways."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay.compare import (
    Difference,
    agreement,
    agreement_of,
    answer_keys,
    common_prefix,
    compare,
    first_difference,
    same_answer,
    same_prompt,
)
from replay.margins import drawn
from replay.observation import Alternative, Cell, Counts, Found, Observation
from replay.results import Agreement, Divergence
from tests.replay.answers import spoken


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ("same", "same", None),
        ("", "", None),
        ("abc", "abd", Difference(2, -1, "c", "d")),
        ("abc", "ab", Difference(2, -1, "c", "")),
        ("", "x", Difference(0, -1, "", "x")),
    ],
)
def test_first_difference(left: str, right: str, expected: Difference | None) -> None:
    assert first_difference(left, right) == expected


def test_tokens_are_compared_where_both_are_known() -> None:
    assert first_difference("ab", "ac", [1, 2], [1, 3]) == Difference(1, 1, "b", "c")
    assert first_difference("ab", "ac", [1, 2], []) == Difference(1, -1, "b", "c")


@given(st.text(alphabet="ab", max_size=50), st.text(alphabet="ab", max_size=50))
def test_common_prefix_is_what_a_loop_would_count(left: str, right: str) -> None:
    expected = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        expected += 1
    assert common_prefix(left, right) == expected


@pytest.mark.parametrize(("texts", "expected"), [([], (0, 0.0)), (["a"], (1, 1.0)), (["a", "a", "b", "c"], (3, 0.5))])
def test_agreement(texts: list[str], expected: tuple[int, float]) -> None:
    assert agreement(texts) == expected


# --- observations ----------------------------------------------------------------------------------------------------

TIE = [("home", -0.7), ("away", -0.75)]
SURE = [("home", -0.01), ("away", -5.0)]
ABSENT = [("home", -0.01), ("here", -6.0)]


def seam(left: Observation, right: Observation) -> Divergence:
    found = compare(left, right).divergence
    assert found is not None
    return found


def test_equal_answers() -> None:
    both = compare(spoken("we go home"), spoken("we go home", repeat=1))
    assert (both.same, both.divergence, both.edit_distance, both.agreed_tokens) == (True, None, 0, 1.0)


def test_the_first_differing_token_and_what_is_counted_over_the_rest() -> None:
    left = spoken("we go home now", findings=(Found("leak.token"), Found("empty.answer")))
    right = spoken("we go away now then", finish_reason="length", findings=(Found("leak.token"),))
    both = compare(left, right)
    assert both.divergence is not None
    assert (both.divergence.token, both.divergence.byte, both.divergence.channel) == (2, 6, "content")
    assert (both.divergence.left.text, both.divergence.right.text) == ("home now ", "away now then ")
    assert (both.unit, both.edit_distance, both.length_left, both.length_right) == ("tokens", 2, 4, 5)
    assert both.agreed_tokens == 3 / 5
    assert (both.finish_left, both.finish_right) == ("stop", "length")
    assert (both.findings_both, both.findings_left, both.findings_right) == (("leak.token",), ("empty.answer",), ())


@pytest.mark.parametrize(
    ("left", "right", "kind"),
    [
        (TIE, TIE, "near"),
        (TIE, SURE, "wide"),  # in both runs, or it is no near tie
        (SURE, SURE, "wide"),
        (ABSENT, TIE, "outside"),
        (TIE, [("away", -0.1), ("by", -0.2)], "unknown"),  # too short a list, all within rounding
    ],
)
def test_margins_at_the_seam(left: Any, right: Any, kind: str) -> None:
    one, other = spoken("we go home", steps={2: left}), spoken("we go away", steps={2: right})
    assert seam(one, other).kind == kind
    assert seam(other, one).kind == kind


def test_a_margin_is_the_runs_own_token_less_the_others() -> None:
    found = seam(spoken("we go home", steps={2: TIE}), spoken("we go away", steps={2: TIE}))
    assert found.left.margin == pytest.approx(0.05)
    assert found.right.margin == pytest.approx(-0.05)
    assert (found.left.rank, found.left.other_rank, found.right.rank) == (0, 1, 1)


def test_what_is_near_in_bf16_is_wide_in_f32() -> None:
    cell = Cell("a", precision="f32")
    assert seam(spoken("x home", cell, steps={1: TIE}), spoken("x away", cell, steps={1: TIE})).kind == "wide"
    assert seam(spoken("x home", cell, steps={1: TIE}), spoken("x away", steps={1: TIE})).kind == "near"


def test_without_logprobs_on_a_side_nothing_is_called_near() -> None:
    found = seam(spoken("we go home", steps={2: TIE}), spoken("we go away", logprobs=False))
    assert found.kind == "unknown"
    assert found.right.margin is None


def test_an_answer_that_is_over_has_no_token_at_the_seam() -> None:
    found = seam(spoken("we go"), spoken("we go home"))
    assert (found.token, found.left.token_id, found.left.text, found.right.text) == (2, -1, "", "home ")
    assert found.kind == "unknown"


def test_an_end_mark_that_only_one_engine_names_is_no_difference() -> None:
    plain = spoken("we go")
    marked = msgspec.structs.replace(plain, token_ids=(*plain.token_ids, 2), pieces=(*plain.pieces, b""))
    assert same_answer(plain, marked)
    assert agreement_of([plain, marked, plain]).distinct == 1
    longer = spoken("we go on", finish_reason="length")
    assert not same_answer(plain, longer)


def test_answers_of_other_tokenizers_are_aligned_by_bytes() -> None:
    left = spoken("unbelievable luck today", tokenizer_hash="x", steps={1: [("luck", -0.7), ("lack", -0.8)]})
    cut = (b"unbe", b"liev", b"able ", b"lack ", b"today ")
    right = msgspec.structs.replace(
        spoken("unbelievable lack today"),
        tokenizer_hash="y",
        token_ids=(1, 2, 3, 4, 5),
        pieces=cut,
        logprobs=(0.0, 0.0, 0.0, -0.7, 0.0),
        top=((), (), (), (Alternative(4, b"lack ", -0.7), Alternative(9, b"luck ", -0.75)), ()),
    )
    found = seam(left, right)
    assert (found.byte, found.left.token_index, found.right.token_index) == (14, 1, 3)
    assert found.kind == "near"
    assert compare(left, right).unit == "characters"


def test_tokens_that_begin_at_different_bytes_have_no_margins() -> None:
    left = spoken("in side", tokenizer_hash="x", steps={0: [("in", -0.1), ("into", -0.2)]})
    right = msgspec.structs.replace(
        spoken("in sight"), tokenizer_hash="y", pieces=(b"in s", b"ight "), token_ids=(1, 2), logprobs=(0.0, 0.0)
    )
    assert seam(left, right).kind == "unknown"


@given(st.text(alphabet="abé", max_size=20), st.text(alphabet="abé", max_size=20), st.data())
def test_however_the_bytes_are_cut_the_seam_is_the_first_differing_byte(left: str, right: str, data: Any) -> None:
    def cut(text: str, name: str) -> Observation:
        whole = text.encode()
        places = sorted(data.draw(st.sets(st.integers(1, max(1, len(whole) - 1)))))
        pieces = [whole[a:b] for a, b in itertools.pairwise([0, *places, len(whole)])]
        return Observation(
            request_id="r",
            cell=Cell(name),
            text={},
            pieces=tuple(piece for piece in pieces if piece),
            tokenizer_hash=name,
        )

    one, other = cut(left, "x"), cut(right, "y")
    if one.pieces and other.pieces and left != right:
        assert seam(one, other).byte == common_prefix(left.encode(), right.encode())


def test_fingerprints_say_equal_or_not_and_no_more() -> None:
    one = Observation(request_id="r", cell=Cell("a"), fingerprint="aa", counts=Counts(3, 9))
    both = compare(one, msgspec.structs.replace(one, fingerprint="bb"))
    assert (both.same, both.unit, both.edit_distance, both.divergence) == (False, "fingerprint", None, None)
    assert both.length_left == 9
    assert compare(one, one).same


def test_a_mix_of_retentions_is_compared_on_what_all_have() -> None:
    full = spoken("yes", fingerprint="aa")
    hashed = Observation(request_id="r", cell=Cell("a"), fingerprint="aa")
    assert answer_keys([full, hashed]) == ["aa", "aa"]


def test_answers_to_different_requests_are_not_compared() -> None:
    with pytest.raises(ValueError, match="two requests, r and s"):
        compare(spoken("x"), spoken("x", request="s"))


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ({"prompt_ids": (1, 2)}, {"prompt_ids": (1, 2)}, True),
        ({"prompt_ids": (1, 2)}, {"prompt_ids": (1, 3)}, False),
        ({"prompt_hash": "a"}, {"prompt_hash": "b"}, False),
        ({"template_hash": "a"}, {"template_hash": "b"}, False),
        ({"template_hash": "a"}, {"template_hash": "a"}, None),
        ({"counts": Counts(12)}, {"counts": Counts(14)}, False),
        ({"counts": Counts(12)}, {"counts": Counts(12)}, None),
        ({}, {}, None),
    ],
)
def test_whether_the_engines_were_asked_the_same(left: Any, right: Any, expected: bool | None) -> None:
    assert same_prompt(spoken("x", **left), spoken("x", **right)) is expected


def test_agreement_over_runs() -> None:
    runs = [spoken("a"), spoken("a"), spoken("b"), spoken("", error="refused")]
    assert agreement_of(runs) == Agreement(3, 2, 2 / 3, 1)
    assert agreement_of([]) == Agreement(0, 0, 0.0, 0)


def test_a_run_that_was_drawn_stands_below_its_likeliest_tokens() -> None:
    run = spoken("we go away", steps={1: [("went", 0.0), ("go", -3.0)], 2: TIE})
    assert drawn(run, 0.5) == (1, 3)
    assert drawn(spoken("we go", logprobs=False), 0.5) == (0, 0)


def test_an_empty_answer_is_an_answer() -> None:
    nothing = Observation(request_id="r", cell=Cell("a"), finish_reason="stop")
    runs = [spoken("yes"), nothing, spoken("no")]
    assert agreement_of(runs).distinct == 3
    assert seam(spoken("yes"), nothing).left.text == "yes "
    assert compare(nothing, spoken("yes")).edit_distance == 4
