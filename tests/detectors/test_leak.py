"""Leaks are seen wherever text is split, never released, and not seen in text about markup."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors.finding import Finding
from detectors.leak import Leak, leaks_in
from detectors.markup import MARKERS, TRIGGERS, match, may_become


def run(pieces: list[str], **options: object) -> tuple[list[Finding], list[int]]:
    leak = Leak(**options)  # type: ignore[arg-type]
    found: list[Finding] = []
    doubts = []
    for piece in pieces:
        found += leak.feed(piece)
        doubts.append(leak.doubt)
    found += leak.finish()
    return found, doubts


def codes(text: str, **options: object) -> list[tuple[str, str, int]]:
    found, _ = run([text], **options)
    return [(f.code.removeprefix("leak."), f.severity, f.onset) for f in found]


LEAKS = [
    ("<s><s><s>", [("special_token", "error", 0)]),
    ("Fine.<|im_end|>", [("special_token", "error", 5)]),
    ("Fine.</s>", [("special_token", "error", 5)]),
    ("Fine. </s>\n\nQuestion: what", [("special_token", "error", 6)]),
    ("Fine. <s>", [("special_token", "error", 6)]),
    ("a [EOS]", [("special_token", "error", 2)]),
    ("a<｜end▁of▁sentence｜>", [("special_token", "error", 1)]),
    ("a<|endoftext|>b<|endoftext|>", [("special_token", "error", 1)]),
    ("a<|im_end|>\n<|im_start|>user\nhi", [("special_token", "error", 1), ("role_marker", "error", 12)]),
    ("x <|never_heard_of_it|> y", [("special_token", "error", 2)]),
    ("x <unused99>", [("special_token", "error", 2)]),
    ("x<0x0A>y", [("special_token", "error", 1)]),
    ("[UNUSED_TOKEN_145]", [("special_token", "error", 0)]),
    ("analysisWe need to answer.assistantfinalHello", [("role_marker", "error", 0)]),
    ("<|start_header_id|>assistant", [("role_marker", "error", 0)]),
    ("[INST] do it [/INST]", [("role_marker", "error", 0), ("role_marker", "error", 13)]),
    ('ok <tool_call>\n{"name": "f"}', [("tool_markup", "error", 3)]),
    ("<｜DSML｜tool_calls>\n</｜DSML｜tool_calls>", [("tool_markup", "error", 0), ("tool_markup", "error", 19)]),
    ("]<]minimax[>[<tool_call>", [("tool_markup", "error", 0), ("tool_markup", "error", 13)]),
    ("Sure. <function=f>", [("tool_markup", "error", 6)]),
    ("notes\n</think>Answer.", [("reasoning_tag", "error", 6)]),
    ("<think>\n<think>\n", [("reasoning_tag", "warn", 0), ("reasoning_tag", "error", 8)]),
    ("<think>hm</think>Answer.", [("reasoning_tag", "warn", 0)]),
    ("<think>\n\n</think>\n\nAnswer.", [("reasoning_tag", "warn", 0)]),
    ("<think>\n\n</think>\n\n<think>\n\n</think>", [("reasoning_tag", "warn", 0), ("reasoning_tag", "error", 19)]),
    ("<think>hm", [("reasoning_tag", "warn", 0), ("reasoning_tag", "error", 0)]),
    ("Answer. <think>hm</think>", [("reasoning_tag", "error", 8)]),
    ("◁think▷hm◁/think▷", [("reasoning_tag", "warn", 0)]),
    # a span that never closes is no span; a fence left open does not excuse what ends the answer
    ("it`s <|im_end|> so\nnext", [("special_token", "error", 5)]),
    ("```\nx = 1\n<|im_end|>\n", [("special_token", "error", 10)]),
    ("```\nx\n```\n<|im_end|>", [("special_token", "error", 10)]),
]

CLEAN = [
    "",
    "   ",
    "analysis of variance",
    "Analysis",
    "analysis",
    "plain text, a < b and b > c, x[0] = y[1]; a|b <| f |> g",
    "`<|im_end|>` ends a turn",
    "the token ``<|im_end|>`` and `</think>` too",
    "```\n<|im_start|>user\nhi<|im_end|>\n```\nThat was ChatML.",
    "1. ```xml\n   <tool_call>x</tool_call>\n   ```\n2. done",
    "~~~\n<s>\n~~~\n",
    'the tag "<think>" opens it and (</think>) closes it',
    "HTML <s>old price</s> new price",
    "Short rows are filled with the <pad> token, and <unk> tokens stand for the rest.",
    "[x](y) [T] [INSTALL] [TOOLS] <thin> <s_ub> <toolbox>",
    "<function>f</function> in plain XML",
    "C++: vector<string> <|> and F# x <| f",
    '<invoke some="thing"/> [ARGS] of the command',
    "- [ ] todo\n- [x] done\n",
    "```inline``` then text",
]


@pytest.mark.parametrize(("text", "expected"), LEAKS)
def test_leak_is_found_where_it_begins(text: str, expected: list[tuple[str, str, int]]) -> None:
    assert codes(text) == expected


@pytest.mark.parametrize("text", CLEAN)
def test_text_about_markup_is_no_leak(text: str) -> None:
    assert codes(text) == []


@pytest.mark.parametrize("text", [text for text, _ in LEAKS] + CLEAN)
def test_fed_by_characters_nothing_changes_and_no_leak_is_cleared(text: str) -> None:
    whole, _ = run([text])
    single, doubts = run(list(text))
    assert single == whole
    for finding in whole:
        # a reasoning block that opens the answer is released; that it never closed is known only at the end
        if finding.severity == "error" and "never closed" not in finding.message:
            before = [doubt for fed, doubt in enumerate(doubts, 1) if fed < finding.detected_at]
            assert max(before, default=0) <= finding.onset


@pytest.mark.parametrize("marker", [m for m in MARKERS if m.weight == "strong"], ids=lambda m: m.text)
def test_every_marker_of_the_table_is_found_and_held(marker: object) -> None:
    text = marker.text  # type: ignore[attr-defined]
    leak = Leak()
    assert not leak.feed("Answer: ")
    for char in text[:-1]:
        assert not leak.feed(char)
        assert leak.doubt == 8
    found = [*leak.feed(text[-1]), *leak.finish()]
    assert any(f.onset == 8 and f.evidence["marker"] == text for f in found)


def test_no_marker_begins_another() -> None:
    texts = [m.text for m in MARKERS]
    assert len(set(texts)) == len(texts)
    assert all(t[0] in TRIGGERS for t in texts)
    assert [(a, b) for a in texts for b in texts if a != b and b.startswith(a)] == []
    for text in texts:
        assert match(text) == (next(m for m in MARKERS if m.text == text), len(text))
        assert all(may_become(text[:n]) for n in range(1, len(text)))


def test_what_the_prompt_names_is_no_leak() -> None:
    assert codes("Use <|im_end|> there.", prompt_text="What does <|im_end|> do?") == []
    assert codes("x</think>", prompt_text="Put it in <think> tags") == []
    assert codes("x<|eot_id|>", prompt_text="What does <|im_end|> do?") != []


def test_a_prompt_about_special_tokens_makes_it_information() -> None:
    found, _ = run(["Llama 3 ends with <|eot_id|> always."], prompt_text="Which special tokens does Llama use?")
    assert [f.severity for f in found] == ["info"]


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "get_weather", "arguments": {}}',
        ' [\n {"name": "get_weather",\n "parameters": {"city": "Rome"}}]',
        '{"type": "function", "function": {"name": "get_weather", "parameters": {}}}',
        'commentary to=functions.get_weather json{"city": 1}',
    ],
)
def test_a_call_without_markup_is_held_and_found(text: str) -> None:
    for pieces in ([text], list(text)):
        found, doubts = run(pieces, tool_names=("get_time", "get_weather"))
        assert [f.code for f in found] == ["leak.tool_markup"]
        assert all(doubt == 0 for fed, doubt in enumerate(doubts, 1) if fed < found[0].detected_at and len(pieces) > 1)
    assert run([text], tool_names=("get_wind",))[0] == []
    assert run([text])[0] == []


def test_json_that_only_looks_like_a_call_goes_on() -> None:
    leak = Leak(tool_names=("get_weather",))
    for char in '{"name": "Ada", "parameters": 3}':
        assert not leak.feed(char)
    assert leak.doubt == 32
    assert not leak.finish()


def test_an_engine_that_splits_reasoning_off_may_leave_no_tag() -> None:
    assert codes("<think>hm</think>Answer.", parsed_reasoning=True) == [("reasoning_tag", "error", 0)]


def test_tags_in_the_reasoning_channel_are_recorded_only() -> None:
    assert codes("<think>hm</think>", channel="reasoning") == [("reasoning_tag", "warn", 0)]
    assert codes("hm</think>", channel="reasoning") == [("reasoning_tag", "warn", 2)]
    assert codes("hm<|im_end|>", channel="reasoning") == [("special_token", "error", 2)]


def test_arguments_are_data() -> None:
    assert codes('{"text": "<|im_end|>"}', channel="tool:0") == []


def test_names_and_keys_are_not() -> None:
    assert [f.code for f in leaks_in("query<|channel|>commentary", "tool:0", "the name")] == ["leak.role_marker"]
    assert [f.code for f in leaks_in("a<arg_key>", "tool:0", "a key")] == ["leak.tool_markup"]
    assert leaks_in("city", "tool:0", "a key") == []


def test_a_span_may_not_hold_text_for_ever() -> None:
    text = "it`s <|im_end|> " + "word " * 200
    whole, _ = run([text])
    single, doubts = run(list(text))
    assert whole == single
    assert [f.onset for f in whole] == [5]
    assert max(fed - doubt for fed, doubt in enumerate(doubts, 1)) <= 401


PIECES = st.sampled_from(
    [
        *(
            "<|im_end|>",
            "<s>",
            "</s>",
            "<think>",
            "</think>",
            "<tool_call>",
            "[INST]",
            "<|x",
            "|>",
            "<",
            "[",
            "]<]mini",
        ),
        *("`", "``", "```", "\n", "\n\n", " ", "- ", "1. ", "> ", '"', "'", "word ", "é", "~~~", "</invoke>", "[EOS]"),
        *(
            " token",
            " " * 410,
            "word" * 110,
            " ta",
            "g",
            "<｜tool",
            "▁sep｜>",
            '{"name": "f", ',
            '"arguments": {}}',
            "◁think▷",
            "(",
            ")",
            "**",
        ),
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(PIECES, max_size=14), st.data())
def test_any_split_gives_the_same(parts: list[str], data: st.DataObject) -> None:
    text = "".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    whole, _ = run([text], tool_names=("f",))
    single, _ = run(list(text), tool_names=("f",))
    split, doubts = run(pieces, tool_names=("f",))
    assert split == whole == single
    assert doubts == sorted(doubts)
