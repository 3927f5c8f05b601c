"""Calls of the Berkeley Function Calling Leaderboard (PyPI bfcl-eval, Apache-2.0: its data only, nothing of it is
imported): written in every family's markup, the right ones are accepted as they are, and spoiled ones are refused.
"""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from msgspec import Struct

from guard.constraint.formats.content import ContentToolParser
from guard.constraint.formats.contract import TextCall
from guard.constraint.toolcall import ToolCallGuard
from guard.constraint.tools import parse_tools
from guard.events import Finding, TextDelta, ToolRelease
from guard.request import Tool, ToolChoice
from tests.toolcall.test_roundtrip import FAMILIES

FILES = ("simple_python", "parallel_multiple", "live_simple")
TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": None}
EVERY = 20
"""Of all calls, one of so many is written in each family's markup, another one in each."""

_found = importlib.util.find_spec("bfcl_eval")
DATA = Path(_found.submodule_search_locations[0]) / "data" if _found and _found.submodule_search_locations else None
pytestmark = pytest.mark.skipif(DATA is None, reason="bfcl-eval is not installed (make setup installs it)")


class Made(Struct):
    tools: tuple[Tool, ...]
    name: str
    arguments: dict[str, Any]

    @property
    def schema(self) -> Any:
        return next(tool.parameters for tool in self.tools if tool.name == self.name)


def schema_of(said: Any) -> Any:
    """JSON schema of what the data calls types."""
    if isinstance(said, list):
        return [schema_of(one) for one in said]
    if not isinstance(said, dict):
        return said
    out = {key: schema_of(value) for key, value in said.items()}
    kind = said.get("type")
    if isinstance(kind, str) and kind in TYPES:
        out["type"] = TYPES[kind]
        if out["type"] is None:
            del out["type"]
    return out


def first(options: Any) -> Any:
    """The first of the values that the data allows; what may be left out is an empty string among them."""
    if isinstance(options, dict):
        return {key: value for key, one in options.items() if (value := _allowed(one)) != ""}
    if isinstance(options, list):
        return [first(one) for one in options]
    return options


def _allowed(options: Any) -> Any:
    if not isinstance(options, list):
        return first(options)
    return first(next((one for one in options if one != ""), ""))


def name_of(said: str) -> str:
    return re.sub(r"\W", "_", said)


@cache
def made() -> list[Made]:
    """Those that fit the schemas that the data gives for them: some do not."""
    assert DATA is not None
    out: list[Made] = []
    for name in FILES:
        asked = (DATA / f"BFCL_v4_{name}.json").read_text().splitlines()
        answers = (DATA / "possible_answer" / f"BFCL_v4_{name}.json").read_text().splitlines()
        for question, answer in zip(map(json.loads, asked), map(json.loads, answers), strict=True):
            out += _calls(question["function"], answer["ground_truth"])
    return out


def _calls(functions: list[dict[str, Any]], truth: list[dict[str, Any]]) -> Iterator[Made]:
    offered = {
        name_of(one["name"]): {"name": name_of(one["name"]), "inputSchema": schema_of(one["parameters"])}
        for one in functions
    }
    tools = parse_tools({"tools": list(offered.values())})
    for call in truth:
        for said, options in call.items():
            one = Made(tools, name_of(said), first(options))
            if one.name in offered and jsonschema_rs.is_valid(one.schema, one.arguments):
                yield one


def read(text: str, one: Made) -> tuple[list[tuple[str, str]], list[str]]:
    """(name, arguments) of the calls that left, and the codes of what was wrong."""
    parser = ContentToolParser("auto", one.tools, ToolChoice())
    guard = ToolCallGuard(one.tools, ToolChoice(), mint=str)
    said: list[Any] = []
    for piece in (*parser.feed(TextDelta(0, "content", text)), *parser.finish()):
        said += guard.feed(piece) if isinstance(piece, TextCall) else [piece]
    said += guard.finish()
    calls: dict[int, tuple[str, str]] = {}
    wrong: list[str] = []
    for piece in said:
        if isinstance(piece, ToolRelease):
            name, arguments = calls.get(piece.index, ("", ""))
            calls[piece.index] = (piece.name or name, arguments + piece.arguments)
        elif isinstance(piece, Finding) and piece.severity == "error":
            wrong.append(piece.code)
    return list(calls.values()), wrong


def spoiled(one: Made) -> Iterator[dict[str, Any]]:
    """The same arguments, each time with one thing wrong."""
    for key in one.schema.get("required", ()):
        yield {k: v for k, v in one.arguments.items() if k != key}
    for key, value in one.arguments.items():
        other = "no such value" if not isinstance(value, str) else 12345.5
        yield {**one.arguments, key: other}


def test_the_data_is_there() -> None:
    assert len(made()) > 900


@pytest.mark.parametrize("family", FAMILIES)
def test_right_calls_are_accepted_and_spoiled_ones_refused(family: Any) -> None:
    calls = made()[FAMILIES.index(family) :: EVERY]
    refused = 0
    for one in calls:
        text = family(one.arguments).replace("do_it", one.name)
        assert read(text, one)[1] == [], text
        ((name, arguments),) = read(text, one)[0]
        assert (name, json.loads(arguments)) == (one.name, one.arguments), text
        for wrong in spoiled(one):
            if not jsonschema_rs.is_valid(one.schema, wrong):
                text = family(wrong).replace("do_it", one.name)
                left, codes = read(text, one)
                if codes:
                    refused += 1
                    assert not any(finished(arguments) for _, arguments in left)
                else:  # a bare value has no type of its own: what is read must then be right
                    assert all(jsonschema_rs.is_valid(one.schema, json.loads(arguments)) for _, arguments in left)
    assert refused > len(calls)


def finished(arguments: str) -> bool:
    try:
        json.loads(arguments)
    except ValueError:
        return False
    return True
