"""Every shape in which callers write tools and choices, and every mistake with its path."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from guard.constraint.tools import parse_parallel, parse_tool_choice, parse_tools
from guard.request import RequestError, ToolChoice

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}
TIME = {"type": "function", "function": {"name": "get_time"}}


def test_function_tools() -> None:
    tools = parse_tools({"tools": [WEATHER, {"type": "function", "function": {"name": "t", "strict": True}}]})
    assert [(t.name, t.parameters, t.strict) for t in tools] == [("get_weather", SCHEMA, False), ("t", None, True)]
    assert tools[0].raw == WEATHER
    assert parse_tools({}) == parse_tools({"tools": None}) == parse_tools({"tools": []}) == ()


@pytest.mark.parametrize(
    "body",
    [
        {"tools": [{"type": "function", "name": "get_weather", "parameters": SCHEMA}]},
        {"functions": [{"name": "get_weather", "parameters": SCHEMA}]},
        {"tools": [{"name": "get_weather", "inputSchema": SCHEMA}]},
        {"tools": {"tools": [{"name": "get_weather", "inputSchema": SCHEMA, "annotations": {}}], "nextCursor": "x"}},
        {"tools": [{"name": "get_weather", "input_schema": SCHEMA}]},
    ],
)
def test_other_shapes_reach_engines_in_the_openai_shape(body: dict[str, Any]) -> None:
    (tool,) = parse_tools(body)
    assert (tool.name, tool.parameters) == ("get_weather", SCHEMA)
    assert tool.raw == WEATHER


def test_mcp_descriptions_are_kept() -> None:
    (tool,) = parse_tools({"tools": [{"name": "f", "description": "does it", "inputSchema": {"type": "object"}}]})
    assert tool.raw["function"]["description"] == "does it"


def test_custom_tools_keep_their_grammar() -> None:
    form = {"type": "grammar", "grammar": {"syntax": "lark", "definition": 'start: "a"'}}
    item = {"type": "custom", "custom": {"name": "sql", "format": form}}
    (tool,) = parse_tools({"tools": [item]})
    assert (tool.name, tool.parameters, tool.raw) == ("sql", None, item)
    (flat,) = parse_tools({"tools": [{"type": "custom", "name": "sql", "format": form}]})
    assert flat.raw == item


CHOICES: list[tuple[Any, ToolChoice]] = [
    (None, ToolChoice("auto")),
    ("auto", ToolChoice("auto")),
    ("none", ToolChoice("none")),
    ("required", ToolChoice("required")),
    ({"type": "function", "function": {"name": "get_time"}}, ToolChoice("named", ("get_time",))),
    ({"function": {"name": "get_time"}}, ToolChoice("named", ("get_time",))),
    ({"type": "function", "name": "get_time"}, ToolChoice("named", ("get_time",))),
    (
        {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [WEATHER, TIME]}},
        ToolChoice("allowed", ("get_weather", "get_time"), True),
    ),
    (
        {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "get_time"}]},
        ToolChoice("allowed", ("get_time",), False),
    ),
]


@pytest.mark.parametrize(("said", "expected"), CHOICES)
def test_choice(said: Any, expected: ToolChoice) -> None:
    assert parse_tool_choice({"tool_choice": said}, parse_tools({"tools": [WEATHER, TIME]})) == expected


def test_legacy_choice_and_no_tools() -> None:
    tools = parse_tools({"functions": [{"name": "f"}]})
    assert parse_tool_choice({"function_call": {"name": "f"}}, tools) == ToolChoice("named", ("f",))
    assert parse_tool_choice({"function_call": "none"}, tools) == ToolChoice("none")
    assert parse_tool_choice({}, ()) == parse_tool_choice({"tool_choice": "auto"}, ()) == ToolChoice("none")


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"tools": "f"}, "tools"),
    ({"tools": [3]}, "tools[0]"),
    ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
    ({"tools": [{"type": "function", "function": 3}]}, "tools[0].function"),
    ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
    ({"tools": [{"type": "function", "function": {"name": ""}}]}, "tools[0].function.name"),
    ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
    ({"tools": [{"type": "function", "function": {"name": "<x>"}}]}, "tools[0].function.name"),
    ({"tools": [{"type": "function", "function": {"name": "f", "strict": 1}}]}, "tools[0].function.strict"),
    ({"tools": [{"type": "function", "function": {"name": "f", "parameters": []}}]}, "tools[0].function.parameters"),
    (
        {"tools": [WEATHER, {"type": "function", "function": {"name": "f", "parameters": {"type": "obj"}}}]},
        "tools[1].function.parameters",
    ),
    (
        {"tools": [{"name": "f", "inputSchema": {"properties": {"a": {"pattern": "("}}}}]},
        "tools[0].inputSchema",
    ),
    ({"tools": [{"name": "f", "inputSchema": {"$ref": "#/$defs/no"}}]}, "tools[0].inputSchema"),
    ({"tools": [{"name": "f", "inputSchema": {"$ref": "https://example.org/s.json"}}]}, "tools[0].inputSchema"),
    ({"tools": [WEATHER, TIME, WEATHER]}, "tools[2].name"),
    ({"tools": [WEATHER], "functions": [{"name": "f"}]}, "functions"),
    (
        {"tools": [{"type": "custom", "custom": {"name": "f", "format": {"type": "grammar", "grammar": {}}}}]},
        "tools[0].custom.format.grammar.syntax",
    ),
    ({"tools": [WEATHER], "tool_choice": "any thing"}, "tool_choice"),
    ({"tools": [WEATHER], "tool_choice": 3}, "tool_choice"),
    ({"tools": [WEATHER], "tool_choice": {"type": "function"}}, "tool_choice.name"),
    ({"tools": [WEATHER], "tool_choice": {"type": "what"}}, "tool_choice.type"),
    ({"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice.function.name"),
    ({"tool_choice": "required"}, "tool_choice"),
    (
        {"tools": [WEATHER], "tool_choice": {"type": "allowed_tools", "allowed_tools": {"tools": [TIME]}}},
        "tool_choice.allowed_tools.tools[0].function.name",
    ),
    ({"tools": [WEATHER], "tool_choice": {"type": "allowed_tools", "tools": []}}, "tool_choice.tools"),
    ({"tools": [WEATHER], "parallel_tool_calls": "yes"}, "parallel_tool_calls"),
]


def read(body: dict[str, Any]) -> None:
    parse_parallel(body)
    parse_tool_choice(body, parse_tools(body))


@pytest.mark.parametrize(("body", "param"), MISTAKES)
def test_mistakes_say_where(body: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        read(body)
    assert caught.value.param == param
    assert caught.value.message.startswith(f"{param}: ")


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"properties": {"a": schema}}
    return schema


@pytest.mark.parametrize("schema", [nested(10_000), {"enum": ["x" * 2_000_000]}], ids=["deep", "long"])
def test_hostile_schemas_are_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match=r"deep|may have") as caught:
        parse_tools({"tools": [{"name": "f", "inputSchema": schema}]})
    assert caught.value.code == "constraint_too_complex"


def test_every_published_tool_schema_is_accepted(shared: Path) -> None:
    schemas = [
        json.loads(line)
        for path in sorted((shared / "data" / "kimi-schemas").glob("*/valid.jsonl"))
        for line in path.read_text().splitlines()
        if line.strip()
    ]
    assert len(schemas) == 212
    for schema in schemas:
        parse_tools({"tools": [{"type": "function", "function": {"name": "f", "parameters": schema}}]})
