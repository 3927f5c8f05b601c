"""The tools of a request and what it says about calling them, in every shape that callers write.

The rules:

- Read are OpenAI function tools (also flat, as the Responses API writes them), OpenAI custom tools (free text held to
  a grammar), the legacy ``functions``/``function_call``, and MCP tool lists (``inputSchema``). Each becomes a Tool
  whose ``raw`` has the OpenAI shape, so that every engine can be sent it.
- A tool's schema must be one that can be judged by: it is compiled here, once a distinct schema, under limits; one too
  large for that, where constraints are compiled (toolschema.constraint_of).
- A choice must be able to be met: naming a tool that is not offered is the caller's mistake, found before any engine
  is asked.
- Null means: not said.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from guard.constraint.compile import DEFAULTS
from guard.constraint.spec import Constraint
from guard.constraint.toolschema import INLINE_BYTES, INLINE_CHARS, compiled_schema, constraint_of
from guard.request import RequestError, Tool, ToolChoice

TOOL_FIELDS: Final[frozenset[str]] = frozenset(
    {"tools", "tool_choice", "parallel_tool_calls", "functions", "function_call"}
)
"""The top-level fields that are read here: not to be passed on as they came."""

MAX_TOOLS: Final = 1024
MAX_NAME: Final = 256


def parse_tools(body: Mapping[str, Any]) -> tuple[Tool, ...]:
    """The tools on offer, in their order. Raises RequestError with the path of what is wrong."""
    found: list[Tool] = []
    for field, read in (("tools", _tool), ("functions", _legacy)):
        offered = body.get(field)
        if offered is None:
            continue
        if isinstance(offered, Mapping) and isinstance(offered.get("tools"), list):
            offered = offered["tools"]  # the result of an MCP tools/list, as it came
        if not isinstance(offered, list):
            raise _refused("must be a list", field)
        if found and offered:
            raise _refused("tools and functions are two names for one thing: give one of them", field)
        if len(offered) > MAX_TOOLS:
            raise _refused(f"holds {len(offered)} tools; the limit is {MAX_TOOLS}", field, "constraint_too_complex")
        found = [read(item, f"{field}[{index}]") for index, item in enumerate(offered)]
        _no_name_twice(found, field)
    return tuple(found)


def parse_tool_choice(body: Mapping[str, Any], tools: tuple[Tool, ...]) -> ToolChoice:
    """Raises RequestError. Nothing said means auto with tools and none without."""
    field = "tool_choice" if body.get("tool_choice") is not None else "function_call"
    said = body.get(field)
    if said is None:
        return ToolChoice("auto" if tools else "none")
    if isinstance(said, str):
        return _word(said, field, tools)
    if not isinstance(said, Mapping):
        raise _refused('must be "none", "auto", "required" or an object', field)
    kind = said.get("type", "function" if field == "tool_choice" and "function" in said else None)
    if field == "function_call" or kind in ("function", "custom", "tool"):
        name, path = _named(said, field, kind)
        _offered(name, path, tools)
        return ToolChoice("named", (name,))
    if kind == "allowed_tools":
        return _allowed(said, field, tools)
    if kind in ("none", "auto", "required"):
        return _word(kind, f"{field}.type", tools)
    raise _refused(f"{_shown(kind)} is no known choice: function, custom or allowed_tools", f"{field}.type")


def parse_parallel(body: Mapping[str, Any]) -> bool | None:
    said = body.get("parallel_tool_calls")
    if said is not None and not isinstance(said, bool):
        raise _refused("must be true or false", "parallel_tool_calls")
    return said


# --- one tool --------------------------------------------------------------------------------------------------------


def _tool(item: Any, path: str) -> Tool:
    item = _object(item, path)
    if "inputSchema" in item or "input_schema" in item:
        return _mcp(item, path)
    kind = item.get("type", "function")
    if kind == "function":
        if "function" in item:
            function, where = _object(item["function"], f"{path}.function"), f"{path}.function"
            return _function(function, where, dict(item) | {"type": "function"})
        flat = {key: value for key, value in item.items() if key != "type"}
        return _function(flat, path, {"type": "function", "function": flat})
    if kind == "custom":
        return _custom(item, path)
    raise _refused(f"{_shown(kind)} tools cannot be guarded: only function, custom and MCP tools can", f"{path}.type")


def _legacy(item: Any, path: str) -> Tool:
    function = _object(item, path)
    return _function(function, path, {"type": "function", "function": function})


def _mcp(item: dict[str, Any], path: str) -> Tool:
    field = "inputSchema" if "inputSchema" in item else "input_schema"
    function: dict[str, Any] = {"name": item.get("name"), "parameters": item[field]}
    description = item.get("description") or item.get("title")
    if description is not None:
        function["description"] = description
    paths = {"parameters": f"{path}.{field}"}
    return _function(function, path, {"type": "function", "function": function}, paths)


def _function(function: dict[str, Any], path: str, raw: dict[str, Any], paths: Mapping[str, str] | None = None) -> Tool:
    name = _name(function.get("name"), f"{path}.name")
    strict = function.get("strict")
    if strict is not None and not isinstance(strict, bool):
        raise _refused("must be true or false", f"{path}.strict")
    description = function.get("description")
    if description is not None and not isinstance(description, str):
        raise _refused("must be a string", f"{path}.description")
    parameters = function.get("parameters")
    where = (paths or {}).get("parameters", f"{path}.parameters")
    if parameters is not None:
        _check_schema(parameters, where)
    return Tool(name, parameters, bool(strict), raw)


def _custom(item: dict[str, Any], path: str) -> Tool:
    custom, where = (
        (item, path) if "custom" not in item else (_object(item["custom"], f"{path}.custom"), f"{path}.custom")
    )
    name = _name(custom.get("name"), f"{where}.name")
    form = custom.get("format")
    if form is not None:
        form = _object(form, f"{where}.format")
        kind = form.get("type", "text")
        if kind == "grammar":
            grammar = _object(form.get("grammar", form), f"{where}.format.grammar")
            if grammar.get("syntax") not in ("lark", "regex"):
                raise _refused("must be lark or regex", f"{where}.format.grammar.syntax")
            if not isinstance(grammar.get("definition"), str) or not grammar["definition"]:
                raise _refused("must be a string that is not empty", f"{where}.format.grammar.definition")
        elif kind != "text":
            raise _refused(f"{_shown(kind)} is no known format: text or grammar", f"{where}.format.type")
    raw = item if "custom" in item else {"type": "custom", "custom": {k: v for k, v in item.items() if k != "type"}}
    tool = Tool(name, None, False, raw)
    constraint = constraint_of(tool, f"{where}.format")
    if constraint is not None and len(constraint.value) <= INLINE_CHARS and "{" not in constraint.value:
        compiled_schema(constraint)
    return tool


def _name(name: Any, path: str) -> str:
    """Names reach models inside markup of every kind, so they may hold nothing that could be taken for some."""
    if not isinstance(name, str):
        raise _refused("is missing" if name is None else "must be a string", path)
    if not 0 < len(name) <= MAX_NAME:
        raise _refused(f"must be 1 to {MAX_NAME} characters long", path)
    if any(char.isspace() or not char.isprintable() or char in "\"'`<>{}[]()=｜|" for char in name):
        raise _refused("may hold no white space, quotation marks or brackets", path)
    return name


def _check_schema(schema: Any, path: str) -> None:
    if not isinstance(schema, Mapping):
        raise _refused("must be a JSON schema, which is an object", path, "invalid_constraint")
    constraint = Constraint("json_schema", schema, param=path)
    size = len(constraint.canonical)
    if size > DEFAULTS.bytes:
        raise _refused(f"has {size} bytes, and may have {DEFAULTS.bytes}", path, "constraint_too_complex")
    if size <= INLINE_BYTES:
        compiled_schema(constraint)


def _no_name_twice(tools: list[Tool], field: str) -> None:
    seen: dict[str, int] = {}
    for index, tool in enumerate(tools):
        if tool.name in seen:
            raise _refused(f"{tool.name} is also the name of {field}[{seen[tool.name]}]", f"{field}[{index}].name")
        seen[tool.name] = index


# --- the choice ------------------------------------------------------------------------------------------------------


def _word(word: str, path: str, tools: tuple[Tool, ...]) -> ToolChoice:
    if word == "none":
        return ToolChoice("none")
    if word == "auto":
        return ToolChoice("auto" if tools else "none")
    if word == "required":
        if not tools:
            raise _refused("a call is required, but no tools are offered", path)
        return ToolChoice("required")
    raise _refused(f'{_shown(word)} is no known choice: "none", "auto", "required" or an object', path)


def _named(said: Mapping[str, Any], field: str, kind: Any) -> tuple[str, str]:
    key = kind if kind in ("function", "custom") and kind in said else ""
    inner = said[key] if key else said
    path = f"{field}.{key}" if key else field
    if not isinstance(inner, Mapping):
        raise _refused("must be an object", path)
    name = inner.get("name")
    if not isinstance(name, str):
        raise _refused("is missing" if name is None else "must be a string", f"{path}.name")
    return name, f"{path}.name"


def _allowed(said: Mapping[str, Any], field: str, tools: tuple[Tool, ...]) -> ToolChoice:
    inner = said.get("allowed_tools", said)
    path = f"{field}.allowed_tools" if "allowed_tools" in said else field
    if not isinstance(inner, Mapping):
        raise _refused("must be an object", path)
    mode = inner.get("mode", "auto")
    if mode not in ("auto", "required"):
        raise _refused(f'{_shown(mode)} is no known mode: "auto" or "required"', f"{path}.mode")
    listed = inner.get("tools")
    if not isinstance(listed, list) or not listed:
        raise _refused("must be a list of at least one tool", f"{path}.tools")
    names = []
    for index, item in enumerate(listed):
        here = f"{path}.tools[{index}]"
        name, where = _named(_object(item, here), here, item.get("type", "function"))
        _offered(name, where, tools)
        names.append(name)
    return ToolChoice("allowed", tuple(dict.fromkeys(names)), required=mode == "required")


def _offered(name: str, path: str, tools: tuple[Tool, ...]) -> None:
    if not any(tool.name == name for tool in tools):
        offered = ", ".join(tool.name for tool in tools[:8]) or "none"
        raise _refused(f"{_shown(name)} is not among the tools on offer ({offered})", path)


# --- small things ----------------------------------------------------------------------------------------------------


def _object(value: Any, path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _refused("must be an object", path)
    return value


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + "…"


def _refused(message: str, path: str, code: str = "invalid_request") -> RequestError:
    return RequestError(f"{path}: {message}", param=path, code=code)
