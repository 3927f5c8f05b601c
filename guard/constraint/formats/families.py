"""Which parser reads which opening marker, and which family a model speaks.

One opening marker may begin calls of several families (``<tool_call>`` begins four); its parser tells them apart by
what comes next, so a format's name only narrows which markers count. ``auto`` counts them all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping
from typing import Final

from guard.constraint.formats.arguments import Offer
from guard.constraint.formats.cursor import Cursor
from guard.constraint.formats.gemma import function_gemma, gemma4
from guard.constraint.formats.harmony import harmony
from guard.constraint.formats.jsoncalls import Broken, call_list
from guard.constraint.formats.minimax_m3 import minimax_m3
from guard.constraint.formats.pythonic import call_sequence
from guard.constraint.formats.taggedcalls import function_tag, glm_call, invoke_tags
from guard.constraint.formats.tokencalls import cohere_action, cohere_xml, deepseek, kimi_k2, kimi_k3, mistral

Section = Generator[None, None, None]
Reader = Callable[[Cursor, Offer], Section]


def _tool_call(opening: str, closing: str) -> Reader:
    """Hermes, Qwen, MiMo, Seed and GLM between one pair of tags."""

    def read(c: Cursor, offer: Offer) -> Section:
        yield from c.take(opening)
        char = yield from c.space()
        if char in ("{", "["):
            yield from call_list(c, (closing,))
        elif (yield from c.take("<function=")):
            yield from function_tag(c, offer, (closing,))
        elif closing == "</tool_call>":
            yield from glm_call(c, offer)
            return
        else:
            raise Broken("no call after the opening tag", prose=True)
        yield from c.take(closing, skip_space=True)

    return read


def _json(opening: str, *closings: str) -> Reader:
    def read(c: Cursor, offer: Offer) -> Section:
        yield from c.take(opening)
        yield from c.take("<|plugin|>", skip_space=True)
        if (yield from c.space()) not in ("{", "["):
            raise Broken("no call after the opening marker", prose=True)
        yield from call_list(c, closings)
        if closings:
            yield from c.take(*closings, skip_space=True)

    return read


def _function(c: Cursor, offer: Offer) -> Section:
    """A Qwen3-Coder call whose first tag is missing."""
    yield from c.take("<function=")
    named = yield from c.follows(*(f"{name}>" for name in offer.names))
    if not named:
        raise Broken("no offered function", prose=True)
    yield from function_tag(c, offer, ("</tool_call>",))
    yield from c.take("</tool_call>", skip_space=True)


def _bare_invoke(c: Cursor, offer: Offer) -> Section:
    """Invoke elements whose outer tag is missing."""
    if not (yield from c.follows(*(f'<invoke name="{name}"' for name in offer.names))):
        raise Broken("no offered tool", prose=True)
    yield from invoke_tags(c, offer, "<", "</", "</minimax:tool_call>")
    yield from c.take("</minimax:tool_call>", skip_space=True)


def _invoke(opening: str, closing: str) -> Reader:
    def read(c: Cursor, offer: Offer) -> Section:
        yield from c.take(opening)
        yield from invoke_tags(c, offer, "<", "</", closing)
        yield from c.take(closing, skip_space=True)

    return read


def _dsml(c: Cursor, offer: Offer) -> Section:
    yield from c.take("<｜DSML｜")
    gap = yield from c.take(" ")
    name = yield from c.take("function_calls>", "tool_calls>", "calls>")
    if not name:
        raise Broken("no calls after the DSML token")
    closing = f"</｜DSML｜{gap}"
    yield from invoke_tags(c, offer, f"<｜DSML｜{gap}", closing, f"{closing}{name}")
    yield from c.take(f"{closing}{name}", skip_space=True)


def _python_tag(c: Cursor, offer: Offer) -> Section:
    """Llama 3: JSON, or the call of a built-in tool."""
    yield from c.take("<|python_tag|>")
    if (yield from c.space()) in ("{", "["):
        yield from call_list(c)
    else:
        yield from call_sequence(c, offer, "", "")
    yield from c.take("<|eom_id|>", "<|eot_id|>", skip_space=True)


def _python_start(c: Cursor, offer: Offer) -> Section:
    yield from c.take("<|python_start|>")
    yield from c.space()
    yield from call_sequence(c, offer, "[", "]")
    yield from c.take("<|python_end|>", skip_space=True)


def _function_calls(c: Cursor, offer: Offer) -> Section:
    """OLMo 3 writes Python calls between these tags, others invoke elements."""
    yield from c.take("<function_calls>")
    if (yield from c.space()) == "<":
        yield from invoke_tags(c, offer, "<", "</", "</function_calls>")
    else:
        yield from call_sequence(c, offer, "", "")
    yield from c.take("</function_calls>", skip_space=True)


def bare_json(c: Cursor, offer: Offer) -> Section:
    yield from call_list(c)


def bare_python(c: Cursor, offer: Offer) -> Section:
    yield from call_sequence(c, offer, "[", "]")


READERS: Final[dict[str, Reader]] = {
    "<tool_call>": _tool_call("<tool_call>", "</tool_call>"),
    "<seed:tool_call>": _tool_call("<seed:tool_call>", "</seed:tool_call>"),
    "<longcat_tool_call>": _json("<longcat_tool_call>", "</longcat_tool_call>"),
    "<tool_calls>": _json("<tool_calls>", "</tool_calls>"),
    "<|tool_call|>": _json("<|tool_call|>", "<|/tool_call|>"),
    "<|action_start|>": _json("<|action_start|>", "<|action_end|>"),
    "<function=": _function,
    "<function_calls>": _function_calls,
    "<|python_tag|>": _python_tag,
    "<|python_start|>": _python_start,
    "[TOOL_CALLS]": mistral,
    "<｜tool▁calls▁begin｜>": deepseek,
    "<｜tool▁call▁begin｜>": deepseek,
    "<｜DSML｜": _dsml,
    "<|tool_calls_section_begin|>": kimi_k2,
    "<|tool_call_begin|>": kimi_k2,
    "<|open|>": kimi_k3,
    "<|close|>": kimi_k3,
    "<minimax:tool_call>": _invoke("<minimax:tool_call>", "</minimax:tool_call>"),
    '<invoke name="': _bare_invoke,
    "]<]minimax[>[": minimax_m3,
    "<|channel|>": harmony,
    "<|start|>": harmony,
    "<|START_ACTION|>": cohere_action,
    "<cofl:tool_calls>": cohere_xml,
    "<|tool_call>": gemma4,
    "<start_function_call>": function_gemma,
}

_HERMES: Final = ("<tool_call>", "<function=")
FORMATS: Final[Mapping[str, tuple[str, ...]]] = {
    "hermes": _HERMES,
    "qwen_3": _HERMES,
    "qwen_3_coder": _HERMES,
    "qwen_3_5": _HERMES,
    "mimo": _HERMES,
    "exaone": _HERMES,
    "glm_4_5": _HERMES,
    "glm_4_7": _HERMES,
    "llama3": ("<|python_tag|>",),
    "llama4": ("<|python_start|>",),
    "pythonic": ("<|python_start|>", "<function_calls>"),
    "mistral": ("[TOOL_CALLS]",),
    "deepseek_v3": ("<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"),
    "deepseek_v3_1": ("<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"),
    "deepseek_v3_2": ("<｜DSML｜",),
    "deepseek_v4": ("<｜DSML｜",),
    "kimi_k2": ("<|tool_calls_section_begin|>", "<|tool_call_begin|>"),
    "kimi_k3": ("<|open|>", "<|close|>"),
    "minimax": ("<minimax:tool_call>", '<invoke name="', "<tool_calls>"),
    "minimax_m3": ("]<]minimax[>[",),
    "harmony": ("<|channel|>", "<|start|>"),
    "cohere": ("<|START_ACTION|>", "<cofl:tool_calls>"),
    "gemma_4": ("<|tool_call>",),
    "function_gemma": ("<start_function_call>",),
    "granite": ("<|tool_call|>", "<tool_call>"),
    "phi_4": ("<|tool_call|>",),
    "internlm": ("<|action_start|>",),
    "hunyuan": ("<tool_calls>",),
    "seed": ("<seed:tool_call>",),
    "longcat": ("<longcat_tool_call>",),
    "olmo_3": ("<function_calls>",),
    "json": (),
    "auto": tuple(READERS),
}
BARE: Final = frozenset({"auto", "llama3", "llama4", "pythonic", "json"})
"""Formats whose calls may also begin an answer without any marker."""

_MODELS: Final[tuple[tuple[str, str], ...]] = (
    (r"gpt-?oss", "harmony"),
    (r"deepseek.*v?4", "deepseek_v4"),
    (r"deepseek.*v?3\.?2", "deepseek_v3_2"),
    (r"deepseek.*v?3\.?1", "deepseek_v3_1"),
    (r"deepseek.*distill.*llama", "llama3"),
    (r"deepseek", "deepseek_v3"),
    (r"kimi.*k3", "kimi_k3"),
    (r"kimi|moonshot", "kimi_k2"),
    (r"minimax.*m3", "minimax_m3"),
    (r"minimax", "minimax"),
    (r"glm-?(?:4\.[7-9]|[5-9])", "glm_4_7"),
    (r"glm", "glm_4_5"),
    (r"qwen-?3\.?5", "qwen_3_5"),
    (r"qwen-?3.*coder", "qwen_3_coder"),
    (r"qwen|qwq", "qwen_3"),
    (r"mimo", "mimo"),
    (r"exaone", "exaone"),
    (r"hermes|smollm", "hermes"),
    (r"llama-?4", "llama4"),
    (r"llama", "llama3"),
    (r"mi[sx]tral|magistral|devstral|ministral|codestral|pixtral", "mistral"),
    (r"command|cohere|aya", "cohere"),
    (r"function-?gemma", "function_gemma"),
    (r"gemma-?4", "gemma_4"),
    (r"gemma", "pythonic"),
    (r"granite", "granite"),
    (r"phi-?4", "phi_4"),
    (r"internlm", "internlm"),
    (r"hunyuan", "hunyuan"),
    (r"seed", "seed"),
    (r"longcat", "longcat"),
    (r"olmo-?3", "olmo_3"),
)
_TOLD_APART: Final[dict[str, str]] = {
    marker: name
    for name, markers in FORMATS.items()
    if name != "auto"
    for marker in markers
    if sum(marker in other for key, other in FORMATS.items() if key != "auto") == 1
}


def detect_format(model: str = "", marker: str = "") -> str:
    """The format that a model's name or an opening marker stands for; ``auto`` if it stands for none or for several."""
    if marker:
        return _TOLD_APART.get(marker, "auto")
    name = model.lower().rsplit("/", 1)[-1]
    return next((found for pattern, found in _MODELS if re.search(pattern, name)), "auto")
