"""Reasoning that an engine left in its content: which markup each model family puts round it, and when it counts.

The rules:

- Only what an answer begins with is reasoning. Markup that stands further on is text, for the leak detector to judge.
- A marker between quotation marks, or one that is spoken of ("the <think> tag"), is text.
- Templates of some families open the block in the prompt, so that only the closing marker arrives. Where that is known
  (``opened`` is yes) everything is reasoning from the first character on. Where it is only likely (maybe) the text
  waits until the closing marker tells; if none comes, it was an answer.
- A request that turns thinking off has no reasoning, and an engine that gave reasoning in its own channel left none.
- White space beside a marker is part of the markup.

Sources: the chat templates that the model vendors publish, and the reasoning parsers of vLLM and SGLang.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple

Opened = Literal["no", "maybe", "yes"]


class Block(NamedTuple):
    """A block of reasoning. ``wraps``: a pair of markers that some families put round the answer behind it."""

    opening: str
    closing: str
    wraps: tuple[tuple[str, str], ...] = ()


class Form(NamedTuple):
    """How reasoning is told from the answer. ``blocks``: any of these may open it; ``framed``: the whole answer is
    messages with headers (harmony, kimi_k3) instead. ``opened``: whether the prompt has opened the first block.
    ``about``: a prompt; of a block that it speaks of, the markers are text."""

    blocks: tuple[Block, ...] = ()
    framed: tuple[str, ...] = ()
    opened: Opened = "no"
    about: str = ""

    def asks_about(self, opening: str) -> bool:
        about = self.about
        return bool(about) and any(
            block.opening == opening and (opening.strip() in about or block.closing in about) for block in self.blocks
        )


_THINK: Final = Block("<think>", "</think>", (("<answer>", "</answer>"), ("<response>", "</response>")))
_BLOCKS: Final[Mapping[str, Block]] = {
    "think": _THINK,
    "thinking": Block("<thinking>", "</thinking>"),
    "thought": Block("<thought>", "</thought>"),
    "mistral": Block("[THINK]", "[/THINK]"),
    "kimi_vl": Block("◁think▷", "◁/think▷"),
    "minimax_m3": Block("<mm:think>", "</mm:think>"),
    "seed": Block("<seed:think>", "</seed:think>"),
    "longcat": Block("<longcat_think>", "</longcat_think>"),
    "cohere": Block(
        "<|START_THINKING|>",
        "<|END_THINKING|>",
        (("<|START_RESPONSE|>", "<|END_RESPONSE|>"), ("<|START_TEXT|>", "<|END_TEXT|>")),
    ),
    "gemma_4": Block("<|channel>thought\n", "<channel|>"),
    "apertus": Block("<|inner_prefix|>", "<|inner_suffix|>"),
}
_FRAMED: Final = ("harmony", "kimi_k3")

FORMATS: Final[Mapping[str, Form | None]] = {
    "auto": None,
    "none": None,
    **{name: Form((block,)) for name, block in _BLOCKS.items()},
    **{f"{name}_opened": Form((block,), opened="yes") for name, block in _BLOCKS.items()},
    **{name: Form(framed=(name,)) for name in _FRAMED},
    "kimi_k3_opened": Form(framed=("kimi_k3",), opened="yes"),
}
"""What an engine's ``reasoning_format`` may be. ``NAME_opened``: the prompt opens the block."""

_ANY: Final = Form(tuple(_BLOCKS.values()), _FRAMED)
_MODELS: Final[tuple[tuple[str, str, Opened], ...]] = (
    (r"gpt-?oss", "harmony", "no"),
    (r"kimi.*k3", "kimi_k3", "maybe"),
    (r"kimi-?vl", "kimi_vl", "no"),
    (r"kimi.*think", "think", "maybe"),
    (r"deepseek-?r1|deepseek.*distill|deepseek.*reasoner", "think", "maybe"),
    (r"minimax.*m3", "minimax_m3", "maybe"),
    (r"minimax.*m[12]|nemotron|qwq|step-?3|olmo.*think", "think", "maybe"),
    (r"glm-?(?:4\.[7-9]|[5-9])|qwen-?3\.[5-9]|qwen.*thinking", "think", "maybe"),
    (r"exaone-?deep", "thought", "maybe"),
    (
        r"glm|qwen-?3|deepseek|hermes-?4|smollm-?3|exaone-?4|granite|hunyuan|mimo|ernie|olmo|phi-?4.*reason",
        "think",
        "no",
    ),
    (r"magistral|mi[sx]tral|ministral", "mistral", "no"),
    (r"seed", "seed", "no"),
    (r"longcat", "longcat", "no"),
    (r"command|cohere", "cohere", "no"),
    (r"gemma-?4", "gemma_4", "no"),
    (r"apertus", "apertus", "no"),
)
_SWITCHES: Final = ("enable_thinking", "thinking")


def reasoning_form(
    format: str, model: str = "", *, extra: Mapping[str, Any] | None = None, prompt: str | None = None
) -> Form | None:
    """How the reasoning of an answer is told from it; None where nothing is to be split off.

    ``format``: a key of FORMATS. ``auto`` asks the model's name; of a model of no known family, every marker counts
    that the ``prompt`` does not itself speak of. ``extra``: the request's fields beside the API's own, which may turn
    thinking on or off.
    """
    thinks = _thinks(extra or {})
    if format == "none" or (thinks is False and format not in _FRAMED):
        return None
    told = FORMATS[format]
    if told is not None:
        return told
    family, opened = _family(model)
    if not family:
        return _ANY._replace(about=prompt or "")
    if family in _FRAMED:
        return Form(framed=(family,), opened=opened)
    # other families' markers are no less markers, but only its own are opened in its prompt
    others = tuple(block for block in _BLOCKS.values() if block is not _BLOCKS[family])
    return Form((_BLOCKS[family], *others), _FRAMED, "maybe" if thinks and opened == "no" else opened)


@lru_cache(maxsize=256)
def _family(model: str) -> tuple[str, Opened]:
    """Of a model's name, and how its reasoning is opened; empty where none is known."""
    name = model.lower().rsplit("/", 1)[-1]
    return next(((family, opened) for pattern, family, opened in _MODELS if re.search(pattern, name)), ("", "no"))


def written(model: str, reasoning: str) -> str | None:
    """Reasoning as its model has written it before the answer, for an engine that goes on behind it. None where the
    model's family is not known, or frames its answers as well."""
    block = _BLOCKS.get(_family(model)[0])
    return f"{block.opening}\n{reasoning}\n{block.closing}\n\n" if block is not None else None


def _thinks(extra: Mapping[str, Any]) -> bool | None:
    """Whether the request turns thinking on or off; None where it says nothing."""
    arguments = extra.get("chat_template_kwargs")
    for fields in (arguments if isinstance(arguments, Mapping) else {}, extra):
        for switch in _SWITCHES:
            if isinstance(said := fields.get(switch), bool):
                return said
    return None
