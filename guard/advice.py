"""What a newcomer can do about an answer that could not be made good: said with the error, in a sentence. Pure."""

from __future__ import annotations

from typing import Final

_STARTED: Final = {
    "vllm": "vLLM makes calls when started with --enable-auto-tool-choice and the --tool-call-parser of its model",
    "sglang": "SGLang makes calls when started with the --tool-call-parser of its model",
    "trtllm": "trtllm-serve makes calls when started with the --tool_parser of its model",
    "llamacpp": "llama-server makes calls when started with --jinja and its model's chat template knows tools",
    "dynamo": "Dynamo makes calls when its worker is started with the --dyn-tool-call-parser of its model",
}
_UNKNOWN: Final = "say what kind of engine it is (its dialect), so that outguard knows what it can do"
_NO_PREFIX: Final = (
    "an engine of the kind {dialect} cannot go on from a begun answer, so outguard could not make the call good"
)
_TRIED: Final = "outguard had the engine go on from the beginning of a call, and it led nowhere"


def advice(cause: str, dialect: str, *, resumes: bool, tried: bool) -> str:
    """Behind an error's message; empty where nothing is known. ``resumes``: whether the engine can go on from a text;
    ``tried``: whether that was done."""
    if cause != "tool.missing_call" and not (tried and cause.startswith("tool.")):
        return ""
    parts = [_TRIED if tried else "" if resumes else _NO_PREFIX.format(dialect=dialect)]
    parts.append(
        _STARTED.get(dialect, "say what kind of engine it is (dialect), so that outguard knows what it can do")
    )
    return "".join(f"; {part}" for part in parts if part)
