"""Reasoning left in the content: which family, what is split off, and what is only about such markup."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guard.cases import judge
from guard.constraint.formats.reasoning import FORMATS, Form, reasoning_form
from guard.constraint.formats.splitter import MAX_HELD, ReasoningSplitter
from guard.events import Finding, Repair, TextDelta

Split = tuple[str, str]


def form(format: str = "auto", model: str = "m", **known: Any) -> Form:
    found = reasoning_form(format, model, **known)
    assert found is not None
    return found


def run(parts: Sequence[str], asked: Form, *, told: bool = True, inside: bool = False) -> tuple[Split, list[str], str]:
    """(reasoning, content), the codes of what was said of it, and the text before the content."""
    splitter = ReasoningSplitter(asked, told=told, inside=inside)
    pieces = [piece for part in parts for piece in splitter.feed(TextDelta(0, "content", part))]
    pieces += splitter.finish()
    said = {"reasoning": "", "content": ""}
    codes: list[str] = []
    for piece in pieces:
        if isinstance(piece, TextDelta):
            said[piece.channel] += piece.text
        else:
            codes.append(piece.code)
    return (said["reasoning"], said["content"]), codes, splitter.lead


def split(text: str, asked: Form, **how: Any) -> Split:
    return run([text], asked, **how)[0]


# (format, model, text, reasoning, content)
TABLE: list[tuple[str, str, str, str, str]] = [
    # --- any family's marker, when the model is of none ---
    ("auto", "m", "<think>hm</think>Answer.", "hm", "Answer."),
    ("auto", "m", "\n<think>\nhm\n\nyes\n</think>\n\nAnswer.\n", "hm\n\nyes", "Answer.\n"),
    ("auto", "m", "<think>\n\n</think>\n\nAnswer.", "", "Answer."),
    ("auto", "m", "<think>hm", "hm", ""),
    ("auto", "m", "<think>a <b> c</think>d", "a <b> c", "d"),
    ("auto", "m", "<thinking>hm</thinking> Answer.", "hm", "Answer."),
    ("auto", "m", "[THINK]hm[/THINK]Answer.", "hm", "Answer."),
    ("auto", "m", "◁think▷hm◁/think▷Answer.", "hm", "Answer."),
    ("auto", "m", "<mm:think>hm</mm:think>Answer.", "hm", "Answer."),
    ("auto", "m", "<seed:think>hm</seed:think>Answer.", "hm", "Answer."),
    ("auto", "m", "<longcat_think>hm</longcat_think>Answer.", "hm", "Answer."),
    ("auto", "m", "<|channel>thought\nhm\n<channel|>Answer.", "hm", "Answer."),
    ("auto", "m", "<|inner_prefix|>hm<|inner_suffix|>Answer.", "hm", "Answer."),
    (
        "auto",
        "m",
        "<|START_THINKING|>hm<|END_THINKING|><|START_RESPONSE|>Answer.<|END_RESPONSE|>",
        "hm",
        "Answer.",
    ),
    ("auto", "m", "<|START_RESPONSE|>Answer.<|END_RESPONSE|>", "", "Answer."),
    ("auto", "m", "<think>hm</think>\n<answer>\nA. b\n</answer>", "hm", "A. b"),
    ("auto", "m", "<think>hm</think><response>Answer.</response>", "hm", "Answer."),
    (
        "auto",
        "m",
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Answer.<|return|>",
        "hm",
        "Answer.",
    ),
    ("auto", "m", "<|channel|>final<|message|>Answer.", "", "Answer."),
    (
        "auto",
        "m",
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary to=functions.f"
        "<|constrain|>json<|message|>{}<|call|>",
        "hm",
        "<|channel|>commentary to=functions.f<|constrain|>json<|message|>{}<|call|>",
    ),
    (
        "auto",
        "m",
        "<|open|>think<|sep|>hm<|close|>think<|sep|><|open|>response<|sep|>Answer.<|close|>response<|sep|>"
        "<|close|>message<|sep|>",
        "hm",
        "Answer.",
    ),
    (
        "auto",
        "m",
        '<|open|>think<|sep|>hm<|close|>think<|sep|><|open|>tools<|sep|><|open|>call tool="f" index="1"<|sep|>',
        "hm",
        '<|open|>tools<|sep|><|open|>call tool="f" index="1"<|sep|>',
    ),
    # --- only what the answer begins with ---
    ("auto", "m", "Answer. <think>hm</think>", "", "Answer. <think>hm</think>"),
    ("auto", "m", "notes\n</think>Answer.", "", "notes\n</think>Answer."),
    ("auto", "m", "<thi", "", "<thi"),
    ("auto", "m", "<b>bold</b>", "", "<b>bold</b>"),
    ("auto", "m", "", "", ""),
    ("auto", "m", "  \n", "", "  \n"),
    ("auto", "m", "\n" * 70 + "<think>hm</think>", "", "\n" * 70 + "<think>hm</think>"),
    # --- text about the markup ---
    ("auto", "m", "<think> tags open the reasoning.", "", "<think> tags open the reasoning."),
    ("auto", "m", "<think>", "", "<think>"),
    ("auto", "m", "`<think>` opens it, `</think>` closes it", "", "`<think>` opens it, `</think>` closes it"),
    ("auto", "m", '"<think>" opens it', "", '"<think>" opens it'),
    ("auto", "m", "```\n<think>hm</think>\n```", "", "```\n<think>hm</think>\n```"),
    ("auto", "m", "<think>close it with `</think>`.\n</think>Answer.", "close it with `</think>`.", "Answer."),
    ("auto", "m", "<think>the </think> tag\n</think>Answer.", "the </think> tag", "Answer."),
    ("auto", "m", '<think>say "</think>" now\n</think> tag it', 'say "</think>" now', "tag it"),
    # --- a block that the prompt opened ---
    ("think_opened", "m", "hm\n</think>\n\nAnswer.", "hm", "Answer."),
    ("think_opened", "m", "hm", "hm", ""),
    ("think_opened", "m", "<think>\nhm</think>Answer.", "hm", "Answer."),
    ("seed_opened", "m", "hm</seed:think>Answer.", "hm", "Answer."),
    ("kimi_k3_opened", "m", "hm<|close|>think<|sep|><|open|>response<|sep|>A.<|close|>response<|sep|>", "hm", "A."),
    ("auto", "DeepSeek-R1-Distill-Qwen-7B", "hm\n</think>\n\nAnswer.", "hm", "Answer."),
    ("auto", "Qwen/Qwen3-4B-Thinking-2507", "\nhm\n</think>\n\nAnswer.", "hm", "Answer."),
    ("auto", "Qwen/QwQ-32B", "Answer, without any.", "", "Answer, without any."),
    ("auto", "MiniMaxAI/MiniMax-M2", "<think>hm</think>Answer.", "hm", "Answer."),
    ("auto", "moonshotai/Kimi-K3", "hm<|close|>think<|sep|><|open|>response<|sep|>A.", "hm", "A."),
    ("auto", "moonshotai/Kimi-K3", "Answer.<|close|>response<|sep|><|close|>message<|sep|>", "", "Answer."),
    ("auto", "moonshotai/Kimi-K3", "Answer.", "", "Answer."),
    # a model that opens its blocks itself closes none that it did not open
    ("auto", "Qwen/Qwen3-8B", "notes\n</think>Answer.", "", "notes\n</think>Answer."),
    ("auto", "openai/gpt-oss-20b", "<think>hm</think>Answer.", "", "<think>hm</think>Answer."),
    ("think", "gpt-oss", "<think>hm</think>Answer.", "hm", "Answer."),
    ("think", "m", "[THINK]hm[/THINK]Answer.", "", "[THINK]hm[/THINK]Answer."),
]


@pytest.mark.parametrize(("format", "model", "text", "reasoning", "content"), TABLE)
def test_what_is_split_off(format: str, model: str, text: str, reasoning: str, content: str) -> None:
    asked = form(format, model)
    whole = run([text], asked)
    assert whole[0] == (reasoning, content)
    assert run(list(text), asked) == whole
    for size in (2, 3, 5, 7, 11):
        assert run([text[at : at + size] for at in range(0, len(text), size)], asked) == whole


@pytest.mark.parametrize("name", [name for name, found in FORMATS.items() if found is not None and found.blocks])
def test_every_block_is_split_off_by_its_own_name(name: str) -> None:
    asked = form(name)
    block = asked.blocks[0]
    text = ("" if asked.opened == "yes" else block.opening) + "so\n" + block.closing + "\n\nthis"
    assert split(text, asked) == ("so", "this")


WORDS = ["<think>", "</think>", " tag", "`", '"', "\n", " ", "a", "<answer>", "</answer>", "<", "[THINK]", "</thi"]


@settings(max_examples=400, deadline=None)
@given(
    st.lists(st.sampled_from(WORDS), max_size=14),
    st.data(),
    st.sampled_from([("auto", "m"), ("auto", "deepseek-r1"), ("think_opened", "m")]),
)
def test_any_split_gives_the_same(words: list[str], data: st.DataObject, known: tuple[str, str]) -> None:
    text = "".join(words)
    asked = form(*known)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=8)))
    parts = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert run(parts, asked) == run([text], asked)
    # nothing is made up, and nothing is lost but markup and white space beside it
    (reasoning, content), _, lead = run([text], asked)
    assert text.endswith(content) or "</answer>" in text
    assert reasoning in text
    if reasoning:
        assert text.startswith(lead)


def test_ids_and_logprobs_arrive_once_and_none_before_its_text() -> None:
    parts = ["<think>", "hm", "\n", "</th", "ink>\n", "\n", "An", "swer"]
    splitter = ReasoningSplitter(form(), told=True)
    out = []
    for number, part in enumerate(parts):
        out += splitter.feed(TextDelta(0, "content", part, (number,), [{"token": part, "logprob": -1.0}]))
    out += splitter.finish()
    deltas = [piece for piece in out if isinstance(piece, TextDelta)]
    assert [delta.text for delta in deltas] == ["hm", "An", "swer"]
    assert [delta.token_ids for delta in deltas] == [(0, 1), (2, 3, 4, 5, 6), (7,)]
    assert [len(delta.logprobs or ()) for delta in deltas] == [2, 5, 1]


def test_ids_of_markup_at_the_end_are_not_lost() -> None:
    splitter = ReasoningSplitter(form(), told=True)
    out = splitter.feed(TextDelta(0, "content", "<think>hm", (1, 2)))
    out += splitter.feed(TextDelta(0, "content", "</think>", (3,)))
    out += splitter.finish()
    assert [(p.channel, p.text, p.token_ids) for p in out if isinstance(p, TextDelta)] == [
        ("reasoning", "hm", (1, 2)),
        ("content", "", (3,)),
    ]


def test_an_answer_without_reasoning_passes_as_it_came() -> None:
    splitter = ReasoningSplitter(form(), told=False)
    delta = TextDelta(0, "content", "Hello", (1,))
    (out,) = splitter.feed(delta)
    assert (out.text, out.token_ids, splitter.settled) == ("Hello", (1,), True)
    again = TextDelta(0, "content", " <think>", (2,))
    assert splitter.feed(again) == [again]
    assert splitter.finish() == []


def test_splitting_is_a_repair_where_nobody_said_so() -> None:
    _, codes, _ = run(["<think>hm</think>A."], form(), told=False)
    assert codes == ["leak.reasoning_tag", "leak.reasoning_tag"]
    assert run(["<think>hm</think>A."], form(), told=True)[1] == []
    assert run(["Answer."], form(), told=False)[1] == []
    splitter = ReasoningSplitter(form(), told=False)
    finding, repair, *_ = splitter.feed(TextDelta(0, "content", "<think>hm"))
    assert isinstance(finding, Finding)
    assert (finding.severity, finding.onset) == ("warn", 0)
    assert isinstance(repair, Repair)


def test_the_text_before_the_content_is_known_as_it_was_written() -> None:
    assert run(["<think>\nhm\n</think>\n\nAnswer."], form())[2] == "<think>\nhm\n</think>\n\n"
    assert run(["hm</think> A"], form("think_opened"))[2] == "hm</think> "
    assert run(["Answer."], form())[2] == ""


def test_an_answer_goes_on_within_its_reasoning() -> None:
    assert split("more</think>Answer.", form("think"), inside=True) == ("more", "Answer.")
    framed = "more<|end|><|start|>assistant<|channel|>final<|message|>A."
    assert split(framed, form("harmony"), inside=True)[0] == "more"


def test_text_that_waits_too_long_for_a_marker_is_reasoning() -> None:
    text = "word " * (MAX_HELD // 5 + 10)
    splitter = ReasoningSplitter(form("auto", "deepseek-r1"), told=False)
    seen = [piece for piece in splitter.feed(TextDelta(0, "content", text)) if isinstance(piece, TextDelta)]
    assert [piece.channel for piece in seen] == ["reasoning"]
    assert split(text + "</think>A.", form("auto", "deepseek-r1")) == (text.rstrip(), "A.")


def test_what_a_request_says_of_thinking() -> None:
    for extra in ({"chat_template_kwargs": {"enable_thinking": False}}, {"thinking": False}):
        assert reasoning_form("auto", "qwq", extra=extra) is None
        assert reasoning_form("think_opened", "m", extra=extra) is None
    on = {"chat_template_kwargs": {"thinking": True}}
    assert form("auto", "deepseek-v3.1", extra=on).opened == "maybe"
    assert form("auto", "deepseek-v3.1").opened == "no"
    assert reasoning_form("none", "qwq") is None


def test_a_prompt_about_the_markup_of_an_unknown_model() -> None:
    asked = form(prompt="How do I strip <think> blocks?")
    assert split("<think>x</think> is what you strip.", asked) == ("", "<think>x</think> is what you strip.")
    assert split("[THINK]x[/THINK]y", asked) == ("x", "y")
    known = form("auto", "Qwen3-8B", prompt="How do I strip <think> blocks?")
    assert split("<think>x</think>y", known) == ("x", "y")


# --- in the guard ----------------------------------------------------------------------------------------------------

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}]


def judged(content: str, *, model: str = "m", reasoning: str = "", **asked: Any) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if reasoning:
        message["reasoning_content"] = reasoning
    request = {"model": model, "messages": [{"role": "user", "content": "Please answer."}], **asked}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return judge({"id": "c", "request": request, "response": {"id": "r", "model": model, "choices": [choice]}})


def test_a_constraint_is_on_what_follows_the_reasoning() -> None:
    form = {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}
    good = judged('<think>\nTwo: {"a": "?"}\n</think>\n\n{"a": 2}', response_format=form)
    assert (good["action"], good["verdicts"]["format"]) == ("repair", "ok")
    message = good["repaired"]["choices"][0]["message"]
    assert (message["content"], message["reasoning_content"]) == ('{"a": 2}', 'Two: {"a": "?"}')
    bad = judged('<think>\n{"a": 2}\n</think>\n\n{"a": "2"}', response_format=form)
    assert (bad["action"], bad["verdicts"]["format"]) == ("block", "failed")
    opened = judged('Two.\n</think>\n\n{"a": 2}', model="qwq-32b", response_format=form)
    assert opened["action"] == "repair"
    assert judged("<think>hm</think>yes", structured_outputs={"choice": ["yes", "no"]})["action"] == "repair"


def test_a_call_behind_the_reasoning_is_made() -> None:
    call = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
    made = judged(f"<think>\nhm\n</think>\n\n{call}", tools=TOOLS)
    message = made["repaired"]["choices"][0]["message"]
    assert message["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"a": 1}'}
    assert (message["content"], message["reasoning_content"]) == (None, "hm")
    # within the reasoning it is a draft
    draft = judged(f"<think>\n{call}\n</think>\n\nNo.", tools=TOOLS)
    assert draft["repaired"]["choices"][0]["message"].get("tool_calls") is None


def test_a_call_of_harmony_behind_its_analysis() -> None:
    call = '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": 1}<|call|>'
    text = f"<|channel|>analysis<|message|>hm<|end|><|start|>assistant{call}"
    message = judged(text, tools=TOOLS, model="gpt-oss-20b")["repaired"]["choices"][0]["message"]
    assert message["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"a": 1}'}
    assert message["reasoning_content"] == "hm"


def test_an_engine_that_splits_by_itself_is_left_alone() -> None:
    got = judged("Answer. </th", reasoning="hm", model="qwq-32b")
    assert got["action"] == "pass"


def test_a_stray_closing_tag_is_a_leak_where_no_template_opens_the_block() -> None:
    assert judged("internal notes\n</think>Final answer.")["action"] == "block"
    assert judged("internal notes\n</think>Final answer.", model="qwen3-8b")["action"] == "block"


def test_an_answer_that_never_comes_out_of_its_reasoning() -> None:
    got = judged("<think>hm")
    assert got["action"] == "block"
    assert "empty.reasoning_only" in [finding["code"] for finding in got["findings"]]
