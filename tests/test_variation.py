"""Other sampling for an answer that the model itself leads into a loop."""

from __future__ import annotations

import pytest

from guard.request import Sampling
from guard.variation import MOST_PENALTY, PENALTY, SAME_PLACE, Places, finding_of, with_other_sampling


@pytest.mark.parametrize(
    ("asked", "document", "given"),
    [
        (Sampling(), False, Sampling(frequency_penalty=PENALTY)),
        (Sampling(temperature=0.0), False, Sampling(temperature=0.0, frequency_penalty=PENALTY)),
        (Sampling(seed=7), False, Sampling(seed=8, frequency_penalty=PENALTY)),
        (Sampling(frequency_penalty=1.9), False, Sampling(frequency_penalty=MOST_PENALTY)),
        (Sampling(frequency_penalty=-1.0), False, Sampling(frequency_penalty=-0.5)),
    ],
)
def test_free_text_gets_a_penalty_and_another_seed(asked: Sampling, document: bool, given: Sampling) -> None:
    assert with_other_sampling(asked, document=document) == given


@pytest.mark.parametrize("temperature", [0.0, 0.7, None])
def test_a_document_gets_temperature_and_no_penalty(temperature: float | None) -> None:
    asked = Sampling(temperature=temperature, seed=7)
    given = with_other_sampling(asked, document=True)
    assert given.frequency_penalty is None
    assert (given.temperature or 0) > (temperature or 0)
    assert given.seed != 7


def test_what_goes_on_record_says_which() -> None:
    finding = finding_of(with_other_sampling(Sampling(seed=1, temperature=0.5), document=False))
    assert finding.message == "the answer goes on with other sampling: frequency_penalty 0.5, temperature 0.5, seed 2"
    assert finding.severity == "info"


def test_the_same_place() -> None:
    places = Places()
    assert not places.again("content", 100)
    assert places.again("content", 100 + SAME_PLACE)
    assert not places.again("reasoning", 100)
    assert not places.again("content", 100 + 3 * SAME_PLACE)
    assert places.again("content", 90)
