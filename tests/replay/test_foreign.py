"""Another request's text in an answer, and what only looks like it."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from replay.foreign import foreign_text
from replay.observation import Cell, Observation

PROMPTS = {
    "own": "You are helpful. Describe pandas",
    "invoice": "You are helpful. Summarise invoice #4471 for the bamboo supplier in Osaka",
    "sea": "You are helpful. Write about the cold grey sea at night in winter storms",
    "away": "You are helpful. Compare black bears with white bears",
}


@dataclass
class Case:
    told: str
    said: str
    owner: str | None
    reference: str = ""
    in_flight: tuple[str, ...] = field(default=("own", "invoice", "sea"))
    certain: bool | None = None


CASES = [
    Case("an identifier", "Pandas are invoice #4471 due bears", "invoice"),
    Case("much of a prompt", "Pandas eat. Summarise invoice 4471 for the bamboo supplier", "invoice", certain=True),
    Case("plain words, three pairs", "They live by the cold grey sea at night", "sea", certain=False),
    Case("two plain pairs may be chance", "They like a cold grey sea", None),
    Case("what all prompts say", "You are helpful. Pandas are black", None),
    Case("its own prompt", "Describe pandas: they eat", None),
    Case("what it says anyway", "See invoice #4471 now", None, reference="See invoice #4471 then"),
    Case("what did not run at the time", "invoice #4471 is due", None, in_flight=("own", "sea")),
    Case("what others said too", "black bears with white bears", None, in_flight=("own", "sea")),
    Case("nothing known of neighbours", "invoice #4471", None, in_flight=()),
    Case("an empty answer", "", None),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.told)
def test_foreign_text(case: Case) -> None:
    run = Observation(request_id="own", cell=Cell("a"), text={"content": case.said}, in_flight=case.in_flight)
    found = foreign_text(run, case.reference, PROMPTS)
    assert (found.owner if found else None) == case.owner
    if found and case.certain is not None:
        assert found.certain is case.certain
