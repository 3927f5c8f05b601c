"""Leaked markup against text about markup, read without its prompt: tables of both, and what splits may not change."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors.finding import Finding
from detectors.leak import Leak
from detectors.markup import BY_TEXT
from detectors.mention import open_string, spoken_of


def run(pieces: list[str]) -> tuple[list[Finding], list[int]]:
    leak = Leak()
    found: list[Finding] = []
    doubts = []
    for piece in pieces:
        found += leak.feed(piece)
        doubts.append(leak.doubt)
    found += leak.finish()
    return found, doubts


# each as an engine would have sent it; the marker that must be found
LEAKED = [
    ("It is sunny in Rome today.<|im_end|>", "<|im_end|>"),
    ("It is sunny in Rome today <|im_end|>", "<|im_end|>"),
    ("It is sunny in Rome today.<|im_end|>\n<|im_start|>user\nAnd tomorrow?", "<|im_end|>"),
    ("It is sunny in Rome today <|im_end|> <|im_start|>user And tomorrow?", "<|im_end|>"),
    ("It is sunny<|endoftext|>Human: And tomorrow?", "<|endoftext|>"),
    ("It is sunny.<|endoftext|> The next document begins here.", "<|endoftext|>"),
    ("It is sunny.<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nIt is", "<|eot_id|>"),
    ("It is sunny.<|eot|><|header_start|>user<|header_end|>", "<|eot|>"),
    ("It is sunny.</s>", "</s>"),
    ("It is sunny.</s><s>[INST] And tomorrow? [/INST]", "</s>"),
    ("It is sunny. [/INST] It will rain tomorrow. [INST] Why?", "[/INST]"),
    ("<s> It is sunny.", "<s>"),
    ("The capital of Peru is <unk> and it lies by the sea.", "<unk>"),
    ("The capital of Peru is Lima<pad><pad><pad>", "<pad>"),
    ("<pad> The capital of Peru is Lima.", "<pad>"),
    ("The capital of Peru is Lima.<eos>", "<eos>"),
    ("The capital of Peru is Lima. <eos> Question: what is the capital of Chile?", "<eos>"),
    ("It is sunny.<end_of_turn>\n<start_of_turn>user\nAnd tomorrow?<end_of_turn>", "<end_of_turn>"),
    ("It is sunny.<turn|>\n<|turn>user\nAnd tomorrow?", "<turn|>"),
    ("It is sunny.<｜end▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
    ("It is sunny.<｜end▁of▁sentence｜><｜User｜>And tomorrow?", "<｜User｜>"),
    ("It is sunny.<|user|>\nAnd tomorrow?", "<|user|>"),
    ("[gMASK]<sop><|assistant|>\nIt is sunny.", "[gMASK]"),
    ("It is sunny.<|im_end|><|im_user|>user<|im_middle|>And", "<|im_user|>"),
    ("It is sunny.[e~[\n]~b]user", "[e~["),
    ("It is sunny.<|END_OF_TURN_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
    ("<|START_RESPONSE|>It is sunny.<|END_RESPONSE|>", "<|START_RESPONSE|>"),
    ("It is sunny.[|endofturn|]", "[|endofturn|]"),
    ("It is sunny.<|end|><|start|>assistant<|channel|>final<|message|>It is", "<|end|>"),
    ('<|channel|>analysis<|message|>The user says "hi". We answer.<|end|>', "<|channel|>"),
    ('<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city":"Rome"}<|call|>', "<|call|>"),
    ('I will look.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>', "<tool_call>"),
    (
        "I will look.\n<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n</parameter>\n</function>",
        "<function=",
    ),
    ('[TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Rome"}}]', "[TOOL_CALLS]"),
    ('[TOOL_CALLS]get_weather[ARGS]{"city": "Rome"}', "[TOOL_CALLS]"),
    ('I will look.[TOOL_CALLS]get_weather[ARGS]{"city": "Rome"}', "[ARGS]"),
    ('<|python_tag|>get_weather.call(city="Rome")<|eom_id|>', "<|python_tag|>"),
    (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{}\n```",
        "<｜tool▁sep｜>",
    ),
    ('<｜DSML｜function_calls>\n<｜DSML｜invoke name="get_weather">', "<｜DSML｜"),
    ("<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0", "<|tool_call_begin|>"),
    ("<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n</tool_call>", "<arg_key>"),
    (
        '<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">Rome</parameter>',
        "<minimax:tool_call>",
    ),
    ('<|tool_call>call:get_weather{city:<|"|>Rome<|"|>}<tool_call|>', "<|tool_call>"),
    ('<|START_ACTION|>[{"tool_name": "get_weather"}]<|END_ACTION|>', "<|START_ACTION|>"),
    ('<|tool_call|>[{"name": "get_weather"}]<|/tool_call|>', "<|tool_call|>"),
    ('<|action_start|><|plugin|>{"name": "get_weather"}<|action_end|>', "<|plugin|>"),
    ('<tool_calls>[{"name": "get_weather"}]</tool_calls>', "<tool_calls>"),
    ("The user wants the weather. I should call the tool.\n</think>\n\nIt is sunny.", "</think>"),
    ("First some words. <think> no, wait </think> It is sunny.", "<think>"),
    ("The user greets me.[/THINK]Hello!", "[/THINK]"),
    ("◁/think▷Hello!", "◁/think▷"),
    ("<seed:think>hm</seed:think>Hello <seed:eos>", "<seed:eos>"),
    ("The caf<0xC3> is open", "<0xC3>"),
    # in JSON a string is the answer itself
    ('{"city": "Rome<|im_end|>", "ok": true}', "<|im_end|>"),
    ('["Rome<|eot_id|>", "Paris"]', "<|eot_id|>"),
    # a quotation that is not closed, or closed before, explains nothing
    ('He said "it is sunny<|im_end|>', "<|im_end|>"),
    ('He said "it is sunny<|im_end|>\n<|im_start|>user\n"What?"', "<|im_end|>"),
    ('He said "it is sunny".<|im_end|>', "<|im_end|>"),
    ("It's sunny<|im_end|> and it isn't raining", "<|im_end|>"),
    ("(it is sunny, he said)<|im_end|>", "<|im_end|>"),
    ('x = f("""a"""\n<|im_end|>', "<|im_end|>"),
    # an answer about tokenizers may leak as well
    ("A tokenizer cuts a text into tokens, and the vocabulary numbers them.<|im_end|>", "<|im_end|>"),
    ("A tokenizer cuts a text into tokens, and the vocabulary numbers them <|im_end|>", "<|im_end|>"),
    ("A tokenizer has special tokens.<|im_end|>\n<|im_start|>user\nThanks", "<|im_start|>"),
    ("ChatML ends a turn with `<|im_end|>`, and that is all.<|im_end|>", "<|im_end|>"),
    ("ChatML ends a turn with `<|im_end|>`, and that is all.\n<|im_end|>\n<|im_start|>user", "<|im_end|>"),
    ("`open\n\n<|im_end|> closed`", "<|im_end|>"),
]

ABOUT = [
    'start_anchor = "<|im_start|>assistant\\n"\nfields = ["<think>", "</think>"]\n',
    'return f"<|begin_of_image|>{self.image * n}<|end_of_image|>{seconds:.1f} s"\n',
    "parts = ['<s>NOTUSED', '</s>NOTUSED', '<unk>NOTUSED']\n",
    "xml = b'aaa</s><s>' + b'a' * 1025\n",
    'prompt = f"""\n<|im_start|>user\n{text}\n<|im_end|>\n<|im_start|>assistant\n"""\n',
    "B_SYS, E_SYS = \"<<SYS>>\\n\", \"\\n<</SYS>>\\n\\n\"\n",
    "He wrote “the <|im_end|> must go” and left.",
    "pattern = (?P<unk>x) and \\g<unk> and (?<pad>y)",
    "Note that <|endoftext|> is the document separator that the model sees.",
    "<|im_end|> ends a turn, and <|im_start|> begins the next one.",
    "Every sequence is wrapped with <cls> … <eos>, as always.",
    "The format is `<eos> <language\n    code> <tokens> <eos>` for targets.",
    "The vocabulary holds <pad>=0, </s>=1, <unk>=2 and then the words.",
    "The last token (usually <eos>) is wrapped.",
    "# Create a minimal vocab with <unk> to satisfy the tokenizer\n",
    "# the tokenizer strips it to prevent <unk>\ntext = text.strip()\n",
    "Gemma spells its strings <|\"|>-delimited everywhere.",
    "It escapes words in <>, e.g. <think> -> \\<think\\>, for rendering.",
    "The field became <pad> in xcb-proto 1.12.",
    "For byte fallback the token <0x1B> is converted back.",
    "- `<|mark|>`: where it is read\n\n    ... [decision]:<|mark|>\n    reads one token\n",
    "Models of this family use a <think> block, and a </think> tag after it.",
    "Tokens such as <|eot_id|>, <|eom_id|> and the others are never printed.",
    "In chat templates the turn is closed by <|im_end|> before the next one.",
    '`template` holds "<|user|>\\n" and then "<|assistant|>\\n" in turn.',
    "| token | meaning |\n|---|---|\n| `<|im_end|>` | end |\n| \"<|im_start|>\" | start |\n",
]  # fmt: skip


@pytest.mark.parametrize(("text", "marker"), LEAKED, ids=[text[:40] for text, _ in LEAKED])
def test_a_leak_is_found_and_never_released(text: str, marker: str) -> None:
    whole, _ = run([text])
    single, doubts = run(list(text))
    assert single == whole
    errors = [f for f in whole if f.severity == "error"]
    assert marker in {f.evidence["marker"] for f in errors}
    for finding in errors:
        before = [doubt for fed, doubt in enumerate(doubts, 1) if fed < finding.detected_at]
        assert max(before, default=0) <= finding.onset or "never closed" in finding.message


@pytest.mark.parametrize("text", ABOUT)
def test_text_about_markup_is_let_through(text: str) -> None:
    for pieces in ([text], list(text)):
        assert [f for f in run(pieces)[0] if f.severity == "error"] == []
        # the same in the middle of an answer
        assert [f for f in run(["Here it is.\n\n", *pieces, "\nThat is all."])[0] if f.severity == "error"] == []


@pytest.mark.parametrize(
    ("before", "closer"),
    [
        ("", ""),
        ('say "', '"'),
        ('say "a" and ', ""),
        ('say "a\\" ', '"'),
        ("it's ", ""),
        ("x = b'", "'"),
        ("x = 'it's fine", "'"),
        ("x = 'a' ", ""),
        ('f("""a\nb\n', '"""'),
        ('f("""a""")\n', ""),
        ("«a", "»"),
        ('"open\n', ""),
    ],
)
def test_open_strings(before: str, closer: str) -> None:
    assert open_string(before) == closer


def test_more_text_never_changes_what_was_said() -> None:
    marker = BY_TEXT["<|im_end|>"]
    for before in ("", "a", "a ", "token ", "a tokenizer of ", '"', "(", "(?P"):
        for after in (" is the end", " isolated", " token", " tokenless", "-style", "- x", "=0", " = x", '"', ")", "x"):
            said, used = spoken_of(marker, before, after)
            for size in range(len(after)):
                early, _ = spoken_of(marker, before, after[:size])
                assert early == ("more" if size < used else said), (before, after, size)


WORDS = st.sampled_from(
    [
        *("<|im_end|>", "<pad>", "<s>", "</s>", "<think>", "<tool_call>", "<|x|>", '"', "'", '"""', "`", "\n", "\n\n"),
        *(" ", "tokenizer ", "such as ", "it's ", " is ", " the", " = 1", "=0", "(", ")", "(?P", "\\", ".", ", ", "f("),
        *("b'", "word", "“", "”", "```\n", " token", "-a", "<", "{", "Fine."),
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(WORDS, max_size=16), st.data())
def test_any_split_gives_the_same(parts: list[str], data: st.DataObject) -> None:
    text = "".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    whole, _ = run([text])
    single, doubts = run(list(text))
    split, _ = run([text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)])
    assert split == whole == single
    assert doubts == sorted(doubts)


