"""The answers that the parsers are tested with are those of the families: xgrammar's own grammars accept them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

DATA: dict[str, Any] = json.loads(Path(__file__).with_name("families.json").read_text())
ANSWERS: dict[str, str] = DATA["answers"]

GRAMMARS = {
    "hermes": "qwen_3",
    "exaone": "exaone",
    "qwen_3_coder": "qwen_3_coder",
    "mimo": "mimo",
    "glm_4_7": "glm_4_7",
    "deepseek_v3": "deepseek_r1",
    "deepseek_v3_1": "deepseek_v3_1",
    "deepseek_v3_2": "deepseek_v3_2",
    "deepseek_v4": "deepseek_v4",
    "deepseek_v4_1": "deepseek_v4_1",
    "kimi_k2": "kimi",
    "kimi_k3": "kimi_k3",
    "minimax": "minimax",
    "minimax_m3": "minimax_m3",
    "harmony": "harmony",
    "cohere xml": "cohere",
    "gemma_4": "gemma_4",
}
LEADS = {"kimi_k3": "<|close|>response<|sep|>", "minimax": "\n</think>\n\n\n\n\n"}
"""What a grammar wants before the calls, where it begins inside a message."""


@pytest.mark.slow
def test_samples_are_what_the_families_write() -> None:
    xgrammar = pytest.importorskip("xgrammar", reason="the torch extra, with xgrammar, is not installed")
    tools = [{"type": "function", "function": {"name": "f", "parameters": DATA["schema"]}}]
    compiler = xgrammar.GrammarCompiler(xgrammar.TokenizerInfo([]))
    refused = {}
    for sample, model in GRAMMARS.items():
        tag = xgrammar.get_model_structural_tag(
            model, tools=tools, tool_choice="required", reasoning="disabled", any_order=True
        )
        matcher = xgrammar.GrammarMatcher(compiler.compile_structural_tag(tag), terminate_without_stop_token=True)
        lead = "\n\n" if model.startswith(("deepseek_v3_2", "deepseek_v4")) else LEADS.get(sample, "")
        text = (lead + ANSWERS[sample]).encode()
        taken = next((i for i in range(len(text)) if not matcher.accept_string(text[i : i + 1])), len(text))
        if taken < len(text):
            refused[sample] = text[max(0, taken - 40) : taken + 40].decode(errors="replace")
    assert refused == {}
