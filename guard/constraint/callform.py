"""How a tool call is written in a model's own markup, for an engine that goes on with it as text.

Only families whose arguments are JSON have a form of their own. Of the others the form of Hermes is used, which most
models have seen, and which every parser here reads. What a form writes is read by the call checker (call_check.py), so
that nothing depends on how an engine would parse it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

Said = tuple[str, str]
"""The name and the arguments of a call."""


class CallForm(NamedTuple):
    """``begin`` stands before the first call, ``opening`` before each name, ``between`` before the arguments,
    ``closing`` behind them; ``joint`` between two calls. ``{index}`` in them is the call's number."""

    opening: str
    between: str
    closing: str
    joint: str = "\n"
    begin: str = ""

    def before_name(self, calls: Sequence[Said]) -> str:
        """Everything up to the name of the call that follows ``calls``."""
        out = [self.begin]
        for index, (name, arguments) in enumerate(calls):
            out += [_numbered(self.opening, index), json.dumps(name)[1:-1], _numbered(self.between, index), arguments]
            out += [_numbered(self.closing, index), self.joint]
        out.append(_numbered(self.opening, len(calls)))
        return "".join(out)

    def behind_name(self, index: int) -> str:
        return _numbered(self.between, index)


def _numbered(text: str, index: int) -> str:
    return text.replace("{index}", str(index))


_HERMES: Final = CallForm('<tool_call>\n{"name": "', '", "arguments": ', "}\n</tool_call>")
_FORMS: Final[Mapping[str, CallForm]] = {
    "llama3": CallForm('{"name": "', '", "parameters": ', "}", "; "),
    "mistral": CallForm("[TOOL_CALLS]", "[ARGS]", "", ""),
    "deepseek_v3": CallForm(
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
        "\n```json\n",
        "\n```<｜tool▁call▁end｜>",
        begin="<｜tool▁calls▁begin｜>",
    ),
    "deepseek_v3_1": CallForm(
        "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>", "", "<｜tool▁calls▁begin｜>"
    ),
    "kimi_k2": CallForm(
        "<|tool_call_begin|>functions.",
        ":{index}<|tool_call_argument_begin|>",
        "<|tool_call_end|>",
        "",
        "<|tool_calls_section_begin|>",
    ),
    "phi_4": CallForm('<|tool_call|>[{"name": "', '", "arguments": ', "}]<|/tool_call|>"),
    "granite": CallForm('<tool_call>[{"name": "', '", "arguments": ', "}]"),
    "longcat": CallForm('<longcat_tool_call>\n{"name": "', '", "arguments": ', "}\n</longcat_tool_call>"),
}


def call_form(format: str) -> CallForm:
    """Of a key of families.FORMATS."""
    return _FORMS.get(format, _HERMES)