SOURCES = {
    "a template's expression": "            {{- '<|start_of_role|>documents<|end_of_role|>' }}\n",
    "a template in a document that begins with one": (
        "{%- if tools %}\n    {{- '<|start_header_id|>' + role + '<|end_header_id|>\\n\\n' }}\n{%- endif %}\n"
        "<|im_start|>\n  {{ role }}\n<|im_end|>\nand on"
    ),
    "a comment of code": 'x = 1\n        # [{"a": 1}]<|/tool|><|end|><|user|>Why<|end|><|system|>\n        y = 2\n',
    "a comment behind code": 'special_tokens_pattern="cls",  # <s> X </s></s> Y </s>\n    **kwargs,\n',
    "a literal on a line of its own": (
        'prefix = prefix or (\n            "<|im_start|>user <|image_pad|>Describe it.<|im_end|><|endoftext|>"\n)\n'
    ),
    "an escape beside it": "answer in this format:\\n\\n<|thought_start|>\\n{explain}\\n<|thought_end|> and so on",
    "an empty pair in a sentence": (
        "Write calls within <tool_calls></tool_calls> tags, or else <tool_calls></tool_calls>, and no more."
    ),
    "an empty pair of thoughts": "Reasoning goes in <think></think> tags, and the plan in <think> as well, in the end.",
    "a long literal": 'prompt = f"""\nAnswer so:\n'
    + "word " * 120
    + "\n<|thought_end|>\n<|tool_call_start|>\nx\n"
    + '"""\n',
    "a template that is one long string": (
        '"chat_template": "[gMASK]<sop>{% for item in messages %}{% if item %}' + "word " * 120 + '{% endif %}"'
    ),
}


@pytest.mark.parametrize("size", [1, 4, 10_000])
@pytest.mark.parametrize("text", SOURCES.values(), ids=SOURCES.keys())
def test_source_code_that_writes_markup_is_no_leak(text: str, size: int) -> None:
    watch = Leak("content")
    found = [f for start in range(0, len(text), size) for f in watch.feed(text[start : start + size])]
    assert [f for f in (*found, *watch.finish()) if f.severity == "error"] == []


@pytest.mark.parametrize(
    "text",
    [
        "{%- if tools %}{{ tools }}{%- endif %}\nThat is the template.<|im_end|>",
        "x = 1\n    # done<|im_end|>",
        "The answer is 4.<|im_end|>\n<|im_start|>user\nAnd",
        "<think></think>The answer is 4.</think>",
    ],
)
def test_what_ends_the_answer_has_leaked_all_the_same(text: str) -> None:
    watch = Leak("content")
    assert any(f.severity == "error" for f in (*watch.feed(text), *watch.finish()))
