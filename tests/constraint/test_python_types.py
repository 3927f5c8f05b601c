"""Formats as Python clients write them."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from pydantic import BaseModel
from typing_extensions import TypedDict

from guard.constraint.compile import compile_constraint
from guard.constraint.python_types import from_python
from guard.constraint.spec import Constraint


class Kid(BaseModel):
    name: str
    age: int


class Family(BaseModel):
    kids: list[Kid]


@dataclass
class Point:
    x: float
    y: float


class Row(TypedDict):
    id: int


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Size(enum.Enum):
    S = 1
    L = 2


def fits(constraint: Constraint, text: str) -> bool:
    check = compile_constraint(constraint).checker()
    return not [one for one in (*check.feed(text), *check.finish(False)) if one.severity == "error"]


@pytest.mark.parametrize(
    ("wanted", "kind", "good", "bad"),
    [
        (Family, "json_schema", '{"kids": [{"name": "a", "age": 1}]}', '{"kids": [{"name": "a"}]}'),
        (Point, "json_schema", '{"x": 1, "y": 2.5}', '{"x": 1}'),
        (Row, "json_schema", '{"id": 1}', '{"id": "1"}'),
        (list[int], "json_schema", "[1, 2]", '["1"]'),
        (int | None, "json_schema", "null", '"x"'),
        (Size, "json_schema", "2", "3"),
        (Colour, "choice", "blue", '"blue"'),
        (Literal["yes", "no"], "choice", "no", "maybe"),
        ({"type": "null"}, "json_schema", "null", "1"),
        (re.compile(r"a.b", re.DOTALL | re.IGNORECASE), "regex", "A\nb", "ab"),
        (Constraint("regex", "x"), "regex", "x", "y"),
    ],
)
def test_types(wanted: Any, kind: str, good: str, bad: str) -> None:
    constraint = from_python(wanted, "format")
    assert constraint.kind == kind
    assert fits(constraint, good)
    assert not fits(constraint, bad)


def test_models_give_their_name() -> None:
    assert from_python(Family).name == "Family"
    assert from_python(Family, "f").param == "f"
    assert from_python(Family).key == from_python(Family, "elsewhere").key


@pytest.mark.parametrize("wanted", [str, Any, object()])
def test_what_is_no_format(wanted: Any) -> None:
    with pytest.raises(TypeError):
        from_python(wanted)


def test_outlines_types() -> None:
    types = pytest.importorskip("outlines.types", reason="outlines is not installed (outguard[outlines])")
    dsl = pytest.importorskip("outlines.types.dsl")
    for wanted, kind, good, bad in (
        (types.JsonSchema('{"type": "integer"}'), "json_schema", "1", '"1"'),
        (types.JsonSchema(Family), "json_schema", '{"kids": []}', "{}"),
        (types.Regex(r"[a-z]{2}"), "regex", "ab", "a"),
        (types.CFG('start: "a" | "b" start'), "grammar", "ba", "ab"),
        (types.Choice(["one", "two"]), "choice", "two", "three"),
        (types.Choice([1, 2]), "regex", "2", "3"),
        (dsl.either("a", types.Regex("[0-9]")) + "!", "regex", "7!", "b!"),
        (types.Regex("x").at_least(2), "regex", "xxx", "x"),
    ):
        constraint = from_python(wanted, "format")
        assert constraint.kind == kind
        assert fits(constraint, good), wanted
        assert not fits(constraint, bad), wanted
