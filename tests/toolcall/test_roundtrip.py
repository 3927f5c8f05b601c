"""Any arguments, written in any family's markup and cut anywhere, are read back as they were."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guard.constraint.formats.content import ContentToolParser
from guard.constraint.formats.contract import TextCall
from guard.constraint.toolcall import ToolCallGuard
from guard.constraint.tools import parse_tools
from guard.events import TextDelta, ToolRelease
from guard.request import ToolChoice

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "count": {"type": "integer"},
        "ratio": {"type": ["number", "null"]},
        "flag": {"type": "boolean"},
        "list": {"type": "array", "items": {"type": "string"}},
        "deep": {"$ref": "#/$defs/deep"},
    },
    "$defs": {"deep": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}}},
}
TOOLS = parse_tools({"tools": [{"name": "do_it", "inputSchema": SCHEMA}, {"name": "do", "inputSchema": {}}]})
Arguments = dict[str, Any]


def dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def bare(value: Any) -> str:
    return value if isinstance(value, str) else dumps(value)


def hermes(a: Arguments) -> str:
    return f'<tool_call>\n{{"name": "do_it", "arguments": {dumps(a)}}}\n</tool_call>'


def qwen_coder(a: Arguments) -> str:
    parameters = "".join(f"<parameter={k}>\n{bare(v)}\n</parameter>\n" for k, v in a.items())
    return f"<tool_call>\n<function=do_it>\n{parameters}</function>\n</tool_call>"


def mimo(a: Arguments) -> str:
    parameters = "".join(f"<parameter={k}>{bare(v)}</parameter>" for k, v in a.items())
    return f"<tool_call><function=do_it>{parameters}</function></tool_call>"


def glm(a: Arguments) -> str:
    pairs = "".join(f"<arg_key>{k}</arg_key>\n<arg_value>{bare(v)}</arg_value>\n" for k, v in a.items())
    return f"<tool_call>do_it\n{pairs}</tool_call>"


def minimax(a: Arguments) -> str:
    parameters = "".join(f'<parameter name="{k}">{bare(v)}</parameter>\n' for k, v in a.items())
    return f'<minimax:tool_call>\n<invoke name="do_it">\n{parameters}</invoke>\n</minimax:tool_call>'


def dsml(a: Arguments) -> str:
    parameters = "".join(
        f'<｜DSML｜parameter name="{k}" string="{dumps(isinstance(v, str))}">{bare(v)}</｜DSML｜parameter>\n'
        for k, v in a.items()
    )
    return f'<｜DSML｜tool_calls>\n<｜DSML｜invoke name="do_it">\n{parameters}</｜DSML｜invoke>\n</｜DSML｜tool_calls>'


def deepseek_v3(a: Arguments) -> str:
    call = f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>do_it\n```json\n{dumps(a)}\n```<｜tool▁call▁end｜>"
    return f"<｜tool▁calls▁begin｜>{call}<｜tool▁calls▁end｜>"


def kimi(a: Arguments) -> str:
    call = f"<|tool_call_begin|>functions.do_it:0<|tool_call_argument_begin|>{dumps(a)}<|tool_call_end|>"
    return f"<|tool_calls_section_begin|>{call}<|tool_calls_section_end|>"


def kimi_k3(a: Arguments) -> str:
    kinds = {str: "string", bool: "boolean", int: "number", float: "number", list: "array", dict: "object"}
    arguments = "".join(
        f'<|open|>argument key="{k}" type="{kinds.get(type(v), "null")}"<|sep|>{bare(v)}<|close|>argument<|sep|>'
        for k, v in a.items()
    )
    call = f'<|open|>call tool="do_it" index="1"<|sep|>{arguments}<|close|>call<|sep|>'
    return f"<|open|>tools<|sep|>{call}<|close|>tools<|sep|>"


def m3(a: Arguments) -> str:
    ns = "]<]minimax[>["

    def element(tag: str, value: Any) -> str:
        if isinstance(value, dict):
            inner = "".join(element(k, v) for k, v in value.items())
        elif isinstance(value, list):
            inner = "".join(element("item", v) for v in value)
        else:
            inner = bare(value)
        return f"{ns}<{tag}>{inner}{ns}</{tag}>"

    inner = "".join(element(k, v) for k, v in a.items())
    return f'{ns}<tool_call>\n{ns}<invoke name="do_it">{inner}{ns}</invoke>\n{ns}</tool_call>'


def gemma(a: Arguments) -> str:
    def value(v: Any) -> str:
        if isinstance(v, str):
            return f'<|"|>{v}<|"|>'
        if isinstance(v, dict):
            return "{" + ",".join(f"{k}:{value(x)}" for k, x in v.items()) + "}"
        if isinstance(v, list):
            return "[" + ",".join(map(value, v)) + "]"
        return dumps(v)

    return f"<|tool_call>call:do_it{value(a)}<tool_call|>"


def pythonic(a: Arguments) -> str:
    return "[do_it(" + ", ".join(f"{k}={v!r}" for k, v in a.items()) + ")]"


def harmony(a: Arguments) -> str:
    return f"<|channel|>commentary to=functions.do_it <|constrain|>json<|message|>{dumps(a)}<|call|>"


def mistral(a: Arguments) -> str:
    return f"[TOOL_CALLS]do_it[ARGS]{dumps(a)}"


def cofl(a: Arguments) -> str:
    def value(v: Any, name: str = "") -> str:
        named = f' name="{name}"' if name else ""
        if isinstance(v, str):
            kind, inner = "raw", v
        elif isinstance(v, dict):
            kind, inner = "dict", "".join(value(x, k) for k, x in v.items())
        elif isinstance(v, list):
            kind, inner = "list", "".join(value(x) for x in v)
        else:
            kind, inner = "json", dumps(v)
        return f'<cofl:value{named} type="{kind}">{inner}</cofl:value>'

    inner = "".join(value(v, k) for k, v in a.items())
    return f'<cofl:tool_calls><cofl:tool_call id="0" name="do_it">{inner}</cofl:tool_call></cofl:tool_calls>'


FAMILIES: list[Callable[[Arguments], str]] = [
    *(hermes, qwen_coder, mimo, glm, minimax, dsml, deepseek_v3, kimi, kimi_k3, m3, gemma, pythonic, harmony, mistral),
    cofl,
]

WORDS = st.sampled_from(
    [
        *(
            "a",
            " ",
            "\n",
            '"',
            "'",
            "\\",
            "<",
            ">",
            "</",
            "</b>",
            "{",
            "}",
            "[",
            "]",
            "`",
            "```",
            "é",
            "😀",
            "\t",
            ":",
            ",",
        ),
        *("</param", "<arg", "null", "true", "5", "<|", "|>", "<thin", "\u2028", "\x7f", "<｜"),
    ]
)
# what no family can carry in a bare value is its own closing tag, which these do not spell
TEXTS = st.lists(WORDS, max_size=8).map("".join)
ARGUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "text": TEXTS,
        "count": st.integers(-(10**20), 10**20),
        "ratio": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "flag": st.booleans(),
        "list": st.lists(TEXTS, min_size=1, max_size=3),
        "deep": st.fixed_dictionaries({}, optional={"a": TEXTS, "b": st.integers()}),
    },
)


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=40, deadline=None)
@given(arguments=ARGUMENTS, data=st.data())
def test_round_trip(family: Callable[[Arguments], str], arguments: Arguments, data: st.DataObject) -> None:
    text = family(arguments)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    parser = ContentToolParser("auto", TOOLS, ToolChoice())
    guard = ToolCallGuard(TOOLS, ToolChoice(), mint=str)
    out: list[Any] = []
    for piece in pieces:
        out += parser.feed(TextDelta(0, "content", piece))
    out += parser.finish()
    released = ""
    for piece in out:
        assert not isinstance(piece, TextDelta), piece
        if isinstance(piece, TextCall):
            for said in guard.feed(piece):
                assert isinstance(said, ToolRelease), said
                released += said.arguments
    for said in guard.finish():
        assert isinstance(said, ToolRelease) or said.code == "tool.empty_arguments", said
        released += said.arguments if isinstance(said, ToolRelease) else ""
    assert json.loads(released) == arguments


@pytest.mark.parametrize("family", [qwen_coder, mimo, glm, minimax])
@pytest.mark.parametrize("space", ["\u2028", "\u2029", "\x0b", "\x0c", "\x1f", "\x85", "\u3000", "\xa0"])
def test_a_closing_tag_within_a_value_reads_the_same_in_every_split(
    family: Callable[[Arguments], str], space: str
) -> None:
    closing = "</arg_value>" if family is glm else "</parameter>"
    text = family({"text": f"a{closing}{space}b{closing}{space}", "count": 3})

    def read(pieces: list[str]) -> list[tuple[Any, ...]]:
        parser = ContentToolParser("auto", TOOLS, ToolChoice())
        out = [one for piece in pieces for one in parser.feed(TextDelta(0, "content", piece))] + parser.finish()
        said = "".join(one.arguments for one in out if isinstance(one, TextCall))
        left = "".join(one.text for one in out if isinstance(one, TextDelta))
        return [(said, left)]

    whole = read([text])
    for size in (1, 2, 3):
        assert read([text[at : at + size] for at in range(0, len(text), size)]) == whole
