"""Tools of a request body."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from guard.request import RequestError, Tool, ToolChoice

TOOL_FIELDS: Final = frozenset({"tools", "tool_choice", "parallel_tool_calls"})


def parse_tools(body: Mapping[str, Any]) -> tuple[Tool, ...]:
    tools = body.get("tools")
    if tools is None:
        return ()
    if not isinstance(tools, list):
        raise RequestError("must be a list", "tools")
    found = []
    for i, tool in enumerate(tools):
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise RequestError("must be a function tool with a name", f"tools[{i}]")
        found.append(Tool(function["name"], function.get("parameters", {}), bool(function.get("strict")), tool))
    return tuple(found)


def parse_tool_choice(body: Mapping[str, Any], tools: tuple[Tool, ...]) -> ToolChoice:
    choice = body.get("tool_choice")
    if choice is None:
        return ToolChoice("auto" if tools else "none")
    if choice == "none":
        return ToolChoice("none")
    if choice == "auto":
        return ToolChoice("auto")
    if choice == "required":
        return ToolChoice("required")
    name = choice.get("function", {}).get("name") if isinstance(choice, dict) else None
    if not isinstance(name, str) or name not in {tool.name for tool in tools}:
        raise RequestError("names no tool that is offered", "tool_choice")
    return ToolChoice("named", (name,))
