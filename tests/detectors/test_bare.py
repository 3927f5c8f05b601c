"""Which of the markers that nothing explains have leaked, told from what comes before and behind them."""

from __future__ import annotations

import pytest

from detectors.bare import BareMarkers
from detectors.finding import Finding
from detectors.markup import BY_TEXT
from detectors.subject import Subject

STRONG, EDGE, CLOSING, INNER = "<|im_end|>", "<s>", "</s>", "<escape>"
TOOL, THINK, THOUGHT = "<tool_call>", "<think>", "</think>"


def read(
    *parts: str, channel: str = "content", prompt: str = "", parsed: bool = False, how: str = "bare", end: bool = True
) -> list[tuple[str, str, int]]:
    """Parts of a text of two characters each: a marker, which comes as ``how`` says, or anything else."""
    it = BareMarkers(channel, Subject(prompt), parsed)
    out: list[Finding] = []
    for number, part in enumerate(parts):
        it.at = 2 * number + 2
        marker = BY_TEXT.get(part)
        if marker is None:
            it.other()
            continue
        it.marker(out)
        if how == "in_code":
            it.in_code(marker, 2 * number)
        elif how == "perhaps":
            it.perhaps(marker, 2 * number, out)
        elif how == "late":
            it.late([(marker, 2 * number)], out)
        else:
            it.bare(marker, 2 * number, out)
    if end:
        it.end(out)
    assert all(found.detected_at <= 2 * len(parts) and found.channel == channel for found in out)
    return [(found.evidence["marker"], found.severity, found.onset) for found in out]


@pytest.mark.parametrize(
    ("marker", "weighs"),
    # in the middle, at the start, at the end, before another marker
    [
        (STRONG, (True, True, True, True)),
        (EDGE, (False, True, True, True)),
        (CLOSING, (True, True, True, True)),
        (INNER, (False, True, False, True)),
    ],
)
def test_where_a_marker_has_leaked(marker: str, weighs: tuple[bool, bool, bool, bool]) -> None:
    texts = [("a", marker, "b"), (marker, "b"), ("a", marker), ("a", marker, TOOL, "b")]
    assert [marker in [text for text, _, _ in read(*parts)] for parts in texts] == list(weighs)


def test_nothing_is_told_before_it_is_certain() -> None:
    assert read("a", EDGE, end=False) == []
    assert read("a", EDGE, STRONG, end=False) == [(EDGE, "error", 2), (STRONG, "error", 4)]


def test_a_closing_marker_answers_the_one_that_was_opened() -> None:
    assert read("a", EDGE, "b", CLOSING, "c") == []
    assert read("a", EDGE, "b", CLOSING, "c", CLOSING, "d") == [(CLOSING, "error", 10)]


@pytest.mark.parametrize(("marker", "how"), [(EDGE, "bare"), (INNER, "bare"), (STRONG, "perhaps")])
def test_a_marker_beside_another_one_has_leaked_whatever_follows(marker: str, how: str) -> None:
    before = "<|eot_id|>"
    assert (marker, "error", 4) in read("a", before, marker, "b", how=how)
    assert (marker, "error", 6) not in read("a", before, "b", marker, "c", how=how)


def test_nothing_stands_beside_a_marker_that_is_judged_late() -> None:
    it, out = BareMarkers("content", Subject(""), False), []
    it.other()
    it.late([(BY_TEXT[STRONG], 2)], out)
    it.bare(BY_TEXT[EDGE], 6, out)
    it.other()
    it.end(out)
    assert [found.onset for found in out] == [2]


def test_a_marker_makes_the_next_one_likelier() -> None:
    named = f"{TOOL} and {THINK}"  # so that there is no finding about them
    for marker, seen in ((STRONG, True), (TOOL, True), (THINK, True), (EDGE, False)):
        it = BareMarkers("content", Subject(named), False)
        it.other()
        assert it.none_seen
        it.bare(BY_TEXT[marker], 2, [])
        assert it.none_seen != seen


def test_behind_markup_of_tools_plain_xml_counts_everywhere() -> None:
    assert (INNER, "error", 6) in read("a", TOOL, "b", INNER, "c")
    assert read("a", STRONG, "b", INNER, "c") == [(STRONG, "error", 2)]


@pytest.mark.parametrize(
    ("marker", "how", "weighs"),
    # in the middle, at the end, before another marker
    [
        (STRONG, "in_code", (False, True, False)),
        (EDGE, "in_code", (False, False, False)),
        (THINK, "in_code", (False, False, False)),
        (STRONG, "perhaps", (False, True, True)),
        (STRONG, "late", (True, True, True)),
        (EDGE, "late", (False, False, False)),
    ],
)
def test_what_seemed_to_explain_it(marker: str, how: str, weighs: tuple[bool, bool, bool]) -> None:
    texts = [("a", marker, "b"), ("a", marker), ("a", marker, TOOL, "b")]
    assert [(marker, "error", 2) in read(*parts, how=how) for parts in texts] == list(weighs)


@pytest.mark.parametrize(
    ("parts", "content", "elsewhere"),
    [
        ((THINK, "a", THOUGHT, "b"), [(THINK, "warn", 0)], [(THINK, "warn", 0)]),
        ((THINK, "a"), [(THINK, "warn", 0), (THINK, "error", 0)], [(THINK, "warn", 0)]),
        (("a", THINK, "b", THOUGHT), [(THINK, "error", 2)], [(THINK, "warn", 2)]),
        (
            (THINK, THINK, THOUGHT, THOUGHT),
            [(THINK, "warn", 0), (THINK, "error", 2)],
            [(THINK, "warn", 0), (THINK, "warn", 2)],
        ),
        (
            (THINK, THOUGHT, THINK, THOUGHT),
            [(THINK, "warn", 0), (THINK, "error", 4)],
            [(THINK, "warn", 0), (THINK, "warn", 4)],
        ),
        (("a", THOUGHT, "b"), [(THOUGHT, "error", 2)], [(THOUGHT, "warn", 2)]),
    ],
)
def test_reasoning_tags(
    parts: tuple[str, ...], content: list[tuple[str, str, int]], elsewhere: list[tuple[str, str, int]]
) -> None:
    assert read(*parts) == content
    assert read(*parts, channel="tool:0") == elsewhere


def test_a_block_that_the_engine_should_have_split_off_is_an_error() -> None:
    assert read(THINK, "a", THOUGHT, "b", parsed=True) == [(THINK, "error", 0)]


def test_each_is_reported_once_and_what_the_prompt_is_about_is_no_leak() -> None:
    assert read("a", STRONG, "b", STRONG) == [(STRONG, "error", 2)]
    assert read("a", STRONG, prompt=f"What is {STRONG}?") == []
    assert read("a", STRONG, prompt="List the special tokens") == [(STRONG, "info", 2)]


def test_findings_come_to_an_end() -> None:
    strong = [text for text, marker in BY_TEXT.items() if marker.kind == "token" and marker.weight == "strong"]
    assert len(strong) > 16
    assert len(read("a", *strong)) == 16
