"""Custom tools, which take text, as the functions that they are called as by engines that know functions alone. Pure.

The function has one argument, ``input``, which is that text. A grammar cannot be said in its schema, so it stands in
the argument's description, where the model reads it. The text is read out of the arguments again (input_check.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from guard.constraint.input_check import INPUT_SCHEMA, as_input
from guard.constraint.toolschema import constraint_of
from guard.request import Tool


def as_functions(tools: Sequence[Tool]) -> tuple[Tool, ...]:
    """Function tools stay as they are."""
    return tuple(_as_function(tool) if tool.is_custom else tool for tool in tools)


def as_function_choice(choice: Any) -> Any:
    """A ``tool_choice`` that names a custom tool, naming its function; any other as it is."""
    if not isinstance(choice, dict) or choice.get("type") != "custom":
        return choice
    named = choice.get("custom", choice)
    return {"type": "function", "function": {"name": named.get("name") if isinstance(named, dict) else None}}


def as_function_calls(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A conversation's messages, with what was said to custom tools said to their functions."""
    return [
        {**message, "tool_calls": [_as_call(call) for call in calls]}
        if isinstance(calls := message.get("tool_calls"), list)
        else message
        for message in messages
    ]


def _as_call(call: Any) -> Any:
    custom = call.get("custom") if isinstance(call, dict) else None
    if not isinstance(custom, dict) or not isinstance(said := custom.get("input", ""), str):
        return call
    rest = {key: value for key, value in call.items() if key != "custom"}
    return {**rest, "type": "function", "function": {"name": custom.get("name"), "arguments": as_input(said)}}


def _as_function(tool: Tool) -> Tool:
    schema: dict[str, Any] = INPUT_SCHEMA
    held_to = constraint_of(tool)
    if held_to is not None:
        syntax = "regular expression" if held_to.kind == "regex" else "Lark grammar"
        described = {"type": "string", "description": f"Text that matches this {syntax}:\n{held_to.value}"}
        schema = {**INPUT_SCHEMA, "properties": {**INPUT_SCHEMA["properties"], "input": described}}
    function = {"name": tool.name, "parameters": schema}
    description = tool.raw.get("custom", {}).get("description")
    if isinstance(description, str):
        function["description"] = description
    return Tool(tool.name, schema, tool.strict, {"type": "function", "function": function})
