"""What is to be answered: the messages of a chat, or the prompt of a completion. Pure.

Only the outline is checked, with the path of what is wrong; parts the guard need not understand stay as they came.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from guard.request import RequestError
from guard.values import shown, text, wrong

ROLES: Final = ("system", "developer", "user", "assistant", "tool", "function")


def read_messages(messages: Any) -> list[dict[str, Any]]:
    if messages is None:
        raise RequestError("you must provide messages", "messages", "missing_required_parameter")
    if not isinstance(messages, list):
        raise wrong("messages", "a list of messages", messages)
    if not messages:
        raise RequestError("must hold at least one message, and is empty", "messages", "empty_array")
    for i, message in enumerate(messages):
        path = f"messages[{i}]"
        if not isinstance(message, dict):
            raise wrong(path, "an object", message)
        role = message.get("role")
        if role is None:
            raise RequestError("is missing", f"{path}.role", "missing_required_parameter")
        if not isinstance(role, str):
            raise wrong(f"{path}.role", "a string", role)
        if role not in ROLES:
            raise RequestError(f"must be one of {', '.join(ROLES)}, and is {shown(role)}", f"{path}.role")
        _content(message, role, f"{path}.content")
        if message.get("name") is not None:
            text(message["name"], f"{path}.name")
        if message.get("tool_call_id") is not None:
            text(message["tool_call_id"], f"{path}.tool_call_id")
        _past_calls(message.get("tool_calls"), f"{path}.tool_calls")
    return messages


def _content(message: Mapping[str, Any], role: str, path: str) -> None:
    content = message.get("content")
    if content is None:
        # an assistant may have said nothing but tool calls, or a refusal; nobody else says nothing
        if role not in ("assistant", "function"):
            raise RequestError("is missing", path, "missing_required_parameter")
        return
    if isinstance(content, str):
        return
    if not isinstance(content, list):
        raise wrong(path, "a string or a list of parts", content)
    for i, part in enumerate(content):
        if isinstance(part, str):
            continue  # vLLM and SGLang take plain strings among the parts
        if not isinstance(part, dict):
            raise wrong(f"{path}[{i}]", "an object", part)
        kind = part.get("type")
        if kind is None:
            raise RequestError("is missing", f"{path}[{i}].type", "missing_required_parameter")
        if text(kind, f"{path}[{i}].type") == "text":
            text(part.get("text"), f"{path}[{i}].text")


def _past_calls(calls: Any, path: str) -> None:
    if calls is None:
        return
    if not isinstance(calls, list):
        raise wrong(path, "a list of tool calls", calls)
    for i, call in enumerate(calls):
        if not isinstance(call, dict):
            raise wrong(f"{path}[{i}]", "an object", call)
        function = call.get("function")
        if function is None:
            continue  # a custom tool's call has another shape
        if not isinstance(function, dict):
            raise wrong(f"{path}[{i}].function", "an object", function)
        text(function.get("name"), f"{path}[{i}].function.name")


def read_prompt(prompt: Any, path: str = "prompt") -> str | tuple[int, ...]:
    """One prompt: text, token ids, or a list with one of these in it."""
    if prompt is None:
        raise RequestError("you must provide a prompt", path, "missing_required_parameter")
    if isinstance(prompt, str):
        if not prompt:
            raise RequestError("must not be empty", path)
        return prompt
    if not isinstance(prompt, list):
        raise wrong(path, "a string or a list of token ids", prompt)
    if not prompt:
        raise RequestError("must not be empty", path, "empty_array")
    if path == "prompt" and isinstance(prompt[0], (str, list)):
        if len(prompt) > 1:
            raise RequestError(
                f"holds {len(prompt)} prompts: one request is one prompt here; send them as requests of their own, at"
                " once",
                path,
                "unsupported_value",
            )
        return read_prompt(prompt[0], "prompt[0]")
    for i, token in enumerate(prompt):
        if type(token) is not int or not 0 <= token <= 2**31 - 1:
            raise wrong(f"{path}[{i}]", "a token id", token)
    return tuple(prompt)
