"""The panel adds up its detectors, and outlives them."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from detectors import Facts, Finding, Leak, Panel, Policy
from detectors.tail import Tail
from tests.corpus.collapse import collapses
from tests.corpus.honest import honest
from tests.detectors.footprint import footprint


class Broken:
    """Works until it is fed the word."""

    def __init__(self) -> None:
        self.doubt = 0
        self.fed = 0

    def feed(
        self, text: str, token_ids: Sequence[int] | None = None, logprobs: Sequence[float] | None = None
    ) -> Sequence[Finding]:
        self.fed += 1
        if "boom" in text:
            raise ValueError("a mistake")
        return ()

    def finish(self) -> Sequence[Finding]:
        raise RuntimeError("another")


class Quiet:
    """Finds nothing; keeps what it was fed."""

    calm = True

    def __init__(self) -> None:
        self.doubt = 0
        self.fed: list[str] = []

    def feed(
        self, text: str, token_ids: Sequence[int] | None = None, logprobs: Sequence[float] | None = None
    ) -> Sequence[Finding]:
        self.doubt += len(text)
        self.fed.append(text)
        return ()

    def finish(self) -> Sequence[Finding]:
        return ()


def test_a_detector_that_raises_is_taken_out_and_recorded() -> None:
    broken = Broken()
    panel = Panel(extra=(broken,))
    assert panel.feed("good so far ") == ()
    assert panel.doubt == 0  # Broken never clears anything
    found = panel.feed("boom ")
    assert [(f.code, f.severity) for f in found] == [("guard.detector_error", "warn")]
    assert panel.doubt == len("good so far boom ")
    assert panel.feed("and on") == ()
    assert broken.fed == 2
    assert panel.finish() == []


def test_one_that_raises_at_the_end_is_recorded_too() -> None:
    panel = Panel(extra=(Broken(),))
    panel.feed("x")
    assert [f.code for f in panel.finish()] == ["guard.detector_error"]


def test_the_others_see_everything_when_one_breaks() -> None:
    panel = Panel(extra=(Broken(),))
    found = [*panel.feed("boom " + "!" * 10), *panel.feed("!" * 30)]
    assert [f.code for f in found] == ["guard.detector_error", "repetition.single_token"]


class Restless(Quiet):
    """Is never calm, so that a panel feeds all its detectors every piece."""

    calm = False


def test_what_waits_for_its_turn_changes_nothing() -> None:
    rng = random.Random(6)
    texts = [(collapse.text[:3_000], collapse.json) for collapse in collapses(3, seed=43)]
    texts += [(document.text[:3_000], False) for document in honest(30, seed=43)]
    texts += [('{"a": "x\\ny\\\\", "b": [1, 2]}' + " " * 90, True), ("Yes <think>no</think> it <|im_end|> is", False)]
    for text, json in texts:
        for channel in ("content", "reasoning"):
            waiting = Panel(channel=channel, json=json, extra=(Tail(), Leak(channel), Quiet()))
            other = Panel(channel=channel, json=json, extra=(Tail(), Leak(channel), Restless()))
            at = 0
            while at < len(text):
                piece = text[at : at + rng.choice([1, 3, 4, 4, 4, 5, 7, 9])]
                at += len(piece)
                found = waiting.feed(piece)
                assert list(found) == list(other.feed(piece))
                assert waiting.doubt == other.doubt
                if any(f.severity == "error" for f in found):
                    break
            else:
                assert list(waiting.finish()) == list(other.finish())
                assert (waiting.doubt, waiting.facts()) == (other.doubt, other.facts())


def test_plain_words_are_given_to_the_others_together() -> None:
    quiet = Quiet()
    panel = Panel(extra=(quiet,))
    pieces = ["The ", "old", " har", "bour", ", an", "d so", " on!"]
    for piece in pieces:
        panel.feed(piece)
    assert quiet.fed == ["The ", "".join(pieces[1:])]


def test_findings_come_in_the_order_in_which_they_became_certain() -> None:
    found = Panel().feed("caf\ufffd x " + "ok so " * 40)
    assert [f.family for f in found] == ["encoding", "repetition"]


def test_facts() -> None:
    panel = Panel(channel="reasoning")
    assert panel.facts() == Facts()
    panel.feed(" \n")
    assert panel.facts() == Facts(2, 0)
    for piece in ("{", '"a": 1', " }", "\n"):
        panel.feed(piece)
    assert panel.facts() == Facts(12, 12, True)


def test_patience_stretches_every_bar() -> None:
    text = "The end. " + "I can not say. " * 9
    assert Panel().feed(text)
    assert not Panel(Policy(patience=2.5)).feed(text)


def test_the_state_of_a_long_stream_is_bounded() -> None:
    panel = Panel(json=True)
    for i in range(30_000):
        panel.feed(f' {{"k{i * i}": "väl{i} 我们"}},\n')
    assert footprint(panel) < 64_000


@pytest.mark.parametrize("text", ["", "\n \n", "\u200b\u200b", "\ufeff", "\u3000\xa0", "\u2060\x00"])
def test_nothing_to_see_is_not_visible(text: str) -> None:
    for size in (1, 100):
        watch = Panel()
        for start in range(0, len(text), size):
            watch.feed(text[start : start + size])
        assert watch.facts().visible == 0
        watch.feed("x")
        assert watch.facts().visible > 0
