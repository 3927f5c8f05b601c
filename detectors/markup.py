"""The control tokens and the tool, role and reasoning markup of every model family, as one table.

The leak detector looks for them in what should be plain text; the tool-call parsers read them. The rules:

- A marker is text that a chat template writes and that a reader of the answer must never see.
- ``strong`` markers are wrong wherever they stand in plain text. ``edge`` ones are also words of HTML or of prose: they
  count at the very start or end of a channel, or beside another marker, or as a closing tag without an opening one.
  ``inner`` ones are plain XML: they count beside another marker or once a tool marker was seen in the channel.
- No marker is the beginning of another one, so that the first match is the only one, however the text is split.
- Tokens of general shapes (``<|name|>``, ``<｜name｜>``, numbered spare tokens, ``<0x0A>``) count even when the table
  does not name them.

Sources: the chat templates and tokenizer configurations that the model vendors publish, and xgrammar's builtin
structural tags.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

Kind = Literal["token", "tool", "role", "reasoning"]
Weight = Literal["strong", "edge", "inner"]

CODES: Final[dict[Kind, str]] = {
    "token": "leak.special_token",
    "tool": "leak.tool_markup",
    "role": "leak.role_marker",
    "reasoning": "leak.reasoning_tag",
}


class Marker(NamedTuple):
    """``closes`` is the opening marker that a closing one answers, where the pair matters."""

    text: str
    kind: Kind
    family: str
    weight: Weight = "strong"
    closes: str = ""


def _rows(kind: Kind, family: str, texts: str, weight: Weight = "strong") -> list[Marker]:
    """One row for each word of ``texts``."""
    return [Marker(text, kind, family, weight) for text in texts.split()]


def _pairs(kind: Kind, family: str, pairs: Iterable[tuple[str, str]], weight: Weight = "strong") -> list[Marker]:
    rows = []
    for opening, closing in pairs:
        rows += [Marker(opening, kind, family, weight), Marker(closing, kind, family, weight, opening)]
    return rows


MARKERS: Final[tuple[Marker, ...]] = (
    # --- tokens that begin, end and pad a sequence ---
    *_pairs("token", "llama2", [("<s>", "</s>")], "edge"),
    *_rows("token", "llama2", "<unk> <pad>"),
    *_rows("token", "chatml", "<|im_end|> <|endoftext|> <|endofprompt|> <|im_sep|>"),
    *_rows("token", "llama3", "<|begin_of_text|> <|end_of_text|> <|eot_id|> <|eom_id|> <|finetune_right_pad_id|>"),
    *_rows("token", "llama4", "<|eot|> <|eom|> <|finetune_right_pad|>"),
    *_rows("token", "deepseek", "<｜begin▁of▁sentence｜> <｜end▁of▁sentence｜> <｜▁pad▁｜> <|EOT|>"),
    *_rows("token", "gemma", "<bos> <eos> <end_of_turn> <start_of_image> <end_of_image> <turn|>"),
    *_rows("token", "glm", "[gMASK] <sop> <eop> <|begin_of_box|> <|end_of_box|>"),
    *_rows("token", "kimi", "[BOS] [EOS] [EOT] [PAD]", "edge"),
    *_rows("token", "minimax", "]~!b[ [e~[ <beginning_of_sentence> <end_of_sentence>"),
    *_rows("token", "harmony", "<|end|> <|return|> <|message|> <|constrain|>"),
    *_rows("token", "cohere", "<BOS_TOKEN> <EOS_TOKEN> <|END_OF_TURN_TOKEN|> <|START_RESPONSE|> <|END_RESPONSE|>"),
    *_rows("token", "cohere", "<|START_TEXT|> <|END_TEXT|>"),
    *_rows("token", "exaone", "[|endofturn|]"),
    *_rows("token", "seed", "<seed:bos> <seed:eos> <seed:pad>"),
    *_rows("token", "fim", "<|fim_prefix|> <|fim_suffix|> <|fim_middle|> <|fim_pad|> <|repo_name|> <|file_sep|>"),
    *_rows("token", "fim", "<fim_prefix> <fim_suffix> <fim_middle> <fim_pad> <file_sep> <repo_name>"),
    *_rows("token", "qwen_vl", "<|vision_start|> <|vision_end|> <|image_pad|> <|video_pad|>"),
    # --- whose turn it is ---
    *_rows("role", "chatml", "<|im_start|>"),
    *_rows("role", "llama2", "[INST] [/INST] <<SYS>> <</SYS>>"),
    *_rows("role", "mistral", "[SYSTEM_PROMPT] [/SYSTEM_PROMPT]"),
    *_rows("role", "llama3", "<|start_header_id|> <|end_header_id|>"),
    *_rows("role", "llama4", "<|header_start|> <|header_end|>"),
    *_rows("role", "deepseek", "<｜User｜> <｜Assistant｜>"),
    *_rows("role", "gemma", "<start_of_turn> <|turn>"),
    *_rows("role", "glm", "<|system|> <|user|> <|assistant|> <|observation|>"),
    *_rows("role", "kimi", "<|im_user|> <|im_assistant|> <|im_system|> <|im_middle|>"),
    *_rows("role", "minimax", "]~b]"),
    *_rows("role", "harmony", "<|start|> <|channel|>"),
    *_rows("role", "cohere", "<|START_OF_TURN_TOKEN|> <|USER_TOKEN|> <|CHATBOT_TOKEN|> <|SYSTEM_TOKEN|>"),
    *_rows("role", "exaone", "[|assistant|] [|user|] [|system|] [|tool|]"),
    *_rows("role", "granite", "<|start_of_role|> <|end_of_role|>"),
    # --- tool calls and their results ---
    *_pairs("tool", "hermes", [("<tool_call>", "</tool_call>"), ("<tool_response>", "</tool_response>")]),
    *_rows("tool", "qwen_3_coder", "<function="),
    *_rows("tool", "qwen_3_coder", "<parameter= </function> </parameter>", "inner"),
    *_rows("tool", "llama3", "<|python_tag|>"),
    *_rows("tool", "llama4", "<|python_start|> <|python_end|>"),
    *_rows("tool", "mistral", "[TOOL_CALLS] [AVAILABLE_TOOLS] [/AVAILABLE_TOOLS] [TOOL_RESULTS] [/TOOL_RESULTS]"),
    *_rows("tool", "mistral", "[TOOL_CONTENT]"),
    *_rows("tool", "mistral", "[ARGS] [CALL_ID]", "inner"),
    *_rows(
        "tool",
        "deepseek",
        "<｜tool▁calls▁begin｜> <｜tool▁calls▁end｜> <｜tool▁call▁begin｜> <｜tool▁call▁end｜> <｜tool▁sep｜>",
    ),
    *_rows(
        "tool",
        "deepseek",
        "<｜tool▁outputs▁begin｜> <｜tool▁outputs▁end｜> <｜tool▁output▁begin｜> <｜tool▁output▁end｜>",
    ),
    *_rows("tool", "deepseek_dsml", "<｜DSML｜ </｜DSML｜"),
    *_rows(
        "tool", "kimi", "<|tool_calls_section_begin|> <|tool_calls_section_end|> <|tool_call_begin|> <|tool_call_end|>"
    ),
    *_rows("tool", "kimi", "<|tool_call_argument_begin|>"),
    *_rows("tool", "kimi_k3", "<|open|> <|close|> <|sep|>"),
    *_pairs("tool", "glm", [("<arg_key>", "</arg_key>"), ("<arg_value>", "</arg_value>")]),
    *_pairs("tool", "minimax", [("<minimax:tool_call>", "</minimax:tool_call>")]),
    *_rows("tool", "minimax", "</invoke>", "inner"),
    Marker('<invoke name="', "tool", "minimax", "inner"),
    Marker('<parameter name="', "tool", "minimax", "inner"),
    *_rows("tool", "minimax_m3", "]<]minimax[>["),
    *_rows("tool", "harmony", "<|call|>"),
    *_pairs(
        "tool", "cohere", [("<|START_ACTION|>", "<|END_ACTION|>"), ("<|START_TOOL_RESULT|>", "<|END_TOOL_RESULT|>")]
    ),
    *_rows("tool", "cohere", "<cofl: </cofl:"),
    *_pairs("tool", "gemma", [("<|tool_call>", "<tool_call|>"), ("<|tool_response>", "<tool_response|>")]),
    *_pairs("tool", "gemma", [("<|tool>", "<tool|>"), ("<start_function_call>", "<end_function_call>")]),
    *_rows("tool", "gemma", '<|"|> <start_function_response> <end_function_response> <start_function_declaration>'),
    *_rows("tool", "gemma", "<end_function_declaration>"),
    *_rows("tool", "gemma", "<escape>", "inner"),
    *_rows("tool", "phi", "<|tool_call|> <|/tool_call|> <|tool|> <|/tool|>"),
    *_rows("tool", "internlm", "<|action_start|> <|action_end|> <|plugin|> <|interpreter|>"),
    *_pairs("tool", "jamba", [("<tool_calls>", "</tool_calls>"), ("<function_calls>", "</function_calls>")]),
    *_pairs("tool", "seed", [("<seed:tool_call>", "</seed:tool_call>")]),
    *_pairs("tool", "longcat", [("<longcat_tool_call>", "</longcat_tool_call>")]),
    # --- reasoning ---
    *_pairs("reasoning", "think", [("<think>", "</think>"), ("<thinking>", "</thinking>")]),
    *_pairs("reasoning", "mistral", [("[THINK]", "[/THINK]")]),
    *_pairs("reasoning", "kimi", [("◁think▷", "◁/think▷")]),
    *_pairs("reasoning", "minimax", [("<mm:think>", "</mm:think>")]),
    *_pairs("reasoning", "seed", [("<seed:think>", "</seed:think>")]),
    *_pairs("reasoning", "longcat", [("<longcat_think>", "</longcat_think>")]),
    *_pairs("reasoning", "cohere", [("<|START_THINKING|>", "<|END_THINKING|>")]),
    *_pairs("reasoning", "gemma", [("<|channel>", "<channel|>")]),
)

BY_TEXT: Final[dict[str, Marker]] = {marker.text: marker for marker in MARKERS}

TRIGGERS: Final = "<[]◁"
"""Every marker begins with one of these characters, so text without them needs no further look."""

_LITERAL: Final = "|".join(re.escape(marker.text) for marker in MARKERS)
_GENERAL: Final = (
    r"<\|[A-Za-z_/][\w.▁:/-]{0,47}\|>"  # <|name|>
    r"|<｜[^｜<>\n]{1,48}｜>"  # <｜name｜>
    r"|<(?:unused|extra_id_|reserved_|SPECIAL_)\d{1,6}>"
    r"|\[UNUSED_TOKEN_\d{1,6}\]"
    r"|<0x[0-9A-F]{2}>"  # a byte that should have been joined to a character
)
_FULL: Final = re.compile(f"({_LITERAL})|{_GENERAL}")
_PARTIAL: Final = re.compile(
    r"<(?:\|(?:[A-Za-z_/][\w.▁:/-]{0,47}\|?)?|｜[^｜<>\n]{0,48}｜?"
    r"|(?:unused|extra_id_|reserved_|SPECIAL_)\d{0,6}|0x[0-9A-F]{0,2})?\Z"
    r"|\[UNUSED_TOKEN_\d{0,6}\Z"
)
_STEMS: Final = ("<unused", "<extra_id_", "<reserved_", "<SPECIAL_", "[UNUSED_TOKEN_", "<0x")
_PREFIXES: Final = frozenset(text[:n] for text in [*BY_TEXT, *_STEMS] for n in range(1, len(text)))


def match(text: str, at: int = 0) -> tuple[Marker, int] | None:
    """The marker that begins at ``at``, and where it ends. A token of a general shape gets the family ``general``."""
    found = _FULL.match(text, at)
    if found is None:
        return None
    marker = BY_TEXT.get(found[0])
    return marker or Marker(found[0], "token", "general"), found.end()


def may_become(rest: str) -> bool:
    """Whether more text could make a marker of ``rest``, which is none yet."""
    return rest in _PREFIXES or _PARTIAL.match(rest) is not None


def find(text: str, at: int = 0) -> tuple[Marker, int, int] | None:
    """The first marker at or after ``at`` whatever its weight: (marker, start, end)."""
    found = _FULL.search(text, at)
    if found is None:
        return None
    return BY_TEXT.get(found[0]) or Marker(found[0], "token", "general"), found.start(), found.end()
