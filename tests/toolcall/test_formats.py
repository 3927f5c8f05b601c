"""Every family's markup is read, whole or cut anywhere, and nothing is made of what is no call."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors import markup
from guard.constraint.formats.content import ContentToolParser
from guard.constraint.formats.contract import TextCall
from guard.constraint.tools import parse_tools
from guard.events import Finding, Repair, TextDelta
from guard.request import ToolChoice

DATA = json.loads(Path(__file__).with_name("families.json").read_text())
SCHEMA: dict[str, Any] = DATA["schema"]
FULL, SHORT = DATA["calls"]
SAMPLES: dict[str, str] = DATA["answers"]
"""One answer a family, in its own markup. Each makes two calls of ``f``: with FULL, then with SHORT."""


def format_of(sample: str) -> str:
    base = sample.split(" ")[0]
    return {"deepseek_v4_1": "deepseek_v4"}.get(base, base)


TOOLS = parse_tools({"tools": [{"name": "f", "inputSchema": SCHEMA}, {"name": "g", "inputSchema": {"type": "object"}}]})


class Read:
    def __init__(self, pieces: list[str], format: str = "auto", choice: str = "auto", **options: Any) -> None:
        self.texts: dict[str, str] = {}
        self.calls: list[list[str]] = []
        self.ids: list[str | None] = []
        self.findings: list[tuple[str, str]] = []
        self.repairs: list[str] = []
        self.seen: list[str] = []
        tools = options.pop("tools", TOOLS)
        parser = ContentToolParser(format, tools, ToolChoice(choice), **options)  # type: ignore[arg-type]
        for piece in pieces:
            self._take(parser.feed(TextDelta(0, "content", piece)))
            self.seen.append(self.texts.get("content", ""))
        self._take(parser.finish())

    def _take(self, out: list[Any]) -> None:
        for piece in out:
            if isinstance(piece, TextDelta):
                self.texts[piece.channel] = self.texts.get(piece.channel, "") + piece.text
            elif isinstance(piece, TextCall):
                if piece.name is not None:
                    assert piece.index == len(self.calls)
                    self.calls.append([piece.name, piece.arguments])
                    self.ids.append(piece.id)
                else:
                    assert piece.index == len(self.calls) - 1
                    self.calls[-1][1] += piece.arguments
            elif isinstance(piece, Finding):
                self.findings.append((piece.code, piece.severity))
            else:
                assert isinstance(piece, Repair)
                self.repairs.append(piece.code)

    @property
    def text(self) -> str:
        return self.texts.get("content", "")

    def same(self, other: Read) -> bool:
        mine, theirs = ((r.texts, r.calls, r.ids, r.findings, r.repairs) for r in (self, other))
        return mine == theirs


def cut(text: str, at: list[int]) -> list[str]:
    return [text[a:b] for a, b in zip([0, *at], [*at, len(text)], strict=True)]


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("told", [True, False], ids=["told", "auto"])
def test_family(sample: str, told: bool) -> None:
    text = SAMPLES[sample]
    got = Read([text], format_of(sample) if told else "auto")
    assert [name for name, _ in got.calls] == ["f", "f"]
    assert [json.loads(arguments) for _, arguments in got.calls] == [FULL, SHORT]
    assert got.text == ""
    assert got.findings == ([] if told else [("leak.tool_markup", "warn")])
    assert got.repairs == ([] if told else ["leak.tool_markup"])
    for pieces in (list(text), cut(text, list(range(3, len(text), 3)))):
        assert Read(pieces, format_of(sample) if told else "auto").same(got)


@pytest.mark.parametrize("sample", SAMPLES)
def test_family_cut_short_anywhere_is_never_completed(sample: str) -> None:
    text = SAMPLES[sample]
    for end in range(1, len(text)):
        got = Read([text[:end]], format_of(sample))
        if len(got.calls) == 2:
            assert json.loads(got.calls[0][1]) == FULL
        for name, arguments in got.calls:
            assert name == "f"
            try:
                whole = json.loads(arguments)
            except ValueError:
                continue
            assert whole in (FULL, SHORT)


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_further_call_that_is_cut_before_its_name_is_told(sample: str) -> None:
    text = SAMPLES[sample]
    named = next(end for end in range(len(text)) if len(Read([text[:end]], format_of(sample)).calls) == 2)
    got = Read([text[: named - 1]], format_of(sample))
    assert len(got.calls) == 1
    # or its markup stays in the text, where it is a leak
    assert ("tool.truncated", "error") in got.findings or markup.find(got.text)
    assert Read(list(text[: named - 1]), format_of(sample)).same(got)


def test_text_around_a_call_is_kept() -> None:
    for sample in ("hermes", "kimi_k2", "mistral new", "minimax", "gemma_4"):
        text = f"Let me see: a < b [1].\n\n{SAMPLES[sample]}\n\nDone."
        got = Read([text])
        assert got.text == "Let me see: a < b [1].\n\n\n\nDone."
        assert len(got.calls) == 2
        assert Read(list(text)).same(got)


def test_white_space_alone_is_part_of_the_markup() -> None:
    assert Read(["\n\n" + SAMPLES["hermes"] + "\n"]).texts == {}
    assert Read(["\n\n", "\n"]).text == "\n\n\n"


ORDINARY = [
    "plain text",
    "a < b, x[0] = {1: 2}, <b>bold</b>, [link](url), `code`, ~~no~~",
    "Hermes writes <tool_call> tags around its calls.",
    '`<tool_call>{"name": "f", "arguments": {}}</tool_call>` is a call',
    '```\n<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>\n```\nThat was one.',
    "[f for f in files]",
    '{"name": "Ada", "arguments": []}',
    '{"name": "ff", "parameters": {}}',
    "[1, 2, 3]",
    "<function=unknown> is not offered",
    "<",
    "[TOOL_CALL",
]


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_passes(text: str) -> None:
    for pieces in ([text], list(text)):
        got = Read(pieces)
        assert (got.text, got.calls, got.findings) == (text, [], [])


def test_calm_text_is_not_held() -> None:
    got = Read(["Hel", "lo ", "wor", "ld <", "b> no"])
    assert got.seen == ["Hel", "Hello ", "Hello wor", "Hello world ", "Hello world <b> no"]


def test_under_tool_choice_none_markup_is_text() -> None:
    text = SAMPLES["hermes"]
    got = Read([text], choice="none")
    assert (got.text, got.calls) == (text, [])
    assert Read([text], tools=()).text == text


BROKEN = [
    '<tool_call>\n{"nome": "f"}\n</tool_call>',
    "<|tool_calls_section_begin|>nothing<|tool_calls_section_end|>",
    "<｜tool▁calls▁begin｜>f<｜tool▁calls▁end｜>",
    "<｜DSML｜function_calls>\n</｜DSML｜function_calls>",
    "<minimax:tool_call>f()</minimax:tool_call>",
    "[TOOL_CALLS] [f]",
    "<|tool_call>f{}",
]


@pytest.mark.parametrize("text", BROKEN)
def test_markup_that_is_no_call_is_said_and_left_as_text(text: str) -> None:
    got = Read([text])
    assert got.text == text
    assert got.calls == []
    assert got.findings[0] == ("tool.malformed_markup", "error")
    assert Read(list(text)).same(got)


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>\n{"name": "get_',
        "<tool_call>\n<function=f",
        "<|channel|>commentary to=functions.f",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions",
        "[TOOL_CALLS]f",
        "<｜tool▁calls▁begin｜>",
    ],
)
def test_markup_that_is_cut_off_is_neither_text_nor_a_call(text: str) -> None:
    got = Read(["Hm. " + text])
    assert (got.text, got.calls, got.findings) == ("Hm. ", [], [("tool.truncated", "error")])
    assert Read(list("Hm. " + text)).same(got)


BROKEN_LATER = [
    "<tool_call>\n<function=f>\n<b></function>\n</tool_call>",
    "<tool_call>f<arg_key>s</arg_key><arg_value>v</arg_value><arg_key>s</arg_key><arg_value>w</arg_value></tool_call>",
    "<tool_call>f<arg_key>s</arg_key></tool_call>",
    '<minimax:tool_call><invoke name="f"><parameter>v</parameter></invoke></minimax:tool_call>',
    "[f(s='v', open('x'))]",
    "[f('v')]",
    "<|tool_call>call:f{s:what}<tool_call|>",
    '<|open|>call tool="f"<|sep|><|close|>tools<|sep|>',
    f'{"]<]minimax[>["}<tool_call>{"]<]minimax[>["}<invoke name="f">v{"]<]minimax[>["}</invoke>',
]


@pytest.mark.parametrize("text", BROKEN_LATER)
def test_a_call_that_breaks_is_an_error_and_stays_open(text: str) -> None:
    got = Read([text])
    assert ("tool.malformed_markup", "error") in got.findings
    with pytest.raises(ValueError, match=r".*"):
        json.loads(got.calls[0][1])
    assert Read(list(text)).same(got)


def test_glm_without_an_opening_tag_is_mended_and_said() -> None:
    text = "<tool_call>f<arg_key>s</arg_key>vacation days left</arg_value></tool_call>"
    got = Read([text], "glm_4_5")
    assert got.calls == [["f", '{"s": "vacation days left"}']]
    assert (got.findings, got.repairs) == ([("tool.malformed_markup", "warn")], ["tool.malformed_markup"])


def test_qwen_coder_without_its_first_tag() -> None:
    got = Read(["<function=f>\n<parameter=s>\nv\n</parameter>\n</function>\n</tool_call>"], "qwen_3_coder")
    assert (got.calls, got.text) == ([["f", '{"s": "v"}']], "")


def test_invoke_elements_without_their_outer_tag() -> None:
    got = Read(['<invoke name="f">\n<parameter name="s">v</parameter>\n</invoke>\n</minimax:tool_call>'])
    assert (got.calls, got.text) == ([["f", '{"s": "v"}']], "")
    text = '<invoke name="other"><parameter name="s">v</parameter></invoke>'
    assert Read([text]).text == text


def test_a_closing_tag_inside_a_value_belongs_to_it() -> None:
    value = "<p>\n</parameter>\nmore </arg_value> text"
    got = Read([f"<tool_call>\n<function=f>\n<parameter=s>\n{value}\n</parameter>\n</function>\n</tool_call>"])
    assert json.loads(got.calls[0][1]) == {"s": value}


def test_kimi_ids_are_kept() -> None:
    assert Read([SAMPLES["kimi_k2"]]).ids == ["functions.f:0", "functions.f:1"]
    assert Read([SAMPLES["mistral new"]]).ids == [None, "abc123DEF"]


def test_llama_built_in_tool() -> None:
    got = Read(['<|python_tag|>g.call(query="x")<|eom_id|>'], "llama3")
    assert got.calls == [["g", '{"query": "x"}']]


def test_double_encoded_arguments_pass_as_they_are() -> None:
    got = Read(['<tool_call>{"name": "f", "arguments": "{\\"s\\": \\"v\\"}"}</tool_call>'])
    assert got.calls == [["f", '"{\\"s\\": \\"v\\"}"']]


def test_harmony_channels() -> None:
    text = (
        "<|channel|>analysis<|message|>Think <hard>.<|end|>"
        "<|start|>assistant<|channel|>commentary<|message|>Let me look."
        '<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"s": "v"}<|call|>'
    )
    for pieces in ([text], list(text)):
        got = Read(pieces, "harmony")
        assert got.texts == {"reasoning": "Think <hard>.", "content": "Let me look."}
        assert (got.calls, got.findings) == ([["f", '{"s": "v"}']], [])
    got = Read([" to=functions.f<|channel|>commentary <|constrain|>json<|message|>{}<|call|>"], "harmony")
    assert got.calls == [["f", "{}"]]
    assert Read([text]).findings[0] == ("leak.role_marker", "warn")


def test_kimi_k3_channels() -> None:
    text = "hm<|close|>think<|sep|><|open|>response<|sep|>Hello <b>.<|close|>response<|sep|><|close|>message<|sep|>"
    for pieces in ([text], list(text)):
        got = Read(pieces, "kimi_k3", begins_in="reasoning")
        assert got.texts == {"reasoning": "hm", "content": "Hello <b>."}
        assert got.findings == []


def test_token_ids_go_with_the_text_they_made() -> None:
    parser = ContentToolParser("auto", TOOLS, ToolChoice())
    out = parser.feed(TextDelta(0, "content", "a <", (1, 2)))
    out += parser.feed(TextDelta(0, "content", "b>", (3,)))
    out += parser.feed(TextDelta(0, "content", '<tool_call>{"name": "g", ', (4, 5)))
    out += parser.feed(TextDelta(0, "content", '"arguments": {}}', (6,)))
    out += parser.feed(TextDelta(0, "content", "</tool_call>", (7,)))
    out += parser.finish()
    pieces = [piece for piece in out if isinstance(piece, TextDelta | TextCall)]
    assert [i for piece in pieces for i in piece.token_ids or ()] == [1, 2, 3, 4, 5, 6, 7]
    assert "".join(piece.text for piece in pieces if isinstance(piece, TextDelta)) == "a <b>"


@pytest.mark.parametrize("opening", ["<tool_call>", "[", "<|open|>", "<function=", "[TOOL_CALLS]", "<|channel|>", "{"])
def test_what_never_ends_is_not_waited_for(opening: str) -> None:
    for filler in ("x" * 1000, " " * 1000, "x(" + "y" * 1000):
        text = opening + filler
        whole = Read([text])
        assert Read(list(text)).same(whole)
        assert Read(cut(text, list(range(7, len(text), 7)))).same(whole)


FRAGMENTS = st.sampled_from(
    [
        *SAMPLES.values(),
        *(
            "word ",
            "word" * 80,
            " " * 80,
            "\n",
            "`",
            "```\n",
            "<",
            "[",
            "{",
            '"',
            "</tool_call>",
            "<tool_call>",
            "<|",
            "|>",
            "]<]minimax[>[",
        ),
        *(
            "[TOOL_CALLS]",
            "f",
            "<arg_key>",
            "</arg_value>",
            "<|channel|>final<|message|>",
            "<|open|>",
            "<｜DSML｜",
            "}}",
        ),
    ]
)


@settings(max_examples=250, deadline=None)
@given(st.lists(FRAGMENTS, max_size=5), st.data())
def test_any_split_gives_the_same(parts: list[str], data: st.DataObject) -> None:
    text = "".join(parts)
    at = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=10)))
    whole = Read([text])
    assert Read(cut(text, at)).same(whole)
    assert Read(list(text)).same(whole)
