"""How several families write a JSON object as tags, one an argument: the styles of xgrammar whose values are text or
JSON. Those that write what is within a value as tags too (MiniMax M3, Cohere, Gemma) are left to xgrammar."""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple


class Style(NamedTuple):
    """``head`` reads on behind ``opening``: the key, and what says whether the value is text (``"true"``, ``"string"``)
    where the style says so. ``begun``: whether a head may still become one."""

    opening: str
    head: re.Pattern[str]
    begun: re.Pattern[str]
    closing: str


def _style(opening: str, head: str, closing: str) -> Style:
    return Style(opening, re.compile(head), _beginning(head), closing)


def _beginning(head: str) -> re.Pattern[str]:
    """Whatever ``head`` can begin with: each of its pieces may be the last, and be cut."""
    pieces = re.findall(r"\(.*?\)|\[[^\]]*\][*+]|\\.|[^\\]", head)
    out = ""
    for piece in reversed(pieces):
        out = f"(?:{piece}{out})?" if out else f"(?:{piece})?"
    return re.compile(out)


_KEY: Final = r"([^<>\"\n]*)"
STYLES: Final = {
    "qwen_xml": _style("<parameter=", rf"{_KEY}>", "</parameter>"),
    "minimax_xml": _style('<parameter name="', rf'{_KEY}">', "</parameter>"),
    "deepseek_xml": _style('<｜DSML｜parameter name="', rf'{_KEY}" string="([a-z]*)">', "</｜DSML｜parameter>"),
    "deepseek_v4_1_xml": _style('<｜DSML｜ parameter name="', rf'{_KEY}" string="([a-z]*)">', "</｜DSML｜ parameter>"),
    "glm_xml": _style("<arg_key>", rf"{_KEY}</arg_key>[ \t\r\n]*<arg_value>", "</arg_value>"),
    "kimi_k3_xml": _style('<|open|>argument key="', rf'{_KEY}" type="([a-z]*)"<\|sep\|>', "<|close|>argument<|sep|>"),
}
SAYS_TEXT: Final = {"true": True, "false": False, "string": True}


def written_as(node: dict[str, Any]) -> str:
    """The style of a JSON schema in a structural tag: ``json``, a key of STYLES, or empty where only xgrammar reads
    it."""
    style = "qwen_xml" if node.get("type") == "qwen_xml_parameter" else node.get("style", "json")
    return "" if node.get("excludes") or (style != "json" and style not in STYLES) else str(style)
