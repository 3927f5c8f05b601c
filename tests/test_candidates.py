"""Which engine an answer goes to next: afresh, onward, beside, staying, or held to its constraint."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from guard.budget import RetryBudget
from guard.candidates import Candidates
from guard.constraint.spec import Constraint
from guard.delivered import Delivered
from guard.engines.contract import Capabilities
from guard.events import Release
from guard.health.fleet import Fleet
from guard.health.settings import HealthSettings
from guard.request import GenerationRequest
from guard.routing import Router

PLAIN = Capabilities(resume="text")
SCHEMA = Constraint("json_schema", {"type": "object"})


def made(
    capabilities: dict[str, Capabilities], constraint: Constraint | None = None, **places: int
) -> tuple[Candidates, Fleet]:
    names = tuple(capabilities)
    fleet = Fleet(HealthSettings(), {name: places.get(name, 0) for name in names})
    origins = {name: ("east" if name in "ab" else "west", "") for name in names}
    router = Router(names, fleet, RetryBudget(0.2, 10), balanced=False, origins=origins)
    request = GenerationRequest("r", "chat", "m", constraint=constraint)
    return Candidates(names, request, capabilities, router), fleet


def told(text: str = "Once") -> Delivered:
    delivered = Delivered()
    delivered.add(Release(0, "content", text))
    return delivered


def test_the_least_tried_then_another_cluster_then_the_routes_order() -> None:
    it, _ = made(dict.fromkeys("abcd", PLAIN))
    it.tried["a"] = 1
    assert it.afresh("a", 0) == "c"
    it.tried["c"] = 1
    assert it.afresh("c", 0) == "b"  # d shares its cluster with c
    it.tried.update("bd")
    assert it.afresh("d", 0) == "a"
    assert it.untried(0) == []


def test_an_engine_that_takes_nothing_is_none() -> None:
    it, fleet = made(dict.fromkeys("ab", PLAIN))
    fleet.drain("b", True)
    assert it.afresh("a", 0) == "a"
    assert it.untried(0) == ["a"]
    fleet.drain("a", True)
    assert (it.afresh("a", 0), it.onward("a", told(), 0), it.beside("b", 0)) == (None, None, None)


def test_one_that_constrains_what_is_constrained_comes_first_among_equals() -> None:
    able = replace(PLAIN, constraints=frozenset({"json_schema"}))
    it, _ = made({"a": PLAIN, "b": PLAIN, "c": PLAIN, "d": able}, SCHEMA)
    assert it.afresh("a", 0) == "d"
    assert [it.natively(name) for name in "ad"] == [False, True]
    it.tried["d"] = 1
    assert it.afresh("a", 0) == "c"


def test_onward_only_where_it_can_be_gone_on() -> None:
    it, _ = made({"a": PLAIN, "b": PLAIN, "c": Capabilities(resume="no")})
    it.tried["a"] = 1
    assert it.onward("a", told(), 0) == "b"
    it.cannot_resume.add("b")
    assert it.onward("a", told(), 0) == "a"
    it.cannot_resume.add("a")
    assert it.onward("a", told(), 0) is None


def test_beside_only_where_a_place_is_free() -> None:
    it, fleet = made(dict.fromkeys("abc", PLAIN), c=1)
    assert it.beside("a", 0) == "c"
    fleet.begin("c", 0.0)
    assert it.beside("a", 0) == "b"


@pytest.mark.parametrize(("tried", "stays"), [("a", False), ("ab", True)])
def test_other_sampling_stays_once_every_engine_has_had_its_turn(tried: str, stays: bool) -> None:
    it, fleet = made(dict.fromkeys("ab", PLAIN))
    it.tried.update(tried)
    assert it.staying("a", "b", 0) == ("a" if stays else "b")
    assert it.staying("a", None, 0) is None
    it.cannot_resume.add("a")
    assert it.staying("a", "b", 0) == "b"
    it.cannot_resume.clear()
    fleet.drain("a", True)
    assert it.staying("a", "b", 0) == "b"


def test_held_to_its_constraint_the_one_that_spoke_goes_on_unless_another_is_constrained_there() -> None:
    carries = replace(PLAIN, constraints=frozenset({"json_schema"}), resume_constrained=True)
    it, fleet = made({"a": PLAIN, "b": PLAIN, "c": carries}, SCHEMA)
    assert it.enforcing("b", "", told(), 0) == "c"
    assert it.enforcing("b", '{"n"', told(), 0) == "c"
    fleet.drain("c", True)
    assert it.enforcing("b", '{"n"', told(), 0) == "b"
    it.cannot_resume.update("abc")
    assert it.enforcing("b", '{"n"', told(), 0) is None


def test_those_that_would_do_as_well_as_the_one_that_was_chosen() -> None:
    it, _ = made(dict.fromkeys("abcd", PLAIN))
    it.tried.update("ab")
    assert it.alike("c", "b", told(), begun=True) == ["c", "d"]  # a was tried more often
    it.tried.update("cd")
    assert it.alike("c", "b", told(), begun=True) == ["c", "a", "d"]  # b has just failed, though it has a place
    assert it.alike("b", "b", told(), begun=True) == ["b", "a", "c", "d"]
    it.cannot_resume.add("a")
    assert it.alike("c", "b", told(), begun=True) == ["c", "d"]
    assert it.alike("c", "b", Delivered(), begun=False) == ["c", "a", "d"]


def test_none_that_constrains_less_would_do_as_well() -> None:
    native = replace(PLAIN, constraints=frozenset({"json_schema"}), resume_constrained=True)
    it, _ = made({"a": PLAIN, "b": native, "c": native, "d": PLAIN}, SCHEMA)
    assert it.alike("b", "a", Delivered(), begun=False) == ["b", "c"]
    assert it.alike("d", "a", Delivered(), begun=False) == ["d", "b", "c"]
